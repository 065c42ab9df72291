"""Reading logs: every engine finds the same, every byte is read once, ranks and lines are told
rightly.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.attribution import logs
from aorta.attribution.events.reading import (
    fastest_scanner,
    hyperscan_scanner,
    read,
)
from aorta.attribution.logs import (
    MARGIN,
    PIECE,
    Piece,
    ReadableLog,
    cleaned,
    line_numbers,
    pieces,
)

LITERALS = [b"Traceback", b"race", b"NVRM: Xid", b"Error: ", b"a(b)*[c"]


@given(st.lists(st.sampled_from([*LITERALS, b"\n", b"\x00", b"x", b"Trace", b"\xff"])))
def test_every_engine_finds_the_same_literals(parts: list[bytes]) -> None:
    text = b"".join(parts)
    expected = {index for index, literal in enumerate(LITERALS) if literal in text}
    assert hyperscan_scanner(LITERALS)(text) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "hyperscan", None)
        assert fastest_scanner(LITERALS)(text) == expected


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=300), max_size=60),
    st.integers(0, 400),
    st.integers(16, 200),
)
def test_pieces_are_the_source_cut_into_its_own_parts(
    parts: list[bytes], begin: int, size: int
) -> None:
    text = b"\n".join(parts)
    begin = min(begin, len(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "PIECE", size)
        patch.setattr(logs, "MARGIN", size // 3)
        found = list(pieces(ReadableLog("x", text=text), begin))
    assert b"".join(piece.data[piece.start : piece.end] for piece in found) == text[begin:]
    for piece in found:
        assert text[piece.offset : piece.offset + len(piece.data)] == piece.data


def test_memory_stays_bounded_by_a_line_that_never_ends() -> None:
    endless = ReadableLog("x", text=b"x" * (5 * PIECE))
    assert max(len(piece.data) for piece in pieces(endless)) <= 2 * (PIECE + MARGIN)


@pytest.mark.parametrize(
    ("raw", "rank", "text"),
    [
        (b"[rank3]: hello", 3, "hello"),
        (b"[default1]:[rank1]: hello", 1, "hello"),
        (b"\x1b[31m[rank2]:\x1b[0m  File", 2, " File"),
        (b"7: hello", 7, "hello"),
        (b"4: [rank4]: Traceback", 4, "Traceback"),
        (b"[Rank 5] Watchdog caught", 5, "Watchdog caught"),
        (b"[12/500] loss 3", None, "[12/500] loss 3"),
        (b"hello 3: there", None, "hello 3: there"),
        (b"\xff\xfe broken", None, "\ufffd\ufffd broken"),
    ],
)
def test_the_rank_of_a_line_is_what_its_prefix_says(
    raw: bytes, rank: int | None, text: str
) -> None:
    (line,) = cleaned(raw, ReadableLog("job.log"), 0)
    assert (line.rank, line.text) == (rank, text)


def test_in_the_file_of_one_rank_a_bare_number_is_no_prefix() -> None:
    (line,) = cleaned(b"7: hello", ReadableLog("rank_2.err", rank=2), 0)
    assert line.text == "7: hello"


def test_a_carriage_return_ends_a_line_like_a_line_feed() -> None:
    data = b"50%|###   |\r100%|######|\rValueError: x\n"
    assert Piece(ReadableLog("x"), data).line_at(data.index(b"Value")).text == "ValueError: x"


@given(st.lists(st.sampled_from([b"a\n", b"bb\n", b"\n"]), max_size=30), st.data())
def test_line_numbers_count_line_ends(parts: list[bytes], data: st.DataObject) -> None:
    text = b"".join(parts)
    offsets = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    expected = {offset: text[:offset].count(b"\n") + 1 for offset in offsets}
    assert line_numbers(ReadableLog("x", text=text), offsets) == expected


def test_a_log_that_cannot_be_opened_is_empty_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for source in (
        ReadableLog("gone", path=tmp_path / "gone"),
        ReadableLog("loop", path=tmp_path / "loop"),
        ReadableLog("directory", path=tmp_path),
    ):
        assert list(pieces(source)) == []
        assert line_numbers(source, [5]) == {5: 1}


def test_a_failure_far_from_the_end_of_a_large_log_is_still_found(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    failure = b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nMemoryError\n'
    log.write_bytes(b"quiet line\n" * 1000 + failure + b"quiet line\n" * 5_000_000)
    source = ReadableLog("job.log", path=log)
    assert read([source], ends_only=True) == ((), False)
    ((event,), _) = read([source])
    assert (event.failure_class, event.text) == ("host_oom", "MemoryError")


def test_a_storm_of_the_same_error_keeps_its_first_and_its_last(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.err"
    storm = b"".join(b"RuntimeError: number %d\n" % number for number in range(60_000))
    log.write_bytes(storm)
    events, _ = read([ReadableLog("rank_0.err", 0, path=log)])
    assert len(events) <= 20
    assert (events[0].text, events[-1].text) == (
        "RuntimeError: number 0",
        "RuntimeError: number 59999",
    )


def test_threads_may_read_at_the_same_time() -> None:
    """A launcher compiles the patterns in a thread while a cycle is already attributed."""
    lines = b"step 1 loss 2\n" * 100_000 + b"RuntimeError: CUDA error: out of memory\n"
    literals = (b"CUDA error", b"Traceback")
    scan = fastest_scanner(literals)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(scan, [lines] * 32)) == [{0}] * 32
