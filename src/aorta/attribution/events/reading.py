"""One pass over the logs of a cycle: every event that a pattern or an exception shows in them.

An engine only says which literals occur in a piece of a log, so every engine gives the same
findings: Hyperscan (6,300 MB/s with 98 literals) where the extra `scan` is installed, else the
standard library. Tracebacks are gathered here by writer; `core.raised` reads them.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, dropwhile, islice, takewhile, zip_longest

from aorta.attribution.documents import FailureClass, RankEnd, Role
from aorta.attribution.events import (
    ANY_EXCEPTION,
    QUOTED,
    Event,
    Pattern,
    Traceback,
    by_trigger,
    event_of,
    pattern_of_exception,
    stable,
    weak_event,
)
from aorta.attribution.logs import BLOCK, Piece, ReadableLog, pieces
from aorta.attribution.logs.prefixes import LogLine
from aorta.core.raised import FRAME, Frame, TracebackBlock, read_traceback, type_and_message
from aorta.core.templates import HEADER

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


def fastest_scanner(literals: Sequence[bytes]) -> Scanner:
    try:
        return hyperscan_scanner(literals)
    except ImportError:
        return lambda piece: {at for at, literal in enumerate(literals) if literal in piece}


def read(
    sources: Iterable[ReadableLog], *, ends_only: bool = False
) -> tuple[tuple[Event, ...], bool]:
    """What the sources show, or the last `TAIL_FIRST` bytes of them; and whether that is all."""
    sources = [source for source in sources if source.size]
    share = TAIL_FIRST // max(1, len(sources))
    begins = [max(0, source.size - share) if ends_only else 0 for source in sources]
    events = (_read(source, begin) for source, begin in zip(sources, begins, strict=True))
    return tuple(chain.from_iterable(events)), not any(begins)


def _read(source: ReadableLog, begin: int) -> tuple[Event, ...]:
    literals, scanner = _scanner()
    kept: _Kept = {}
    for piece in pieces(source, max(begin, source.last_start)):
        present = scanner(piece.data)
        if not present:
            continue
        found = [literals[index] for index in sorted(present)]
        for event in sorted(_events(piece, found), key=lambda event: event.offset):
            _keep(kept, event)
    return chained(sorted(chain.from_iterable(kept.values()), key=lambda event: event.offset))


@cache
def _scanner() -> tuple[tuple[bytes, ...], Scanner]:
    triggers = (trigger.encode() for trigger in by_trigger())
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


def _events(piece: Piece, literals: list[bytes]) -> Iterator[Event]:
    found = exceptions(piece, literals)
    yield from found.events
    for literal in literals:
        patterns = by_trigger().get(literal.decode(), ())
        for position in piece.occurrences(literal) if patterns else ():
            line = piece.line_at(position, literal.decode())
            for pattern in patterns:
                by_launcher = pattern.on == "exit" or pattern.ends_the_rest
                if not found.covers(line, by_launcher):
                    yield from _event_in(line, pattern, piece)
    if _TORCHRUN_FAILURE in literals:
        yield from _torchrun_failures(piece)


def _event_in(line: LogLine, pattern: Pattern, piece: Piece) -> Iterator[Event]:
    match = pattern.match(whole_text(piece, line) if pattern.whole_message else line.text)
    if match is None:
        return
    if pattern.before is not None:
        above = piece.same_writer_above(line)
        if not any(re.search(pattern.before, other.text) for other in above):
            return
    event = event_of(pattern, match, line, piece.source)
    if event is not None and event.failure_class in _SHOW_A_STACK:
        # Two crashes or hangs are the same bug if they happened in the same place.
        frames = _crash_frames(piece.same_writer_from(line))
        event = replace(event, signature=" > ".join([event.signature, *frames]))
    if event is not None:
        yield event


def _crash_frames(lines: Iterable[LogLine]) -> list[str]:
    """The innermost frames under "Fatal Python error", which prints the latest call first."""
    shown = [FRAME.match(line.text) for line in islice(lines, _MOST_CRASH_LINES)]
    below = takewhile(bool, dropwhile(lambda frame: frame is None, shown))
    frames = [f"{f['file'].rsplit('/', 1)[-1]}:{f['function']}" for f in below if f]
    return frames[:_CRASH_FRAMES]


def _torchrun_failures(piece: Piece) -> Iterator[Event]:
    """torchrun's table of who failed, with host, code and time of each."""
    for position in piece.occurrences(_TORCHRUN_FAILURE):
        above = piece.lines_from(piece.line_start(max(0, position - 300)), position + 80)
        text = "\n".join(line.text for line in above if line.text.strip())
        ranks, codes = _TORCHRUN_RANK.findall(text), _TORCHRUN_EXIT.findall(text)
        if not ranks or not codes:
            continue
        host = _TORCHRUN_HOST.findall(text)
        end = RankEnd(int(ranks[-1]), exit_code=int(codes[-1]), node=host[-1] if host else None)
        row = LogLine(text.rpartition("\n")[2], end.rank, offset=piece.offset + position)
        event = weak_event(row, piece.source, "elastic.table", end.meaning[0])
        yield replace(
            event, certainty=end.meaning[1], signature=end.words, role=Role.END, ended=(end,)
        )


