"""One process a run directory, and the others are told which."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError, ResumeError
from aorta.engine.rundir import RunLock
from aorta.runtimes.owner import Owner
from support.waiting import patience

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def python(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", f"import os\nfrom pathlib import Path\n{code}"],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_second_one_is_refused_while_the_first_lives_and_told_who_that_is(path: Path) -> None:
    RunLock(path).take()
    with pytest.raises(ResumeError, match=f"process {os.getpid()} on .* is running this already"):
        RunLock(path).take()


def test_released_it_can_be_taken_again_and_names_nobody(path: Path) -> None:
    RunLock(path).take().release()
    assert path.read_text() == ""
    RunLock(path).take().release()


def test_the_lock_of_a_killed_process_is_nobodys(path: Path) -> None:
    code = (
        "from aorta.engine.rundir import RunLock\n"
        f"RunLock(Path({str(path)!r})).take(); os.kill(os.getpid(), 9)"
    )
    python(code).communicate()
    assert Owner.from_label(path.read_text()) is not None
    RunLock(path).take()
    assert path.read_text() == Owner.of_this_process().label


@pytest.mark.parametrize("said", ["", "elsewh", "elsewhere/b/n/1/5"])
def test_what_stands_in_the_file_keeps_nobody_out(path: Path, said: str) -> None:
    path.write_text(said)
    RunLock(path).take()
    assert path.read_text() == Owner.of_this_process().label


def test_a_holder_that_has_not_signed_yet_is_refused_all_the_same(path: Path) -> None:
    RunLock(path).take()
    path.write_text("")
    with pytest.raises(ResumeError, match="another process is running this already"):
        RunLock(path).take()


def test_of_many_that_race_for_it_one_at_a_time_has_it(path: Path) -> None:
    """Each that gets it makes a file that must not be there, and takes it away again."""
    code = f"""
from aorta.core.errors import ResumeError
from aorta.engine.rundir import RunLock
inside, got = Path({str(path)!r} + ".inside"), 0
while got < 50:
    lock = RunLock(Path({str(path)!r}))
    try:
        lock.take()
    except ResumeError:
        continue
    inside.touch(exist_ok=False)
    inside.unlink()
    lock.release()
    got += 1
print(got)
"""
    racers = [python(code) for _ in range(3)]
    assert [racer.communicate(timeout=patience())[0] for racer in racers] == ["50\n"] * 3


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot lock the run directory"):
        RunLock(tmp_path / "missing" / "lock").take()


def test_the_lock_file_is_no_program_and_is_released_once(path: Path) -> None:
    lock = RunLock(path).take()
    assert not path.stat().st_mode & 0o111
    lock.release()
    with RunLockOfAnother(path):
        lock.release()
        assert path.read_text() == Owner.of_this_process().label


class RunLockOfAnother:
    """Taken where the handle of the one before is free again."""

    def __init__(self, path: Path) -> None:
        self._lock = RunLock(path)

    def __enter__(self) -> None:
        self._lock.take()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
