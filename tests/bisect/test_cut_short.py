"""Bisections in containers that are killed or interrupted: they go on where they were, and leave nothing behind."""

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import aorta, start_aorta
from support.nightly import World, day
from support.processes import wait_for_file
from support.services.engines import DockerEngine
from support.services.registry import Registry
from support.waiting import patience

pytestmark = pytest.mark.xdist_group("docker")

DAYS = [day(n) for n in range(3)]
FIRST_BAD = day(2)

# Every trial writes down what it is a trial of; the one that is told to waits, so that it can be cut short.
TEST = """
echo "$(cat /etc/nightly) $(cat /opt/jax/number)" >> /log/ran
test -e /log/go || test $(wc -l < /log/ran) -ne $WAIT_AT || { touch /log/waiting; sleep 300; }
test-jax.sh
"""


@pytest.fixture(scope="module")
def template(oci_registry: Registry, world: World) -> str:
    return world.publish(oci_registry, "nightly/cut", DAYS, first_bad=FIRST_BAD)


class CutShort:
    """One bisection that stops in a chosen trial."""

    def __init__(self, tmp_path: Path, engine: DockerEngine, template: str, wait_at: int) -> None:
        self.tmp_path, self.engine, self.out = tmp_path, engine, tmp_path / "out"
        self.log = tmp_path / "log"
        self.log.mkdir()
        self.words: list[str | Path] = [
            "--container=jax",
            f"--container-url-template={template}",
            "--json",
            "--no-cache",
            f"--extra-env=WAIT_AT={wait_at}",
            "-v",
            f"{self.log}:/log",
            "--",
            "sh",
            "-c",
            TEST,
        ]

    def start(self) -> "subprocess.Popen[bytes]":
        running = start_aorta(
            "bisect",
            "--output-prefix",
            self.out,
            *self.words,
            cwd=self.tmp_path,
            env=self.engine.environ,
        )
        wait_for_file(self.log / "waiting")
        return running

    def resume(self) -> dict[str, Any]:
        (self.log / "go").touch()
        done = aorta(
            "bisect",
            "--resume",
            self.out,
            *self.words,
            cwd=self.tmp_path,
            env=self.engine.environ,
            timeout=300,
        )
        result: dict[str, Any] = done.json()
        assert result.get("status") == "found", done.stderr
        return result

    @property
    def ran(self) -> list[str]:
        return (self.log / "ran").read_text().splitlines()

    def left_behind(self) -> list[str]:
        tags = self.engine("images", "--format={{.Repository}}:{{.Tag}}").stdout.split()
        return [*self.engine.containers(), *(tag for tag in tags if "aorta-bisect" in tag)]


# The third trial is of a day, the tenth of a version set inside a container.
@pytest.mark.parametrize("wait_at", [3, 10], ids=["days", "versions"])
def test_killed_among_containers_it_goes_on_and_runs_no_trial_twice(
    docker_engine: DockerEngine, template: str, world: World, tmp_path: Path, wait_at: int
) -> None:
    cut = CutShort(tmp_path, docker_engine, template, wait_at)
    running = cut.start()
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    before = Counter(cut.ran)
    result = cut.resume()
    assert result["culprits"][0]["bad"] == world.culprit
    assert result["resumed_trials"] == wait_at - 1
    assert len(cut.ran) == result["tests"] + 1  # and the one cut short
    assert sum(before.values()) == wait_at
    assert cut.left_behind() == []
    if wait_at > 3:  # once is enough: a finished run runs nothing again
        assert cut.resume()["culprits"] == result["culprits"]
        assert len(cut.ran) == result["tests"] + 1


@pytest.mark.parametrize("wait_at", [3, 10], ids=["days", "versions"])
def test_interrupted_among_containers_it_says_what_it_knows_and_leaves_nothing(
    docker_engine: DockerEngine, template: str, tmp_path: Path, wait_at: int
) -> None:
    cut = CutShort(tmp_path, docker_engine, template, wait_at)
    running = cut.start()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=patience())
    assert running.returncode == 130, err
    assert json.loads(out)["status"] == "partial"
    assert json.loads((cut.out / "result.json").read_text())["status"] == "partial"
    assert b"--resume" in err
    assert cut.left_behind() == []


def test_interrupted_in_a_build_it_leaves_neither_container_nor_image(
    docker_engine: DockerEngine, template: str, tmp_path: Path
) -> None:
    cut = CutShort(tmp_path, docker_engine, template, 0)
    spec = tmp_path / "bisect.yaml"
    spec.write_text(
        "packages:\n"
        "  - {name: xla, path: /opt/xla}\n"
        "  - {name: jax, path: /opt/jax, build: 'touch /log/waiting; sleep 300'}\n"
    )
    cut.words = ["--spec", spec, *cut.words]
    running = cut.start()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=patience())
    assert running.returncode == 130, err
    assert cut.left_behind() == []


def test_stopped_between_the_days_and_the_versions_it_says_which_containers_differ(
    docker_engine: DockerEngine, template: str, tmp_path: Path
) -> None:
    spec = tmp_path / "bisect.yaml"
    spec.write_text(
        "packages:\n"
        "  - {name: jax, path: /opt/jax, good: 'abcdef6789012345678901234567890123456789',\n"
        "     remote: 'https://user:hunter2@127.0.0.1:1/none'}\n"
    )
    cut = CutShort(tmp_path, docker_engine, template, 0)
    words = ("--output-prefix", cut.out, "--spec", spec, *cut.words)
    done = aorta("bisect", *words, cwd=tmp_path, env=docker_engine.environ, timeout=300)
    assert done.exit_code == 5
    assert "cannot fetch the commits" in done.stderr
    assert "hunter2" not in done.stderr
    partial = json.loads((cut.out / "result.json").read_text())
    assert partial["status"] == "partial"
    assert partial["containers"]["first_bad"].endswith(FIRST_BAD)
    assert cut.left_behind() == []