# ---- exceptions


_HEADER = b"(most recent call last)"  # colours may stand before it, inside the line
# How the C++ runtime and torch's watchdog show an exception that nobody caught.
_UNCAUGHT = (b"what():  ", b"terminated with exception: ")
_NAMES = (b"Error", b"Exception", b"Interrupt", b"SystemExit")
LITERALS = (_HEADER, *_NAMES, *_UNCAUGHT)
LOADER_WORKER = "data.loader_worker"
_TORCHRUN_RANK = re.compile(r"(?<!_)rank\s*: (\d+)")
_QUOTED = re.compile(r"\s*traceback : ")  # by torchrun
_SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error:")
_ALONE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)\w{0,3}|"
    r"RayTaskError\([\w.]+\))(?::\s|:?$)"
)
_OF_THE_RECORD = {
    FailureClass.SHAPE_MISMATCH,
    FailureClass.ASSERTION,
    FailureClass.USER_EXCEPTION,
    FailureClass.NAN,
}


@dataclass(frozen=True)
class ExceptionsFound:
    """The exceptions of a piece, and the tracebacks that it holds."""

    events: tuple[Event, ...] = ()
    tracebacks: tuple[Traceback, ...] = ()

    def covers(self, line: LogLine, by_launcher: bool = False) -> bool:
        """Whether a line is part of an exception; a launcher's, if it is its headline."""
        if by_launcher:
            return any(line.offset == each.line.offset for each in self.tracebacks)
        at = line.offset
        own = (each for each in self.tracebacks if each.line.who == line.who)
        return any(each.begins <= at <= each.until for each in own)


def exceptions(piece: Piece, literals: list[bytes]) -> ExceptionsFound:
    positions = piece.occurrences(_HEADER) if _HEADER in literals else []
    tracebacks = tuple(t for t in (_traceback_at(piece, at) for at in positions) if t is not None)
    found = ExceptionsFound((), tracebacks)
    raised = (_exception_event(t, piece.source) for t in tracebacks if not t.ignored)
    events = {event.offset: event for event in raised if event is not None}
    for literal in (each for each in (*_NAMES, *_UNCAUGHT) if each in literals):
        for position in piece.occurrences(literal):
            line = piece.line_at(position, literal.decode())
            event = None
            if literal in _UNCAUGHT:
                message = line.text.partition(literal.decode())[2]
                event = _of_native_code(message, line, piece.source)
            elif _ALONE.match(line.text) and not found.covers(line):
                event = _headless(line, piece)
            if event is not None:
                events.setdefault(event.offset, event)
    return replace(found, events=tuple(events.values()))


def _of_native_code(message: str, line: LogLine, source: ReadableLog) -> Event | None:
    text = message if _ALONE.match(message) else f"RuntimeError: {message}"
    known = pattern_of_exception(text)
    return event_of(*known, line, source) if known else _unnamed(QUOTED, text, line, source)


