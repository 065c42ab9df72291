"""The services of the tests are private, real, and gone when their owner is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.aorta_cli import ROOT
from support.processes import processes_under
from support.services import requirements
from support.services.engines import DockerEngine
from support.services.guarded import Guarded, private_directory
from support.services.images import Rootfs
from support.services.registry import Registry
from support.waiting import eventually

ABSENT = requirements.Component("a unicorn", ("no-such-command",), ("unicorn",))


def test_a_stopped_service_leaves_no_process_and_no_directory() -> None:
    directory = private_directory("test")
    kept = Guarded(directory, ("sh", "-c", f"echo up; sleep 600 # {directory}"))
    kept.wait_until(lambda: "up" in kept.log, "sh")
    assert processes_under(directory)
    kept.stop()
    kept.stop()
    assert not processes_under(directory)
    assert not directory.exists()


STARTS = {
    "docker": "from support.services.engines import start_docker as start\n",
    "slurm": "from support.services.slurm import start_slurm as start\n",
    "sleep": (
        "from support.services.guarded import Guarded, private_directory\n"
        "def start():\n"
        "    place = private_directory('sleep')\n"
        "    kept = Guarded(place, ('sh', '-c', f'echo up; sleep 600 # {place}'))\n"
        "    kept.wait_until(lambda: 'up' in kept.log, 'sleep')\n"
        "    return kept\n"
    ),
}


@pytest.mark.parametrize(
    ("service", "number"),
    [
        ("sleep", signal.SIGINT),
        ("sleep", signal.SIGTERM),
        pytest.param("docker", signal.SIGKILL, marks=pytest.mark.xdist_group("docker")),
        pytest.param("slurm", signal.SIGKILL, marks=pytest.mark.xdist_group("slurm")),
    ],
)
def test_a_service_dies_with_the_process_that_started_it(
    service: str, number: signal.Signals
) -> None:
    needed = {"docker": [requirements.DOCKER], "slurm": [requirements.SLURM]}
    requirements.demand(*needed.get(service, []))
    program = (
        f"import time\n{STARTS[service]}print(start().directory, flush=True)\ntime.sleep(600)\n"
    )
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    with subprocess.Popen(
        (sys.executable, "-c", program),
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        told = owner.stdout.readline().strip()
        assert told, "it did not start"
        directory = Path(told)
        assert processes_under(directory)
        owner.send_signal(number)
    assert eventually(lambda: not processes_under(directory) and not directory.exists())


@pytest.mark.xdist_group("docker")
def test_the_python_image_runs_python_with_its_library(
    docker_engine: DockerEngine, busybox_python: Rootfs
) -> None:
    image = docker_engine.import_image(busybox_python, "aorta-test/python:1")
    script = "import ctypes, json, ssl, subprocess; print(json.dumps(1))"
    done = docker_engine("run", "--rm", "--network=none", image, "python3", "-c", script)
    assert done.stdout == "1\n"


@pytest.mark.xdist_group("docker")
def test_the_registry_keeps_what_is_pushed(
    docker_engine: DockerEngine, oci_registry: Registry, busybox: Rootfs
) -> None:
    reference = docker_engine.import_image(busybox, f"{oci_registry.address}/kept/box:1")
    docker_engine("push", reference)
    assert b'"kept/box"' in oci_registry.get("/v2/_catalog")


def test_a_missing_component_names_the_command_that_installs_it() -> None:
    reason = requirements.why_not(ABSENT)
    assert reason == (
        "a unicorn is missing (no-such-command); "
        "install it with: apt-get install --yes --no-install-recommends unicorn"
    )


@pytest.mark.parametrize(
    ("user", "in_ci", "ends_as"),
    [
        (0, False, pytest.fail.Exception),
        (0, True, pytest.fail.Exception),
        (1000, True, pytest.fail.Exception),
        (1000, False, pytest.skip.Exception),
    ],
)
def test_only_a_plain_user_outside_ci_may_go_without_a_component(
    monkeypatch: pytest.MonkeyPatch, user: int, in_ci: bool, ends_as: type[BaseException]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("CI", "1") if in_ci else monkeypatch.delenv("CI", raising=False)
    with pytest.raises(ends_as, match="a unicorn is missing"):
        requirements.demand(ABSENT)
