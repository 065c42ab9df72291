"""The exceptions that the output of a failed process tells of, with their frames.

In:  the text of a stream, as launchers, loggers and several ranks write it.
Out: chains of exceptions, each with its first cause in front; those that only follow from another
     one (a wrapper's, a clean-up's, one that was logged and survived) are left out while there is
     one that does not.
The order in which several processes wrote makes no difference.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import takewhile

from aorta.core.templates import ANYTHING, HEADER, by_writer, lines_of, template

_CRASH = re.compile(r"^(?:Current t|T)hread 0x[0-9a-f]+.*\(most recent call first\)")
_FATAL = re.compile(r"^Fatal Python error: (?P<what>[^:(]+)")
FRAME = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>.+?))?\s*$'
)
_BOXED_FRAME = re.compile(r"^│\s+(?P<file>[^\s│]+\.py):(?P<line>\d+) in (?P<function>\S+)")
_BOXED_SOURCE = re.compile(r"❱\s*\d+\s*│?(?P<text>.*?)│?\s*$")
_BOX = re.compile(r"^[╭╰│─╮╯┃┏┗━┓┛]")
_MARGIN = re.compile(r"^ *(?:\| ?|\+ |\+-[-+ \d]*)")
_CARETS = re.compile(r"^[\s~^|]*$")
_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\([\w.]+\))?)(?::(?:\s+(?P<message>.*))?)?$"
)
_NO_TYPE = re.compile(
    r"^(?:[a-z_]\w*|DEBUG|TRACE|INFO|NOTICE|NOTE|WARN(?:ING)?|ERR(?:OR)?|CRITICAL|FATAL|Killed|"
    r"Terminated|Aborted|Hangup|Quit|Failures?|Solution|Hint)$"
)
# a message that says only in its next lines what is wrong
_ANNOUNCES = re.compile(r"^$|:$|\berrors? for \S+(?: \S+)?$")
_CAUSE = "The above exception was the direct cause of the following exception"
_HANDLING = "During handling of the above exception, another exception occurred"
_QUOTING = re.compile(
    r"Original Traceback|terminated with the following error|^\"\"\"$|^Caused by: "
)
_IGNORED = re.compile(
    r"^Exception (?:in thread|ignored|in callback)|^Error in (?:atexit|sys\.)|never retrieved"
)
_LOGGED = re.compile(r"\b(?:ERROR|WARNING|WARN|CRITICAL|EXCEPTION)\b|^[EW]\d{3,4} ")
_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):(?:.*\n){1,6}?.*rank\s*: (\d+)")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d(?:\.\d+)?/|^<frozen ")
_GENERATED = re.compile(r"/torchinductor_[^/]+/")  # named by a hash of the code in it
_ABOVE_PACKAGES = re.compile(r".*/(?:site|dist)-packages/|.*/python\d(?:\.\d+)?/")
_COMPREHENSIONS = {"<listcomp>", "<dictcomp>", "<setcomp>"}
_FRAMES_KEPT = 4
_FOREIGN = 12  # lines of other writers within a traceback
_TYPES_THAT_WRAP = re.compile(
    r"^(?:CalledProcessError|ChildFailedError|Process(?:Raised|Exited)Exception|_?RemoteTraceback|"
    r"(?:Base)?ExceptionGroup|RayTaskError|RayActorError|ActorDiedError|WorkerCrashedError|"
    r"TerminatedWorkerError|BrokenProcessPool|SystemExit|SignalException)$"
)
_REPORTED_LATER = re.compile(r"^(?:CUDA|HIP) error")  # by whichever call is the next
_WORKERS_REPORT = re.compile(r"^Caught \S+ in \S.* (?:process|worker|thread) |^DataLoader worker ")
_TYPES_THAT_FOLLOW = re.compile(
    r"^(?:BrokenPipeError|Connection(?:Reset|Refused|Aborted)?Error|EOFError|KeyboardInterrupt|"
    r"Dist(?:Network|Store)Error|CancelledError)$"
)
_WORDS_THAT_FOLLOW = re.compile(
    r"(?i)connection (?:was )?(?:closed|reset) by|broken pipe|peer (?:rank )?(?:is )?(?:gone|dead)|"
    r"remote process exited|socket closed|another rank"
)
_CLEAN_UP = re.compile(
    r":(?:_*(?:close|shut_?down|clean_?up|tear_?down|finali[sz]e|dispose)\w*|destroy_\w+|__exit__|"
    r"__aexit__|__del__|_run_exitfuncs|atexit\w*|on_exit)$"
)


class Weight(IntEnum):
    """How much an exception says of the failure; only those of the least number count."""

    CAUSE = 0
    FOLLOWS = 1  # cut connections, clean-up, what was logged and survived
    WRAPS = 2  # says that another process failed


RECURSION = "RecursionError"
BUILT_IN = "<built-in>"  # the interpreter, or a library in C
_RAISES = re.compile(r"(?:^|:\s*)(?:raise|assert)\b")


@dataclass(frozen=True)
class Raised:
    """One exception. `frames` are the innermost of the program's own, the last the innermost; where
    there are none, a library's. `within` is the library function that raised it, or `BUILT_IN`;
    `statement` a digest of the program's own line, which raised it or called what did.
    """

    type: str
    message: str = ""  # a template
    frames: tuple[str, ...] = ()
    within: str = ""
    statement: str = ""

    @property
    def text(self) -> str:
        said = f"{self.type}: {self.message}" if self.message else self.type
        return " > ".join([*self.frames[-3:], said])


@dataclass(frozen=True)
class Cause:
    """A chain of exceptions, the first cause in front; `writer` is the rank that printed it."""

    chain: tuple[Raised, ...]
    writer: str = ""
    weight: Weight = field(default=Weight.CAUSE, compare=False)
    survived: bool = field(default=False, compare=False)

    @property
    def first(self) -> Raised:
        return self.chain[0]

    @property
    def wraps(self) -> bool:
        return self.weight is Weight.WRAPS


def causes_in(text: str) -> tuple[Cause, ...]:
    """Exceptions that this text tells of; those that only follow from others are left out."""
    found: dict[tuple[Raised, ...], Cause] = {}
    for writer, lines in by_writer(lines_of(text)).items():
        for cause in _chains(_blocks(lines), writer):
            known = found.get(cause.chain)
            if known is None or cause.weight < known.weight:
                found[cause.chain] = cause
    least = min((cause.weight for cause in found.values()), default=Weight.CAUSE)
    kept = [cause for cause in found.values() if cause.weight is least]
    if len({cause.writer for cause in kept}) > 1:
        root = _ROOT_CAUSE.search(text)
        began = f"rank{root[1]}" if root else ""
        kept.sort(key=lambda cause: (cause.writer != began, [one.text for one in cause.chain]))
    return tuple(kept)


def last_raised(text: str) -> "TracebackBlock | None":
    """The exception that ended a program, as it was printed: the last but for those that follow."""
    blocks = [block for lines in by_writer(lines_of(text)).values() for block in _blocks(lines)]
    fatal = [block for block in reversed(blocks) if not (block.survived or block.ignored)]
    return min(fatal, key=lambda block: block.weight, default=None)


@dataclass
class Frame:
    """One frame of a traceback, with its source line where that was shown."""

    file: str
    function: str
    source: str = ""
    line: int = 0

    @property
    def is_library(self) -> bool:
        return bool(_LIBRARY.search(self.file) or _GENERATED.search(self.file))

    @property
    def name(self) -> str:
        if _GENERATED.search(self.file):
            return f"<generated>:{self.function}"
        if self.is_library:
            return f"{_ABOVE_PACKAGES.split(self.file)[-1]}:{self.function}"
        return f"{template(self.file.rsplit('/', 1)[-1])}:{self.function}"


@dataclass
class TracebackBlock:
    """One traceback as it is read."""

    frames: list[Frame] = field(default_factory=list)
    type: str = ""
    message: str = ""
    linked: bool = False  # the one after it follows from it
    quotes: bool = False  # the one after it is the cause of this one
    survived: bool = False
    ignored: bool = False
    lines: tuple[int, int] = (0, 0)

    def raised(self) -> Raised:
        named = [f for f in self.frames if f.function not in _COMPREHENSIONS]
        own = [frame for frame in named if not frame.is_library]
        counts = Counter(frame.name for frame in own or named)
        kept = list(counts)
        if self.type == RECURSION:
            kept = sorted(name for name, times in counts.items() if times > 1)
            return Raised(self.type, frames=tuple(kept))
        inner = own[-1] if own else None
        beneath = [] if inner is None else list(takewhile(lambda f: f is not inner, named[::-1]))
        within = beneath[0].name if beneath else ""
        source = inner.source.strip() if inner and not beneath else ""
        if source and not _RAISES.search(source):  # the line that is shown raises nothing itself
            within = BUILT_IN
        return Raised(
            self.type,
            _message(self.type, self.message),
            tuple(kept[-_FRAMES_KEPT:]),
            within=within,
            statement="" if _REPORTED_LATER.search(self.message) else _line_of(inner),
        )

    @property
    def weight(self) -> Weight:
        if _TYPES_THAT_WRAP.match(self.type) or _WORKERS_REPORT.match(self.message):
            return Weight.WRAPS
        cleaning = any(_CLEAN_UP.search(f":{frame.function}") for frame in self.frames)
        follows = _TYPES_THAT_FOLLOW.match(self.type) or _WORDS_THAT_FOLLOW.search(self.message)
        if cleaning or follows or self.survived or self.ignored:
            return Weight.FOLLOWS
        return Weight.CAUSE


def _message(kind: str, message: str) -> str:
    """A wrapper's words without the command that it wrapped."""
    if _TYPES_THAT_WRAP.match(kind):
        message = re.sub(r"Command .* (?=returned|died|timed)", f"Command {ANYTHING} ", message)
    return template(message)