def _headless(line: LogLine, piece: Piece) -> Event | None:
    """An exception line whose traceback was cut off, with the frames that are left above it."""
    message = whole_text(piece, line)
    headline = message.partition("\n")[0]
    frames = _frames_above(piece.same_writer_above(line))
    traceback = Traceback(
        exception=message,
        block=TracebackBlock(frames, *type_and_message(headline)),
        line=replace(line, text=headline, level=""),
        begins=line.offset,
        until=line.offset,
        survived=bool(line.level),
    )
    return _exception_event(traceback, piece.source)


def whole_text(piece: Piece, line: LogLine) -> str:
    """The line and a few that follow it, which may belong to its message."""
    own = [other.text for other in islice(piece.same_writer_from(line), 12)]
    rest = own[own.index(line.text) + 1 :] if line.text in own else []
    return "\n".join([line.text, *rest[:_CONTINUATION]])


def _unnamed(pattern: str, text: str, line: LogLine, source: ReadableLog) -> Event:
    """An event whose class is left to the classifier."""
    kind, _, message = text.partition("\n")[0].partition(":")
    shown = line if pattern == ANY_EXCEPTION else replace(line, text=text)
    event = weak_event(shown, source, pattern, FailureClass.USER_EXCEPTION)
    return replace(event, signature=f"{kind}: {stable(message)}")


# ---- tracebacks


_IGNORED = re.compile(r"^Exception (?:in thread|ignored in|in callback)|^Error in atexit")
_LOGGED = re.compile(r"\b(?:ERROR|CRITICAL|EXCEPTION)\b|^E\d{3,4} ")
_LOUD = {"ERR", "ERROR", "CRITICAL", "FATAL", "EXCEPTION"}
_OTHER_PROGRAM = re.compile(r"(?:srun|slurmstepd\S*|sbatch|salloc|kernel): ")
_LINKS = (  # to the traceback that is printed after it
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
    "Original Traceback (most recent call last):",
)
_MOST_LINES = (60, 400)  # of a traceback: most are short
_CONTINUATION = 6
_MOST_CRASH_LINES = 40
_CRASH_FRAMES = 3


def _traceback_at(piece: Piece, position: int) -> Traceback | None:
    begin = piece.line_start(position)
    before = piece.line_at(begin - 2) if begin > 1 else None
    found = _traceback(piece.lines_from(begin), before)
    if found is None:
        return None
    spawned = None if before is None else _SPAWNED.match(before.text)
    rank = found.line.rank if spawned is None else int(spawned[1])
    if _QUOTED.match(piece.line_at(position).text):  # torchrun says whose it is a few lines above
        above = piece.data[max(0, begin - BLOCK) : begin].decode("utf-8", "replace")
        rank = next((int(each) for each in reversed(_TORCHRUN_RANK.findall(above))), rank)
    return replace(found, line=replace(found.line, rank=rank))


def _traceback(lines: Iterable[LogLine], before: LogLine | None) -> Traceback | None:
    """The traceback whose header is the first of `lines`; other ranks' lines are passed over."""
    reader = iter(lines)
    header = next(reader, None)
    while header is not None and HEADER not in header.text:  # a logger folded them into one
        before, header = header, next(reader, None)
        if header is not None and header.offset != before.offset:
            return None
    if header is None:
        return None
    margin = header.text[: -len(header.text.lstrip(" "))]  # launchers quote tracebacks with one
    written = _written_by(header, reader)
    own: list[LogLine] = []
    block: TracebackBlock | None = None
    for most in _MOST_LINES:
        more = islice(written, most - len(own))
        own += [replace(line, text=line.text.removeprefix(margin)) for line in more]
        texts = [HEADER, *_without_quoting([line.text for line in own])]
        block, _ = read_traceback(texts, 0, most)
        if block is not None:
            break
    if block is None:
        return None
    at = block.lines[1] - 1
    line, text = own[at], own[at].text
    rest, until, is_linked = _after(own[at + 1 :], line.offset)
    time = line.time if line.time is not None else header.time
    return Traceback(
        exception="\n".join([text, *rest]),
        block=block,
        line=replace(header, text=text, offset=line.offset, time=time, level=""),
        begins=header.offset,
        until=until,
        is_linked=is_linked,
        survived=_survived(header, before),
        ignored=before is not None and _IGNORED.match(before.text) is not None,
    )


