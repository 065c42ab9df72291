"""Patterns (`rules/*.toml`, one file a system) and the events they make of a log's lines.

An event: who showed what, when, where, and whether it is a cause, an echo or an exit.
"""

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Literal

from pydantic import Field

from aorta.attribution.documents import Certainty, FailureClass, RankEnd, Role, signal_number
from aorta.attribution.logs import ReadableLog
from aorta.attribution.logs.prefixes import LogLine
from aorta.core.documents import StrictModel
from aorta.core.raised import Frame, TracebackBlock
from aorta.core.templates import shortened, template

RULE_FILES = (  # in this order: of patterns that are as sure, the first wins
    "frameworks", "torch", "jax", "ray", "storage", "driver", "nccl", "slurm", "kubernetes",
    "shell", "codes", "words", "names", "python",
)  # fmt: skip


class Pattern(StrictModel):
    """One pattern, as `rules/README.md` explains its keys."""

    id: str
    failure_class: FailureClass = Field(alias="class", strict=False)
    on: Literal["exception", "line", "exit"]
    regex: str
    role: Role = Field(default=Role.ROOT, strict=False)
    certainty: Certainty = Field(strict=False)
    triggers: list[str] = Field(default=[])
    stack: str | None = None
    source: str | None = None
    before: str | None = None
    ends_the_rest: bool = False
    whole_message: bool = False
    hits: list[str]
    misses: list[str]
    advice: dict[Literal["kind", "text"], str] | None = None
    origin: str

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    def match(self, text: str, source: str = "", stack: str = "") -> re.Match[str] | None:
        """The match; `source`: the program's own line that raised, `stack`: all frames."""
        for required, place in ((self.source, source), (self.stack, stack)):
            if required is not None and not (place and re.search(required, place)):
                return None
        return self.compiled.search(text if self.whole_message else text.partition("\n")[0])


@cache
def patterns() -> tuple[Pattern, ...]:
    folder = resources.files("aorta.attribution").joinpath("rules")
    texts = (folder.joinpath(f"{name}.toml").read_text(encoding="utf-8") for name in RULE_FILES)
    tables = (table for text in texts for table in tomllib.loads(text)["pattern"])
    return tuple(Pattern.model_validate(table) for table in tables)


@cache
def by_trigger() -> dict[str, list[Pattern]]:
    found: dict[str, list[Pattern]] = {}
    for pattern in patterns():
        for trigger in pattern.triggers:
            found.setdefault(trigger, []).append(pattern)
    return found


@lru_cache(maxsize=4096)  # what ended one rank ended many, and is asked for more than once of each
def pattern_of_exception(
    text: str, source: str = "", stack: str = ""
) -> tuple[Pattern, re.Match[str]] | None:
    """The first of the best certainty; of patterns as sure, one that knows the place says more."""
    of_exceptions = (pattern for pattern in patterns() if pattern.on == "exception")
    by_weight = sorted(
        of_exceptions, key=lambda each: (-each.certainty.weight, not (each.source or each.stack))
    )
    matches = ((pattern, pattern.match(text, source, stack)) for pattern in by_weight)
    return next(((pattern, match) for pattern, match in matches if match is not None), None)


_HOST = re.compile(r"\(?\[?[\w.-]+\]?[:,] ?\d{2,5}\b\)?|\b(?:\d{1,3}\.){3}\d{1,3}\b|[\w-]+<\d+>")
RANDOM = re.compile(  # temporary names, hashes, what compilers name their files
    r"\btmp[\w-]{6,}|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b|"
    r"\b(?=[a-z]*\d)[a-z0-9]{20,}\b"
)
_DIGITS = re.compile(r"\d+")
_LONGEST_TEXT = 500
# Events whose class no pattern knows: an exception, and one that a wrapper or a watchdog quotes.
ANY_EXCEPTION, QUOTED = "python.exception", "python.quoted"
_SIGNAL_GROUPS = ("signal", "named", "number", "last", "told", "minus")


BY_SCHEDULER = {FailureClass.PREEMPTED, FailureClass.TIME_LIMIT, FailureClass.CANCELLED}
FROM_OUTSIDE = {*BY_SCHEDULER, FailureClass.HARDWARE_FAULT, FailureClass.LINK_FAULT}


@dataclass(frozen=True)
class Traceback:
    """One exception with its frames. `survived`: the program reported it and went on."""

    exception: str  # "Type: message" and a few lines of what follows
    block: TracebackBlock
    line: LogLine  # its headline, and who wrote it
    begins: int  # of the header
    until: int = 0  # of the last line of its message
    is_linked: bool = False  # to the traceback that is printed after it
    survived: bool = False
    ignored: bool = False  # it ended nothing but a thread or a destructor

    @property
    def names(self) -> list[str]:
        """`loader.py:read`, outermost first."""
        return [f"{f.file.rsplit('/', 1)[-1]}:{f.function}" for f in self.block.frames]

    @property
    def own_frame(self) -> Frame | None:
        """The innermost frame of the program itself, below which only libraries stand."""
        return next((f for f in reversed(self.block.frames) if not f.is_library), None)


