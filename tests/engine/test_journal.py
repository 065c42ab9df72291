"""The journal survives being cut at any byte, says what damage costs, and refuses to mix two questions."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point, Purpose
from aorta.core.errors import InfrastructureError, ResumeError
from aorta.core.signature import Signature
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.engine.events import Dropped, Entry, Opened, Settled, TrialRecord
from aorta.engine.journal import Journal, read_records

PARTS = {"spec": {"axes": [1]}, "command": ["bash", "-c", "exit 1"]}
MAIN = "main"


def point(number: int) -> Point:
    return Point.of({"N": number, "files": (1, 2, 5)}, Purpose.REPLAY, 3)


def record(seq: int) -> TrialRecord:
    return TrialRecord(
        seq=seq,
        point=point(seq),
        index=seq,
        outcome=Outcome.REPRODUCED,
        why='said "nan"\n\u2028 twice',
        signature=Signature("exit 1"),
        exit_code=1,
        signal=None,
        timed_out=False,
        duration=0.5,
        started_at=1.5,
        elapsed=2.0,
        host="h",
        image_digest=None,
        path="trials/x",
        kept={"env": "abc"},
    )


def story() -> list[Entry]:
    """Three points: one settled, one dropped, one still open."""
    verdict = Verdict(True, Tally(reproduced=1), "1 of 1 reproduced", 0.5)
    return [
        *(Opened(point(0)), record(0), Settled(point(0), verdict)),
        *(Opened(point(1)), record(1), Dropped(point(1))),
        *(Opened(point(2)), record(2)),
    ]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    journal = Journal.create(path, PARTS)
    for entry in story():
        journal.append(entry, MAIN)
    journal.close()
    return path


def entries_of(path: Path, *, salvage: bool = False) -> list[Entry]:
    journal = Journal.resume(path, PARTS, salvage=salvage)
    journal.close()
    return list(journal.entries(MAIN))


def test_what_was_appended_comes_back_equal_and_in_order(written: Path) -> None:
    assert entries_of(written) == story()
    assert read_records(written) == [record(0), record(1), record(2)]


def test_two_questions_of_one_run_are_kept_apart(written: Path) -> None:
    journal = Journal.resume(written, PARTS)
    journal.append(Opened(point(0)), "copy")
    journal.close()
    journal = Journal.resume(written, PARTS)
    journal.close()
    assert journal.entries("copy") == [Opened(point(0))]
    assert list(journal.entries(MAIN)) == story()


def test_cut_at_any_byte_it_gives_every_whole_line_and_can_be_written_on(written: Path) -> None:
    content = written.read_bytes()
    header = content.index(b"\n") + 1
    for cut in range(header, len(content) + 1):
        written.write_bytes(content[:cut])
        journal = Journal.resume(written, PARTS)
        whole = content[:cut].count(b"\n") - 1
        assert list(journal.entries(MAIN)) == story()[:whole]
        assert bool(journal.notes) == (not content[:cut].endswith(b"\n"))
        journal.append(Opened(point(7)), MAIN)
        journal.close()
        assert entries_of(written) == [*story()[:whole], Opened(point(7))]


def test_cut_inside_its_header_it_says_that_nothing_was_run(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:20])
    with pytest.raises(ResumeError, match="nothing was run yet"):
        Journal.resume(written, PARTS)


@settings(max_examples=60, deadline=None)
@given(line=st.integers(1, 7), kind=st.sampled_from(["garbage", "removed", "twice", "truncated"]))
def test_damage_before_the_end_is_said_refused_and_changes_nothing(
    line: int, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "journal.jsonl"
    journal = Journal.create(path, PARTS)
    for entry in story():
        journal.append(entry, MAIN)
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    good = lines[line]
    lines[line : line + 1] = {
        "garbage": [b"\x00\xff not json\n"],
        "removed": [],
        "twice": [good, good],
        "truncated": [good[: len(good) // 2] + b"\n"],
    }[kind]
    path.write_bytes(b"".join(lines))
    with pytest.raises(ResumeError, match=r"line \d+ of \d+ is damaged .* nothing was changed"):
        Journal.resume(path, PARTS)
    assert path.read_bytes() == b"".join(lines)
    kept = line + (kind == "twice")
    assert entries_of(path, salvage=True) == story()[: kept - 1]
    assert (path.parent / "journal.damaged-1.jsonl").read_bytes() == b"".join(lines)


def test_salvage_keeps_the_trials_behind_the_damage_until_they_are_used(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    lines[3] = b"?\n"  # the verdict of the first point
    written.write_bytes(b"".join(lines))
    with pytest.raises(ResumeError, match="2 trials behind it can still be read"):
        Journal.resume(written, PARTS)
    journal = Journal.resume(written, PARTS, salvage=True)
    assert journal.notes
    assert journal.spare_trials(MAIN, point(1)) == [record(1)]
    journal.append(Opened(point(1)), MAIN)
    journal.append(record(1), MAIN)
    journal.close()
    again = Journal.resume(written, PARTS)
    again.close()
    assert again.spare_trials(MAIN, point(1)) == []
    assert again.spare_trials(MAIN, point(2)) == [record(2)]


def test_a_damaged_header_cannot_be_gone_on_with(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"?" + b"".join(lines))
    with pytest.raises(ResumeError, match=r"first line .* is damaged.* 3 trials behind it"):
        Journal.resume(written, PARTS, salvage=True)


def test_trials_around_damage_can_still_be_shown(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    lines[3] = b"?\n"
    written.write_bytes(b"".join(lines))
    assert read_records(written) == [record(0), record(1), record(2)]


def test_the_journal_of_another_version_is_refused_in_one_line(written: Path) -> None:
    header = {"kind": "header", "schema": "aorta.journal/1", "fingerprint": {}}
    written.write_text(json.dumps(header) + "\n" + '{"kind":"trial","seq":0}\n')
    with pytest.raises(ResumeError, match="written by another version of aorta"):
        Journal.resume(written, PARTS)


def test_a_changed_command_is_refused_by_name(written: Path) -> None:
    with pytest.raises(ResumeError, match="the command changed since this run began"):
        Journal.resume(written, {**PARTS, "command": ["bash", "-c", "exit 2"]})


def test_everything_that_changed_is_named(written: Path) -> None:
    with pytest.raises(ResumeError, match="the command and the spec changed"):
        Journal.resume(written, {"command": 1, "spec": 2})


def test_a_line_is_written_when_append_returns(written: Path) -> None:
    journal = Journal.resume(written, PARTS)
    journal.append(record(2), MAIN)
    last = written.read_bytes().splitlines()[-1]
    journal.close()
    assert json.loads(last)["seq"] == 2


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal.create(path, PARTS)
    os.dup2(os.open("/dev/full", os.O_WRONLY), journal._file)
    with pytest.raises(InfrastructureError, match="No space left on device; mend that and resume"):
        journal.append(record(0), MAIN)
    journal.close()
