"""Timeline: who failed first, who only followed, who went on; one cause, and the finding about it.

Here: did a rank go on after an event (then it is noise), and did the cycle fail at all? `causes`
orders the events, `finding` says how sure the answer is.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aorta.attribution.documents import Certainty, CycleState, FailureClass, RankEnd, Role
from aorta.attribution.events import Event
from aorta.attribution.evidence import Stragglers
from aorta.attribution.logs import Piece, ReadableLog, pieces, tail_of
from aorta.attribution.progress import Progress, steps_in

FOLLOWS = {Role.CASCADE, Role.WAITING}


@dataclass(frozen=True)
class FoundCause:
    """A candidate for what began it. `events` are its lines; `rank` None: nobody's."""

    failure_class: FailureClass
    certainty: Certainty
    signature: str
    words: str
    rank: int | None
    events: tuple[Event, ...] = ()
    ranks: tuple[int, ...] = ()
    node: str | None = None
    device: str | None = None
    unexplained: bool = False  # nothing but an end is known
    moment: float | None = None  # when the launcher saw the end
    said: float | None = None  # when the line was written


@dataclass(frozen=True)
class Facts:
    """All that was read about one cycle."""

    events: tuple[Event, ...]
    failures: tuple[RankEnd, ...]
    progress: Progress
    stragglers: Stragglers
    ranks: tuple[int, ...]  # every rank anything is known about
    nodes: dict[int, str]  # of the ranks, as the launcher says
    heard: frozenset[int] | None = None  # ranks whose output is known; None: they share a log
    empty: frozenset[int] = frozenset()  # ranks whose logs are there, with nothing in them
    logs: tuple[ReadableLog, ...] = ()
    world: int | None = None  # how many ranks there are, where the logs tell
    began: float | None = None  # when the first line of any log was written

    @property
    def recorded_ends(self) -> list[RankEnd]:
        """As written, log by log. Exits after a launcher began to end the rest are its doing."""
        found: list[RankEnd] = []
        ending: set[ReadableLog] = set()
        for event in sorted(self.events, key=lambda event: event.offset):
            if event.ends_the_rest:
                ending.add(event.source)
            found += [replace(e, stopped_by_agent=event.source in ending) for e in event.ended]
        return found

    @property
    def places(self) -> dict[int, str]:
        """Where ranks ran, as far as the launcher or what was written of their ends tells."""
        return {end.rank: end.node for end in self.failures if end.node} | self.nodes


def of_events(events: Sequence[Event], rank: int | None) -> FoundCause:
    first = events[0]
    return FoundCause(
        first.failure_class,
        first.certainty,
        first.signature,
        first.text,
        rank,
        tuple(events),
        node=first.node,
        device=first.device,
    )


def by_rank(facts: Facts, role: Role) -> dict[int | None, Event]:
    """The last event of a role that each rank shows, one that blames a rank first."""
    events = [event for event in facts.events if event.role is role]
    events.sort(key=lambda event: event.blamed is not None)
    known = {(event.source, event.offset) for event in events if event.rank is not None}
    return {
        event.rank: event
        for event in events
        if event.rank is not None or (event.source, event.offset) not in known
    }


# ---- who went on


_CAUSES = {Role.ROOT, Role.CONFIRM}
_QUIET = {"DEBUG", "TRACE", "INFO", "NOTICE"}
LOOK_AROUND = 64 << 10  # bytes
_LINES_OF_A_MESSAGE = 4
_MANY_STEPS = 20  # without a step before it, fewer may be another stream that was flushed late


def is_quiet(event: Event) -> bool:
    """Whether the logger that wrote it calls it no failure."""
    return event.role in _CAUSES and event.level in _QUIET and not event.is_exception


def is_fatal(event: Event) -> bool:
    """Whether a rank may have ended with this exception: it did not go on."""
    return not went_on(event) and (not event.survived or is_last_word(event))


def is_last_word(event: Event, wrapper: int | None = None) -> bool:
    """Whether hardly a line follows, up to where a wrapper's own traceback begins."""
    return len(_own_lines_after(event, stop=wrapper)) <= _LINES_OF_A_MESSAGE


def went_on(event: Event) -> bool:
    """Whether its rank came further in this log; after an outside event, by many steps."""
    stated = event.is_outside and event.failure_class is not FailureClass.LINK_FAULT
    above = _bytes(event, max(0, event.offset - LOOK_AROUND), event.offset)
    before = steps_in(above.decode("utf-8", "replace"))
    many = not before or (stated and not event.is_exception)
    ends = event.source.size - LOOK_AROUND
    for begin in (None, ends) if ends > event.offset + LOOK_AROUND else (None,):
        after = steps_in("\n".join(_own_lines_after(event, begin)))
        if len(after) >= _MANY_STEPS if many else len(after) > 1 and max(after) > max(before):
            return True
    return False


