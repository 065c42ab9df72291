"""All that was read about one cycle, and a candidate for what began it: what the questions of
`causes` are asked about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from aorta.attribution.events.event import Event, Reading
from aorta.attribution.flight import Stragglers
from aorta.attribution.logs.reading import ReadableLog
from aorta.attribution.progress import Progress
from aorta.attribution.rank_end import RankEnd
from aorta.attribution.taxonomy import Certainty, FailureClass, Role


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

    reading: Reading
    failures: tuple[RankEnd, ...]
    progress: Progress
    stragglers: Stragglers
    ranks: tuple[int, ...]  # every rank anything is known about
    nodes: dict[int, str]
    heard: frozenset[int] | None = (
        None  # ranks whose output is known; None: all of them share a log
    )
    empty: frozenset[int] = frozenset()  # ranks whose logs are there, with nothing in them
    last_words: dict[tuple[int | None, str], Event] = field(default_factory=dict)
    logs: tuple[ReadableLog, ...] = ()
    world: int | None = None  # how many ranks there are, where the logs tell
    began: float | None = None  # when the first line of any log was written


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
    """The last event of a role that each rank shows."""
    return {event.rank: event for event in facts.reading.events if event.role is role}
