"""Logs, plain, gzipped or as text, in bounded pieces: read once, never held whole."""

import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from gzip import GzipFile
from pathlib import Path
from typing import BinaryIO

from aorta.attribution.logs.prefixes import LineFormat, LogLine, learn

PIECE = 1 << 20
MARGIN = 64 << 10  # how far a traceback may reach beyond the piece it begins in
LONGEST_LINE = 4000
BLOCK = 4 << 10  # bytes before a line that may say what it belongs to
_MOST_OCCURRENCES = 24  # of one literal in one piece, from its beginning and again from its end
_SAMPLE = 24 << 10
_SAMPLED_LINE = 600
_MOST_SAMPLED = 50  # lines of each end
_MOST_KEPT = 16 << 20  # bytes of a packed file, which may hold any number of zeros

_GZIP = b"\x1f\x8b"
_FILE_RANK = re.compile(r"(?:^|[._-])rank[._-]?(\d+)(?=\D|$)")
_LINE_ENDS = (b"\n", b"\r")
_ROW = re.compile(rb"[^\r\n]*(?:[\r\n]|\Z)")


# A log of several runs: so many first lines are printed again after a failure, and so many lines
# follow that the first run did not write (a clean-up may repeat what stands first).
_MOST_OF_SEVERAL_RUNS = 16 << 20
_BANNER_LINES, _NEW_LINES = 3, 10
_DATED = re.compile(rb"\d\d:\d\d|\d{4}-\d\d-\d\d|\d{10}")
_LETTERS = re.compile(rb"[A-Za-z]{2}")
_FAILED = re.compile(rb"Traceback|[Ee]rror|CANCELLED")
_DIGITS = re.compile(rb"\d+")


@dataclass(frozen=True)
class ReadableLog:
    """Something that can be read as a log: a file, or text held in memory."""

    name: str
    rank: int | None = None
    node: str | None = None
    path: Path | None = None
    text: bytes = b""
    follow_links: bool = True

    @property
    def size(self) -> int:
        """Bytes, of a gzipped file those that were packed; 0 for a file that is gone."""
        if self.path is None:
            return len(self.text)
        if self._inflated is not None:
            return len(self._inflated[0])
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    @cached_property
    def format(self) -> LineFormat:
        """What stands before the lines of this log, learned from both its ends."""
        head, tail = ends_of(self, _SAMPLE, 2 * _SAMPLE)
        text = head if self.size <= _SAMPLE else f"{head}\n{tail}"
        lines = [line[:_SAMPLED_LINE] for line in re.split(r"[\r\n]+", text) if line.strip()]
        if len(lines) > 2 * _MOST_SAMPLED:
            lines = [*lines[:_MOST_SAMPLED], *lines[-_MOST_SAMPLED:]]
        return learn(lines, of_one_rank=self.rank is not None)

    @cached_property
    def began(self) -> float | None:
        """When its first line was written, where its lines tell a time."""
        head = ends_of(self, _SAMPLE, 0)[0].split("\n")[:40]
        times = (self.format.read(line[:LONGEST_LINE]).time for line in head)
        return next((time for time in times if time is not None), None)

    @cached_property
    def last_start(self) -> int:
        """Where the last of several appended runs begins; 0 where there is one."""
        if self.rank is not None or self.size > _MOST_OF_SEVERAL_RUNS:
            return 0
        with self.opened() as stream:
            data = stream.read(_MOST_OF_SEVERAL_RUNS)
        banner = _banner(data)
        again = data.find(banner, data.find(banner) + len(banner)) if banner else -1
        if again < 0 or _FAILED.search(data, 0, again) is None:
            return 0
        known, later = (
            _DIGITS.sub(b"", part).split(b"\n") for part in (data[:again], data[again:])
        )
        return data.rfind(banner) if len({*later} - {*known}) >= _NEW_LINES else 0

    @contextmanager
    def opened(self) -> Iterator["_Tolerant"]:
        if self._inflated is not None:
            yield _Tolerant(io.BytesIO(self._inflated[0]))
            return
        with self._file() as file:
            yield _Tolerant(file)

    @cached_property
    def _inflated(self) -> tuple[bytes, int] | None:
        """The end of what a gzipped file holds, and the lines before it; None: not packed."""
        if self.path is None:
            return None
        kept, left_out = bytearray(), 0
        with self._file() as file:
            packed = _Tolerant(file)
            if packed.read(2) != _GZIP:
                return None
            packed.seek(0)
            with suppress(EOFError, OSError, zlib.error), GzipFile(fileobj=packed) as unpacked:
                while block := unpacked.read1(PIECE):
                    kept += block
                    excess = len(kept) - _MOST_KEPT
                    if excess > PIECE:
                        left_out += kept.count(b"\n", 0, excess)
                        del kept[:excess]
        return bytes(kept), left_out

    @property
    def lines_left_out(self) -> int:
        """Lines before those that can be read, of a large packed file."""
        return self._inflated[1] if self._inflated is not None else 0

    def _file(self) -> BinaryIO:
        """Empty where the file is gone or closed to us: the other ranks' logs still count."""
        if self.path is None:
            return io.BytesIO(self.text)
        try:
            return self.path.open("rb") if self.follow_links else open_straight(self.path)
        except OSError:
            return io.BytesIO()


