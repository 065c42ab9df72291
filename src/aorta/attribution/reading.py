"""Logs as bounded pieces: plain, gzipped or sent as text, of any size, read once and never held whole.

Knows bytes, lines, colours, carriage returns and rank prefixes; knows nothing about failures.
"""

import io
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from aorta.attribution.jail import open_straight

PIECE = 1 << 20
MARGIN = 64 << 10  # how far a traceback may reach beyond the piece it begins in
LONGEST_LINE = 4000
_PACKED = 64 << 10

_GZIP = b"\x1f\x8b"
_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_PREFIX = re.compile(r"\s*\[[A-Za-z_]+?[ _]?(\d{1,6})\]:? ?")
_BARE_PREFIX = re.compile(r"\s*(\d{1,6}): ")
_BAR = re.compile(
    r"^[^|]{0,80}\|[^|]{0,200}\|\s*\d+/\d+ \[[^\]]{0,80}\](?=\S)"
)  # it leaves the line open
_FILE_RANK = re.compile(r"(?:^|[._-])rank[._-]?(\d+)(?=\D|$)")
_LINE_ENDS = (b"\n", b"\r")
_LINE_FEED = ord("\n")
_FAR = 300 << 20


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, /) -> int: ...


@dataclass(frozen=True)
class Source:
    """Something that can be read as a log: a file, or text held in memory."""

    name: str
    rank: int | None = None
    node: str | None = None
    path: Path | None = None
    text: bytes = b""
    follow_links: bool = True

    @property
    def size(self) -> int:
        """Bytes; 0 for a file that is gone."""
        if self.path is None:
            return len(self.text)
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    @property
    def is_compressed(self) -> bool:
        with self._file() as file:
            return self.path is not None and file.read(2) == _GZIP

    @contextmanager
    def opened(self) -> Iterator[Readable]:
        packed = self.is_compressed
        with self._file() as file:
            yield _Unpacked(file) if packed else file

    def _file(self) -> BinaryIO:
        """Empty where the file is gone or closed to us: what the other ranks wrote is worth reading all the same."""
        if self.path is None:
            return io.BytesIO(self.text)
        try:
            return self.path.open("rb") if self.follow_links else open_straight(self.path)
        except OSError:
            return io.BytesIO()


class _Unpacked:
    """The bytes of a gzip file up to where it ends or is damaged: a crashed job rarely closes its log."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        self._packed = b""

    def read(self, size: int, /) -> bytes:
        out = bytearray()
        while len(out) < size and (more := self._some(size - len(out))):
            out += more
        return bytes(out)

    def seek(self, offset: int, /) -> int:
        """From the beginning, which is the only place it is ever called at."""
        at = 0
        while at < offset and (passed := self.read(min(PIECE, offset - at))):
            at += len(passed)
        return at

    def _some(self, size: int) -> bytes:
        while True:
            if self._inflate.eof:  # another member may follow: logs are appended to
                self._packed = self._inflate.unused_data
                self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            self._packed = self._packed or self._file.read(_PACKED)
            if not self._packed:
                return b""
            try:
                more = self._inflate.decompress(self._packed, size)
            except zlib.error:
                self._packed = b""
                return b""
            self._packed = self._inflate.unconsumed_tail
            if more:
                return more


@dataclass(frozen=True)
class Piece:
    """`data[start:end]` is this piece's own part; around it lie margins that belong to its neighbours."""

    data: bytes
    offset: int  # of data[0] in the source
    start: int
    end: int


@dataclass(frozen=True)
class Line:
    text: str
    rank: int | None
    offset: int


def pieces(source: Source, begin: int = 0, stop: int | None = None) -> Iterator[Piece]:
    """The pieces of `source[begin:stop]`, cut at line ends, each seen with what surrounds it."""
    with source.opened() as stream:
        if begin:
            stream.seek(begin)
        left = None if stop is None else stop - begin
        data, offset, start = b"", begin, 0
        while True:
            more = stream.read(PIECE if left is None else min(PIECE, left))
            left = None if left is None else left - len(more)
            data += more
            end = _cut(data, start) if more else len(data)
            if end > start:
                yield Piece(data, offset, start, end)
            if not more:
                return
            keep = max(0, end - MARGIN)
            data, offset, start = data[keep:], offset + keep, end - keep


