"""No rank failed on its own account: some waited for one that never came, or lost a peer that says nothing."""

from collections.abc import Sequence
from dataclasses import replace

from aorta.attribution.events import Event
from aorta.attribution.facts import Cause, Facts, of_events
from aorta.attribution.taxonomy import Certainty, FailureClass


def never_came(facts: Facts, waiting: dict[int | None, Event]) -> Cause:
    events = list(waiting.values())
    if events:
        cause = of_events(_last_sequence_first(events), None)
    else:
        cause = Cause(
            FailureClass.COLLECTIVE_TIMEOUT,
            Certainty.LIKELY,
            f"flight recorder {facts.stragglers.operation}",
            facts.stragglers.words,
            None,
        )
    named = tuple(sorted({event.blamed for event in events if event.blamed is not None}))
    blamed = facts.stragglers.ranks or named or _behind(events) or _others(facts, waiting)
    if not blamed:
        return replace(cause, rank=None, ranks=())
    return replace(cause, rank=min(blamed), ranks=tuple(blamed))


def _last_sequence_first(events: Sequence[Event]) -> list[Event]:
    return sorted(events, key=lambda event: -(event.sequence or 0))


def _behind(events: Sequence[Event]) -> tuple[int, ...]:
    """Of ranks that all waited, those that had come least far."""
    counted = {
        event.rank: event.sequence for event in events if event.rank is not None and event.sequence
    }
    if len(set(counted.values())) < 2:
        return ()
    least = min(value for value in counted.values() if value is not None)
    return tuple(rank for rank, value in counted.items() if value == least and rank is not None)


def _others(facts: Facts, known: dict[int | None, Event]) -> tuple[int, ...]:
    return tuple(rank for rank in facts.ranks if rank not in known)


def lost_peer(facts: Facts, cascades: dict[int | None, Event]) -> Cause:
    """Ranks lost a peer that says nothing: the one they name, or the one that is silent."""
    events = list(cascades.values())
    event = next((each for each in events if each.blamed is not None), events[0])
    silent = _others(facts, cascades) if event.blamed is None else (event.blamed,)
    kept = event.failure_class in {FailureClass.KILLED, FailureClass.UNKNOWN}
    cause = replace(
        of_events([event], min(silent, default=None)),
        failure_class=event.failure_class if kept else FailureClass.NETWORK_LOSS,
        certainty=Certainty.WEAK,
    )
    return replace(cause, ranks=silent)