def _own_lines_after(event: Event, begin: int | None = None, stop: int | None = None) -> list[str]:
    """What the same rank wrote to the same log after it, or from `begin` on, up to `stop`."""
    if begin is None:
        begin = event.offset if event.ends is None else event.ends
    most = begin + LOOK_AROUND
    data = _bytes(event, begin, min(most, stop) if stop is not None and stop > begin else most)
    data = data[data.find(b"\n") + 1 :] if b"\n" in data else b""
    lines: list[str] = []
    is_own = True
    for line in Piece(event.source, data).lines_from(0):
        if line.who != (None, ""):
            is_own = line.who == event.who
        if is_own and line.text.strip():
            lines.append(line.text)
    return lines


def _bytes(event: Event, begin: int, stop: int) -> bytes:
    return b"".join(
        piece.data[piece.start : piece.end] for piece in pieces(event.source, begin, stop)
    )


# ---- whether it failed at all


_TAIL = 32 << 10
_STATEMENT = re.compile(
    r"\b(?:errors?|fatal|critical|fail\w*|abort\w*|exceeded|killed|evicted|preempt\w*|lost|halted|"
    r"refused|denied|unhealthy|terminat\w+|cannot|insufficient|not enough|exhausted|unsatisfied|"
    r"invalid|unrecogni[sz]ed|mismatch\w*|stuck|hung|no progress|halt|unexpected\w*|interrupt\w*|"
    r"reclaim\w*|drain\w*|quota|missing|does not exist|unsupported|unknown|not supported|"
    r"unavailable|timed out|out of|time-?out|longer than|(?:death|closing) signal|nans?|"
    r"overflow\w*|unable|could not|exit(?:ed|ing)?|stopp(?:ed|ing)|crash\w*|panic\w*|fault|"
    r"not found|no such)\b",
    re.IGNORECASE,
)
_WENT_ON = re.compile(
    r"\b(?:retry\w*|ignor\w+|skip\w*|optional|fall(?:ing)? ?back|deprecat\w+|attempt)\b",
    re.IGNORECASE,
)
_LAST_FEW = 5  # lines
_ENDED_WELL = re.compile(
    r"\b(?:training|job|run|all (?:epochs|steps|tasks))\b.{0,30}\b(?:complete[d]?|finished|done|"
    r"succeeded|successful(?:ly)?)\b|\b(?:finished|completed) (?:training|successfully)\b"
    r"|'train_runtime': |`Trainer\.fit` stopped: `max_\w+=\d+` reached"
    r"|\btotal training time\b|\bexit(?:s|ed) successfully\b"
    r"|\bexit(?:ed|ing)?(?: with)?(?: (?:status|code))?[ :=]+0\b(?![.:\d])"
    r"|\bfinal (?:(?:test|eval\w*|val\w*|train\w*) )?(?:acc\w*|loss|score)\b"
    r"|^\W*(?:all )?(?:done|finished|completed?|success)\W*$",
    re.IGNORECASE,
)
_BADLY = re.compile(
    r"(?<!no )(?<!\b0 )(?<!without )\b(?:errors?|fail\w*|exceptions?|kill\w*|cancel\w*|abort\w*|"
    r"unsuccessful\w*|incomplete)\b",
    re.IGNORECASE,
)


def states_a_failure(text: str) -> bool:
    """Whether a line says in plain words that something went wrong."""
    stated = _STATEMENT.search(text) is not None and _WENT_ON.search(text) is None
    return stated and not _ended_well(text)


def without_failure(facts: Facts, unexplained: bool) -> tuple[CycleState, str] | None:
    """Why there is no failure to name, and the words for it; None where there is one."""
    ends = facts.failures
    everybody = bool(ends) and {end.rank for end in ends} >= set(facts.ranks)
    if everybody and all(end.exit_code == 0 and not end.failed for end in ends):
        who = "the rank" if len(ends) == 1 else f"all {len(ends)} ranks"
        return CycleState.ENDED_WELL, f"it ended well: {who} exited with code 0"
    if unexplained and not any(end.failed for end in ends):
        return how_it_ends(facts.logs)
    return None


def how_it_ends(sources: Iterable[ReadableLog]) -> tuple[CycleState, str] | None:
    """Whether logs end well, or in the middle of their steps; None where it does not show."""
    ends = [tail_of(source, _TAIL).rstrip() for source in sources if source.size]
    last = [text.splitlines()[-_LAST_FEW:] for text in ends if text]
    if any(map(_fails_at_last, last)):
        return None
    if any(_ended_well(line) for lines in last for line in lines):
        return CycleState.ENDED_WELL, "the log says that it ended well"
    if any(len(steps_in("\n".join(lines))) > 1 for lines in last):
        return CycleState.STILL_RUNNING, "the log ends amid its steps: it may still be running"
    return None


def _ended_well(line: str) -> bool:
    return _ENDED_WELL.search(line) is not None and _BADLY.search(line) is None


def _fails_at_last(lines: list[str]) -> bool:
    """Whether a failure is stated that neither a step nor a good end follows."""
    failures = [at for at, line in enumerate(lines) if states_a_failure(line)]
    after = lines[failures[-1] + 1 :] if failures else []
    return bool(failures) and not any(_ended_well(line) or steps_in(line) for line in after)
