"""One pass over the logs of a cycle: every event that a pattern or an exception shows in them.

All literals are looked for at once: which of them occur in this piece of a log? That question is
all an engine answers, so that every engine gives the same findings. Over 54 MB of training log with
98 literals: hyperscan 6,300 MB/s, an RE2 set 670 MB/s, an alternation of the standard library 20 to
130 MB/s. Hyperscan is used where it is installed (extra `scan`), the standard library otherwise.

Tracebacks stand in logs prefixed, interleaved, coloured, chained, or merely logged. The lines of
one writer are gathered here; `core.raised` reads them.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice, zip_longest

from aorta.attribution.documents import Certainty, FailureClass, RankEnd, Role
from aorta.attribution.events import (
    ANY_EXCEPTION,
    QUOTED,
    Event,
    Pattern,
    RaisedAt,
    Reading,
    Traceback,
    event_of,
    registry,
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


def read(sources: Iterable[ReadableLog], *, ends_only: bool = False) -> Reading:
    """What the sources show; or the last `TAIL_FIRST` bytes of them all together."""
    sources = [source for source in sources if source.size]
    share = TAIL_FIRST // max(1, len(sources))
    begins = [max(0, source.size - share) if ends_only else 0 for source in sources]
    events = (_read(source, begin) for source, begin in zip(sources, begins, strict=True))
    return Reading(tuple(chain.from_iterable(events)), complete=not any(begins))


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
    triggers = (trigger.encode() for trigger in registry().by_trigger)
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
    told = exceptions(piece, literals)
    yield from told.events
    for literal in literals:
        patterns = registry().by_trigger.get(literal.decode(), ())
        for position in piece.occurrences(literal) if patterns else ():
            line = piece.line_at(position, literal.decode())
            for pattern in patterns:
                by_launcher = pattern.on == "exit" or pattern.ends_the_rest
                event = None
                if not told.covers(line, by_launcher=by_launcher):
                    event = _event_in(line, pattern, piece)
                if event is not None:
                    yield _with_crash_frames(event, line, piece)
    if _TORCHRUN_FAILURE in literals:
        yield from _torchrun_failures(piece)


def _event_in(line: LogLine, pattern: Pattern, piece: Piece) -> Event | None:
    match = pattern.match(whole_text(piece, line) if pattern.whole_message else line.text)
    if match is None:
        return None
    if pattern.before is not None:
        above = [other.text for other in piece.same_writer_above(line)]
        if not any(re.search(pattern.before, text) for text in above):
            return None
    return event_of(pattern, match, line, piece.source)


def _with_crash_frames(event: Event, line: LogLine, piece: Piece) -> Event:
    """Two crashes or hangs are the same bug if they happened in the same place."""
    if event.failure_class not in _SHOW_A_STACK:
        return event
    frames = crash_frames(piece.same_writer_from(line))
    return replace(event, signature=" > ".join([event.signature, *frames]))


def _torchrun_failures(piece: Piece) -> Iterator[Event]:
    """torchrun's table of who failed, with host, code and time of each."""
    for position in piece.occurrences(_TORCHRUN_FAILURE):
        above = piece.lines_from(piece.line_start(max(0, position - 300)), position + 80)
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
                    piece.source, piece.offset + position, ended=(end,))  # fmt: skip


# ---- exceptions


