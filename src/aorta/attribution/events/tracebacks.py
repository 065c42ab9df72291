"""Python tracebacks as they stand in logs: prefixed, interleaved, coloured, boxed, chained, or
merely logged.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain, islice

from aorta.attribution.logs import LogLine

HEADER = b"(most recent call last)"  # colours may stand before it, inside the line
_HEADER = "Traceback (most recent call last)"
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_BOXED_FRAME = re.compile(r"(?P<file>[^\s│]+\.py):(?P<line>\d+) in (?P<function>\S+)")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w]*\.)*[A-Za-z_]\w*(?::(?:\s|$)|$)")
_USUAL_NAME = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Failure|Warning|Timeout|"
    r"Fault|_exception|_error)\w{0,3}(?::\s|:?$)"
)
_OTHER_WRITER = re.compile(  # a program's name, a logger's level, a shell's word
    r"^(?:[a-z]\w*|DEBUG|TRACE|INFO|NOTICE|NOTE|WARN(?:ING)?|ERR(?:OR)?|CRITICAL|FATAL|Killed|"
    r"Terminated|Aborted|Hangup|Quit)(?::(?:\s|$)|$)"
)
_BOX = re.compile(r"^[\s╭╰│─╮╯┃┏┗━┓┛+|]")
_GROUP_MARGIN = re.compile(r"^ *(?:\| |\+ |\+-)")
_LOGGED = re.compile(r"\b(?:ERROR|CRITICAL|EXCEPTION)\b|^E\d{3,4} ")
_LOUD = {"ERR", "ERROR", "CRITICAL", "FATAL", "EXCEPTION"}
_IGNORED = re.compile(r"^Exception (?:in thread|ignored in|in callback)|^Error in atexit")
_CRASH_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+ in (?P<function>\S+)')
_LIBRARY = re.compile(r"/site-packages/|/dist-packages/|/lib/python\d|^<frozen ")
_CARETS = re.compile(r"^[\s~^]*$")
_BOXED_LINE = re.compile(r"❱\s*\d+(?P<text>.*)")
_OTHER_PROGRAM = re.compile(r"(?:srun|slurmstepd\S*|sbatch|salloc|kernel): ")
_MOST_LINES = 400
_MOST_CRASH_LINES = 40
_CRASH_FRAMES = 3
_CONTINUATION = 6
_TORN_BY = 12  # lines of other writers between two of one traceback


class Link(Enum):
    """How a traceback is tied to the one printed after it."""

    CAUSE = "The above exception was the direct cause of the following exception:"
    HANDLING = "During handling of the above exception, another exception occurred:"
    WORKER = "Original Traceback (most recent call last):"


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str
    text: str = ""  # of the source line, where it was shown

    @property
    def is_library(self) -> bool:
        return _LIBRARY.search(self.file) is not None

    @property
    def name(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.function}"


@dataclass(frozen=True)
class Traceback:
    """One exception with its frames. `survived`: the program reported it and went on."""

    exception: str  # "Type: message" and a few lines of what follows
    frames: tuple[Frame, ...]
    line: LogLine  # its headline, and who wrote it
    begins: int  # of the header
    until: int = 0  # of the last line of its message
    link: Link | None = None
    survived: bool = False
    ignored: bool = False  # it ended nothing but a thread or a destructor

    @property
    def innermost(self) -> str | None:
        return self.frames[-1].name if self.frames else None

    @property
    def headline(self) -> str:
        return self.exception.split("\n", 1)[0]

    @property
    def own_frame(self) -> Frame | None:
        """The innermost frame of the program itself, below which only libraries stand."""
        return next((frame for frame in reversed(self.frames) if not frame.is_library), None)

    @property
    def own_line(self) -> str:
        return self.own_frame.text if self.own_frame else ""

    @property
    def place(self) -> str:
        return self.own_frame.name if self.own_frame else ""


def read_traceback(lines: Iterable[LogLine], before: LogLine | None) -> Traceback | None:
    """The traceback whose header is the first of `lines`; other ranks' lines are passed over."""
    reader = iter(lines)
    header = next(reader, None)
    while header is not None and _HEADER not in header.text:  # a logger folded them into one
        before = header
        header = next(reader, None)
        if header is not None and header.offset != before.offset:
            return None
    if header is None:
        return None
    margin = len(header.text) - len(header.text.lstrip(" "))
    own: Iterator[LogLine] = (
        _without(margin, line) for line in _spoken_by(header, islice(reader, _MOST_LINES))
    )
    frames: list[Frame] = []
    for line in own:
        text = _GROUP_MARGIN.sub("", line.text)
        frame = FRAME.match(text) or _BOXED_FRAME.search(text)
        if frame:
            function = frame["function"] or "<module>"
            frames.append(Frame(frame["file"], int(frame["line"]), function))
        elif _HEADER in text:
            return None  # cut off: another traceback begins before this one has ended
        elif text and not _BOX.match(text) and _EXCEPTION.match(text):
            if _OTHER_WRITER.match(text):
                continue
            if not _USUAL_NAME.match(text):
                ahead = list(islice(own, _TORN_BY))
                own = chain(ahead, own)
                if _goes_on(ahead):
                    continue
            rest, until, link = _after(own, line.offset)
            time = line.time if line.time is not None else header.time
            return Traceback(
                exception="\n".join([text, *rest]),
                frames=tuple(frames),
                line=replace(header, text=text, offset=line.offset, time=time, level=""),
                begins=header.offset,
                until=until,
                link=link,
                survived=_survived(header, before),
                ignored=_is_ignored(before),
            )
        elif frames:
            frames[-1] = _with_source(frames[-1], text)
    return None


