"""Signs, exits and dumps -> one finding: what killed this cycle, who began it, and who merely followed.

The order of the questions is the logic: did something outside end the job? did a rank fail on its own account?
did ranks wait for one that never came? did they only lose a peer? Whatever is left is unknown, and says so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from aorta.attribution import exits
from aorta.attribution.flight import Stragglers
from aorta.attribution.nouns import (
    Advice,
    Cascade,
    EvidenceLine,
    Finding,
    RankFailure,
    Root,
)
from aorta.attribution.progress import Progress, steps_in
from aorta.attribution.reading import Source, line_numbers, pieces
from aorta.attribution.signs import Reading, Sign, stable
from aorta.attribution.taxonomy import Certainty, FailureClass, Role
from aorta.core.signature import Signature

CONFIDENCE = {Certainty.CERTAIN: 0.95, Certainty.LIKELY: 0.85, Certainty.WEAK: 0.7}
SURE = 0.8
_UNEXPLAINED = 0.3
_SAME_MOMENT = 0.5  # seconds: launchers poll, so deaths closer than this have no order
_LOOK_AROUND = 128 << 10
_LINES_OF_A_MESSAGE = 4
_MANY_STEPS = 20  # without a step before it, fewer may be another stream that was flushed late
_FROM_OUTSIDE = {
    FailureClass.PREEMPTED,
    FailureClass.TIME_LIMIT,
    FailureClass.CANCELLED,
    FailureClass.HARDWARE_FAULT,
    FailureClass.LINK_FAULT,
}
_EXPLAINS = {  # what a confirming sign may be the true cause of
    FailureClass.HOST_OOM: {FailureClass.KILLED, FailureClass.UNKNOWN},
    FailureClass.DISK_FULL: {FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN, FailureClass.ABORT},
    FailureClass.ILLEGAL_ACCESS: {FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN, FailureClass.ABORT},
    FailureClass.SEGFAULT: {FailureClass.UNKNOWN},
}  # fmt: skip


@dataclass(frozen=True)
class _Cause:
    """A candidate for what began it. `signs` are its own lines; `rank` None: nobody in particular."""

    failure_class: FailureClass
    certainty: Certainty
    signature: str
    words: str
    rank: int | None
    signs: tuple[Sign, ...] = ()
    ranks: tuple[int, ...] = ()
    node: str | None = None
    device: str | None = None
    confidence: float | None = None
    moment: float | None = None


@dataclass(frozen=True)
class Facts:
    """All that was read about one cycle."""

    reading: Reading
    failures: tuple[RankFailure, ...]
    progress: Progress
    stragglers: Stragglers
    ranks: tuple[int, ...]  # every rank anything is known about
    nodes: dict[int, str]


def conclude(facts: Facts) -> Finding:
    facts = replace(facts, failures=_with_summaries(facts))
    cause, rivals = _cause(facts)
    cause = _confirmed(cause, facts)
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
    )


def _cause(facts: Facts) -> tuple[_Cause, int]:
    """The cause, and how many candidates of another class it was preferred to."""
    outside = _from_outside(facts)
    if outside is not None:
        return outside, 0
    own = _own_causes(facts)
    if own:
        return _first_of(own)
    waiting = _by_rank(facts, Role.WAITING)
    if waiting or facts.stragglers.ranks:
        return _never_came(facts, waiting), 0
    cascades = _by_rank(facts, Role.CASCADE)
    if cascades:
        return _lost_peer(facts, cascades), 0
    return _silent(facts), 0


# ---- did something outside end the job? ----------------------------------------------------------------------


def _from_outside(facts: Facts) -> _Cause | None:
    signs = [
        sign
        for sign in facts.reading.signs
        if sign.failure_class in _FROM_OUTSIDE
        and sign.role is Role.ROOT
        and sign.certainty is Certainty.CERTAIN
    ]
    if not signs:
        return None
    sign = signs[0]
    victim = sign.rank if sign.rank is not None else _only_rank_on(sign.node, facts)
    return replace(_of_signs([sign], victim), node=sign.node)


def _only_rank_on(node: str | None, facts: Facts) -> int | None:
    ranks = [rank for rank, where in facts.nodes.items() if where == node]
    return ranks[0] if len(ranks) == 1 else None


# ---- did a rank fail on its own account? -----------------------------------------------------------------------


def _own_causes(facts: Facts) -> list[_Cause]:
    causes = []
    for rank in _ranks_with_signs(facts):
        cause = _own_cause(rank, facts)
        if cause is not None:
            causes.append(cause)
    return causes


def _own_cause(rank: int | None, facts: Facts) -> _Cause | None:
    """What this rank died of, if it did not merely follow others."""
    failure = next((f for f in facts.failures if f.rank == rank), None)
    if failure is not None and not exits.failed(failure):
        return None
    signs = [sign for sign in facts.reading.signs if sign.rank == rank]
    if failure is not None and not exits.exception_fits(failure):
        signs = [sign for sign in signs if not sign.is_exception]
    followed = _is_follower([sign for sign in signs if not sign.survived or _is_last_word(sign)])
    roots = [] if followed else _credible(signs, failure)
    told = _most_telling(roots)
    from_exit = None if failure is None or followed else _from_exit(failure, facts)
    if told is None or (from_exit is not None and _outranks(from_exit, told)):
        return from_exit
    moment = None if failure is None else failure.time
    return replace(_of_signs([told], rank), moment=moment)


def _is_follower(signs: Sequence[Sign]) -> bool:
    """Whether the last exception of a rank says that it waited for, or lost, somebody else."""
    fatal = [sign for sign in signs if sign.is_exception]
    if fatal:
        return max(fatal, key=lambda sign: sign.offset).role in {Role.CASCADE, Role.WAITING}
    others = [
        sign
        for sign in signs
        if sign.role is Role.ROOT and sign.failure_class is not FailureClass.ABORT
    ]
    return not others and any(sign.role in {Role.CASCADE, Role.WAITING} for sign in signs)


def _credible(signs: Sequence[Sign], failure: RankFailure | None) -> list[Sign]:
    """Signs that can have been the end of a rank: the last uncaught exception, and lines that name a death."""
    roots = [sign for sign in signs if sign.role is Role.ROOT]
    lines = [sign for sign in roots if not sign.is_exception]
    if failure is not None and not exits.exception_fits(failure):
        return [sign for sign in lines if sign.failure_class is not FailureClass.USER_EXCEPTION]
    fatal = [sign for sign in roots if sign.is_exception and _is_fatal(sign)]
    last = max(fatal, key=lambda sign: sign.offset, default=None)
    if last is None:
        return lines
    stronger = [sign for sign in lines if sign.certainty.weight > last.certainty.weight]
    return [*stronger, last]


def _is_fatal(sign: Sign) -> bool:
    """Whether a rank may have ended with this exception: it did not go on, and said no more if it logged it itself."""
    return not _went_on(sign) and (not sign.survived or _is_last_word(sign))


def _is_last_word(sign: Sign) -> bool:
    return len(_own_lines_after(sign)) <= _LINES_OF_A_MESSAGE


def _most_telling(signs: Sequence[Sign]) -> Sign | None:
    return max(signs, key=lambda sign: (sign.certainty.weight, sign.offset), default=None)


def _went_on(sign: Sign) -> bool:
    """Whether the same rank came further, in the same log, after this."""
    before = steps_in(_text(sign, max(0, sign.offset - _LOOK_AROUND), sign.offset))
    after = steps_in("\n".join(_own_lines_after(sign)))
    if not before:
        return len(after) >= _MANY_STEPS
    return len(after) > 1 and max(after) > max(before)


def _own_lines_after(sign: Sign) -> list[str]:
    """What the same rank wrote to the same log in the moment after."""
    lines = _text(sign, sign.offset, sign.offset + _LOOK_AROUND).split("\n")[1:]
    if sign.source.rank is None and sign.rank is not None:
        marks = (f"[rank{sign.rank}]", f"{sign.rank}: ", f"{sign.rank}]:")
        lines = [line for line in lines if any(mark in line[:24] for mark in marks)]
    return [line for line in lines if line.strip()]


def _text(sign: Sign, begin: int, stop: int) -> str:
    parts = (piece.data[piece.start : piece.end] for piece in pieces(sign.source, begin, stop))
    return b"".join(parts).decode("utf-8", "replace")


def _from_exit(failure: RankFailure, facts: Facts) -> _Cause | None:
    """A cause told by an exit status alone; none where a launcher was only tidying up."""
    if _tidied_up(failure, facts):
        return None
    failure_class, certainty = exits.class_of_exit(failure)
    words = exits.words(failure)
    return _Cause(
        failure_class,
        certainty,
        stable(words.replace(f"rank {failure.rank} ", "")),
        words,
        failure.rank,
        moment=failure.time,
        confidence=_UNEXPLAINED if failure_class is FailureClass.UNKNOWN else None,
    )


def _tidied_up(failure: RankFailure, facts: Facts) -> bool:
    """Ended by its launcher because of others: politely, or by force well after they had failed."""
    others = [f for f in facts.failures if f.rank != failure.rank and exits.failed(f)]
    on_their_own = [f for f in others if not exits.asked_to_stop(f) and not f.hung]
    if failure.hung:
        return False
    if exits.asked_to_stop(failure):
        earlier = [f for f in others if _before(f, failure)]
        return bool(on_their_own) and (failure.time is None or bool(earlier))
    killed = exits.class_of_exit(failure)[0] is FailureClass.KILLED
    waited = any(sign.role is Role.WAITING for sign in facts.reading.signs)
    return (
        killed and waited and any(failure.time is None or _before(f, failure) for f in on_their_own)
    )


def _before(earlier: RankFailure, later: RankFailure) -> bool:
    return (
        earlier.time is not None
        and later.time is not None
        and later.time - earlier.time > _SAME_MOMENT
    )


def _outranks(from_exit: _Cause, told: Sign) -> bool:
    """A crash by signal is certain; only an equally certain line of its own says more about it."""
    if from_exit.failure_class is FailureClass.UNKNOWN:
        return False
    return from_exit.certainty.weight > told.certainty.weight


def _first_of(causes: Sequence[_Cause]) -> tuple[_Cause, int]:
    """The earliest; of those in the same moment the most certain. All ranks of its class share the blame."""
    moments = [cause.moment for cause in causes if cause.moment is not None]
    earliest = min(moments, default=None)
    first = [
        cause
        for cause in causes
        if earliest is None or cause.moment is None or cause.moment - earliest <= _SAME_MOMENT
    ]
    chosen = max(first, key=lambda cause: (cause.certainty.weight, -_order(cause)))
    same = [cause for cause in causes if cause.failure_class is chosen.failure_class]
    ranks = tuple(cause.rank for cause in same if cause.rank is not None)
    return replace(chosen, ranks=ranks), len(causes) - len(same)


def _order(cause: _Cause) -> float:
    """Where the rank stands among causes that nothing else orders."""
    offset = cause.signs[0].offset if cause.signs and cause.signs[0].source.rank is None else 0
    return offset * 1e6 + (cause.rank if cause.rank is not None else 0)


# ---- did ranks wait for one that never came? ---------------------------------------------------------------------


def _never_came(facts: Facts, waiting: dict[int | None, Sign]) -> _Cause:
    signs = list(waiting.values())
    if signs:
        cause = _of_signs(_last_sequence_first(signs), None)
    else:
        cause = _Cause(
            FailureClass.COLLECTIVE_TIMEOUT,
            Certainty.LIKELY,
            f"flight recorder {facts.stragglers.operation}",
            facts.stragglers.words,
            None,
        )
    blamed = facts.stragglers.ranks or _behind(signs) or _others(facts, waiting)
    if not blamed:
        return replace(cause, rank=None, ranks=())
    return replace(cause, rank=min(blamed), ranks=tuple(blamed))


def _last_sequence_first(signs: Sequence[Sign]) -> list[Sign]:
    return sorted(signs, key=lambda sign: -(sign.sequence or 0))


def _behind(signs: Sequence[Sign]) -> tuple[int, ...]:
    """Of ranks that all waited, those that had come least far."""
    counted = {
        sign.rank: sign.sequence for sign in signs if sign.rank is not None and sign.sequence
    }
    if len(set(counted.values())) < 2:
        return ()
    least = min(value for value in counted.values() if value is not None)
    return tuple(rank for rank, value in counted.items() if value == least and rank is not None)


def _others(facts: Facts, known: dict[int | None, Sign]) -> tuple[int, ...]:
    return tuple(rank for rank in facts.ranks if rank not in known)


# ---- did they only lose a peer? ------------------------------------------------------------------------------------


def _lost_peer(facts: Facts, cascades: dict[int | None, Sign]) -> _Cause:
    sign = next(iter(cascades.values()))
    silent = _others(facts, cascades)
    cause = replace(
        _of_signs([sign], min(silent, default=None)),
        failure_class=FailureClass.NETWORK_LOSS if sign.failure_class is not FailureClass.UNKNOWN else sign.failure_class,
        certainty=Certainty.WEAK,
    )  # fmt: skip
    return replace(cause, ranks=silent)


def _silent(facts: Facts) -> _Cause:
    """No rank failed on its own: all were ended from outside, or nothing at all is known."""
    ended = [failure for failure in facts.failures if exits.failed(failure)]
    if not ended:
        words = "nothing in the evidence says why it ended"
        return _Cause(
            FailureClass.UNKNOWN, Certainty.WEAK, "", words, None, confidence=_UNEXPLAINED
        )
    first = min(ended, key=lambda f: (f.time if f.time is not None else 0.0, f.rank))
    failure_class, certainty = exits.class_of_exit(first)
    words = exits.words(first)
    return _Cause(failure_class, certainty, "ended from outside", words, first.rank)


# ---- from a cause to the finding ------------------------------------------------------------------------------------


def _of_signs(signs: Sequence[Sign], rank: int | None) -> _Cause:
    first = signs[0]
    return _Cause(
        first.failure_class,
        first.certainty,
        first.signature,
        first.text,
        rank,
        tuple(signs),
        node=first.node,
        device=first.device,
    )


def _confirmed(cause: _Cause, facts: Facts) -> _Cause:
    """The cause, or what a confirming sign says was behind it."""
    for sign in facts.reading.signs:
        explains = _EXPLAINS.get(sign.failure_class, set())
        if sign.role is Role.CONFIRM and cause.failure_class in explains:
            told = replace(_of_signs([sign, *cause.signs], cause.rank), ranks=cause.ranks)
            return replace(told, signature=sign.pattern, moment=cause.moment)
    return cause


def _confidence(cause: _Cause, rivals: int, facts: Facts) -> float:
    if cause.confidence is not None:
        return cause.confidence
    confidence = CONFIDENCE[cause.certainty]
    failure = next((f for f in facts.failures if f.rank == cause.rank), None)
    if failure is not None and cause.signs:
        confidence += 0.03
    if rivals:
        confidence -= 0.1
    if cause.signs and cause.signs[0].survived:
        confidence -= 0.2
    return min(0.99, confidence)


def _summary(cause: _Cause) -> str:
    who = "" if cause.rank is None or cause.words.startswith("rank ") else f"rank {cause.rank}: "
    return f"{who}{cause.failure_class}: {cause.words}"[:300]


def _evidence(cause: _Cause, facts: Facts) -> tuple[EvidenceLine, ...]:
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


def _advice(cause: _Cause) -> tuple[Advice, ...]:
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


def _device(facts: Facts, rank: int | None) -> str | None:
    return next((f.device for f in facts.failures if f.rank == rank), None)


def _by_rank(facts: Facts, role: Role) -> dict[int | None, Sign]:
    """The last sign of a role that each rank shows."""
    return {sign.rank: sign for sign in facts.reading.signs if sign.role is role}


def _ranks_with_signs(facts: Facts) -> list[int | None]:
    ranks: set[int | None] = {sign.rank for sign in facts.reading.signs}
    ranks |= {failure.rank for failure in facts.failures}
    return sorted(ranks, key=lambda rank: -1 if rank is None else rank)


def _with_summaries(facts: Facts) -> tuple[RankFailure, ...]:
    """The launcher's failures, completed by what torchrun wrote into the log."""
    known = {failure.rank for failure in facts.failures}
    told = {}
    for summary in facts.reading.summaries:
        if summary.rank not in known:
            code = summary.exit_code
            told[summary.rank] = RankFailure(
                summary.rank,
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
            )
    return (*facts.failures, *told.values())