def _line_of(frame: Frame | None) -> str:
    """A digest of the line that a frame shows; empty where it shows none."""
    words = frame.source.split() if frame else []
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:12] if words else ""


def _blocks(lines: Sequence[str]) -> Iterator[TracebackBlock]:
    """Every traceback of one writer, in its order; one that lost its head begins with a frame."""
    at, before = 0, 0
    last: TracebackBlock | None = None
    while at < len(lines):
        line = lines[at]
        if HEADER in line or FRAME.match(line):
            block, at = read_traceback(lines, at)
        elif _CRASH.match(line):
            block, at = _read_crash(lines, at)
        else:
            block, at = None, at + 1
        if block is None:
            continue
        between = lines[before : block.lines[0] + 1]
        above = lines[block.lines[0] - 1] if block.lines[0] else ""
        _tie(last, block, between, above)
        if last is not None:
            yield last
        last, before = block, at
    if last is not None:
        yield last


def _tie(
    last: TracebackBlock | None, block: TracebackBlock, between: Sequence[str], above: str
) -> None:
    """How a traceback follows from the one before it, and whether the program survived it."""
    head, is_python, _ = between[-1].partition(HEADER) if between else ("", "", "")
    head = head if is_python else ""
    block.ignored = _IGNORED.search(above) is not None
    block.survived = bool(_LOGGED.search(head) or _LOGGED.search(above))
    if last is None:
        return
    text = [_MARGIN.sub("", line).strip() for line in between]
    last.linked = any(line.startswith((_CAUSE, _HANDLING)) for line in text)
    last.quotes = not last.linked and any(_QUOTING.search(line) for line in text)
    if last.linked or last.quotes:
        block.survived, block.ignored = last.survived, last.ignored


