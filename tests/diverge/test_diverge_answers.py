"""What `aorta diverge` says: of sides that end early, of itself, of what was refused."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.aorta_cli import COMMAND, aorta, environ

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
        "Nothing was found to differ as far as both sides were recorded (11 operations, up to step 5); there the "
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
    assert f"the bad side {said}, the good side ended with exit 0" in done.stdout
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


@pytest.mark.parametrize("hidden", [".aorta/request.json", ".aorta/journal.jsonl", ".aorta"])
def test_of_a_run_that_may_not_be_read_that_is_said(tmp_path: Path, hidden: str) -> None:
    command = program(tmp_path, "record('value', [1.0])")
    assert aorta("diverge", "-q", "--output", tmp_path / "out", *command, cwd=tmp_path)
    (run_dir,) = (tmp_path / "out").glob("2*")
    (run_dir / hidden).chmod(0)
    capabilities = "-dac_override,-dac_read_search"  # by which root reads everything
    as_a_user = ("setpriv", "--bounding-set", capabilities, "--inh-caps", capabilities)
    done = subprocess.run(
        (*(as_a_user if os.geteuid() == 0 else ()), *COMMAND, "diverge", "--resume", str(run_dir)),
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    (run_dir / hidden).chmod(0o700)
    assert done.returncode in {2, 5}
    assert f"{run_dir}" in done.stderr
    assert done.stderr.endswith("Permission denied\n")
    assert len(done.stderr.splitlines()) == 1


# -- what the sides are ----------------------------------------------------------------------------


def test_the_answer_and_the_page_say_what_ran_and_how_the_sides_differ(tmp_path: Path) -> None:
    command = program(tmp_path, "record('value', [2.0 if SIDE == 'bad' else 1.0])")
    sides = ("--bad-set", "SIDE=bad", "--good-set", "SIDE=good")
    done = aorta("diverge", *sides, "--output", "out", *command, "--lr", "0.1", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert f"  command: {sys.executable} train.py --lr 0.1" in lines
    assert {"  bad: SIDE=bad", "  good: SIDE=good"} < {*lines}
    (run_dir,) = (tmp_path / "out").glob("2*")
    assert aorta("report", run_dir).exit_code == 0
    page = (run_dir / "report.html").read_text()
    assert "train.py --lr 0.1" in page
    assert "good: SIDE=good" in page


def test_a_side_is_its_mitigations_and_its_precision(tmp_path: Path) -> None:
    command = program(tmp_path, "")
    words = ("--dry-run", "--good-mitigations", "omp_one_thread", "--good-dtype", "float64")
    said = aorta("diverge", *words, "--steps", "0:3", *command, cwd=tmp_path).stderr
    assert "  bad    as it is" in said
    assert (
        "  good   dtype float64, OMP_NUM_THREADS=1 MKL_NUM_THREADS=1, by mitigation omp_one_thread"
        in said
    )
    assert "  steps  0 to 3 are recorded" in said


def test_no_secret_of_a_side_or_of_its_command_is_shown(tmp_path: Path) -> None:
    command = program(tmp_path, "record('value', [2.0 if SIDE == 'bad' else 1.0])")
    secret = "hf_" + "aB3dE6gH9j" * 3 + "kLmN"
    sides = ("--bad-set", "SIDE=bad", "--bad-set", f"HF_TOKEN={secret}", "--good-set", "A=1")
    words = ("diverge", *sides, *command, "--token", secret)
    for done in (aorta(*words, cwd=tmp_path), aorta("diverge", "--dry-run", *words[1:])):
        assert "SIDE=bad HF_TOKEN=<redacted>" in done.stdout + done.stderr
        assert "train.py --token" in done.stdout + done.stderr
        assert secret not in done.stdout + done.stderr
    (run_dir,) = (tmp_path / "diverge").glob("2*")
    assert secret not in (run_dir / "result.json").read_text()


def test_two_equal_sides_are_warned_of(tmp_path: Path) -> None:
    command = program(tmp_path, "record('value', [1.0])")
    equal = ("diverge", "--bad-set", "A=1", "--good-set", "A=1")
    done = aorta(*equal, *command, cwd=tmp_path)
    warning = "both sides are the same: only what the program does by chance is compared"
    assert warning in done.stderr.splitlines()[0]
    assert f"  note: {warning}" in done.stdout.splitlines()
    assert warning in aorta(*equal, "--dry-run", *command, cwd=tmp_path).stderr
    for others in (("--good-set", "B=1"), ("--good-dtype", "float64"), ("--between-ranks",)):
        assert warning not in aorta("diverge", "--dry-run", *others, *command, cwd=tmp_path).stderr


def test_without_a_good_side_no_word_is_said_of_two(tmp_path: Path) -> None:
    command = program(tmp_path, "record('pid', [float(os.getpid())] * 3)")
    said = aorta("diverge", *command, cwd=tmp_path).stdout
    assert said.splitlines()[0] == "The program does not repeat its own numbers."
    assert "the two sides" not in said
    assert "bad:" not in said


# -- what is named ---------------------------------------------------------------------------------


def test_of_a_value_that_is_recorded_in_a_loop_it_is_said_which_call_it_was(tmp_path: Path) -> None:
    text = """
        for turn in range(30):
            record("position", [1.0 + turn + (SIDE == "bad" and turn >= 20)])
        record("energy", [float("nan")])
    """
    said = aorta("diverge", *SIDES, *program(tmp_path, text), cwd=tmp_path).stdout
    assert "  record::position, call 21 (forward) at" in said
    assert "first NaN or infinity: record::energy at" in said  # there is no other of that name


def test_of_an_operation_with_equal_inputs_it_is_said_that_other_numbers_are_not_recorded(
    tmp_path: Path,
) -> None:
    text = """
        import torch
        values = torch.ones(64)
        values * (0.25 if SIDE == "bad" else 1.0)
    """
    said = aorta("diverge", *SIDES, *program(tmp_path, text), cwd=tmp_path).stdout
    assert "aten::mul (forward)" in said
    assert "its inputs differ by 0, and other arguments are not recorded" in said


def test_between_ranks_only_gradients_and_weights_are_said_to_be_alike(tmp_path: Path) -> None:
    text = """
        import subprocess, sys
        if "RANK" not in os.environ:
            ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": r}) for r in "01"]
            raise SystemExit(max(rank.wait() for rank in ranks))
        import aorta_recorder
        recorder = aorta_recorder.Recorder.current
        for op, value in (("aten::mul", float(os.environ["RANK"])), ("grad::w", 1.0), ("param::w", 2.0)):
            recorder.emit_numbers(recorder.head(op, ("o", "", "train.py", 1)), [value], 1)
    """
    done = aorta("diverge", "--between-ranks", *program(tmp_path, text), cwd=tmp_path)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == (
        "No gradient or weight differs between the ranks (2 compared; nothing else is)."
    )


def test_the_page_shows_the_line_that_is_named_and_a_shared_one_does_not(tmp_path: Path) -> None:
    text = """
        value = 2.0 if SIDE == "bad" else 1.0
        record("value", [value * len("marked")])
    """
    aorta("diverge", *SIDES, "--output", tmp_path / "out", *program(tmp_path, text), cwd=tmp_path)
    (run_dir,) = (tmp_path / "out").glob("2*")
    line = "record(&quot;value&quot;, [value * len(&quot;marked&quot;)])"
    pages = []
    for more in ((), ("--share",)):
        assert aorta("report", run_dir, *more).exit_code == 0
        pages.append((run_dir / "report.html").read_text())
    assert line in pages[0]
    assert "value * len" not in pages[1]
    (tmp_path / "train.py").unlink()
    assert aorta("report", run_dir).exit_code == 0
    assert line not in (run_dir / "report.html").read_text()