_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold us up


def open_straight(path: Path) -> BinaryIO:
    """Open a regular file without following any link. Raises OSError for anything else."""
    *parents, name = path.parts[1:]
    directory = os.open("/", _WALK)
    try:
        for parent in parents:
            inner = os.open(parent, _WALK, dir_fd=directory)
            os.close(directory)
            directory = inner
        descriptor = os.open(name, _READ, dir_fd=directory)
    finally:
        os.close(directory)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file


class _Tolerant:
    """A file that ends where it cannot be read any further: a disk or a mount may fail."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int, /) -> bytes:
        try:
            return self._file.read(size)
        except OSError:
            return b""

    def seek(self, offset: int, /) -> int:
        return self._file.seek(offset)


@dataclass(frozen=True)
class Piece:
    """A part of a log: `data[start:end]` is its own; the margins belong to its neighbours."""

    source: ReadableLog
    data: bytes
    offset: int = 0  # of data[0] in the source
    start: int = 0
    end: int = 0

    def occurrences(self, literal: bytes) -> list[int]:
        """Where `literal` stands in the piece's own part: all places, or the outermost if many."""
        matches = re.compile(re.escape(literal)).finditer(self.data, self.start, self.end)
        found = [match.start() for match in matches]
        few = len(found) <= 2 * _MOST_OCCURRENCES
        return found if few else found[:_MOST_OCCURRENCES] + found[-_MOST_OCCURRENCES:]

    def line_start(self, position: int) -> int:
        return max(self.data.rfind(end, 0, position) for end in _LINE_ENDS) + 1

    def line_at(self, position: int, holding: str = "") -> LogLine:
        """The line around `position`; of those folded into one, that `holding` a text."""
        data = self.data
        low, high = max(0, position - LONGEST_LINE), min(len(data), position + LONGEST_LINE)
        begin = max(low, max(data.rfind(end, low, position) for end in _LINE_ENDS) + 1)
        if data.startswith(b"{", begin):
            high = min(len(data), begin + MARGIN)
        stops = [at for at in (data.find(end, position, high) for end in _LINE_ENDS) if at >= 0]
        lines = cleaned(data[begin : min(stops, default=high)], self.source, self.offset + begin)
        return next((line for line in lines if holding and holding in line.text), lines[0])

    def lines_from(self, position: int, stop: int | None = None) -> Iterator[LogLine]:
        """The lines from `position`, a line's beginning, on; at most one margin of them."""
        stop = min(position + MARGIN, len(self.data) if stop is None else stop)
        for found in _ROW.finditer(self.data, position, stop):
            raw = found[0]
            own = raw.rstrip(b"\r\n")
            longest = MARGIN if own.startswith(b"{") else LONGEST_LINE
            yield from cleaned(own[:longest], self.source, self.offset + found.start())
            if len(own) == len(raw):
                return  # the last, which no line end closes

    def same_writer_above(self, line: LogLine) -> list[LogLine]:
        """What whoever wrote a line wrote just before it."""
        end = line.offset - self.offset
        above = self.lines_from(self.line_start(max(0, end - BLOCK)), end)
        return [other for other in above if other.who == line.who]

    def same_writer_from(self, line: LogLine) -> Iterator[LogLine]:
        """The line, and what whoever wrote it wrote after it."""
        below = self.lines_from(line.offset - self.offset)
        return (other for other in below if other.who == line.who)


