"""What `aorta diverge` says: of sides that end early, of itself, of what was refused."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.aorta_cli import aorta

IMPORTS = """import os, signal, time
from aorta.diverge import record
SIDE = os.environ.get("SIDE")
"""
SIDES = ("--bad-set", "SIDE=bad", "--good-set", "SIDE=good")


def program(folder: Path, text: str, name: str = "train.py") -> tuple[str, ...]:
    """The end of a command line that runs it."""
    (folder / name).write_text(IMPORTS + textwrap.dedent(text))
    return "--", sys.executable, name


# -- a side that ends early ------------------------------------------------------------------------

ENDS_AT_FIVE = """
    import aorta_recorder

    for step in range(8):
        record("loss", [1.0 + step])
        if step == 5 and SIDE == "bad":
            {end}
        record("weight", [2.0 + step])
        aorta_recorder.Recorder.current.next_step()
"""


@pytest.mark.parametrize("name", ["train.py", "s22_crash.py"])
def test_a_side_that_ends_early_agrees_as_far_as_both_were_recorded(
    tmp_path: Path, name: str
) -> None:
    raises = ENDS_AT_FIVE.format(end='raise IndexError("index 12 is out of range")')
    command = program(tmp_path, raises, name)
    done = aorta("diverge", *SIDES, *command, cwd=tmp_path)
    assert done.exit_code == 3
    lines = (tmp_path / name).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "raise IndexError" in text)
    ended = f"ended with IndexError: index 12 is out of range at {tmp_path / name}:{line} (exit 1)"
    assert done.stdout.splitlines()[0] == (
        "The two sides agree as far as both were recorded (11 operations, up to step 5); there the "
        f"bad side {ended}."
    )
    assert f"run 1 of the bad side: recorded; {ended}" in done.stderr
    assert "run 1 of the good side: recorded; ended with exit 0" in done.stderr


def test_a_side_that_is_killed_before_its_first_lot_is_written_is_said_to_be_killed(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, ENDS_AT_FIVE.format(end="os.kill(os.getpid(), signal.SIGKILL)"))
    done = aorta("diverge", *SIDES, *command, cwd=tmp_path)
    assert done.exit_code == 3
    assert done.stdout.splitlines()[0] == (
        "Nothing was recorded of the bad side, so there is nothing to compare: a run was "
        "killed (signal 9) before anything was recorded."
    )
    assert "run 1 of the bad side: was killed (signal 9) before anything was" in done.stderr
    assert "recorded;" not in done.stderr.split("good side")[0]


def test_a_side_that_takes_too_long_ran_out_of_time(tmp_path: Path) -> None:
    command = program(tmp_path, "SIDE == 'good' or time.sleep(60)\nrecord('value', [1.0])")
    done = aorta("diverge", *SIDES, "--timeout", "2s", *command, cwd=tmp_path)
    assert done.exit_code == 3
    said = "ran out of time before anything was recorded"
    assert f"run 1 of the bad side: {said}" in done.stderr
    assert f"note: a run of the bad side {said}" in done.stdout
    assert "the bad side ran out of time, the good side ended with exit 0" in done.stdout
    assert "None" not in done.stdout + done.stderr


def test_a_run_that_recorded_nothing_is_not_called_recorded(tmp_path: Path) -> None:
    command = program(tmp_path, "SIDE == 'good' or [][0]\nrecord('value', [1.0])")
    done = aorta("diverge", *SIDES, *command, cwd=tmp_path)
    ended = f"recorded nothing; ended with IndexError: list index out of range at {tmp_path}"
    assert f"run 1 of the bad side: {ended}" in done.stderr
    assert f"note: a run of the bad side {ended}" in done.stdout


def test_the_last_words_of_a_side_hold_no_secret(tmp_path: Path) -> None:
    told = "raise SystemExit('refused: password=hunter2-abc')"
    command = program(tmp_path, f"record('value', [1.0])\nif SIDE == 'bad':\n    {told}")
    done = aorta("diverge", *SIDES, *command, cwd=tmp_path)
    assert "there the bad side ended with exit 1: refused: password=" in done.stdout
    assert "hunter2-abc" not in done.stdout + done.stderr


# -- what was refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--good", "nosuch"), "--good nosuch: "),
        (("--good-mitigations", "nosuch"), "nosuch"),
        (("--executor", "slurm", "--good", "nosuch"), "--good nosuch: "),
    ],
)
@pytest.mark.parametrize("in_git", [True, False])
def test_what_is_refused_leaves_nothing_to_resume(
    tmp_path: Path, words: tuple[str, ...], said: str, in_git: bool
) -> None:
    command = program(tmp_path, "record('value', [1.0])")
    if in_git:
        subprocess.run(("git", "init", "--quiet"), cwd=tmp_path, check=True)
    before = sorted(tmp_path.rglob("*"))
    done = aorta("diverge", *words, *command, cwd=tmp_path)
    assert done.exit_code == 2, done
    assert said in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    assert "no unfinished run to resume" in aorta("diverge", "--resume", cwd=tmp_path).stderr
