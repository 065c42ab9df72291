"""One pass over the logs of a cycle: every event that a pattern or an exception shows in them.

All literals are looked for at once: which of them occur in this piece of a log? That question is
all an engine answers, so that every engine gives the same findings. Over 54 MB of training log with
98 literals: hyperscan 6,300 MB/s, an RE2 set 670 MB/s, an alternation of the standard library 20 to
130 MB/s. Hyperscan is used where it is installed (extra `scan`), the standard library otherwise;
RE2 would be a third engine between the two.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from aorta.attribution.events import BLOCK, Event, Pattern, Reading, Registry, event_of, occurrences
from aorta.attribution.events.exceptions import (
    LITERALS,
    TORCHRUN_RANK,
    chained,
    crash_frames,
    exceptions,
    whole_text,
)
from aorta.attribution.logs import (
    Piece,
    ReadableLog,
    line_at,
    line_start,
    lines_after,
    pieces,
)
from aorta.attribution.logs.prefixes import LogLine
from aorta.attribution.nouns import FailureClass, RankEnd, Role

TAIL_FIRST = 50 << 20
_KEPT_AT_EACH_END = 3  # events of one pattern, rank and source
_SHOW_A_STACK = {FailureClass.SEGFAULT, FailureClass.ABORT, FailureClass.HANG}
_TORCHRUN_FAILURE = b"exitcode  : "
_TORCHRUN_EXIT = re.compile(r"exitcode\s*: (-?\d+)")
_TORCHRUN_HOST = re.compile(r"host\s*: (\S+)")


# Which of some literals occur in a piece of a log, by their indices.
Scanner = Callable[[bytes], set[int]]


def hyperscan_scanner(literals: Sequence[bytes]) -> Scanner:
    """Raises ImportError where hyperscan is not installed."""
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[re.escape(literal) for literal in literals],
        ids=list(range(len(literals))),
        elements=len(literals),
        flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(literals),
    )

    # A database has one scratch space, and a launcher's threads read at the same time.
    one_at_a_time = threading.Lock()

    def present(piece: bytes) -> set[int]:
        found: set[int] = set()
        with one_at_a_time:
            database.scan(piece, match_event_handler=lambda index, *_: found.add(index))
        return found

    return present


def plain_scanner(literals: Sequence[bytes]) -> Scanner:
    """The standard library alone: an alternation finds places, then each literal is looked up."""
    any_of_them = re.compile(b"|".join(re.escape(literal) for literal in literals))

    def present(piece: bytes) -> set[int]:
        if any_of_them.search(piece) is None:
            return set()
        return {index for index, literal in enumerate(literals) if literal in piece}

    return present


def fastest_scanner(literals: Sequence[bytes]) -> Scanner:
    try:
        return hyperscan_scanner(literals)
    except ImportError:
        return plain_scanner(literals)


def read_ends(sources: Iterable[ReadableLog], registry: Registry) -> Reading:
    """What the last `TAIL_FIRST` bytes of all sources together show."""
    sources = [source for source in sources if source.size]
    share = TAIL_FIRST // max(1, len(sources))
    total = Reading()
    for source in sources:
        begin = max(0, source.size - share)
        total += replace(_read(source, registry, begin, None), complete=begin == 0)
    return total


def read_whole(sources: Iterable[ReadableLog], registry: Registry) -> Reading:
    total = Reading()
    for source in sources:
        if source.size:
            total += _read(source, registry, 0, None)
    return total


def _read(source: ReadableLog, registry: Registry, begin: int, stop: int | None) -> Reading:
    literals, scanner = _scanner_for(registry)
    kept: _Kept = {}
    for piece in pieces(source, max(begin, source.last_start), stop):
        present = scanner(piece.data)
        if not present:
            continue
        found = [literals[index] for index in sorted(present)]
        shown = _events(piece, found, source, registry)
        for event in sorted(shown, key=lambda event: event.offset):
            _keep(kept, event)
    events = sorted((event for group in kept.values() for event in group), key=lambda s: s.offset)
    return Reading(chained(events))


@lru_cache(maxsize=8)
def _scanner_for(registry: Registry) -> tuple[tuple[bytes, ...], Scanner]:
    triggers = (trigger.encode() for trigger in registry.by_trigger)
    literals = tuple(dict.fromkeys((*LITERALS, _TORCHRUN_FAILURE, *triggers)))
    return literals, fastest_scanner(literals)


_Kept = dict[tuple[str, tuple[int | None, str], str], list[Event]]


def _keep(kept: _Kept, event: Event) -> None:
    """Bounded memory: of a kind of event the first and the last few are kept."""
    group = kept.setdefault((event.pattern, event.who, event.signature[:80]), [])
    if any(event.offset == other.offset for other in group):
        return
    if len(group) >= 2 * _KEPT_AT_EACH_END:
        del group[_KEPT_AT_EACH_END]
    group.append(event)


def _events(
    piece: Piece, literals: list[bytes], source: ReadableLog, registry: Registry
) -> Iterator[Event]:
    told = exceptions(piece, literals, source, registry)
    yield from told.events
    for literal in literals:
        rows = registry.by_trigger.get(literal.decode(), ())
        if not rows:
            continue
        for position in occurrences(piece, literal):
            line = line_at(piece.data, position, source, piece.offset, literal.decode())
            for row in rows:
                text = whole_text(piece, line, source) if row.whole_message else line.text
                covered = told.covers(line, by_launcher=row.on == "exit" or row.ends_the_rest)
                match = None if covered else row.match(text)
                if match is not None and row.fits_after(_lines_before(row, line, piece, source)):
                    event = event_of(row, match, line, source)
                    if event is not None:
                        yield _with_crash_frames(event, piece, source)
    if _TORCHRUN_FAILURE in literals:
        yield from _torchrun_failures(piece, source)


def _lines_before(row: Pattern, line: LogLine, piece: Piece, source: ReadableLog) -> Iterator[str]:
    """What the same rank wrote just before, where a row asks for it."""
    if row.before is None:
        return
    end = line.offset - piece.offset
    begin = line_start(piece.data, max(0, end - BLOCK))
    for earlier in lines_after(piece.data[:end], begin, source, piece.offset):
        if earlier.who == line.who:
            yield earlier.text


def _with_crash_frames(event: Event, piece: Piece, source: ReadableLog) -> Event:
    """Two crashes or hangs are the same bug if they happened in the same place."""
    if event.failure_class not in _SHOW_A_STACK:
        return event
    under = lines_after(piece.data, event.offset - piece.offset, source, piece.offset)
    frames = crash_frames(line for line in under if line.who == event.who)
    return replace(event, signature=" > ".join([event.signature, *frames]))


def _torchrun_failures(piece: Piece, source: ReadableLog) -> Iterator[Event]:
    """torchrun's table of who failed, with host, code and time of each."""
    for position in occurrences(piece, _TORCHRUN_FAILURE):
        begin = line_start(piece.data, max(0, position - 300))
        above = lines_after(piece.data[: position + 80], begin, source, piece.offset)
        block = [line for line in above if line.text.strip()]
        text = "\n".join(line.text for line in block)
        ranks, codes = TORCHRUN_RANK.findall(text), _TORCHRUN_EXIT.findall(text)
        if not ranks or not codes:
            continue
        host = _TORCHRUN_HOST.findall(text)
        number = int(codes[-1])
        end = RankEnd(
            int(ranks[-1]),
            exit_code=number if number >= 0 else None,
            signal=-number if number < 0 else None,
            node=host[-1] if host else None,
        )
        kind, certainty = end.meaning
        yield Event(kind, Role.END, certainty, "elastic.table", block[-1].text, end.words, end.rank,
                    source, piece.offset + position, ended=(end,))  # fmt: skip
