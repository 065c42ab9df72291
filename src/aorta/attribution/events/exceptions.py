"""Exceptions in a log as events: with their traceback, cut off from it, quoted by others, or
printed by the C++ runtime.

Tracebacks stand in logs prefixed, interleaved, coloured, boxed, chained, or merely logged. The
lines of one writer are gathered here; `core.raised` reads them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest

from aorta.attribution.events import (
    ANY_EXCEPTION,
    BLOCK,
    QUOTED,
    Event,
    RaisedAt,
    Registry,
    Traceback,
    event_of,
    occurrences,
    stable,
    weak_event,
)
from aorta.attribution.logs import (
    MARGIN,
    Piece,
    ReadableLog,
    line_at,
    line_start,
    lines_after,
)
from aorta.attribution.logs.prefixes import LogLine
from aorta.attribution.nouns import Certainty, FailureClass, Role
from aorta.core.raised import FRAME, Frame, TracebackBlock, read_traceback, type_and_message
from aorta.core.templates import HEADER

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
_WRITTEN_AT_ONCE = re.compile(  # by several processes, into one line
    r"^(?P<kind>(?:[a-z_]\w*\.)*[A-Z]\w*?(?:Error|Exception))(?P=kind)+(?:: )+"
    r"(?P<words>.{1,200}?)(?P=words)*$",
    re.MULTILINE,
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


def exceptions(
    piece: Piece, literals: list[bytes], source: ReadableLog, registry: Registry
) -> ExceptionsFound:
    told = ExceptionsFound((), ())
    if _HEADER in literals:
        told = _with_tracebacks(piece, source, registry)
    found = {event.offset: event for event in told.events}
    for literal in (each for each in _IN_A_LINE if each in literals):
        for position in occurrences(piece, literal):
            line = line_at(piece.data, position, source, piece.offset, literal.decode())
            covered = literal != _WHAT and told.covers(line)
            if line.offset not in found and not covered:
                event = _in_a_line(line, position, literal, piece, source, registry)
                if event is not None:
                    found[event.offset] = event
    return replace(told, events=tuple(found.values()))


def _in_a_line(
    line: LogLine,
    position: int,
    literal: bytes,
    piece: Piece,
    source: ReadableLog,
    registry: Registry,
) -> Event | None:
    """The exception that one line shows: its last line where the traceback was cut off, what the
    C++ runtime says of one that nobody caught, or what a wrapper or a watchdog quotes.
    """
    if literal == _WHAT:
        return _of_message(line.text.partition(_WHAT.decode())[2], line, source, registry)
    if _ALONE.match(line.text):
        return _headless(line, position, piece, source, registry) if literal in _NAMES else None
    quoted = _INSIDE.search(line.text) if literal in _QUOTES else None
    if quoted is None or line.level in _QUIET or _HARMLESS.search(line.text):
        return None
    message = quoted["message"] or quoted["device"] or quoted["check"]
    event = _of_message(message, line, source, registry)
    if event is None:
        return None
    certainty = min(event.certainty, Certainty.LIKELY, key=lambda each: each.weight)
    return replace(event, certainty=certainty)


def _with_tracebacks(piece: Piece, source: ReadableLog, registry: Registry) -> ExceptionsFound:
    events: list[Event] = []
    extents: list[tuple[int, int, tuple[int | None, str]]] = []
    headlines: set[int] = set()
    for position in occurrences(piece, _HEADER):
        traceback = _traceback_at(piece, position, source)
        if traceback is None:
            continue
        extents.append((traceback.begins, traceback.until, traceback.line.who))
        headlines.add(traceback.line.offset)
        event = None if traceback.ignored else _exception_event(traceback, source, registry)
        if event is not None:
            events.append(event)
    return ExceptionsFound(tuple(events), tuple(extents), frozenset(headlines))


def _headless(
    line: LogLine, position: int, piece: Piece, source: ReadableLog, registry: Registry
) -> Event | None:
    """An exception line whose traceback was cut off, with the frames that are left above it."""
    begin = line_start(piece.data, position)
    above = line_start(piece.data, max(0, begin - BLOCK))
    lines = lines_after(piece.data[:begin], above, source, piece.offset)
    message = _WRITTEN_AT_ONCE.sub(r"\g<kind>: \g<words>", whole_text(piece, line, source))
    headline = message.partition("\n")[0]
    frames = _frames_above([above for above in lines if above.who == line.who])
    traceback = Traceback(
        exception=message,
        block=TracebackBlock(frames, *type_and_message(headline)),
        line=replace(line, text=headline, level=""),
        begins=line.offset,
        until=line.offset,
        survived=bool(line.level),
    )
    return _exception_event(traceback, source, registry)


def whole_text(piece: Piece, line: LogLine, source: ReadableLog) -> str:
    """The line and a few that follow it, which may belong to its message."""
    under = lines_after(piece.data, line.offset - piece.offset, source, piece.offset)
    own = [other.text for other, _ in zip(under, range(12), strict=False) if other.who == line.who]
    rest = own[own.index(line.text) + 1 :] if line.text in own else []
    return "\n".join([line.text, *rest[:6]])


def _of_message(
    message: str, line: LogLine, source: ReadableLog, registry: Registry
) -> Event | None:
    text = message if _ALONE.match(message) else f"RuntimeError: {message}"
    known = registry.exception(text)
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
_GROUP_MARGIN = re.compile(r"^ *(?:\| |\+ |\+-)")
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


def _traceback_at(piece: Piece, position: int, source: ReadableLog) -> Traceback | None:
    begin = line_start(piece.data, position)
    header = line_at(piece.data, position, source, piece.offset)
    folded = _unfolded(piece, begin, header)
    if folded:
        told = _traceback(folded, None)
        if told is not None:
            return replace(told, survived=True)
    before = None
    if begin > 1:
        before = line_at(piece.data, begin - 2, source, piece.offset)
    told = _traceback(lines_after(piece.data, begin, source, piece.offset), before)
    if told is None:
        return None
    spawned = None if before is None else _SPAWNED.match(before.text)
    rank = told.line.rank if spawned is None else int(spawned[1])
    if _QUOTED.match(header.text):  # torchrun says whose it is a few lines above
        above = piece.data[max(0, begin - BLOCK) : begin].decode("utf-8", "replace")
        rank = next((int(each) for each in reversed(TORCHRUN_RANK.findall(above))), rank)
    return replace(told, line=replace(told.line, rank=rank))


def _unfolded(piece: Piece, begin: int, header: LogLine) -> list[LogLine]:
    """The lines of a traceback that a structured logger folded into one; none if not folded."""
    end = piece.data.find(b"\n", begin, begin + MARGIN)
    raw = piece.data[begin : end if end >= 0 else begin + MARGIN].decode("utf-8", "replace")
    at = raw.find(HEADER)
    if at < 0 or "\\n" not in raw[at:] or header.text.startswith("{"):
        return []
    lines = raw[at:].replace('\\"', '"').replace("\\\\", "\\").split("\\n")
    return [LogLine(line.rstrip('"}] '), header.rank, offset=header.offset) for line in lines]


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
    line, text = own[at], _GROUP_MARGIN.sub("", own[at].text)
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
        text = _GROUP_MARGIN.sub("", line.text)
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


def _exception_event(traceback: Traceback, source: ReadableLog, registry: Registry) -> Event | None:
    stack = " > ".join(traceback.names)
    own = traceback.own_frame
    raised = RaisedAt(own.source if own else "", stack)
    known = registry.exception(traceback.exception, raised)
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