def _written_by(header: LogLine, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines of the process that wrote `header`; an unmarked line is the last writer's."""
    is_own = True
    for line in lines:
        if line.who != (None, ""):
            is_own = line.who == header.who
        if is_own:
            yield line


def _without_quoting(texts: Sequence[str]) -> Iterator[str]:
    """Without lines right above a frame: they quote, as Ray does, or are another writer's."""
    for text, below in zip_longest(texts, texts[1:], fillvalue=""):
        yield text if text[:1].isspace() or not FRAME.match(below) else ""


def _after(lines: Iterable[LogLine], until: int) -> tuple[list[str], int, bool]:
    """The rest of the message, where it ends, and whether another exception follows."""
    message: list[str] = []
    blank = 0
    for line in islice(lines, 40):
        text = line.text
        is_linked = text.strip() in _LINKS
        if is_linked or HEADER in text or _OTHER_PROGRAM.match(text):
            return message, until, is_linked
        blank += not text.strip()
        if blank > 1:
            break
        if not blank and len(message) < _CONTINUATION:
            message.append(text)
            until = line.offset
    return message, until, False


def _survived(header: LogLine, before: LogLine | None) -> bool:
    """Whether the program's own logger wrote it: who does that has caught it."""
    if header.level:
        return True
    if before is None or before.who != header.who:
        return False
    return before.level in _LOUD or _LOGGED.search(before.text) is not None


def _frames_above(lines: Sequence[LogLine]) -> list[Frame]:
    """The frames that stand right above an exception line whose traceback has lost its head."""
    frames: list[Frame] = []
    shown = ""
    for line in reversed(lines):
        frame = FRAME.match(line.text)
        if frame:
            frames.insert(0, Frame(frame["file"], frame["function"] or "<module>", shown))
        elif not line.text.startswith("  ") and line.text.strip(" ~^"):
            break
        shown = "" if frame else line.text.strip(" ~^") or shown
    return frames


def _exception_event(traceback: Traceback, source: ReadableLog) -> Event | None:
    stack = " > ".join(traceback.names)
    # Of the program itself: below it only libraries stand.
    own = [frame.source for frame in traceback.block.frames if not frame.is_library]
    known = pattern_of_exception(traceback.exception, own[-1] if own else "", stack)
    line = traceback.line
    event = (
        event_of(*known, line, source)
        if known
        else _unnamed(ANY_EXCEPTION, traceback.exception, line, source)
    )
    if event is None:
        return None
    kind, _, message = line.text.partition(":")
    return replace(
        event,
        signature=f"{kind}: {stable(message)}",
        is_exception=True,
        stack=stack,
        raised=traceback,
        survived=traceback.survived,
        leads_on=traceback.is_linked,
        is_torn=not traceback.names and traceback.begins != line.offset,
    )


def chained(events: Iterable[Event]) -> tuple[Event, ...]:
    """One event for each chain of exceptions: the one that says most, the first of equals."""
    whole: list[Event] = []
    open_chains: dict[tuple[int | None, str], list[Event]] = {}
    for event in events:
        if not event.is_exception:
            whole.append(event)
            continue
        chain = open_chains.setdefault(event.who, [])
        chain.append(event)
        if not event.leads_on:
            whole.append(_recorded_by(open_chains.pop(event.who)))
    whole += [_recorded_by(chain) for chain in open_chains.values()]
    return tuple(sorted(whole, key=lambda event: event.offset))


def _recorded_by(chain: list[Event]) -> Event:
    """The event that says most. What is raised while a record is read is the record's fault."""
    best = max(chain, key=lambda event: (event.role is not Role.CASCADE, event.certainty.weight))
    reader = next((event for event in chain if event.pattern == LOADER_WORKER), None)
    if reader is not None and best.failure_class in {*_OF_THE_RECORD, reader.failure_class}:
        best = reader
    return replace(
        best,
        survived=chain[0].survived,
        chain=tuple(event.raised for event in chain if event.raised is not None),
        ends=chain[-1].offset,
    )