@dataclass(frozen=True, kw_only=True)
class Event(LogLine):
    """A line that shows something, and what."""

    failure_class: FailureClass
    certainty: Certainty
    pattern: str
    signature: str  # what stays the same when the same bug comes back elsewhere
    source: ReadableLog
    role: Role = Role.ROOT
    advice: tuple[str, str] | None = None
    device: str | None = None
    sequence: int | None = None  # of a collective, where the event tells
    is_exception: bool = False
    survived: bool = False  # the program reported it and went on
    stack: str = ""  # all frames of an exception, outermost first
    raised: Traceback | None = None  # of an exception: all of it
    chain: tuple[Traceback, ...] = ()  # the exceptions that it was raised with
    ends: int | None = None  # where the last exception of its chain stands
    leads_on: bool = False  # the next traceback of this rank was printed because of this one
    is_end: bool = False  # it says how some process ended, and not which
    blamed: int | None = None  # the rank that it says it waited for, or lost
    ended: tuple[RankEnd, ...] = ()  # the ranks of whose end it tells
    ends_the_rest: bool = False  # a launcher says that it ends who is left
    is_torn: bool = False  # a traceback that shows no frame before its exception

    @property
    def is_outside(self) -> bool:
        """Whether a scheduler, a kernel or a driver says so, for certain, of what may end a job."""
        certain = self.certainty is Certainty.CERTAIN
        return self.failure_class in FROM_OUTSIDE and self.role is Role.ROOT and certain


def event_of(
    pattern: Pattern, match: re.Match[str], line: LogLine, source: ReadableLog
) -> Event | None:
    """The event that a pattern reads in a line; None where a line on an exit tells of none."""
    groups = {name: value for name, value in match.groupdict().items() if value}
    number = groups.get("enqueued") or groups.get("seq")
    blamed = groups.get("blamed") or groups.get("set") or groups.get("after")
    advice = pattern.advice
    event = replace(
        weak_event(line, source, pattern.id, pattern.failure_class),
        signature=f"{pattern.id} {stable(groups.get('key', ''))}".strip(),
        role=pattern.role,
        certainty=pattern.certainty,
        rank=int(groups["rank"]) if "rank" in groups else line.rank,
        advice=(advice["kind"], advice["text"].format(**groups)) if advice else None,
        node=groups.get("node") or line.node,
        device=groups.get("device"),
        sequence=int(number) if number else None,
        blamed=int(blamed) if blamed else None,
        ends_the_rest=pattern.ends_the_rest,
    )
    return event if pattern.on != "exit" else _end(event, groups)


def weak_event(line: LogLine, source: ReadableLog, pattern: str, kind: FailureClass) -> Event:
    """The event of a line that no pattern names: a possible cause, and no more than that."""
    shown = vars(line) | {"text": shortened(line.text, _LONGEST_TEXT)}
    weak = Certainty.WEAK
    return Event(
        **shown, failure_class=kind, certainty=weak, pattern=pattern, signature="", source=source
    )


def _end(event: Event, groups: dict[str, str]) -> Event | None:
    """The exit of the ranks that a line names, or what it says of nobody in particular."""
    name = next((groups[group] for group in _SIGNAL_GROUPS if group in groups), None)
    number = None if name is None else signal_number(name)
    code = int(groups["code"]) if "code" in groups else None
    if number is None and code is None:
        return None
    own = () if event.rank is None else (event.rank,)
    ranks = _ranks(groups.get("ranks") or groups.get("local") or "") or own
    end = RankEnd(0, code, number, node=groups.get("node"))
    kind, certainty = end.meaning
    if groups.get("signal", "").lower() == "out of memory":
        kind, certainty = FailureClass.HOST_OOM, Certainty.CERTAIN
    if ranks:
        return replace(
            event,
            role=Role.CONFIRM if kind is FailureClass.HOST_OOM else Role.END,
            failure_class=kind,
            certainty=certainty,
            ended=tuple(replace(end, rank=rank) for rank in ranks),
            rank=ranks[0],
        )
    if kind is FailureClass.UNKNOWN or end.was_asked_to_stop:
        return None
    weaker = min(certainty, event.certainty, key=lambda each: each.weight)
    return replace(event, failure_class=kind, certainty=weaker, signature=kind.value, is_end=True)


def _ranks(text: str) -> tuple[int, ...]:
    """Slurm's way to name tasks: `0,2-3`."""
    ranks: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            ranks += range(int(first), min(int(last or first), int(first) + 8192) + 1)
    return tuple(ranks)


def stable(text: str) -> str:
    """A message without what differs between hosts, ranks and steps."""
    return _DIGITS.sub("<n>", template(RANDOM.sub("id", _HOST.sub("<host>", text))))
