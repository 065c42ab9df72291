"""From a cause to the finding: how sure, who shares it, who followed, which lines show it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from aorta.attribution.classify import (
    OF_THE_PROGRAM,
    Said,
    classified,
    comes_and_goes,
    last_lines,
    may_stop,
    normalised,
    said_by,
)
from aorta.attribution.documents import (
    HOW_IT_SHOWS,
    USER_ERRORS,
    Advice,
    Cascade,
    Certainty,
    EvidenceLine,
    FailureClass,
    Finding,
    RankEnd,
    Role,
    Root,
)
from aorta.attribution.events import ANY_EXCEPTION, QUOTED, stable
from aorta.attribution.logs import ReadableLog, line_numbers
from aorta.attribution.timeline import FOLLOWS, Facts, FoundCause, states_a_failure, without_failure
from aorta.attribution.timeline.causes import find_cause, with_recorded_ends
from aorta.core.failure import Failure, digest_of
from aorta.core.raised import cause_of
from aorta.core.templates import shortened
from aorta.core.trial import Ended

_DEMAND = re.compile(
    r"Tried to allocate (?P<wanted>[\d.]+ [KMGTP]?i?B)"
    r".*? total capacity of (?P<total>[\d.]+ [KMGTP]?i?B)"
)
_OF_ANOTHER = re.compile(
    r"capacity of (?P<total>[\d.]+ [KMGTP]?i?B).*?Process \d+ has (?P<taken>[\d.]+ [KMGTP]?i?B)"
    r"(?=.* (?P<own>[\d.]+ [KMGTP]?i?B) is allocated by PyTorch)?"
)
_FIRST_USE = re.compile(r"when calling `cu(?:blas|dnn)Create\(")
_BUILDING = re.compile(
    r":(?:from_pretrained|_?build_\w+|get_model|setup_model\w*|model_provider|init_model\w*|"
    r"_wrap_model|prepare_model|_move_model_to_device|to_empty|_load_pretrained_model|"
    r"initialize_model|load_model|_configure_distributed_model|init_\w+|profile_run|"
    r"determine_num_available_blocks|_initialize_kv_caches?|create_model)(?: > |$)"
)
# How often findings were right at first looks (`python -m benchmarks attribution`), by what they
# rest on; and, where they name what stops a job, how often a restart would have met it again.
_RIGHT = {"certain": 0.9, "likely": 0.57, "weak": 0.45, "exit": 0.8, "nothing": 0.17}
_MET_AGAIN = {"certain": 0.95, "likely": 0.86}
_STOPS_TOO = {
    FailureClass.DISK_FULL,
    FailureClass.DEVICE_OOM,
    FailureClass.TIME_LIMIT,
    FailureClass.CANCELLED,
}
_BY_WORDS = {ANY_EXCEPTION, QUOTED}
# The least confidence at which a user error that words alone name is one.
_ENOUGH = 0.8
_SPEECH = re.compile(r"[a-z]{2,}")  # closing brackets say nothing
_LAST_FEW = 5  # lines after which nobody died of what stands before them
_LONGEST_SUMMARY = 300
OUTLIVED = 3.0  # seconds: on a busy host ranks come to the same line that far apart


def conclude(facts: Facts) -> Finding:
    """The finding. What no pattern is certain of is named by the classifier."""
    facts = with_recorded_ends(facts)
    cause, rivals = find_cause(facts)
    steps = (facts.progress.first, facts.progress.last)
    well = without_failure(facts, cause.unexplained)
    if well is not None:
        state, words = well
        return Finding(FailureClass.UNKNOWN, 0.0, Root(), (), "", words, *steps, state=state)
    cause, confidence, basis = _classified(cause, _surer(cause, rivals, facts), facts)
    suspects = cause.ranks or ((cause.rank,) if cause.rank is not None else ())
    root = _root(cause, facts)
    failure = replace(_failure(cause, facts), ended=_ended(root, facts))
    frames = failure.causes[0].first.frames if failure.causes else ()
    own = (event for event in cause.events if event.failure_class is cause.failure_class)
    advice = next((event.advice for event in own if event.advice), None)
    one_node_of, some_ranks_of = _alone(set(suspects), cause, facts)
    return Finding(
        failure_class=cause.failure_class,
        confidence=round(confidence, 2),
        root=root,
        suspect_ranks=tuple(sorted(suspects)) or ((root.rank,) if root.rank is not None else ()),
        fingerprint=digest_of(" > ".join([failure.failure_class or "", *frames, cause.signature])),
        failure=failure,
        summary=_summary(cause),
        first_step=facts.progress.first,
        last_step=facts.progress.last,
        evidence=_evidence(cause, facts),
        cascade=_cascades(facts, set(suspects)),
        advice=(Advice(*advice),) if advice else (),
        one_node_of=one_node_of,
        some_ranks_of=some_ranks_of,
        before_first_step=_is_before_first_step(cause, facts),
        made_steps=facts.progress.made,
        basis=basis,
    )


def _failure(cause: FoundCause, facts: Facts) -> Failure:
    """What failed, as `same_failure` compares it; without a class where words alone name it."""
    by_words = bool(cause.events) and cause.events[0].pattern in _BY_WORDS
    kind = None if by_words or cause.unexplained else cause.failure_class
    if cause.events and cause.events[0].chain:
        raised = cause_of([one.block for one in cause.events[0].chain])
        # A device reports an assertion at a later call; what was asserted stands in a line.
        asserted = {
            event.signature
            for event in facts.events
            if kind is FailureClass.DEVICE_ASSERT is event.failure_class and not event.is_exception
        }
        return Failure(causes=(raised,), words=tuple(sorted(asserted)), failure_class=kind)
    words = (cause.signature,) if cause.signature else ()
    return Failure(words=words, failure_class=kind)


def _ended(root: Root, facts: Facts) -> Ended:
    """How the root ended, or whoever alone did; the signal of its launcher is not its end."""
    ends = [end for end in facts.failures if root.rank in {None, end.rank}]
    own = [end for end in ends if end.failed and not end.ended_by_launcher]
    return Ended(own[0].exit_code, own[0].signal) if len(own) == 1 else Ended()


# ---- what it is, and how sure that is


def _classified(cause: FoundCause, surer: float, facts: Facts) -> tuple[FoundCause, float, str]:
    """The cause with its class, how sure that is, and what it rests on."""
    certain = cause.certainty is Certainty.CERTAIN
    by_line = cause.certainty.value if cause.events or certain else "exit"
    basis = "nothing" if cause.unexplained else by_line
    shown = bool(cause.events) and cause.events[0].pattern in _BY_WORDS
    is_read = shown or cause.unexplained or cause.failure_class in HOW_IT_SHOWS
    if certain or not is_read:
        stops = cause.failure_class in {*USER_ERRORS, *_STOPS_TOO}
        raised = cause.events[0].raised if cause.events else None
        if basis == "likely" and raised and comes_and_goes(raised.line.text):
            stops = False
        share = _MET_AGAIN.get(basis, _RIGHT[basis]) if stops else _RIGHT[basis]
        return cause, min(0.99, share + surer), basis
    spoken = said_of_cause(cause, facts)
    if not speaks_of_a_failure(spoken):
        return cause, _RIGHT[basis], basis
    guess = classified(spoken)
    words = _words(cause, facts)
    signature = stable(words) if cause.unexplained else cause.signature
    named = replace(cause, failure_class=guess.failure_class, words=words, signature=signature)
    if guess.failure_class not in USER_ERRORS:
        most = _ENOUGH - 0.05 if guess.failure_class in _STOPS_TOO else 0.99
        return named, min(most, guess.confidence) + min(0.0, surer), "words"
    sure = surer >= 0 and guess.user_error >= _ENOUGH and may_stop(spoken, guess.failure_class)
    confidence = guess.user_error if sure else min(guess.confidence, _ENOUGH - 0.05)
    return named, min(0.99, confidence), "words"


def _surer(cause: FoundCause, rivals: int, facts: Facts) -> float:
    """Added where an exit code agrees; taken away where other causes or progress contradict."""
    if cause.unexplained:
        return 0.0
    has_end = bool(cause.events) and any(f.rank == cause.rank for f in facts.failures)
    survived = bool(cause.events) and cause.events[0].survived
    return 0.03 * has_end - 0.1 * bool(rivals) - 0.1 * survived


def said_of_cause(cause: FoundCause, facts: Facts) -> Said:
    """Where only the end of a rank is known, what its own logs say, their last statement first."""
    event = cause.events[0] if cause.events else None
    spoken = said_by(event, _logs_of(cause, facts), cause.rank)
    words = _words(cause, facts)
    return replace(spoken, message=normalised(words)) if words != cause.words else spoken


def _logs_of(cause: FoundCause, facts: Facts) -> Sequence[ReadableLog]:
    own = [log for log in facts.logs if cause.rank is not None and log.rank == cause.rank]
    return own or facts.logs


def _words(cause: FoundCause, facts: Facts) -> str:
    """Its words; where only an end is known, the last line that states a failure."""
    lines = last_lines(_logs_of(cause, facts), cause.rank) if cause.unexplained else []
    return next((line.strip() for line in _stated(lines)), cause.words)


def speaks_of_a_failure(said: Said) -> bool:
    """Whether there is anything to be read: a message, or a statement in the last lines."""
    if said.kind:
        return OF_THE_PROGRAM.match(said.kind) is None
    return bool(said.message) or any(_stated(said.around))


def _stated(lines: Sequence[str]) -> Iterator[str]:
    """Those of the last few lines that state a failure, the last first."""
    spoken = [line for line in lines if _SPEECH.search(line)][-_LAST_FEW:]
    return filter(states_a_failure, reversed(spoken))


# ---- who began it, and who else shows it


def _root(cause: FoundCause, facts: Facts) -> Root:
    """Who began it; where its lines do not say, the first that the launcher saw fail."""
    end = next((end for end in facts.failures if end.rank == cause.rank), None)
    if cause.rank is None:
        end = _first_to_fail(cause, facts)
    rank = cause.rank if end is None else end.rank
    node = cause.node or (facts.places.get(rank) if rank is not None else None)
    if end is None:
        return Root(rank, node, cause.device)
    return Root(rank, node or end.node, cause.device or end.device)


def _first_to_fail(cause: FoundCause, facts: Facts) -> RankEnd | None:
    """None for what is nobody's own; the first to end of those that waited, waited for another."""
    line = cause.events[0] if cause.events else None
    if line is None or line.is_outside or line.role is Role.WAITING:
        return None
    if line.source.rank is not None or line.stream:
        return None
    ends = [end for end in facts.recorded_ends if end.failed and not end.ended_by_launcher]
    if line.is_exception:
        return next((end for end in ends if end.fits_an_exception), None)
    return next((end for end in ends if end.fits(line.failure_class)), None)