def pieces(source: ReadableLog, begin: int = 0, stop: int | None = None) -> Iterator[Piece]:
    """The pieces of `source[begin:stop]`, cut at line ends, each seen with what surrounds it."""
    with source.opened() as stream:
        stream.seek(begin)
        left = source.size if stop is None else stop - begin
        data, offset, start = b"", begin, 0
        while True:
            more = stream.read(min(PIECE, left))
            left -= len(more)
            data += more
            end = _cut(data, start) if more else len(data)
            if end > start:
                yield Piece(source, data, offset, start, end)
            if not more:
                return
            keep = max(0, end - MARGIN)
            data, offset, start = data[keep:], offset + keep, end - keep


def _cut(data: bytes, start: int) -> int:
    """Where a piece may end: at a line end with a margin behind it, or inside an endless line."""
    latest = len(data) - MARGIN
    if latest <= start:
        return start
    at = max(data.rfind(end, start, latest) for end in _LINE_ENDS)
    return at + 1 if at >= 0 else (latest if latest - start >= PIECE // 2 else start)


def _banner(data: bytes) -> bytes:
    """The first lines of a log that stay the same from run to run; empty where it has none."""
    lines: list[bytes] = []
    for line in data[:LONGEST_LINE].split(b"\n")[:-1]:
        if line[:1].isspace() or _FAILED.search(line):
            break
        lines = [] if _DATED.search(line) or not line else [*lines, line]
        if len(lines) == _BANNER_LINES:
            banner = b"\n".join(lines)
            return banner if _LETTERS.search(banner) else b""
    return b""


def cleaned(raw: bytes, source: ReadableLog, offset: int) -> list[LogLine]:
    """The line without its prefix; several where a logger folded them into one."""
    line = source.format.read(raw.decode("utf-8", errors="replace"))
    line = replace(
        line,
        rank=source.rank if source.rank is not None else line.rank,
        node=source.node or line.node,
        level="" if source.format.loud_throughout else line.level,
        offset=offset,
    )
    return [replace(line, text=text.rstrip()) for text in line.text.split("\n")]


def rank_in_name(path: Path) -> int | None:
    """The rank a file's name gives: `rank_3.err`, `job.rank3.log`."""
    found = _FILE_RANK.search(path.name)
    return int(found[1]) if found else None


def line_numbers(source: ReadableLog, offsets: Iterable[int]) -> dict[int, int]:
    """The 1-based line of each offset, all in one pass that holds nothing."""
    numbers: dict[int, int] = {}
    count, at = 1 + source.lines_left_out, 0
    with source.opened() as stream:
        for offset in sorted(offsets):
            while at < offset and (block := stream.read(min(PIECE, offset - at))):
                count += block.count(b"\n")
                at += len(block)
            numbers[offset] = count
    return numbers


def tail_of(source: ReadableLog, tail: int) -> str:
    """The last `tail` bytes as text, of the last run."""
    return ends_of(source, 0, min(tail, source.size - source.last_start))[1]


def ends_of(source: ReadableLog, head: int, tail: int) -> tuple[str, str]:
    """The first `head` and last `tail` bytes as text; both the same where the source is short."""
    with source.opened() as stream:
        size = source.size
        first = stream.read(min(head, size))
        stream.seek(max(0, size - tail))
        last = stream.read(tail)
    return first.decode("utf-8", "replace"), last.decode("utf-8", "replace")
