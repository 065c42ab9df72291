"""Events, exits and dumps -> one cause: what began it, told apart from what merely followed.

In this order: was it ended from outside, did a rank fail by itself, did ranks wait for one that
never came, did they only lose a peer? Whatever is left is unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from aorta.attribution.documents import (
    HOW_IT_SHOWS,
    USER_ERRORS,
    Certainty,
    FailureClass,
    RankEnd,
    Role,
)
from aorta.attribution.events import BY_SCHEDULER, FROM_OUTSIDE, Event
from aorta.attribution.timeline import (
    FOLLOWS,
    Facts,
    FoundCause,
    by_rank,
    is_fatal,
    is_last_word,
    of_events,
    went_on,
)

Who = tuple[int | None, str]
NOBODY: Who = (None, "")
_SAME_LINE = 2.0  # seconds: loggers round, and processes write late
_SAME_MOMENT = 0.5  # seconds: launchers poll, so deaths closer than this have no order
_C = FailureClass
_MAY_BE_HARDWARE = {
    *FROM_OUTSIDE, _C.ILLEGAL_ACCESS, _C.ABORT, _C.SEGFAULT, _C.KILLED, _C.HANG,
    _C.COLLECTIVE_TIMEOUT, _C.NETWORK_LOSS, _C.UNKNOWN, _C.NAN, _C.RENDEZVOUS_ERROR,
    _C.DEVICE_ASSERT,
}  # fmt: skip
_OF_A_DEVICE = re.compile(r"CUDA|HIP|NCCL|RCCL|device|GPU|XLA", re.IGNORECASE)
_BEFORE_IT_BEGAN = 300.0  # seconds that clocks of kernel and program may differ
_SAME_PLACE = 8 << 10  # bytes
_REFUSALS = USER_ERRORS - {_C.SHAPE_MISMATCH, _C.CHECKPOINT_MISMATCH, _C.CHECKPOINT_CORRUPT}
_MAY_BE_CONFIRMED = {  # by an event that says what was behind it
    *HOW_IT_SHOWS, _C.KILLED, _C.NETWORK_LOSS, _C.COLLECTIVE_TIMEOUT, _C.HANG, _C.DATA_ERROR,
}  # fmt: skip


def find_cause(facts: Facts) -> tuple[FoundCause, int]:
    """The cause, and how many candidates of another class it was preferred to."""
    shown: set[Who] = {event.who for event in facts.events}
    shown |= {(failure.rank, "") for failure in facts.failures}
    in_order = sorted(shown, key=lambda who: (-1 if who[0] is None else who[0], who[1]))
    own = [cause for who in in_order if (cause := _own_cause(who, facts)) is not None]
    # How some process ended says less than what a process died of.
    own = [cause for cause in own if not (cause.events and cause.events[0].is_end)] or own
    first, rivals = _first_of(own) if own else (None, 0)
    outside = _from_outside(facts, first)
    if outside is not None:
        return _confirmed(outside, facts), 0
    return _confirmed(first or _followed(facts), facts), rivals


# ---- did a rank fail on its own account?


def _own_cause(who: Who, facts: Facts) -> FoundCause | None:
    """What this rank died of, if it did not merely follow others."""
    rank = who[0]
    failure = next((f for f in facts.failures if f.rank == rank), None)
    if failure is not None and not failure.failed:
        return None
    events = [event for event in facts.events if event.who == who]
    if rank is None:  # whether what happened outside counts is asked elsewhere
        events = [event for event in events if event.is_exception or not event.is_outside]
    if failure is not None and not failure.fits_an_exception:
        events = [event for event in events if not event.is_exception]
    if _is_follower([e for e in events if not e.survived or is_last_word(e)], who):
        return None
    shown = _most_telling(_credible(events, failure))
    from_exit = None if failure is None else _from_exit(failure, facts)
    if shown is None or (from_exit is not None and _outranks(from_exit, shown)):
        return from_exit
    moment = None if failure is None else failure.time
    return replace(of_events([shown], rank), moment=moment, said=shown.time)


def _is_follower(events: Sequence[Event], who: Who) -> bool:
    """Whether the last exception of a rank says that it waited for, or lost, somebody else."""
    fatal = [event for event in events if event.is_exception]
    roots = [event for event in events if event.role is Role.ROOT]
    if roots:
        fatal = [event for event in fatal if not _is_wrapper(event)]
    if who == NOBODY and any(event.role is Role.ROOT for event in fatal):
        return False
    if fatal:
        return max(fatal, key=lambda event: event.offset).role in FOLLOWS
    named = any(event.failure_class is not FailureClass.ABORT for event in roots)
    return not named and any(event.role in FOLLOWS for event in events)


def _is_wrapper(event: Event) -> bool:
    """Whether it says nothing of its own, and only points at what stands elsewhere."""
    return event.role is Role.CASCADE and event.failure_class is FailureClass.UNKNOWN


def _credible(events: Sequence[Event], failure: RankEnd | None) -> list[Event]:
    """Events that can have ended a rank: the last uncaught exception, lines that name a death."""
    roots = [event for event in events if event.role is Role.ROOT]
    wrappers = (e.raised.begins for e in events if _is_wrapper(e) and e.raised is not None)
    wrapper = min(wrappers, default=None)
    lines = [e for e in roots if not e.is_exception and _may_end(e, failure, wrapper)]
    raised = [event for event in roots if event.is_exception]
    fatal = [event for event in raised if is_fatal(event)]
    if failure is not None and not failure.hung and not lines and not fatal:
        # Output that was held back and written late can make the end look like the middle.
        fatal = [replace(e, survived=True, certainty=Certainty.WEAK) for e in raised if went_on(e)]
    last = max(fatal, key=lambda event: (not event.is_torn, event.offset), default=None)
    if last is None:
        return lines
    # The exit of some process above it is another's, and so is a scheduler's word.
    after = [e for e in lines if not e.is_end or e.offset > last.offset]
    own = [event for event in after if event.failure_class not in BY_SCHEDULER]
    return [*(e for e in own if e.certainty.weight > last.certainty.weight), last]


def _may_end(line: Event, failure: RankEnd | None, wrapper: int | None) -> bool:
    """Whether a rank can have ended with this line, behind which nobody but a wrapper wrote."""
    if (failure is not None and not failure.fits(line.failure_class)) or went_on(line):
        return False
    return line.failure_class not in _REFUSALS or is_last_word(line, wrapper)


def _most_telling(events: Sequence[Event]) -> Event | None:
    """What says most; an abort is only how another line of the same moment shows."""
    named = [e for e in events if e.failure_class not in HOW_IT_SHOWS or e.is_exception]
    aborts = [event for event in events if event.failure_class is FailureClass.ABORT]
    if any(0 <= a.offset - n.offset <= _SAME_PLACE for a in aborts for n in named):
        events = named
    return max(events, key=lambda event: (event.certainty.weight, event.offset), default=None)


def _from_exit(failure: RankEnd, facts: Facts) -> FoundCause | None:
    """A cause told by an exit status alone; none where a launcher was only tidying up."""
    if _tidied_up(failure, facts) or (failure.hung and _stood_waiting(failure.rank, facts)):
        return None
    failure_class, certainty = failure.meaning
    words = failure.words
    # Where a rank that hung stood, if its stack was shown: it tells two hangs apart.
    events = (e for e in facts.events if e.role is Role.STACK and e.rank == failure.rank)
    stacks = [event.signature for event in events] if failure.hung else []
    stack = f" > {max(stacks, key=len)}" if stacks else ""
    return FoundCause(
        failure_class,
        certainty,
        words.replace(f"rank {failure.rank} ", "") + stack,
        words,
        failure.rank,
        moment=failure.time,
        unexplained=failure_class is FailureClass.UNKNOWN,
    )


def _tidied_up(failure: RankEnd, facts: Facts) -> bool:
    """Ended by its launcher because of others: politely, or by force well after they had failed."""
    others = [f for f in facts.failures if f.rank != failure.rank and f.failed]
    on_their_own = [f for f in others if not f.was_asked_to_stop and not f.hung]
    if failure.ended_by_launcher:
        return True
    if failure.was_asked_to_stop:
        earlier = failure.time is None or any(_before(f, failure) for f in others)
        return bool(on_their_own) and earlier
    killed = failure.meaning[0] is FailureClass.KILLED
    waited = any(event.role is Role.WAITING for event in facts.events)
    later = any(failure.time is None or _before(f, failure) for f in on_their_own)
    return killed and waited and later


def _stood_waiting(rank: int | None, facts: Facts) -> bool:
    """Whether its stack shows this rank in a collective while another hung elsewhere."""
    shown = {(event.role, event.failure_class, event.rank) for event in facts.events}
    in_collective = (Role.STACK, FailureClass.COLLECTIVE_TIMEOUT)
    waiting = {who for role, kind, who in shown if (role, kind) == in_collective}
    hung = {who for role, kind, who in shown if (role, kind) == (Role.ROOT, FailureClass.HANG)}
    hung |= {failure.rank for failure in facts.failures if failure.hung}
    return rank in waiting and bool(hung - waiting)


def _before(earlier: RankEnd, later: RankEnd) -> bool:
    if earlier.time is None or later.time is None:
        return False
    return later.time - earlier.time > _SAME_MOMENT


def _outranks(from_exit: FoundCause, event: Event) -> bool:
    """Whether a crash by signal says more than this event of the same rank."""
    if from_exit.failure_class is FailureClass.ABORT and event.is_exception:
        return False
    return from_exit.certainty.weight > event.certainty.weight


def _first_of(causes: Sequence[FoundCause]) -> tuple[FoundCause, int]:
    """The earliest, of one moment the most certain. All ranks of its class share the blame."""
    chosen = max(_earliest(causes), key=_says_most)
    same = [cause for cause in causes if cause.failure_class is chosen.failure_class]
    ranks = tuple(cause.rank for cause in same if cause.rank is not None)
    others = (cause for cause in causes if cause not in same)
    rivals = sum(cause.certainty.weight >= chosen.certainty.weight for cause in others)
    return replace(chosen, ranks=ranks), rivals


def _earliest(causes: Sequence[FoundCause]) -> list[FoundCause]:
    """Those that nothing says came later: by the launcher's clock, or by their lines' times."""
    moments = [cause.moment for cause in causes]
    slack = _SAME_MOMENT
    if not any(moment is not None for moment in moments):
        moments, slack = [cause.said for cause in causes], _SAME_LINE
    latest = min((moment for moment in moments if moment is not None), default=0.0) + slack
    timed = zip(causes, moments, strict=True)
    return [cause for cause, moment in timed if moment is None or moment <= latest]


def _says_most(cause: FoundCause) -> tuple[int, bool, bool, float]:
    """The last: where it stands among causes that nothing else orders, by place, then by rank."""
    shared = bool(cause.events) and cause.events[0].source.rank is None
    order = (cause.events[0].offset if shared else 0) * 1e6 + (cause.rank or 0)
    return cause.certainty.weight, not cause.unexplained, cause.rank is not None, -order


# ---- causes that are no rank's own


def _from_outside(facts: Facts, own: FoundCause | None) -> FoundCause | None:
    """An event from outside that names this job or node, fits in time and explains the exit."""
    events = [e for e in facts.events if e.is_outside and not went_on(e)]
    events = [e for e in events if _is_ours(e, facts) and _explains(e, own, facts)]
    if not events:
        return None
    event = min(events, key=lambda event: (event.time or 0.0, event.node is None))
    alike = [other for other in events if other.failure_class is event.failure_class]
    places = facts.places
    node = event.node or (places.get(event.rank) if event.rank is not None else None)
    node = node or next((other.node for other in alike if other.node), None)
    shown = [event, *(e for e in alike if e is not event and e.node in {None, node})]
    there = [rank for rank, where in places.items() if where == node]
    victim = there[0] if event.rank is None and len(there) == 1 else event.rank
    if victim is None and own is not None and event.failure_class not in BY_SCHEDULER:
        elsewhere = own.rank in places and node not in {None, places[own.rank]}
        victim = None if elsewhere else own.rank
    device = next((each.device for each in shown if each.device), None)
    return replace(of_events(shown, victim), node=node, device=device)


def _is_ours(event: Event, facts: Facts) -> bool:
    """Whether it happened on a node of this job, and not before the job began."""
    nodes = {node.partition(".")[0] for node in facts.nodes.values()}
    node = event.node.partition(".")[0] if event.node else None
    if nodes and node is not None and node not in nodes and event.rank is None:
        return False
    if event.time is None or facts.began is None:
        return True
    return event.time >= facts.began - _BEFORE_IT_BEGAN


def _explains(event: Event, own: FoundCause | None, facts: Facts) -> bool:
    if event.failure_class in BY_SCHEDULER:
        return not any(_fails_by_itself(other, event) for other in facts.events)
    if own is None or own.failure_class in _MAY_BE_HARDWARE:
        return True
    guessed = own.certainty is Certainty.WEAK or own.failure_class is FailureClass.USER_EXCEPTION
    return guessed and _OF_A_DEVICE.search(own.words) is not None


def _fails_by_itself(event: Event, word: Event) -> bool:
    """Whether a rank raised, or a launcher reported a crash before the scheduler's `word`."""
    crashed = any(end.failed and not end.was_asked_to_stop for end in event.ended)
    if crashed and event.source == word.source and event.offset <= word.offset:
        return True
    of_an_end = event.failure_class in {*FROM_OUTSIDE, FailureClass.KILLED}
    return event.is_exception and event.role is Role.ROOT and not of_an_end and is_fatal(event)


