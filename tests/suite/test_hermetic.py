"""A run of the suite is the same wherever it is started, and one dead service costs one test."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

from support.aorta_cli import ROOT
from support.services.ports import free_ports
from support.waiting import patience

SERVICE = """
import pytest
from support.services.guarded import Guarded, private_directory
from support.services import health
from support.processes import is_running
import os, signal, time

@pytest.fixture(scope="session")
def service():
    kept = Guarded(private_directory("t"), ("sh", "-c", "echo up; exec sleep 600"))
    kept.wait_until(lambda: "up" in kept.log, "a small service")
    yield kept
    kept.stop()

@pytest.fixture(autouse=True)
def living(request):
    health.revive(request.node.name)

def pid(service):
    return int((service.directory / "service.pid").read_text())

def test_kills(service):
    os.kill(pid(service), signal.SIGKILL)
    while is_running(pid(service)):
        time.sleep(0.01)

def test_next(service):
    assert is_running(pid(service))

def test_last(service):
    assert is_running(pid(service))
"""


def run_of(folder: Path, tests: str, *options: str, before: str = "") -> str:
    """What a run of this one file says; it has the base folders of a machine of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    plugins = ("support.hermetic", "pytest_timeout", "xdist.plugin", "no:cacheprovider")
    words = [sys.executable, "-m", "pytest", *(word for name in plugins for word in ("-p", name))]
    done = subprocess.run(
        ["sh", "-c", f'{before} exec "$@"', "sh", *words, *options],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests"))),
            "TMPDIR": str(folder / "tmp"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=patience(),
        check=False,
    )
    return f"{done.stdout}{done.stderr}\nexit code {done.returncode}"


def test_children_of_a_run_in_the_background_hear_ctrl_c_and_a_hang_up(tmp_path: Path) -> None:
    tests = (
        "import os, signal, subprocess, sys\n"
        "def test_child():\n"
        "    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):\n"
        "        child = subprocess.Popen(['sleep', '600'])\n"
        "        child.send_signal(number)\n"
        "        assert child.wait() == -number\n"
        "def test_the_run_itself_stays_deaf():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
    )
    for options in ((), ("-n", "1")):
        assert "2 passed" in run_of(tmp_path, tests, *options, before="trap '' INT QUIT HUP;")


def test_the_base_folder_is_the_runs_own_and_is_kept_only_after_a_failure(tmp_path: Path) -> None:
    tests = "def test_it(tmp_path): (tmp_path / 'x').write_text(''); assert {}\n"
    assert "1 passed" in run_of(tmp_path, tests.format("True"))
    assert list((tmp_path / "tmp").iterdir()) == []
    said = run_of(tmp_path, tests.format("False"))
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"what the tests wrote is kept in {kept}" in said
    assert list(kept.rglob("x"))


def test_a_complaint_of_other_peoples_code_after_the_last_test_fails_nothing(
    tmp_path: Path,
) -> None:
    tests = (
        "import os, warnings\n"
        "held = []\n"
        "def test_it():\n"
        "    held.append(os.scandir('/'))\n"
        "    next(held[0])\n"
    )
    plugin = "def pytest_unconfigure():\n    import test_it; test_it.held.clear()\n"
    (tmp_path / "conftest.py").write_text(plugin)
    said = run_of(tmp_path, tests)
    assert "1 passed" in said
    assert said.endswith("exit code 0"), said


def test_what_a_test_leaves_open_fails_that_test_and_no_other(tmp_path: Path) -> None:
    tests = (
        "def test_leaves():\n"
        "    ring = [open('/dev/null')]\n"
        "    ring.append(ring)\n"
        "def test_innocent():\n"
        "    pass\n"
    )
    said = run_of(tmp_path, tests)
    assert "ERROR at teardown of test_leaves" in said, said
    assert "2 passed, 1 error" in said


def test_a_service_that_died_is_there_again_for_the_next_test_and_that_is_said_once(
    tmp_path: Path,
) -> None:
    for options in ((), ("-n", "1")):
        said = run_of(tmp_path, SERVICE, *options)
        assert "3 passed" in said, said
        assert said.count("a small service had died before test_next") == 1, said


def test_no_port_is_given_to_two_processes_at_once() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    program = "from support.services.ports import _claimed; import sys\n"
    program += "sys.exit(any(_claimed(int(port)) for port in sys.argv[1:]))"
    other = subprocess.run(
        (sys.executable, "-c", program, *map(str, ports)),
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        check=False,
    )
    assert other.returncode == 0


def test_an_example_may_take_as_long_as_a_busy_machine_makes_it() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