def read_traceback(
    lines: Sequence[str], at: int, most_foreign: int = _FOREIGN
) -> tuple[TracebackBlock | None, int]:
    """The traceback at this line and the line behind it; None where it has no end."""
    first = at
    strip = _margin_of(lines, at)
    block, foreign = TracebackBlock(), 0
    at += HEADER in lines[at]
    while at < len(lines) and foreign <= most_foreign:
        text = strip(lines[at])
        frame = FRAME.match(text) or _BOXED_FRAME.match(text)
        boxed = _BOXED_SOURCE.search(text) if _BOX.match(text) else None
        if frame:
            function = (frame["function"] or "<module>").strip()
            block.frames.append(Frame(frame["file"], function, line=int(frame["line"])))
        elif boxed and block.frames:
            block.frames[-1].source = boxed["text"].strip()
        elif HEADER in text or not text.strip() or _BOX.match(text):
            # of another process that writes at the same time, or an empty part of a box
            foreign += not _BOX.match(text)
        elif text[0].isspace():
            if block.frames and not block.frames[-1].source and not _CARETS.match(text):
                block.frames[-1].source = text.strip()
        elif (said := _EXCEPTION.match(text)) and not _NO_TYPE.match(said["type"]):
            return _ended(block, lines, first, at, strip), at + 1
        else:
            foreign += 1
        at += 1
    return None, first + 1