# ---- what ranks waited for or lost, where none failed on its own account


def _followed(facts: Facts) -> FoundCause:
    waiting = by_rank(facts, Role.WAITING)
    if waiting or facts.stragglers.ranks:
        return _never_came(facts, waiting)
    lost = by_rank(facts, Role.CASCADE)
    lost = {rank: event for rank, event in lost.items() if not _is_wrapper(event)}
    return _lost_peer(facts, lost) if lost else _silent(facts)


def _never_came(facts: Facts, waiting: dict[int | None, Event]) -> FoundCause:
    events = sorted(waiting.values(), key=lambda event: -(event.sequence or 0))
    if events:
        cause = of_events(events, None)
    else:
        signature = f"flight recorder {facts.stragglers.operation}"
        kind, words = FailureClass.COLLECTIVE_TIMEOUT, facts.stragglers.words
        cause = FoundCause(kind, Certainty.LIKELY, signature, words, None)
    named = tuple(sorted({event.blamed for event in events if event.blamed is not None}))
    blamed = facts.stragglers.ranks or named or _behind(events) or _others(facts, waiting)
    return replace(cause, rank=min(blamed, default=None), ranks=tuple(blamed))


def _behind(events: Sequence[Event]) -> tuple[int, ...]:
    """Of ranks that all waited, those that had come least far."""
    counted = {e.rank: e.sequence for e in events if e.rank is not None and e.sequence}
    least = min(counted.values(), default=0)
    behind = tuple(rank for rank, number in counted.items() if number == least)
    return behind if len(behind) < len(counted) else ()


