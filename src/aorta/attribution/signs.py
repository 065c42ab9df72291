"""One pass over the logs of a cycle: every sign of a failure, with who showed it and where it stands.

A sign is a fact with a class and a role; which sign is the cause is decided in `finding`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from aorta.attribution.reading import (
    MARGIN,
    Line,
    Piece,
    Source,
    line_at,
    line_start,
    lines_after,
    pieces,
)
from aorta.attribution.registry import Pattern, Raised, Registry
from aorta.attribution.scanning import Scanner, fastest_scanner
from aorta.attribution.taxonomy import Certainty, FailureClass, Role
from aorta.attribution.tracebacks import (
    HEADER,
    Traceback,
    crash_frames,
    read_traceback,
    unfolded,
)
from aorta.core.signature import normalise

LOADER_WORKER = "data.loader_worker"
TAIL_FIRST = 50 << 20
_MOST_OCCURRENCES = 24  # of one literal in one piece, from its beginning and again from its end
_KEPT_AT_EACH_END = 3  # signs of one pattern, rank and source
_FRAMES_IN_SIGNATURE = 3
_HOST = re.compile(r"\(?\[?[\w.-]+\]?[:,] ?\d{2,5}\b\)?|\b(?:\d{1,3}\.){3}\d{1,3}\b|[\w-]+<\d+>")
_RANDOM = re.compile(  # temporary names, hashes, what compilers name their files
    r"\btmp[\w-]{6,}|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b|\b(?=[a-z]*\d)[a-z0-9]{20,}\b"
)
_DIGITS = re.compile(r"\d+")
_SHOW_A_STACK = {FailureClass.SEGFAULT, FailureClass.ABORT, FailureClass.HANG}
_TORCHRUN_ROOT = "Root Cause (first observed failure):"
_TORCHRUN_RANK = re.compile(r"(?<!_)rank\s*: (\d+)")
_QUOTED = re.compile(r"\s*traceback : ")  # by torchrun
_SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error:")
_WHAT = b"what():  "  # how the C++ runtime shows an exception that nobody caught
_OF_THE_RECORD = {
    FailureClass.SHAPE_MISMATCH,
    FailureClass.ASSERTION,
    FailureClass.USER_EXCEPTION,
    FailureClass.NAN,
}
_BLOCK = 4 << 10  # bytes before a line that may say what it belongs to
_TORCHRUN_EXIT = re.compile(r"exitcode\s*: (-?\d+)")


@dataclass(frozen=True)
class Sign:
    failure_class: FailureClass
    role: Role
    certainty: Certainty
    pattern: str
    text: str
    signature: (
        str  # what stays the same when the same bug comes back on another host at another step
    )
    rank: int | None
    source: Source
    offset: int
    advice: tuple[str, str] | None = None
    node: str | None = None
    device: str | None = None
    file: str | None = None
    sequence: int | None = None  # of a collective, where the sign tells
    is_exception: bool = False
    survived: bool = False  # the program reported it and went on
    place: str = ""  # the program's own innermost frame, where its libraries failed
    ends: int | None = None  # where the last exception of its chain stands
    leads_on: bool = False  # the next traceback of this rank was printed because of this one
    time: float | None = None  # when it was written, where its line tells
    stream: str = ""  # whose line it is, where no rank is known

    @property
    def who(self) -> tuple[int | None, str]:
        return (self.rank, "") if self.rank is not None else (None, self.stream)


@dataclass(frozen=True)
class Summary:
    """torchrun's own word on who failed first."""

    rank: int
    exit_code: int


@dataclass(frozen=True)
class Reading:
    signs: tuple[Sign, ...] = ()
    summaries: tuple[Summary, ...] = ()
    complete: bool = True  # False: only the ends of the logs were read

    def __add__(self, more: "Reading") -> "Reading":
        return Reading(
            self.signs + more.signs,
            self.summaries + more.summaries,
            self.complete and more.complete,
        )


def read_ends(sources: Iterable[Source], registry: Registry) -> Reading:
    """What the last `TAIL_FIRST` bytes of all sources together show."""
    sources = [source for source in sources if source.size]
    share = TAIL_FIRST // max(1, len(sources))
    total = Reading()
    for source in sources:
        begin = max(0, source.size - share)
        total += replace(_read(source, registry, begin, None), complete=begin == 0)
    return total


def read_whole(sources: Iterable[Source], registry: Registry) -> Reading:
    total = Reading()
    for source in sources:
        if source.size:
            total += _read(source, registry, 0, None)
    return total


