"""The probe where there is nothing but a Python: isolated on this machine, and inside a real
container.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aorta.probe.snapshot import probe_argv, probe_mount
from support.aorta_cli import ROOT
from support.services.engines import DockerEngine
from support.services.images import Rootfs
from support.waiting import patience

# Run with -I and -S: no PYTHONPATH, no site-packages. The source is all that is added to the
# standard library.
_ALONE = f"""
import sys
sys.path.append({str(ROOT / "src")!r})
from aorta.probe.__main__ import main
code = main(sys.argv[1:])
outside = [name for name in sys.modules if name.partition(".")[0] not in (*sys.stdlib_module_names, "aorta", "__main__")]
print(sorted(outside), file=sys.stderr)
sys.exit(code)
"""


def probe_alone(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-I", "-S", "-B", "-c", _ALONE, *map(str, arguments)),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(),
    )


def test_the_standard_library_is_all_it_needs(tmp_path: Path) -> None:
    done = probe_alone(cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    snapshot = json.loads(done.stdout)
    assert snapshot["schema"] == "aorta.env/1"
    assert snapshot["packages"] == {}
    assert "pytorch_version: torch is not installed for this Python" in snapshot["partial_reasons"]
    assert done.stderr.splitlines() == ["[]"]
    assert list(tmp_path.iterdir()) == []


def test_it_takes_no_arguments(tmp_path: Path) -> None:
    done = probe_alone("a", cwd=tmp_path)
    assert done.returncode == 2
    assert "usage:" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_prints_what_the_command_line_writes(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    texts = [
        subprocess.run(
            (sys.executable, "-m", *command),
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for command in (("aorta.probe",), ("aorta", "env", "probe", "-o", "-"))
    ]
    alone, whole = ([line for line in t.splitlines() if "captured_at" not in line] for t in texts)
    assert alone == whole


def test_another_environment_is_not_shown_what_is_installed_beside_us(tmp_path: Path) -> None:
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"), check=True)
    done = subprocess.run(
        probe_argv(mounted=False),
        env={"PATH": f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    snapshot = json.loads(done.stdout)
    assert snapshot["runtime_context"]["venv_path"] == str(tmp_path / "venv")
    assert snapshot["packages"] == {}


@pytest.mark.xdist_group("docker")
def test_a_real_container_is_described_from_its_inside(
    docker_engine: DockerEngine, busybox_python: Rootfs
) -> None:
    image = docker_engine.import_image(
        busybox_python, "aorta-test/probe:1", ["ENV NCCL_ALGO=Tree PATH=/usr/bin:/bin"]
    )
    done = docker_engine(
        "run",
        "--rm",
        *docker_engine.options,
        f"--volume={probe_mount()}",
        "--env=AORTA_DOCKER_IMAGE=aorta-test/probe:1",
        "--env=HSA_XNACK=1",
        image,
        *probe_argv(),
    )
    snapshot = json.loads(done.stdout)
    assert snapshot["runtime_context"]["type"] == "docker"
    assert snapshot["docker"]["image"] == "aorta-test/probe:1"
    assert snapshot["env_vars"]["NCCL_ALGO"] == "Tree"
    assert snapshot["env_vars"]["HSA_XNACK"] == "1"
    assert snapshot["packages"] == {}
    assert snapshot["host"]["hostname"] != os.uname().nodename