def _alone(guilty: set[int], cause: FoundCause, facts: Facts) -> tuple[int | None, int | None]:
    """Of how many nodes only one, of how many ranks only some show it; None: not known."""
    if not guilty:
        return _one_place_of(cause, facts), None
    beside = _ended_beside(guilty, facts)
    past = _came_past(guilty, beside, facts)
    known = {failure.rank for failure in facts.failures} | set(facts.ranks) | guilty
    others = set(range(max(known) + 1)) - guilty - beside
    nodes = facts.places
    places = {nodes[rank] for rank in guilty if rank in nodes}
    elsewhere = {nodes[rank] for rank in past if rank in nodes} - places
    of_nodes = len(set(nodes.values())) if len(places) == 1 and elsewhere else None
    return of_nodes, len(guilty | others) if others and others <= past else None


def _one_place_of(cause: FoundCause, facts: Facts) -> int | None:
    """The same by the hosts or pods whose lines show it, or that they came past it."""
    own = (cause.failure_class, Role.ROOT)
    placed = [event for event in facts.events if event.node]
    shown = {event.node for event in placed if (event.failure_class, event.role) == own}
    others = {event.node for event in placed if event.role in FOLLOWS} - shown
    return len(shown | others) if len(shown) == 1 and others else None


def _came_past(guilty: set[int], beside: set[int], facts: Facts) -> set[int]:
    """Ranks that came past what stopped these, or of which nothing is known that says otherwise."""
    followers = {e.rank for e in facts.events if e.role in FOLLOWS and e.rank is not None}
    everybody = set(range(max([*guilty, *facts.ranks]) + 1))
    unheard = set() if facts.heard is None else everybody - facts.heard
    unheard |= {failure.rank for failure in facts.failures if failure.ended_by_launcher}
    finished = {failure.rank for failure in facts.failures if failure.exit_code == 0}
    return followers | facts.progress.ranks | (unheard - beside) | finished