def _ended(
    block: TracebackBlock, lines: Sequence[str], first: int, at: int, strip: Callable[[str], str]
) -> TracebackBlock:
    block.type, block.message = type_and_message(strip(lines[at]))
    for ahead in range(at + 1, min(len(lines), at + 3)):
        if not _ANNOUNCES.search(block.message):
            break
        text = strip(lines[ahead]).strip()
        if HEADER in text or text.startswith((_CAUSE, _HANDLING)) or set(text) <= set("=-"):
            break
        block.message = f"{block.message} {text}".strip()
    block.lines = (first, at)
    return block


def type_and_message(line: str) -> tuple[str, str]:
    """Of a traceback's last line; a type without its module."""
    found = _EXCEPTION.match(line)
    if found is None:
        return line.partition(":")[0], line.partition(":")[2].strip()
    kind, _, inner = found["type"].partition("(")
    return (inner.rstrip(")") or kind).rsplit(".", 1)[-1], found["message"] or ""


def _margin_of(lines: Sequence[str], at: int) -> Callable[[str], str]:
    """What takes off a margin, or a logger's prefix, from each line of a traceback."""
    header = lines[at].partition(HEADER)[0] if HEADER in lines[at] else ""
    following = lines[at + 1] if at + 1 < len(lines) else ""
    if header.strip():
        begins = re.sub(r"\d+", r"\\d+", re.escape(header.rstrip())) + " ?"
    else:
        begins = rf"\s{{{len(header)}}}"
    prefix = re.compile(begins)
    is_of_all = not header.strip() or prefix.match(following)

    def strip(line: str) -> str:
        found = prefix.match(line) if is_of_all else None
        line = line[found.end() :] if found else line
        return _MARGIN.sub("", line) if line.lstrip().startswith(("|", "+ ", "+-")) else line

    return strip


def _read_crash(lines: Sequence[str], at: int) -> tuple[TracebackBlock | None, int]:
    """The frames under a "Fatal Python error", which prints the most recent call first."""
    first = at
    fatal = next((m for line in lines[max(0, at - 4) : at] if (m := _FATAL.match(line))), None)
    block = TracebackBlock(type=fatal["what"].strip() if fatal else "crash")
    at += 1
    while at < len(lines) and (frame := FRAME.match(lines[at])):
        block.frames.insert(0, Frame(frame["file"], frame["function"] or "<module>"))
        at += 1
    block.lines = (first, at)
    block.ignored = fatal is None
    return (block if block.frames else None), at


def _chains(blocks: Iterable[TracebackBlock], writer: str) -> Iterator[Cause]:
    """Linked tracebacks as one cause each."""
    chain: list[TracebackBlock] = []
    for block in blocks:
        if chain and chain[-1].quotes:
            chain.insert(0, block)
            chain[1].quotes, block.linked = False, chain[1].linked or block.linked
            goes_on = block.linked or block.quotes
        else:
            chain.append(block)
            goes_on = block.linked or block.quotes
        if not goes_on:
            yield cause_of(chain, writer)
            chain = []
    if chain:
        yield cause_of(chain, writer)


def cause_of(chain: Sequence[TracebackBlock], writer: str = "") -> Cause:
    """The cause that a chain of tracebacks tells of, each tied to the next."""
    least = min(block.weight for block in chain)
    kept = [block.raised() for block in chain if block.weight is least]
    survived = all(block.survived or block.ignored for block in chain)
    return Cause(tuple(dict.fromkeys(kept)), writer, least, survived)


def lines_outside_tracebacks(text: str) -> Iterator[str]:
    """Every other line, one process after the other, without what names the process."""
    for lines in by_writer(lines_of(text)).values():
        recorded: set[int] = set()
        for block in _blocks(lines):
            recorded.update(range(block.lines[0], block.lines[1] + 1))
        yield from (line for number, line in enumerate(lines) if number not in recorded)