def _cut(data: bytes, start: int) -> int:
    """Where a piece may end: at a line end that leaves a margin behind it; inside a line only if it is endless."""
    latest = len(data) - MARGIN
    if latest <= start:
        return start
    at = max(data.rfind(end, start, latest) for end in _LINE_ENDS)
    return at + 1 if at >= 0 else (latest if latest - start >= PIECE // 2 else start)


def line_at(data: bytes, position: int, source: Source, offset: int = 0) -> Line:
    """The whole line around `position`, cleaned; a very long one is cut around it."""
    low, high = max(0, position - LONGEST_LINE), min(len(data), position + LONGEST_LINE)
    begin = max(data.rfind(end, low, position) for end in _LINE_ENDS)
    stops = [at for at in (data.find(end, position, high) for end in _LINE_ENDS) if at >= 0]
    begin = low if begin < 0 else begin + 1
    return cleaned(data[begin : min(stops, default=high)], source, offset + begin)


def lines_after(data: bytes, position: int, source: Source, offset: int = 0) -> Iterator[Line]:
    """The lines from `position` on, which must be a line's beginning; at most one margin of them."""
    for raw in re.split(rb"(?<=[\r\n])", data[position : position + MARGIN]):
        yield cleaned(raw.rstrip(b"\r\n")[:LONGEST_LINE], source, offset + position)
        position += len(raw)


def line_start(data: bytes, position: int) -> int:
    return max(data.rfind(end, 0, position) for end in _LINE_ENDS) + 1


def cleaned(raw: bytes, source: Source, offset: int) -> Line:
    text = raw.decode("utf-8", errors="replace")
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "it/s]" in text or "s/it]" in text:
        text = _BAR.sub("", text)
    rank = source.rank
    if rank is None and (bare := _BARE_PREFIX.match(text)) is not None:
        rank, text = int(bare[1]), text[bare.end() :]  # torch's own prefix may follow a launcher's
    while (prefix := _PREFIX.match(text)) is not None:
        rank = int(prefix[1]) if rank is None else rank
        text = text[prefix.end() :]
    return Line(text.rstrip(), rank, offset)


def rank_in_name(path: Path) -> int | None:
    """The rank a file's name gives: `rank_3.err`, `job.rank3.log`."""
    found = _FILE_RANK.search(path.name)
    return int(found[1]) if found else None


def line_numbers(source: Source, offsets: Iterable[int]) -> dict[int, int]:
    """The 1-based line of each offset, all in one pass that holds nothing."""
    numbers: dict[int, int] = {}
    count, at = 1, 0
    wanted = sorted(set(offsets))
    line_ends = _line_end_counter(bool(wanted) and wanted[-1] >= _FAR)
    with source.opened() as stream:
        for offset in wanted:
            while at < offset and (block := stream.read(min(PIECE, offset - at))):
                count += line_ends(block)
                at += len(block)
            numbers[offset] = count
    return numbers


def _line_end_counter(far: bool) -> Callable[[bytes], int]:
    """Before 3.13 Python counts byte by byte, 290 ms a gigabyte; numpy takes 65, and 75 to be imported."""
    if sys.version_info < (3, 13) and (far or "numpy" in sys.modules):
        try:
            import numpy as np
        except ImportError:
            pass
        else:
            return lambda block: int(np.count_nonzero(np.frombuffer(block, np.uint8) == _LINE_FEED))
    return lambda block: block.count(b"\n")


def ends_of(source: Source, head: int, tail: int) -> tuple[str, str]:
    """The first `head` and last `tail` bytes as text; the same text twice where the source is short."""
    with source.opened() as stream:
        if source.is_compressed:
            first, last = stream.read(head), b""
            while block := stream.read(PIECE):
                last = (last + block)[-tail:]
            last = last or first
        else:
            size = source.size
            first = stream.read(min(head, size))
            stream.seek(max(0, size - tail))
            last = stream.read(tail)
    return first.decode("utf-8", "replace"), last.decode("utf-8", "replace")