def _ended_beside(guilty: set[int], facts: Facts) -> set[int]:
    """Ranks that the same agent ended in the moment these failed: they had no time to show it."""
    ended = {failure.rank: failure for failure in facts.failures}

    def place(rank: int) -> str | None:
        agent = ended[rank].agent if rank in ended else None
        return agent or facts.places.get(rank)

    places = {place(rank) for rank in guilty}
    times = (ended[rank].time for rank in guilty if rank in ended)
    first = min((time for time in times if time is not None), default=None)
    return {
        rank
        for rank, end in ended.items()
        if rank not in guilty
        and end.failed
        and place(rank) in places
        and (rank in facts.empty or end.ended_by_launcher)
        and (end.time is None or first is None or end.time - first <= OUTLIVED)
    }


def _is_before_first_step(cause: FoundCause, facts: Facts) -> bool:
    """Whether it is seen that no step was made, or that the demand can never be met."""
    if facts.progress.made or not cause.events:
        return False
    event = cause.events[0]
    demand = _DEMAND.search(event.text)
    ended = any(failure.rank == cause.rank for failure in facts.failures)
    if demand is not None and ended and _bytes(demand["wanted"]) > _bytes(demand["total"]):
        return True  # where its end is not known, the log may be torn, and its steps with it
    if _is_taken_by_another(event.raised.exception if event.raised else event.text):
        return False
    shown = _FIRST_USE.search(event.text) or _BUILDING.search(event.stack)
    return facts.progress.at_zero or shown is not None


