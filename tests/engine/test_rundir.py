"""Where a run writes: a directory of its own, its private state apart, found again by whoever goes
on with it.
"""

import json
import os
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError, ResumeError, UsageError
from aorta.engine.rundir import (
    RunDir,
    claim_run_dir,
    find_resumable,
    fresh_dir,
    is_output,
    write_json,
    writing,
)
from aorta.runtimes.owner import Owner
from aorta.version import __version__


def test_two_runs_of_one_name_have_two_directories(tmp_path: Path) -> None:
    runs = [claim_run_dir(tmp_path / "new", "run", name="a", ticket="T-1") for _ in range(3)]
    assert [run.path.name for run in runs] == ["a", "a-2", "a-3"]
    assert all(run.private.is_dir() and run.private_beside is None for run in runs)
    assert {run.about()["verb"] for run in runs} == {"run"}
    assert {run.about()["ticket"] for run in runs} == {"T-1"}


def test_private_state_that_lies_beside_is_not_in_what_is_sent(tmp_path: Path) -> None:
    left_over = tmp_path / ".aorta" / "a" / "of_a_deleted_run"
    left_over.parent.mkdir(parents=True)
    left_over.touch()
    run = claim_run_dir(tmp_path, "solve", name="a", private_beside=True)
    assert run.private_beside == "../.aorta/a"
    assert not left_over.exists()
    assert json.loads((tmp_path / ".aorta" / "a" / "run.json").read_text())["verb"] == "solve"


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(UsageError, match="this is a file; results need a directory"):
        claim_run_dir(tmp_path / "out", "run")


def test_what_a_verb_wrote_is_known_by_its_private_state_or_its_schema(tmp_path: Path) -> None:
    run, sent, users = claim_run_dir(tmp_path, "run").path, tmp_path / "sent", tmp_path / "users"
    write_json(sent / "result.json", "aorta.result/1", {})
    users.mkdir()
    (users / "result.json").write_text('{"loss": 1.0}')
    assert (is_output(run), is_output(sent)) == (True, True)
    assert (is_output(users), is_output(tmp_path / "nowhere")) == (False, False)


def test_private_state_that_was_left_behind_still_tells_whose_it_was(tmp_path: Path) -> None:
    run = claim_run_dir(tmp_path, "solve", name="a", private_beside=True)
    (run.path).rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    fresh_dir(tmp_path / ".aorta").rmdir()
    assert is_output(moved)
    with pytest.raises(ResumeError, match=r"its private state is not at \.\./\.aorta/a"):
        find_resumable(tmp_path, "solve", moved)


def test_the_run_written_last_is_gone_on_with(tmp_path: Path) -> None:
    runs = [claim_run_dir(tmp_path, "run", name=name) for name in "abc"]
    for run, written in zip(runs, (2, 3, 1), strict=True):
        run.journal.touch()
        os.utime(run.journal, (written, written))
    assert find_resumable(tmp_path, "run") == runs[1]
    runs[1].describe(state="done")
    assert find_resumable(tmp_path, "run") == runs[0]
    claim_run_dir(tmp_path, "reduce", name="z")
    assert find_resumable(tmp_path, "run") == runs[0]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResumeError, match="no run directory: it has no journal"):
        find_resumable(tmp_path, "run", tmp_path)
    with pytest.raises(ResumeError, match="no unfinished run to resume here"):
        find_resumable(tmp_path, "run")


def test_a_run_that_says_nothing_readable_of_itself_says_nothing(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert run.about() == {}
    for content in ("[1]", "{", ""):
        run.private.mkdir(exist_ok=True)
        (run.private / "run.json").write_text(content)
        assert run.about() == {}


def test_a_result_is_json_for_people_too_and_holds_no_number_that_json_lacks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "made" / "result.json"
    write_json(path, "aorta.result/1", {"name": "ä"})
    assert path.read_text() == (
        '{\n  "schema": "aorta.result/1",\n'
        f'  "aorta_version": "{__version__}",\n  "name": "ä"\n}}\n'
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, "aorta.result/1", {"rate": float("nan")})
    assert "ä" in path.read_text()


def test_a_run_says_what_it_is_from_its_claim_on_and_adds_to_it(tmp_path: Path) -> None:
    run = claim_run_dir(tmp_path, "run", name="a")
    assert Owner.from_label(run.lock.read_text()) == Owner.of_this_process()
    run.describe(state="done", verb="reduce")
    about = run.about()
    assert (about["state"], about["verb"], about["aorta_version"]) == (
        "done",
        "reduce",
        __version__,
    )
    assert (run.private / "run.json").read_text() == json.dumps(about, indent=2) + "\n"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="cannot make a run directory: "):
        claim_run_dir(Path("/proc/nowhere"), "run")
    (tmp_path / "file").touch()
    with pytest.raises(InfrastructureError, match="cannot make a directory: Not a directory"):
        fresh_dir(tmp_path / "file" / "inside")
    with pytest.raises(InfrastructureError, match="cannot write: No such"), writing(tmp_path):
        (tmp_path / "no" / "where").touch()


def test_a_fresh_directory_is_empty_whatever_was_there(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    (fresh_dir(place) / "left").touch()
    assert fresh_dir(place) == place
    assert list(place.iterdir()) == []


def test_a_run_that_has_no_journal_yet_is_as_old_as_its_private_state(tmp_path: Path) -> None:
    begun, running = (claim_run_dir(tmp_path, "run", name=name) for name in "ab")
    running.journal.touch()
    os.utime(running.journal, (2, 2))
    assert find_resumable(tmp_path, "run") == begun
    os.utime(begun.private, (1, 1))
    assert find_resumable(tmp_path, "run") == running


def test_the_run_that_was_named_is_gone_on_with_also_where_its_private_state_lies_beside(
    tmp_path: Path,
) -> None:
    run = claim_run_dir(tmp_path, "solve", name="a", private_beside=True)
    run.describe(state="done")
    claim_run_dir(tmp_path, "solve", name="b")
    assert find_resumable(tmp_path, "solve", run.path) == run
