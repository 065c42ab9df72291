"""From a cause to the finding: how sure it is, who shares it, who followed, and the lines that show it."""

from collections.abc import Iterable
from dataclasses import replace

from aorta.attribution import exits
from aorta.attribution.causes import find_cause, with_summaries
from aorta.attribution.facts import Cause, Facts
from aorta.attribution.nouns import Advice, Cascade, EvidenceLine, Finding, Root
from aorta.attribution.reading import Source, line_numbers
from aorta.attribution.signs import Sign
from aorta.attribution.taxonomy import Certainty, FailureClass, Role
from aorta.core.signature import Signature

# How often such findings were right at the first look at failures no rule had seen (`python -m benchmarks attribution`).
CONFIDENCE = {Certainty.CERTAIN: 0.9, Certainty.LIKELY: 0.75, Certainty.WEAK: 0.45}
SURE = 0.75  # what a STOP at the first failure needs
OUTLIVED = 3.0  # seconds: on a busy host ranks come to the same line that far apart
SURE_LATER = 0.88  # the same once steps have been made


def conclude(facts: Facts) -> Finding:
    facts = replace(facts, failures=with_summaries(facts))
    cause, rivals = find_cause(facts)
    confidence = _confidence(cause, rivals, facts)
    suspects = cause.ranks or ((cause.rank,) if cause.rank is not None else ())
    node = cause.node or (facts.nodes.get(cause.rank) if cause.rank is not None else None)
    return Finding(
        failure_class=cause.failure_class,
        confidence=round(confidence, 2),
        root=Root(cause.rank, node, cause.device or _device(facts, cause.rank)),
        suspect_ranks=tuple(sorted(suspects)),
        fingerprint=Signature(f"{cause.failure_class} | {cause.signature}").digest,
        summary=_summary(cause),
        first_step=facts.progress.first,
        last_step=facts.progress.last,
        evidence=_evidence(cause, facts),
        cascade=_cascades(facts, set(suspects)),
        advice=_advice(cause),
        one_node_of=_one_node_of(suspects, facts),
        some_ranks_of=_some_ranks_of(suspects, facts),
        steps_would_show=facts.progress.would_show,
    )


def _confidence(cause: Cause, rivals: int, facts: Facts) -> float:
    if cause.confidence is not None:
        return cause.confidence
    confidence = CONFIDENCE[cause.certainty]
    failure = next((f for f in facts.failures if f.rank == cause.rank), None)
    if failure is not None and cause.signs:
        confidence += 0.03
    if rivals:
        confidence -= 0.1
    if cause.signs and cause.signs[0].survived:
        confidence -= 0.1 if failure is not None and failure.exit_code else 0.2
    return min(0.99, confidence)


def _summary(cause: Cause) -> str:
    who = "" if cause.rank is None or cause.words.startswith("rank ") else f"rank {cause.rank}: "
    return f"{who}{cause.failure_class}: {cause.words}"[:300]


def _evidence(cause: Cause, facts: Facts) -> tuple[EvidenceLine, ...]:
    followers = [s for s in facts.reading.signs if s.role in {Role.CASCADE, Role.WAITING}]
    chosen: dict[tuple[str, int], Sign] = {}
    for sign in [*cause.signs[:4], *followers[:3]]:
        chosen.setdefault((sign.source.name, sign.offset), sign)
    offsets: dict[Source, set[int]] = {}
    for sign in chosen.values():
        offsets.setdefault(sign.source, set()).add(sign.offset)
    numbers = {source: line_numbers(source, own) for source, own in offsets.items()}
    return tuple(
        EvidenceLine(sign.source.name, numbers[sign.source][sign.offset], sign.text)
        for sign in chosen.values()
    )


def _cascades(facts: Facts, suspects: set[int]) -> tuple[Cascade, ...]:
    followers: dict[FailureClass, set[int]] = {}
    for sign in facts.reading.signs:
        if (
            sign.role in {Role.CASCADE, Role.WAITING}
            and sign.rank is not None
            and sign.rank not in suspects
        ):
            followers.setdefault(sign.failure_class, set()).add(sign.rank)
    for failure in facts.failures:
        told = any(failure.rank in ranks for ranks in followers.values())
        if exits.asked_to_stop(failure) and failure.rank not in suspects and not told:
            followers.setdefault(FailureClass.KILLED, set()).add(failure.rank)
    return tuple(Cascade(kind, tuple(sorted(ranks))) for kind, ranks in followers.items())


def _advice(cause: Cause) -> tuple[Advice, ...]:
    told = next((sign.advice for sign in cause.signs if sign.advice), None)
    return (Advice(*told),) if told else ()


def _one_node_of(suspects: Iterable[int | None], facts: Facts) -> int | None:
    """How many nodes there are, if one alone shows the failure and another is known to have come past it."""
    nodes = set(facts.nodes.values())
    guilty = {facts.nodes[rank] for rank in suspects if rank is not None and rank in facts.nodes}
    came_past = {
        facts.nodes.get(sign.rank)
        for sign in facts.reading.signs
        if sign.rank is not None and sign.role in {Role.CASCADE, Role.WAITING}
    }
    alone = len(guilty) == 1 and bool(came_past - guilty - {None})
    return len(nodes) if alone else None


def _some_ranks_of(suspects: Iterable[int | None], facts: Facts) -> int | None:
    """How many ranks there are, if some show the failure and no other can be counted as showing it too."""
    guilty = {rank for rank in suspects if rank is not None}
    known = {failure.rank for failure in facts.failures} | set(facts.ranks)
    others = (set(range(max(known, default=0) + 1)) | known) - guilty
    if not guilty or not others:
        return None
    return len(guilty | others) if others <= _elsewhere(guilty, facts) else None


def _elsewhere(guilty: set[int], facts: Facts) -> set[int]:
    """Ranks that came past what stopped these, or of which nothing is known that would say otherwise.

    A rank that its launcher ended in the same moment is not among them: it had no time to show the same.
    """
    followers = {s.rank for s in facts.reading.signs if s.role in {Role.CASCADE, Role.WAITING}}
    ended = {failure.rank: failure for failure in facts.failures}
    unheard = {
        other
        for other in range(max([*guilty, *facts.ranks]) + 1)
        if facts.heard is not None and other not in facts.heard
    }
    finished = {other for other, failure in ended.items() if failure.exit_code == 0}
    past = followers | facts.progress.ranks | unheard | finished | _outlived(guilty, facts)
    return {other for other in past if other is not None}


def _outlived(guilty: set[int], facts: Facts) -> set[int]:
    """Ranks that lived on so long after these had died that they must have come past it."""
    times = {f.rank: f.time for f in facts.failures if f.time is not None}
    died = max((times[rank] for rank in guilty if rank in times), default=None)
    if died is None:
        return set()
    return {rank for rank, moment in times.items() if moment - died > OUTLIVED}


def _device(facts: Facts, rank: int | None) -> str | None:
    return next((f.device for f in facts.failures if f.rank == rank), None)
