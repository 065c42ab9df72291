"""One process a run directory."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aorta.core.errors import ResumeError
from aorta.engine.rundir import RunLock
from aorta.runtimes.owner import Owner


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_a_second_process_is_refused_while_the_first_lives(path: Path) -> None:
    RunLock(path).take()
    with pytest.raises(ResumeError, match=f"process {os.getpid()} on .* is running this already"):
        RunLock(path).take()


def test_released_it_can_be_taken_again(path: Path) -> None:
    RunLock(path).take().release()
    RunLock(path).take().release()
    assert not path.exists()


def test_the_lock_of_a_killed_process_is_taken_over(path: Path) -> None:
    code = (
        "import os; from pathlib import Path; from aorta.engine.rundir import RunLock;"
        f"RunLock(Path({str(path)!r})).take(); os.kill(os.getpid(), 9)"
    )
    source = str(Path(__file__).parents[2] / "src")
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source}, check=False
    )
    assert path.exists()
    RunLock(path).take()
    assert path.read_text() == Owner.of_this_process().label


def test_a_recycled_pid_does_not_keep_a_lock(path: Path) -> None:
    path.write_text(replace(Owner.of_this_process(), started="1").label)
    RunLock(path).take()
    assert path.read_text() == Owner.of_this_process().label


def test_a_lock_of_another_host_is_refused(path: Path) -> None:
    path.write_text(replace(Owner.of_this_process(), host="elsewhere", pid=1).label)
    with pytest.raises(ResumeError, match="process 1 on elsewhere is running this already"):
        RunLock(path).take()


def test_a_torn_lock_is_nobodys(path: Path) -> None:
    path.write_text("elsewh")
    RunLock(path).take()
    assert path.read_text() == Owner.of_this_process().label
