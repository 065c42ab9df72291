"""Whatever ended a solve, going on with it never comes to less than what was there, and in the end
to what an uninterrupted one says.
"""

import itertools
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.aorta_cli import aorta, start_aorta
from support.waiting import patience, wait_until

TRAIN = """\
import argparse, os

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--steps", type=int)
given = parser.parse_args()
rows = [open(os.path.join(given.data, name)).read() for name in sorted(os.listdir(given.data))]
for step in range(given.steps):
    if step >= 17 and "row2" in rows:
        raise RuntimeError(f"a bad row at step {step}")
"""
COMMAND = ("--", "python", "train.py", "--data", "rows", "--steps", "100")
QUIET = ("--json", "-q")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "rows").mkdir()
    for number in range(4):
        (tmp_path / "rows" / f"s{number}.txt").write_text(f"row{number}")
    return tmp_path


def sizes(document: dict[str, Any]) -> dict[str, float]:
    """What is left of each axis, as large as can be where nothing is known."""
    axes = (document["reproducer"] or {"axes": []})["axes"]
    return {"DATA": 4, "STEPS": 100, **{axis["name"]: axis["final"] for axis in axes}}


def assert_nothing_is_lost(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name, size in sizes(before).items():
        assert sizes(after)[name] <= size, name
    assert before["reproducer"] is None or after["reproducer"] is not None
    assert before["failure"] is None or after["failure"] is not None
    assert before["cure"] is None or after["cure"] is not None
    assert after["trials"] >= before["trials"]
    if before["reproducer"] is not None and before["bundle"] is not None:
        with tarfile.open(after["bundle"]["path"]) as packed:
            names = packed.getnames()
        assert any(name.endswith("shrunken/run_repro.sh") for name in names)


def gone_on_with(place: Path, document: dict[str, Any], *more: str) -> dict[str, Any]:
    """By the command that it says itself."""
    (again,) = [said for said in document["next"] if "--resume" in said]
    done = aorta(*again.split()[1:], *more, *QUIET, cwd=place)
    assert done.exit_code in {0, 4}, done.stderr
    found: dict[str, Any] = done.json()
    assert (done.exit_code == 4) == (found["status"] == "partial")
    assert_nothing_is_lost(document, found)
    return found


def to_its_end(place: Path, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything that going on with it says, until it says that there is nothing more."""
    for _ in range(40):
        if not any("--resume" in said for said in document["next"]):
            return
        document = gone_on_with(place, document)
        yield document
    raise AssertionError("it never ends")


def assert_complete(document: dict[str, Any]) -> None:
    assert document["status"] == "partly"
    assert sizes(document) == {"DATA": 1, "STEPS": 18}
    assert document["reproducer"]["elsewhere"] == {"reproduced": 1, "of": 1}
    assert [row["status"] for row in document["stages"] if row["name"] == "reduce"] == ["done"]
    names = [row["name"] for row in document["stages"]]
    assert len(names) == len(set(names))
    assert "source" not in names, "a last resort, where nothing else was reduced"


@pytest.mark.parametrize("most", [3, 12])
def test_a_budget_of_trials_is_given_once_more_with_every_resume(place: Path, most: int) -> None:
    done = aorta("solve", "--max-trials", str(most), *QUIET, *COMMAND, cwd=place)
    first = done.json()
    assert first["trials"] == most
    found = [first, *to_its_end(place, first)]
    for before, after in itertools.pairwise(found):
        assert before["trials"] <= after["trials"] <= before["trials"] + most
    assert_complete(found[-1])


def test_a_budget_of_time_is_given_once_more_with_every_resume(place: Path) -> None:
    budget = f"{patience(4):.0f}s"
    slow = "import time\ntime.sleep(0.4)\n"
    (place / "train.py").write_text(slow + TRAIN)
    first = aorta("solve", "--budget", budget, *QUIET, *COMMAND, cwd=place).json()
    assert any(row["status"] == "budget" for row in first["stages"])
    *_, last = to_its_end(place, first)
    assert_complete(last)


def test_without_a_trial_left_everything_stays_as_it_was(place: Path) -> None:
    first = aorta("solve", "--max-trials", "12", *QUIET, *COMMAND, cwd=place).json()
    assert sizes(first)["DATA"] == 1
    again = gone_on_with(place, first, "--max-trials", "12")
    assert again["reproducer"] == first["reproducer"]
    assert [row["trials"] for row in again["stages"]] == [row["trials"] for row in first["stages"]]


def lines_of(place: Path, name: str) -> int:
    return sum(file.read_bytes().count(b"\n") for file in place.glob(f"solve/*/.aorta/{name}"))


def ended_when(place: Path, number: int, by: signal.Signals, lines: int, file: str) -> bool:
    """Start or go on with it, and end it when so many lines are there. False: it ended by itself."""
    words = ("--resume",) if number else COMMAND
    process = start_aorta("solve", *QUIET, *words, cwd=place)
    wait_until(lambda: lines_of(place, file) >= lines or process.poll() is not None, f"{file}")
    ended = process.poll() is None
    if ended:
        os.kill(process.pid, by)
    process.communicate(timeout=patience())
    return ended


def found_in(place: Path) -> dict[str, Any]:
    (run_dir,) = place.glob("solve/2*")
    path = run_dir / "solve.json"
    nothing = dict.fromkeys(("reproducer", "failure", "cure", "bundle"))
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else nothing
    return {"trials": 0, **found}


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_ended_after_every_stage_it_comes_to_the_same_answer(
    place: Path, by: signal.Signals
) -> None:
    before, last = None, False
    for number in range(8):  # stages of a whole one
        last = not ended_when(place, number, by, number + 1, "stages.jsonl")
        found = found_in(place)
        if before is not None:
            assert_nothing_is_lost(before, found)
        before = found
        if last:
            break
    (run_dir,) = place.glob("solve/2*")
    done = aorta("solve", "--resume", run_dir, *QUIET, cwd=place)
    assert done.exit_code == 0, done.stderr
    assert before is not None
    assert_nothing_is_lost(before, done.json())
    assert_complete(done.json())


def test_a_budget_then_a_kill_in_the_middle_of_going_on_loses_nothing(place: Path) -> None:
    first = aorta("solve", "--max-trials", "9", *QUIET, *COMMAND, cwd=place).json()
    process = start_aorta("solve", "--resume", first["run_dir"], *QUIET, cwd=place)
    wait_until(
        lambda: lines_of(place, "trials.jsonl") >= 13 or process.poll() is not None, "trials"
    )
    process.kill()
    process.communicate()
    killed = found_in(place)
    assert_nothing_is_lost(first, killed)
    # Without a trial left it says at least what the killed one had on disk.
    again = aorta("solve", "--resume", first["run_dir"], "--max-trials", "9", *QUIET, cwd=place)
    assert_nothing_is_lost(killed, again.json())
    *_, last = to_its_end(place, again.json())
    assert_complete(last)


def test_a_stage_that_a_budget_ended_begins_anew_with_a_smaller_reproducer(place: Path) -> None:
    """From the reduction on every trial takes for ever, so that triage ends with the original."""
    reducing = str(place / "solve/*/2-reduce")
    waits = (
        f"import glob, os, time\nif glob.glob({reducing!r}) and not os.path.exists("
        f"{str(place / 'go')!r}):\n    time.sleep(9999)\n"
    )
    (place / "train.py").write_text(waits + TRAIN)
    first = aorta("solve", "--budget", f"{patience(5):.0f}s", *QUIET, *COMMAND, cwd=place).json()
    ended = {row["name"]: row["status"] for row in first["stages"]}
    assert (ended["reduce"], ended["triage"]) == ("budget", "budget"), first["stages"]
    (place / "go").touch()
    document = gone_on_with(place, first, "--budget", "1h")
    assert_complete(document)
    (triage,) = [row for row in document["stages"] if row["name"] == "triage"]
    assert triage["status"] == "no_answer"
    assert "no stack of these mitigations" in triage["why"]


@pytest.mark.parametrize("words", [("--max-trials", "7"), ("--budget", "1s")])
def test_the_newest_that_a_budget_ended_is_found_without_its_name(
    place: Path, words: tuple[str, ...]
) -> None:
    first = aorta("solve", *words, "--output", "out", *QUIET, *COMMAND, cwd=place).json()
    done = aorta("solve", "--resume", "--output", "out", "--json", cwd=place)
    assert done.exit_code in {0, 4}, done.stderr
    assert done.json()["run_dir"] == first["run_dir"]
    assert first["run_dir"] in done.stderr, "which one it is"


# -- what counts as found


@pytest.mark.parametrize("most", ["1", "2", "3"])
def test_an_original_that_nothing_was_taken_from_is_no_reproducer_yet(
    place: Path, most: str
) -> None:
    done = aorta("solve", "--max-trials", most, *QUIET, *COMMAND, cwd=place)
    document = done.json()
    assert (done.exit_code, document["status"], document["reproducer"]) == (4, "partial", None)
    said = {row["head"]: row["text"] for row in document["summary"]}
    assert said["reproducer"] == "not reduced"
    planned = [row["name"] for row in document["stages"]]
    assert "source" not in planned, "a last resort, where nothing else can be reduced"


def test_a_budget_that_ends_before_it_failed_leaves_that_open(tmp_path: Path) -> None:
    words = ("--max-trials", "7", *QUIET, "--", "true")
    done = aorta("solve", *words, cwd=tmp_path)
    document = done.json()
    assert (done.exit_code, document["status"]) == (4, "partial")
    assert document["summary"][0]["text"] == "it failed 0 of 7 times"
    (again,) = [said for said in document["next"] if "--resume" in said]
    for trials, answer in ((14, (4, "partial")), (20, (3, "did_not_reproduce"))):
        done = aorta(*again.split()[1:], *QUIET, cwd=tmp_path)
        assert (done.exit_code, done.json()["status"]) == answer
        assert done.json()["trials"] == trials


def test_where_nothing_was_found_the_status_says_so_as_the_exit_does(tmp_path: Path) -> None:
    words = ("--stages", "reproduce,triage", "--", "bash", "-c", "exit 4")
    done = aorta("solve", *QUIET, *words, cwd=tmp_path)
    assert (done.exit_code, done.json()["status"]) == (3, "partial")
    assert not any("--resume" in said for said in done.json()["next"])
    (run_dir,) = (tmp_path / "solve").glob("2*")
    assert "The run is running" not in (run_dir / "report.html").read_text()
    assert aorta("solve", "--resume", cwd=tmp_path).exit_code == 2, "there is nothing to go on with"