def _read(source: Source, registry: Registry, begin: int, stop: int | None) -> Reading:
    literals, scanner = _scanner_for(registry)
    kept: _Kept = {}
    summaries: list[Summary] = []
    for piece in pieces(source, begin, stop):
        present = scanner.present(piece.data)
        if not present:
            continue
        found = [literals[index] for index in sorted(present)]
        for sign in sorted(_signs(piece, found, source, registry), key=lambda sign: sign.offset):
            _keep(kept, sign)
        if _SUMMARY in found:
            summaries += _summaries(piece, source)
    signs = sorted((sign for group in kept.values() for sign in group), key=lambda s: s.offset)
    return Reading(_chained(signs), tuple(summaries))


_SUMMARY = _TORCHRUN_ROOT.encode()


@lru_cache(maxsize=8)
def _scanner_for(registry: Registry) -> tuple[tuple[bytes, ...], Scanner]:
    literals = (HEADER, _SUMMARY, _WHAT, *(trigger.encode() for trigger in registry.by_trigger))
    return literals, fastest_scanner(literals)


_Kept = dict[tuple[str, tuple[int | None, str], str], list[Sign]]


def _keep(kept: _Kept, sign: Sign) -> None:
    """Bounded memory: the first and the last few of a kind say all that a thousand between them would."""
    group = kept.setdefault((sign.pattern, sign.who, sign.signature[:80]), [])
    if any(sign.offset == other.offset for other in group):
        return
    if len(group) >= 2 * _KEPT_AT_EACH_END:
        del group[_KEPT_AT_EACH_END]
    group.append(sign)


def _signs(
    piece: Piece, literals: Iterable[bytes], source: Source, registry: Registry
) -> Iterator[Sign]:
    in_traceback: set[int] = set()
    wanted = list(literals)
    if HEADER in wanted:
        for position in _occurrences(piece, HEADER):
            traceback = _traceback_at(piece, position, source)
            sign = None if traceback is None else _exception_sign(traceback, source, registry)
            if sign is not None:
                in_traceback.add(sign.offset)
                yield sign
    if _WHAT in wanted:
        yield from _uncaught(piece, source, registry)
    for literal in wanted:
        for row in registry.by_trigger.get(literal.decode(), ()):
            for position in _occurrences(piece, literal):
                line = line_at(piece.data, position, source, piece.offset, literal.decode())
                match = None if line.offset in in_traceback else row.match(line.text)
                if match is not None and row.fits_after(_lines_before(row, line, piece, source)):
                    sign = sign_of(row, match, line, source)
                    yield _with_crash_frames(sign, piece, source)


def _uncaught(piece: Piece, source: Source, registry: Registry) -> Iterator[Sign]:
    """C++ exceptions that ended a process: their message is as good as any other's."""
    for position in _occurrences(piece, _WHAT):
        line = line_at(piece.data, position, source, piece.offset, _WHAT.decode())
        message = line.text.partition(_WHAT.decode())[2]
        known = registry.exception(f"RuntimeError: {message}")
        if known is not None and known[0].failure_class is not FailureClass.USER_EXCEPTION:
            yield sign_of(known[0], known[1], line, source)


def _lines_before(row: Pattern, line: Line, piece: Piece, source: Source) -> Iterator[str]:
    """What the same rank wrote just before, where a row asks for it."""
    if row.before is None:
        return
    end = line.offset - piece.offset
    begin = line_start(piece.data, max(0, end - _BLOCK))
    for earlier in lines_after(piece.data[:end], begin, source, piece.offset):
        if earlier.who == line.who:
            yield earlier.text


def _occurrences(piece: Piece, literal: bytes) -> list[int]:
    """Where `literal` stands in the piece's own part: all of them, or the outermost ones if there are many."""
    forward: list[int] = []
    position = piece.data.find(literal, piece.start, piece.end)
    while position >= 0 and len(forward) < _MOST_OCCURRENCES:
        forward.append(position)
        position = piece.data.find(literal, position + len(literal), piece.end)
    backward: list[int] = []
    end = piece.end
    while position >= 0 and len(backward) < _MOST_OCCURRENCES:
        end = piece.data.rfind(literal, position, end)
        if end < 0:
            break
        backward.append(end)
    return forward + backward[::-1]


def _traceback_at(piece: Piece, position: int, source: Source) -> Traceback | None:
    begin = line_start(piece.data, position)
    header = line_at(piece.data, position, source, piece.offset)
    folded = unfolded(_whole_line(piece, begin), header.rank, header.offset)
    if folded:
        told = read_traceback(folded, None)
        return None if told is None else replace(told, survived=True)
    before = None
    if begin > 1:
        before = line_at(piece.data, begin - 2, source, piece.offset)
    told = read_traceback(lines_after(piece.data, begin, source, piece.offset), before)
    if told is None:
        return None
    if _QUOTED.match(header.text):
        return replace(told, rank=_rank_of_block(piece, begin, told.rank))
    spawned = None if before is None else _SPAWNED.match(before.text)
    return told if spawned is None else replace(told, rank=int(spawned[1]))


