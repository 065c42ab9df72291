"""The journal survives being cut at any byte, and refuses to mix two questions."""

import json
import os
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError, ResumeError
from aorta.core.outcome import Outcome
from aorta.core.point import Point, Purpose
from aorta.core.signature import Signature
from aorta.engine.journal import Journal, TrialRecord, read_records

PARTS = {"spec": {"axes": [1]}, "command": ["bash", "-c", "exit 1"]}


def record(seq: int) -> TrialRecord:
    return TrialRecord(
        seq=seq,
        point=Point.of({"N": seq, "files": (1, 2, 5)}, Purpose.REPLAY, 3),
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
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    journal = Journal.create(path, PARTS)
    for seq in range(3):
        journal.append(record(seq))
    journal.close()
    return path


def test_what_was_appended_comes_back_equal(written: Path) -> None:
    assert read_records(written) == [record(0), record(1), record(2)]


def test_cut_at_any_byte_it_gives_every_whole_line_and_can_be_written_on(written: Path) -> None:
    content = written.read_bytes()
    header = content.index(b"\n") + 1
    for cut in range(header, len(content) + 1):
        written.write_bytes(content[:cut])
        journal = Journal.resume(written, PARTS)
        whole = content[:cut].count(b"\n") - 1
        assert journal.played == [record(seq) for seq in range(whole)]
        assert bool(journal.notes) == (not content[:cut].endswith(b"\n"))
        journal.append(record(whole))
        journal.close()
        assert read_records(written) == [record(seq) for seq in range(whole + 1)]


def test_cut_inside_its_header_it_says_that_nothing_was_run(written: Path) -> None:
    written.write_bytes(written.read_bytes()[:20])
    with pytest.raises(ResumeError, match="nothing was run yet"):
        Journal.resume(written, PARTS)


def test_a_changed_command_is_refused_by_name(written: Path) -> None:
    with pytest.raises(ResumeError, match="the command changed since this run began"):
        Journal.resume(written, {**PARTS, "command": ["bash", "-c", "exit 2"]})


def test_everything_that_changed_is_named(written: Path) -> None:
    with pytest.raises(ResumeError, match="the command and the spec changed"):
        Journal.resume(written, {"command": 1, "spec": 2})


def test_a_line_is_on_disk_when_append_returns(written: Path) -> None:
    journal = Journal.resume(written, PARTS)
    journal.append(record(3))
    last = written.read_bytes().splitlines()[-1]
    journal.close()
    assert json.loads(last)["seq"] == 3


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal.create(path, PARTS)
    os.dup2(os.open("/dev/full", os.O_WRONLY), journal._file)
    with pytest.raises(InfrastructureError, match="No space left on device; mend that and resume"):
        journal.append(record(0))
    journal.close()
