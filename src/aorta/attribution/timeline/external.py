"""Causes that are no rank's own: what ended the job from outside, a rank that never came, a peer
that was lost and says nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from aorta.attribution.events import BY_SCHEDULER, FROM_OUTSIDE, Event
from aorta.attribution.nouns import Certainty, FailureClass, Role
from aorta.attribution.timeline import Facts, FoundCause, is_fatal, of_events, went_on

_C = FailureClass
_MAY_BE_HARDWARE = {
    *FROM_OUTSIDE, _C.ILLEGAL_ACCESS, _C.ABORT, _C.SEGFAULT, _C.KILLED, _C.HANG,
    _C.COLLECTIVE_TIMEOUT, _C.NETWORK_LOSS, _C.UNKNOWN, _C.NAN, _C.RENDEZVOUS_ERROR,
    _C.DEVICE_ASSERT,
}  # fmt: skip
_OF_A_DEVICE = re.compile(r"CUDA|HIP|NCCL|RCCL|device|GPU|XLA", re.IGNORECASE)
_BEFORE_IT_BEGAN = 300.0  # seconds that clocks of kernel and program may differ


def from_outside(facts: Facts, own: FoundCause | None) -> FoundCause | None:
    """An event from outside that names this job or node, fits in time and explains the exit."""
    events = [
        event
        for event in facts.reading.events
        if event.is_outside
        and not went_on(event)
        and _is_ours(event, facts)
        and _explains(event, own, facts)
    ]
    if not events:
        return None
    event = min(events, key=lambda event: event.time if event.time is not None else 0.0)
    victim = event.rank if event.rank is not None else _only_rank_on(event.node, facts)
    if victim is None and own is not None and event.failure_class not in BY_SCHEDULER:
        victim = own.rank
    return replace(of_events([event], victim), node=event.node)


def _is_ours(event: Event, facts: Facts) -> bool:
    """Whether it happened on a node of this job, and not before the job began."""
    nodes = {node.partition(".")[0] for node in facts.nodes.values()}
    node = event.node.partition(".")[0] if event.node else None
    if nodes and node is not None and node not in nodes and event.rank is None:
        return False
    known = event.time is not None and facts.began is not None
    return not (known and event.time < facts.began - _BEFORE_IT_BEGAN)  # type: ignore[operator]


def _explains(event: Event, own: FoundCause | None, facts: Facts) -> bool:
    if event.failure_class in BY_SCHEDULER:
        raised = any(_raised_by_itself(other) for other in facts.reading.events)
        return not raised and not any(_crashed_before(event, end) for end in facts.reading.events)
    if own is None or own.failure_class in _MAY_BE_HARDWARE:
        return True
    return (
        own.failure_class is FailureClass.USER_EXCEPTION
        and _OF_A_DEVICE.search(own.words) is not None
    )


def _crashed_before(event: Event, other: Event) -> bool:
    """Whether a launcher told of a crash before the scheduler's word, which then is clean-up."""
    if other.source != event.source or other.offset > event.offset:
        return False
    return any(end.failed and not end.was_asked_to_stop for end in other.ended)


def _raised_by_itself(event: Event) -> bool:
    """Whether a rank left by an exception of its own: one that a scheduler kills does not."""
    of_an_end = event.failure_class in {*FROM_OUTSIDE, FailureClass.KILLED}
    return event.is_exception and event.role is Role.ROOT and not of_an_end and is_fatal(event)


def _only_rank_on(node: str | None, facts: Facts) -> int | None:
    ranks = [rank for rank, where in facts.nodes.items() if where == node]
    return ranks[0] if len(ranks) == 1 else None


def never_came(facts: Facts, waiting: dict[int | None, Event]) -> FoundCause:
    events = list(waiting.values())
    if events:
        cause = of_events(_last_sequence_first(events), None)
    else:
        cause = FoundCause(
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
    """The ranks that do not say so; of those that never reported only where they are few.

    Who did not come to a meeting never wrote a word. Who did not come to a collective may have
    written before it.
    """
    others = tuple(rank for rank in facts.ranks if rank not in known)
    if others:
        return others
    at_start = all(e.failure_class is FailureClass.RENDEZVOUS_ERROR for e in known.values())
    spoken = facts.progress.spoken | facts.progress.named if at_start else facts.progress.spoken
    everybody = set(range(facts.world)) if facts.world is not None else set(spoken)
    heard = {*facts.ranks, *spoken} if at_start else set(facts.ranks)
    silent = everybody - heard
    few = len(silent) * 2 < len(everybody)
    return tuple(sorted(silent)) if few and (at_start or None not in known) else ()


def lost_peer(facts: Facts, cascades: dict[int | None, Event]) -> FoundCause:
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
