"""The journal survives being cut at any byte, says what damage costs, and refuses to mix two
questions.
"""

import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point, Purpose
from aorta.core.errors import InfrastructureError, ResumeError
from aorta.core.failure import Failure
from aorta.core.trial import Ended, Outcome, Tally, Verdict
from aorta.engine.events import Decided, Dropped, Entry, Opened, TrialRecord
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
        failure=Failure(Ended(1)),
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
        *(Opened(point(0)), record(0), Decided(point(0), verdict)),
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


def entries_of(path: Path) -> list[Entry]:
    journal = Journal.resume(path, PARTS)
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
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")][1:]
    beside = {end + by for end in ends for by in (-1, 0, 1)}
    for cut in sorted({*range(header, len(content), 7), *beside} & {*range(len(content) + 1)}):
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


def test_a_damaged_header_cannot_be_gone_on_with(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"?" + b"".join(lines))
    with pytest.raises(ResumeError, match=r"line 1 of 9 is damaged .*no whole line"):
        Journal.resume(written, PARTS)


def test_trials_before_damage_can_still_be_shown(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    lines[6] = b"?\n"
    written.write_bytes(b"".join(lines))
    assert read_records(written) == [record(0), record(1)]


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


def test_a_disk_that_takes_half_a_line_takes_none_and_the_journal_goes_on_later(
    written: Path,
) -> None:
    before = written.read_bytes()
    journal = Journal.resume(written, PARTS)
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
    try:
        with pytest.raises(InfrastructureError, match="File too large; mend that and resume"):
            journal.append(Opened(point(7)), MAIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert written.read_bytes() == before
    journal.append(Opened(point(7)), MAIN)
    journal.close()
    assert entries_of(written) == [*story(), Opened(point(7))]


def test_closed_twice_it_closes_nothing_of_anybody_else(written: Path) -> None:
    journal = Journal.resume(written, PARTS)
    journal.close()
    with written.open("rb") as other:
        journal.close()
        assert other.read(1) == b"{"


def test_it_makes_its_directory_and_counts_its_trials_over_every_resume(tmp_path: Path) -> None:
    path = tmp_path / "made" / "for" / "it" / "journal.jsonl"
    Journal.create(path, PARTS).close()
    journal = Journal.create(path, PARTS)
    assert journal.trials == 0
    journal.append(Opened(point(0)), MAIN)
    journal.append(record(0), MAIN)
    assert journal.trials == 1
    journal.close()
    again = Journal.resume(path, PARTS)
    again.close()
    assert (again.trials, again.notes) == (1, [])


def test_the_order_of_what_was_asked_for_is_no_change_of_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal.create(path, {"spec": {"a": 1, "b": Path("x")}}).close()
    Journal.resume(path, {"spec": {"b": Path("x"), "a": 1}}).close()
    said = json.loads(path.read_text())["fingerprint"]
    assert sorted(said) == ["aorta version", "spec"]
    assert {len(digest) for digest in said.values()} == {16}
    with pytest.raises(ResumeError, match="the more changed since"):
        Journal.resume(path, {"spec": {"a": 1, "b": Path("x")}, "more": 1})


def test_the_torn_end_is_said_by_its_length(written: Path) -> None:
    written.write_bytes(written.read_bytes() + b'{"kind"')
    journal = Journal.resume(written, PARTS)
    journal.close()
    assert journal.notes == ["dropped a torn last line of 7 bytes from journal.jsonl"]


def test_a_last_line_that_is_whole_and_makes_no_sense_is_torn_if_it_is_no_json(
    written: Path,
) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole + b"\0\0\0\n")
    journal = Journal.resume(written, PARTS)
    journal.close()
    assert journal.notes == ["dropped a torn last line of 4 bytes from journal.jsonl"]
    assert written.read_bytes() == whole
    written.write_bytes(whole + b'{"kind":"dropped"}\n')
    with pytest.raises(ResumeError, match="line 10 of 10 is damaged"):
        Journal.resume(written, PARTS)


@pytest.mark.parametrize(
    ("spoilt", "by", "said"),
    [
        (3, [b"?\n"], r"line 4 of 9 is damaged \(it is no whole line\)"),
        (4, [], r"line 5 of 8 is damaged \(its number does not follow.*\)"),
        (7, [], r"line 8 of 8 is damaged \(its number does not follow.*\)"),
        (7, [b"[1]\n"], r"line 8 of 9 is damaged \(list indices must be.*\)"),
    ],
)
def test_damage_is_said_by_its_line(written: Path, spoilt: int, by: list[bytes], said: str) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    lines[spoilt : spoilt + 1] = by
    written.write_bytes(b"".join(lines))
    with pytest.raises(ResumeError, match=said):
        Journal.resume(written, PARTS)


def test_a_first_line_that_says_no_schema_is_of_another_version(written: Path) -> None:
    written.write_bytes(b"{}\n")
    with pytest.raises(ResumeError, match="found None"):
        Journal.resume(written, PARTS)


def test_a_line_of_no_known_kind_is_damage(written: Path) -> None:
    line = {"kind": "said", "question": MAIN, "key": point(2).key, "n": 9}
    written.write_bytes(written.read_bytes() + json.dumps(line).encode() + b"\n")
    with pytest.raises(ResumeError, match="it is of no known kind: 'said'"):
        Journal.resume(written, PARTS)


def test_a_trial_that_failed_without_words_comes_back_as_it_was(written: Path) -> None:
    silent = replace(record(2), failure=None, outcome=Outcome.CLEAN, value=2.5, saved=1.25)
    journal = Journal.resume(written, PARTS)
    journal.append(silent, MAIN)
    journal.close()
    assert entries_of(written)[-1] == silent
    assert read_records(written)[-1] == silent