def _others(facts: Facts, known: dict[int | None, Event]) -> tuple[int, ...]:
    """The ranks that do not say so; of those that never reported only where they are few."""
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


def _lost_peer(facts: Facts, lost: dict[int | None, Event]) -> FoundCause:
    """The peer that ranks name, or that is silent, unless its launcher ended it after them."""
    events = list(lost.values())
    event = next((each for each in events if each.blamed is not None), events[0])
    silent = _others(facts, lost) if event.blamed is None else (event.blamed,)
    tidied = {end.rank for end in facts.failures if _tidied_up(end, facts)}
    if silent and tidied.issuperset(silent):
        silent = () if event.rank is None else (event.rank,)
    killed = event.failure_class is FailureClass.KILLED
    return replace(
        of_events([event], min(silent, default=None)),
        failure_class=FailureClass.KILLED if killed else FailureClass.NETWORK_LOSS,
        certainty=Certainty.WEAK,
        ranks=silent,
    )


def _silent(facts: Facts) -> FoundCause:
    """No rank failed on its own: all were ended from outside, or nothing at all is known."""
    ended = [failure for failure in facts.failures if failure.failed]
    if not ended:
        words = "nothing in the evidence says why it ended"
        return FoundCause(FailureClass.UNKNOWN, Certainty.WEAK, "", words, None, unexplained=True)
    first = min(ended, key=lambda f: (f.ended_by_launcher, f.time or 0.0, f.rank))
    if first.ended_by_launcher:  # for a reason that none of these ranks knows
        words = "its launcher ended every rank that is known of"
        return FoundCause(*first.meaning, "ended from outside", words, None)
    return FoundCause(*first.meaning, "ended from outside", first.words, first.rank)


def _confirmed(cause: FoundCause, facts: Facts) -> FoundCause:
    """The cause, or what a confirming event says was behind it."""
    for event in (event for event in facts.events if event.role is Role.CONFIRM):
        explains = cause.failure_class in HOW_IT_SHOWS
        if event.failure_class is not FailureClass.DISK_FULL:  # which would stop the job
            weak = cause.certainty is Certainty.WEAK
            explains = weak or cause.failure_class in _MAY_BE_CONFIRMED
        if explains and event.rank in {None, cause.rank} and not went_on(event):
            behind = replace(of_events([event, *cause.events], cause.rank), ranks=cause.ranks)
            return replace(behind, signature=event.pattern, moment=cause.moment)
    return cause


def with_recorded_ends(facts: Facts) -> Facts:
    """The launcher's ends, completed by what launchers and schedulers wrote into the logs."""
    ends = {end.rank: end for end in facts.failures}
    for end in facts.recorded_ends:
        known = ends.get(end.rank)
        ends[end.rank] = end if known is None else known.completed_by(end)
    return replace(facts, failures=tuple(ends.values()))