def _goes_on(ahead: list[LogLine]) -> bool:
    """Whether frames or a plainer exception follow: then the line before was another writer's."""
    for line in ahead:
        if not line.text.strip() or _HEADER in line.text:
            return False
        if FRAME.match(line.text) or _USUAL_NAME.match(line.text):
            return True
    return False


def _spoken_by(header: LogLine, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines of the process that wrote `header`; an unmarked line is the last writer's."""
    is_own = True
    for line in lines:
        if line.who != (None, ""):
            is_own = line.who == header.who
        if is_own:
            yield line


def unfolded(text: str, rank: int | None, offset: int) -> list[LogLine]:
    """The lines of a traceback that a structured logger folded into one; none if not folded."""
    at = text.find(_HEADER)
    if at < 0 or "\\n" not in text[at:]:
        return []
    lines = text[at:].replace('\\"', '"').replace("\\\\", "\\").split("\\n")
    return [LogLine(line.rstrip('"}] '), rank, offset) for line in lines]


def _without(margin: int, line: LogLine) -> LogLine:
    """`line` moved left by its header's margin: launchers quote tracebacks with one."""
    if margin and line.text[:margin].isspace():
        return replace(line, text=line.text[margin:])
    return line


def _with_source(frame: Frame, text: str) -> Frame:
    """The frame with the source line that is printed under it, the first that is one."""
    boxed = _BOXED_LINE.search(text)
    if boxed is not None:
        return replace(frame, text=boxed["text"].strip("│ "))
    shown = text.strip()
    if frame.text or _CARETS.match(text) or not text.startswith("    "):
        return frame
    return replace(frame, text=shown)


def frames_above(lines: list[LogLine], who: tuple[int | None, str]) -> tuple[Frame, ...]:
    """The frames that stand right above an exception line whose traceback has lost its head."""
    kept: list[LogLine] = []
    for line in reversed([line for line in lines if line.who == who]):
        if not (FRAME.match(line.text) or line.text.startswith("  ") or _CARETS.match(line.text)):
            break
        kept.append(line)
    frames: list[Frame] = []
    for line in reversed(kept):
        frame = FRAME.match(line.text)
        if frame:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["function"] or "<module>"))
        elif frames:
            frames[-1] = _with_source(frames[-1], line.text)
    return tuple(frames)


def crash_frames(lines: Iterable[LogLine]) -> tuple[str, ...]:
    """The innermost frames under "Fatal Python error", which prints the latest call first."""
    frames: list[str] = []
    for line in islice(lines, _MOST_CRASH_LINES):
        frame = _CRASH_FRAME.match(line.text)
        if frame:
            frames.append(f"{frame['file'].rsplit('/', 1)[-1]}:{frame['function']}")
        elif frames:
            break
    return tuple(frames[:_CRASH_FRAMES])


def _after(lines: Iterable[LogLine], until: int) -> tuple[list[str], int, Link | None]:
    """The rest of the message, where it ends, and whether another exception follows."""
    message: list[str] = []
    blank = 0
    for line in islice(lines, 40):
        text = _GROUP_MARGIN.sub("", line.text)
        link = next((link for link in Link if text.strip() == link.value), None)
        if link is not None or _HEADER in text or _OTHER_PROGRAM.match(text):
            return message, until, link
        blank += not text.strip()
        if blank > 1:
            break
        if not blank and len(message) < _CONTINUATION:
            message.append(text)
            until = line.offset
    return message, until, None


def _survived(header: LogLine, before: LogLine | None) -> bool:
    """Whether the program's own logger wrote it: who does that has caught it."""
    if header.level:
        return True
    if before is None or before.who != header.who:
        return False
    return before.level in _LOUD or _LOGGED.search(before.text) is not None


def _is_ignored(before: LogLine | None) -> bool:
    """Whether the interpreter says that it ends nothing but a thread or a destructor."""
    return before is not None and _IGNORED.match(before.text) is not None