def _whole_line(piece: Piece, begin: int) -> str:
    """A line that holds a whole traceback is longer than other lines are ever read."""
    end = piece.data.find(b"\n", begin, begin + MARGIN)
    return piece.data[begin : end if end >= 0 else begin + MARGIN].decode("utf-8", "replace")


def _rank_of_block(piece: Piece, begin: int, otherwise: int | None) -> int | None:
    """Whose traceback torchrun quotes: it says so a few lines above."""
    above = piece.data[max(0, begin - _BLOCK) : begin].decode("utf-8", "replace")
    told = _TORCHRUN_RANK.findall(above)
    return int(told[-1]) if told else otherwise


def _exception_sign(traceback: Traceback, source: Source, registry: Registry) -> Sign | None:
    raised = Raised(traceback.innermost, traceback.own_line)
    known = registry.exception(traceback.exception, raised)
    if known is None:
        return None
    row, match = known
    innermost = traceback.frames[-_FRAMES_IN_SIGNATURE:]
    frames = _RANDOM.sub("id", " > ".join(frame.name for frame in innermost))
    kind, _, message = traceback.headline.partition(":")
    words = f"{kind}: {stable(message)}"
    line = Line(
        traceback.headline,
        traceback.rank,
        traceback.offset,
        traceback.node,
        traceback.time,
        stream=traceback.stream,
    )
    return replace(
        sign_of(row, match, line, source),
        signature=f"{frames} > {words}" if frames else words,
        is_exception=True,
        place=traceback.place,
        survived=traceback.survived,
        leads_on=traceback.link is not None,
    )


def _chained(signs: Iterable[Sign]) -> tuple[Sign, ...]:
    """One sign for each chain of exceptions: the one that says most, the first of them where several do."""
    settled: list[Sign] = []
    open_chains: dict[tuple[int | None, str], list[Sign]] = {}
    for sign in signs:
        if not sign.is_exception:
            settled.append(sign)
            continue
        chain = open_chains.setdefault(sign.who, [])
        chain.append(sign)
        if not sign.leads_on:
            settled.append(_told_by(open_chains.pop(sign.who)))
    settled += [_told_by(chain) for chain in open_chains.values()]
    return tuple(sorted(settled, key=lambda sign: sign.offset))


def _told_by(chain: list[Sign]) -> Sign:
    """The sign that says most. What is raised while a record is read is the record's fault, whatever its words."""
    best = max(chain, key=lambda sign: (sign.role is not Role.CASCADE, sign.certainty.weight))
    reader = next((sign for sign in chain if sign.pattern == LOADER_WORKER), None)
    if reader is not None and best.failure_class in {*_OF_THE_RECORD, reader.failure_class}:
        best = replace(reader, signature=chain[-1].signature)
    place = best.place or next((sign.place for sign in chain if sign.place), "")
    return replace(
        best,
        signature=f"{place} > {best.signature}" if place else best.signature,
        survived=chain[0].survived,
        ends=chain[-1].offset,
    )


def _with_crash_frames(sign: Sign, piece: Piece, source: Source) -> Sign:
    """Two crashes or hangs are the same bug if they happened in the same place."""
    if sign.failure_class not in _SHOW_A_STACK:
        return sign
    under = lines_after(piece.data, sign.offset - piece.offset, source, piece.offset)
    frames = crash_frames(line for line in under if line.who == sign.who)
    return replace(sign, signature=" > ".join([sign.signature, *frames]))


def sign_of(row: Pattern, match: re.Match[str], line: Line, source: Source) -> Sign:
    groups = {name: value for name, value in match.groupdict().items() if value}
    number = groups.get("enqueued") or groups.get("seq")
    return Sign(
        failure_class=row.failure_class,
        role=row.role,
        certainty=row.certainty,
        pattern=row.id,
        text=line.text[:500],
        signature=f"{row.id} {stable(groups.get('key', ''))}".strip(),
        rank=int(groups["rank"]) if "rank" in groups else line.rank,
        source=source,
        offset=line.offset,
        advice=(row.advice.kind, row.advice.text) if row.advice else None,
        node=groups.get("node") or line.node,
        device=groups.get("device"),
        file=groups.get("file"),
        sequence=int(number) if number else None,
        time=line.time,
        stream=line.stream,
    )


def _summaries(piece: Piece, source: Source) -> Iterator[Summary]:
    for position in _occurrences(piece, _SUMMARY):
        begin = line_start(piece.data, position)
        block = "\n".join(
            line.text
            for line, _ in zip(
                lines_after(piece.data, begin, source, piece.offset), range(8), strict=False
            )
        )
        rank, code = _TORCHRUN_RANK.search(block), _TORCHRUN_EXIT.search(block)
        if rank and code:
            yield Summary(int(rank[1]), int(code[1]))


def stable(text: str) -> str:
    """A message without what differs between hosts, ranks and steps."""
    return _DIGITS.sub("<n>", normalise(_RANDOM.sub("id", _HOST.sub("<host>", text))))