def _is_taken_by_another(text: str) -> bool:
    """Whether another process, and not this one under another number, holds the device."""
    found = _OF_ANOTHER.search(text)
    if found is None:
        return False
    taken = _bytes(found["taken"])
    return taken > _bytes(found["total"]) / 2 and _bytes(found["own"] or "0 B") < taken / 2


def _bytes(text: str) -> float:
    number, unit = text.split()
    return float(number) * 1024.0 ** "BKMGTP".index(unit[0])


# ---- for its reader


def _summary(cause: FoundCause) -> str:
    """`rank 3: nan: loss is NaN`; `rank 5: collective_timeout, reported by rank 0: Watchdog`."""
    who = "" if cause.rank is None or cause.words.startswith("rank ") else f"rank {cause.rank}: "
    by = cause.events[0] if cause.events else None
    reported = ""
    if by is not None and by.role in FOLLOWS and by.rank != cause.rank:
        reported = f", reported by {'others' if by.rank is None else f'rank {by.rank}'}"
    return shortened(f"{who}{cause.failure_class}{reported}: {cause.words}", _LONGEST_SUMMARY)


def _evidence(cause: FoundCause, facts: Facts) -> tuple[EvidenceLine, ...]:
    followers = [event for event in facts.events if event.role in FOLLOWS]
    chosen = {(e.source.name, e.offset): e for e in [*cause.events[:4], *followers[:3]]}
    offsets: dict[ReadableLog, list[int]] = {}
    for event in chosen.values():
        offsets.setdefault(event.source, []).append(event.offset)
    numbers = {source: line_numbers(source, own) for source, own in offsets.items()}
    return tuple(
        EvidenceLine(event.source.name, numbers[event.source][event.offset], event.text)
        for event in chosen.values()
    )


def _cascades(facts: Facts, suspects: set[int]) -> tuple[Cascade, ...]:
    followers: dict[FailureClass, set[int]] = {}
    for event in facts.events:
        if event.role in FOLLOWS and event.rank is not None and event.rank not in suspects:
            followers.setdefault(event.failure_class, set()).add(event.rank)
    known = suspects.union(*followers.values())
    stopped = {end.rank for end in facts.failures if end.was_asked_to_stop} - known
    if stopped:
        followers.setdefault(FailureClass.KILLED, set()).update(stopped)
    return tuple(Cascade(kind, tuple(sorted(ranks))) for kind, ranks in followers.items())
