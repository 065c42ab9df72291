"""Events: what a log tells of a failure, with who showed it, when, and where it stands.

An event is a fact with a class and a role (a cause, an echo, an end); which event is the cause is
decided in `causes`.
"""

import re
from dataclasses import dataclass, replace

from aorta.attribution.events.patterns import Pattern
from aorta.attribution.events.tracebacks import Traceback
from aorta.attribution.logs import LogLine, Piece, ReadableLog
from aorta.attribution.nouns import Certainty, FailureClass, RankEnd, Role, signal_number
from aorta.core.templates import template

_MOST_OCCURRENCES = 24  # of one literal in one piece, from its beginning and again from its end
_HOST = re.compile(r"\(?\[?[\w.-]+\]?[:,] ?\d{2,5}\b\)?|\b(?:\d{1,3}\.){3}\d{1,3}\b|[\w-]+<\d+>")
RANDOM = re.compile(  # temporary names, hashes, what compilers name their files
    r"\btmp[\w-]{6,}|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b|"
    r"\b(?=[a-z]*\d)[a-z0-9]{20,}\b"
)
_DIGITS = re.compile(r"\d+")
BLOCK = 4 << 10  # bytes before a line that may say what it belongs to
# Events whose class no pattern knows: an exception, and one that a wrapper or a watchdog quotes.
ANY_EXCEPTION, QUOTED = "python.exception", "python.quoted"
_SIGNAL_GROUPS = ("signal", "named", "number", "last", "told", "minus")


BY_SCHEDULER = {FailureClass.PREEMPTED, FailureClass.TIME_LIMIT, FailureClass.CANCELLED}
FROM_OUTSIDE = {*BY_SCHEDULER, FailureClass.HARDWARE_FAULT, FailureClass.LINK_FAULT}


@dataclass(frozen=True)
class Event:
    failure_class: FailureClass
    role: Role
    certainty: Certainty
    pattern: str
    text: str
    signature: (
        str  # what stays the same when the same bug comes back on another host at another step
    )
    rank: int | None
    source: ReadableLog
    offset: int
    advice: tuple[str, str] | None = None
    node: str | None = None
    device: str | None = None
    file: str | None = None
    sequence: int | None = None  # of a collective, where the event tells
    is_exception: bool = False
    survived: bool = False  # the program reported it and went on
    place: str = ""  # the program's own innermost frame, where its libraries failed
    stack: str = ""  # all frames of an exception, outermost first
    raised: Traceback | None = None  # of an exception: all of it
    chain: tuple[Traceback, ...] = ()  # the exceptions that it was raised with
    ends: int | None = None  # where the last exception of its chain stands
    leads_on: bool = False  # the next traceback of this rank was printed because of this one
    time: float | None = None  # when it was written, where its line tells
    stream: str = ""  # whose line it is, where no rank is known
    level: str = ""  # of the logger that wrote it
    is_end: bool = False  # it says how some process ended, and not which
    blamed: int | None = None  # the rank that it says it waited for, or lost
    ended: tuple[RankEnd, ...] = ()  # the ranks of whose end it tells
    ends_the_rest: bool = False  # a launcher says that it ends who is left
    is_torn: bool = False  # a traceback that shows no frame before its exception

    @property
    def who(self) -> tuple[int | None, str]:
        return (self.rank, "") if self.rank is not None else (None, self.stream)

    @property
    def is_outside(self) -> bool:
        """Whether a scheduler, a kernel or a driver says so, for certain, of what may end a job."""
        certain = self.certainty is Certainty.CERTAIN
        return self.failure_class in FROM_OUTSIDE and self.role is Role.ROOT and certain


@dataclass(frozen=True)
class Reading:
    events: tuple[Event, ...] = ()
    complete: bool = True  # False: only the ends of the logs were read

    @property
    def ends(self) -> tuple[RankEnd, ...]:
        """In the order of writing, log by log. Exits after a launcher's kill are its doing."""
        told: list[RankEnd] = []
        ending: set[ReadableLog] = set()
        for event in sorted(self.events, key=lambda event: event.offset):
            if event.ends_the_rest:
                ending.add(event.source)
            late = event.source in ending
            told += [replace(end, ended_by_launcher=late and end.by_force) for end in event.ended]
        return tuple(told)

    def __add__(self, more: "Reading") -> "Reading":
        return Reading(self.events + more.events, self.complete and more.complete)


def occurrences(piece: Piece, literal: bytes) -> list[int]:
    """Where `literal` stands in the piece's own part: all places, or the outermost if many."""
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


def event_of(
    row: Pattern, match: re.Match[str], line: LogLine, source: ReadableLog
) -> Event | None:
    """The event that a pattern reads in a line; None where a line on an exit tells of none."""
    groups = {name: value for name, value in match.groupdict().items() if value}
    number = groups.get("enqueued") or groups.get("seq")
    blamed = groups.get("blamed") or groups.get("set") or groups.get("after")
    event = Event(
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
        level=line.level,
        blamed=int(blamed) if blamed else None,
        ends_the_rest=row.ends_the_rest,
    )
    return event if row.on != "exit" else _end(event, groups)


def _end(event: Event, groups: dict[str, str]) -> Event | None:
    """The exit of the ranks that a line names, or what it says of nobody in particular."""
    told = next((groups[name] for name in _SIGNAL_GROUPS if name in groups), None)
    number = None if told is None else signal_number(told)
    code = int(groups["code"]) if "code" in groups else None
    if number is None and code is None:
        return None
    if code is not None and code < 0:
        number, code = -code, None
    memory = groups.get("signal", "").lower() == "out of memory"
    ranks = _ranks(groups.get("ranks") or groups.get("local") or "")
    ranks = ranks or ((event.rank,) if event.rank is not None else ())
    ended = tuple(
        RankEnd(rank, exit_code=code, signal=number, node=groups.get("node")) for rank in ranks
    )
    kind, certainty = RankEnd(0, exit_code=code, signal=number).meaning
    if memory:
        kind, certainty = FailureClass.HOST_OOM, Certainty.CERTAIN
    if ended:
        role = Role.CONFIRM if memory else Role.END
        return replace(
            event,
            role=role,
            failure_class=kind,
            certainty=certainty,
            ended=ended,
            rank=ended[0].rank,
        )
    if kind is FailureClass.UNKNOWN or RankEnd(0, code, number).was_asked_to_stop:
        return None
    weaker = min(certainty, event.certainty, key=lambda each: each.weight)
    return replace(
        event,
        failure_class=kind,
        role=Role.ROOT,
        certainty=weaker,
        signature=kind.value,
        is_end=True,
    )


def _ranks(told: str) -> tuple[int, ...]:
    """Slurm's way to name tasks: `0,2-3`."""
    ranks: list[int] = []
    for part in filter(None, told.replace(" ", "").split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            ranks += range(int(first), min(int(last or first), int(first) + 8192) + 1)
    return tuple(ranks)


def stable(text: str) -> str:
    """A message without what differs between hosts, ranks and steps."""
    return _DIGITS.sub("<n>", template(RANDOM.sub("id", _HOST.sub("<host>", text))))