_HEADER = b"(most recent call last)"  # colours may stand before it, inside the line
_WHAT = b"what():  "  # how the C++ runtime shows an exception that nobody caught
_CHECK = b"Check failed: "
_NAMES = (b"Error", b"Exception", b"Interrupt", b"SystemExit")
_QUOTES = (b"xception: ", b"CUDA error", b"HIP error", b"aused by", b"eason: ", _CHECK)
_IN_A_LINE = (*_NAMES, _WHAT, *_QUOTES)
LITERALS = (_HEADER, *_IN_A_LINE)
LOADER_WORKER = "data.loader_worker"
TORCHRUN_RANK = re.compile(r"(?<!_)rank\s*: (\d+)")
_QUOTED = re.compile(r"\s*traceback : ")  # by torchrun
_SPAWNED = re.compile(r"-- Process (\d+) terminated with the following error:")
_ALONE = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)\w{0,3}|"
    r"RayTaskError\([\w.]+\))(?::\s|:?$)"
)
_INSIDE = re.compile(
    r"(?:(?:with|[Cc]aught|[Uu]nhandled|raised|[Oo]riginal|following) (?:an )?(?:exception|"
    r"error)[^:]{0,40}|[Ee]xception|[Cc]aused by|[Rr]eason)"
    r":? +(?P<message>(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: .+|$))|(?:CUDA|HIP|"
    r"NCCL) (?:error|Error): .+)"
    r"|(?P<device>(?:CUDA|HIP) error(?: \d+)?: .+)|Check failed: (?P<check>.+)"
)
_HARMLESS = re.compile(
    r"retry|ignor|skip|fall(?:ing)? ?back|attempt|will be|for debugging", re.IGNORECASE
)
_QUIET = {"DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "TRACE"}
_OF_THE_RECORD = {
    FailureClass.SHAPE_MISMATCH,
    FailureClass.ASSERTION,
    FailureClass.USER_EXCEPTION,
    FailureClass.NAN,
}


@dataclass(frozen=True)
class ExceptionsFound:
    """The exceptions of a piece, and where their text stands."""

    events: tuple[Event, ...]
    extents: tuple[tuple[int, int, tuple[int | None, str]], ...]
    headlines: frozenset[int] = frozenset()  # where their first lines stand

    def covers(self, line: LogLine, by_launcher: bool = False) -> bool:
        """Whether a line is part of an exception's text, a launcher's own lines included."""
        if by_launcher and line.offset not in self.headlines:
            return False
        return any(b <= line.offset <= e and line.who == who for b, e, who in self.extents)


def exceptions(piece: Piece, literals: list[bytes]) -> ExceptionsFound:
    told = ExceptionsFound((), ())
    if _HEADER in literals:
        told = _with_tracebacks(piece)
    found = {event.offset: event for event in told.events}
    for literal in (each for each in _IN_A_LINE if each in literals):
        for position in piece.occurrences(literal):
            line = piece.line_at(position, literal.decode())
            covered = literal != _WHAT and told.covers(line)
            if line.offset not in found and not covered:
                event = _in_a_line(line, literal, piece)
                if event is not None:
                    found[event.offset] = event
    return replace(told, events=tuple(found.values()))


def _in_a_line(line: LogLine, literal: bytes, piece: Piece) -> Event | None:
    """The exception that one line shows: its last line where the traceback was cut off, what the
    C++ runtime says of one that nobody caught, or what a wrapper or a watchdog quotes.
    """
    if literal == _WHAT:
        return _of_message(line.text.partition(_WHAT.decode())[2], line, piece.source)
    if _ALONE.match(line.text):
        return _headless(line, piece) if literal in _NAMES else None
    quoted = _INSIDE.search(line.text) if literal in _QUOTES else None
    if quoted is None or line.level in _QUIET or _HARMLESS.search(line.text):
        return None
    message = quoted["message"] or quoted["device"] or quoted["check"]
    event = _of_message(message, line, piece.source)
    if event is None:
        return None
    certainty = min(event.certainty, Certainty.LIKELY, key=lambda each: each.weight)
    return replace(event, certainty=certainty)


def _with_tracebacks(piece: Piece) -> ExceptionsFound:
    events: list[Event] = []
    extents: list[tuple[int, int, tuple[int | None, str]]] = []
    headlines: set[int] = set()
    for position in piece.occurrences(_HEADER):
        traceback = _traceback_at(piece, position)
        if traceback is None:
            continue
        extents.append((traceback.begins, traceback.until, traceback.line.who))
        headlines.add(traceback.line.offset)
        event = None if traceback.ignored else _exception_event(traceback, piece.source)
        if event is not None:
            events.append(event)
    return ExceptionsFound(tuple(events), tuple(extents), frozenset(headlines))


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
    return "\n".join([line.text, *rest[:6]])


def _of_message(message: str, line: LogLine, source: ReadableLog) -> Event | None:
    text = message if _ALONE.match(message) else f"RuntimeError: {message}"
    known = registry().exception(text)
    if known is None:
        return _without_pattern(QUOTED, text, line, source)
    return event_of(known[0], known[1], line, source)


def _without_pattern(name: str, text: str, line: LogLine, source: ReadableLog) -> Event:
    """An event whose class is left to the classifier."""
    kind, _, message = text.partition("\n")[0].partition(":")
    shown = line.text if name == ANY_EXCEPTION else text
    words = f"{kind}: {stable(message)}"
    return weak_event(line, source, name, FailureClass.USER_EXCEPTION, shown, words)


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
    header = piece.line_at(position)
    before = piece.line_at(begin - 2) if begin > 1 else None
    told = _traceback(piece.lines_from(begin), before)
    if told is None:
        return None
    spawned = None if before is None else _SPAWNED.match(before.text)
    rank = told.line.rank if spawned is None else int(spawned[1])
    if _QUOTED.match(header.text):  # torchrun says whose it is a few lines above
        above = piece.data[max(0, begin - BLOCK) : begin].decode("utf-8", "replace")
        rank = next((int(each) for each in reversed(TORCHRUN_RANK.findall(above))), rank)
    return replace(told, line=replace(told.line, rank=rank))


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
    margin = len(header.text) - len(header.text.lstrip(" "))
    written = _written_by(header, reader)
    own: list[LogLine] = []
    block: TracebackBlock | None = None
    for most in _MOST_LINES:
        own += [_without(margin, line) for line in islice(written, most - len(own))]
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
    """Without lines that frames stand right below: they end no traceback, but quote what they were
    raised from, as Ray does, or are another writer's.
    """
    for text, below in zip_longest(texts, texts[1:], fillvalue=""):
        yield text if text[:1].isspace() or not FRAME.match(below) else ""


def _without(margin: int, line: LogLine) -> LogLine:
    """`line` moved left by its header's margin: launchers quote tracebacks with one."""
    if margin and line.text[:margin].isspace():
        return replace(line, text=line.text[margin:])
    return line


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


def crash_frames(lines: Iterable[LogLine]) -> tuple[str, ...]:
    """The innermost frames under "Fatal Python error", which prints the latest call first."""
    frames: list[str] = []
    for line in islice(lines, _MOST_CRASH_LINES):
        frame = FRAME.match(line.text)
        if frame:
            frames.append(f"{frame['file'].rsplit('/', 1)[-1]}:{frame['function']}")
        elif frames:
            break
    return tuple(frames[:_CRASH_FRAMES])


def _exception_event(traceback: Traceback, source: ReadableLog) -> Event | None:
    stack = " > ".join(traceback.names)
    own = traceback.own_frame
    raised = RaisedAt(own.source if own else "", stack)
    known = registry().exception(traceback.exception, raised)
    line = traceback.line
    if known is None:
        event: Event | None = _without_pattern(ANY_EXCEPTION, traceback.exception, line, source)
    else:
        event = event_of(*known, line, source)
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
            whole.append(_told_by(open_chains.pop(event.who)))
    whole += [_told_by(chain) for chain in open_chains.values()]
    return tuple(sorted(whole, key=lambda event: event.offset))


def _told_by(chain: list[Event]) -> Event:
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
