"""Signs, exits and dumps -> one cause: what began it, told apart from what merely followed.

The order of the questions is the logic: did something outside end the job? did a rank fail on its own account?
did ranks wait for one that never came? did they only lose a peer? Whatever is left is unknown, and says so.
"""

from collections.abc import Sequence
from dataclasses import replace

from aorta.attribution import exits
from aorta.attribution.endings import is_fatal, is_last_word, went_on
from aorta.attribution.facts import Cause, Facts, by_rank, of_signs
from aorta.attribution.followers import lost_peer, never_came
from aorta.attribution.nouns import RankFailure
from aorta.attribution.signs import Sign
from aorta.attribution.taxonomy import Certainty, FailureClass, Role

UNEXPLAINED = 0.2
_SAME_MOMENT = 0.5  # seconds: launchers poll, so deaths closer than this have no order
_BY_SCHEDULER = {FailureClass.PREEMPTED, FailureClass.TIME_LIMIT, FailureClass.CANCELLED}
_FROM_OUTSIDE = {*_BY_SCHEDULER, FailureClass.HARDWARE_FAULT, FailureClass.LINK_FAULT}
_REFUSALS = {
    FailureClass.BAD_ARGUMENTS,
    FailureClass.BAD_CONFIG,
    FailureClass.IMPORT_ERROR,
    FailureClass.SYNTAX_ERROR,
    FailureClass.MISSING_FILE,
    FailureClass.PERMISSION_DENIED,
}
_EXPLAINS = {  # what a confirming sign may be the true cause of
    FailureClass.HOST_OOM: {FailureClass.KILLED, FailureClass.UNKNOWN},
    FailureClass.DISK_FULL: {FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN, FailureClass.ABORT},
    FailureClass.ILLEGAL_ACCESS: {FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN, FailureClass.ABORT},
    FailureClass.SEGFAULT: {FailureClass.UNKNOWN},
}  # fmt: skip


def find_cause(facts: Facts) -> tuple[Cause, int]:
    """The cause, and how many candidates of another class it was preferred to."""
    cause, rivals = _unconfirmed(facts)
    return _confirmed(cause, facts), rivals


def _unconfirmed(facts: Facts) -> tuple[Cause, int]:
    outside = _from_outside(facts)
    if outside is not None:
        return outside, 0
    own = _own_causes(facts)
    if own:
        return _first_of(own)
    waiting = by_rank(facts, Role.WAITING)
    if waiting or facts.stragglers.ranks:
        return never_came(facts, waiting), 0
    cascades = by_rank(facts, Role.CASCADE)
    if cascades:
        return lost_peer(facts, cascades), 0
    return _silent(facts), 0


# ---- did something outside end the job? ----------------------------------------------------------------------


def _from_outside(facts: Facts) -> Cause | None:
    signs = [
        sign
        for sign in facts.reading.signs
        if sign.failure_class in _FROM_OUTSIDE
        and sign.role is Role.ROOT
        and sign.certainty is Certainty.CERTAIN
        and not went_on(sign)
    ]
    if any(_raised_by_itself(sign) for sign in facts.reading.signs):
        signs = [sign for sign in signs if sign.failure_class not in _BY_SCHEDULER]
    if not signs:
        return None
    sign = signs[0]
    victim = sign.rank if sign.rank is not None else _only_rank_on(sign.node, facts)
    return replace(of_signs([sign], victim), node=sign.node)


def _raised_by_itself(sign: Sign) -> bool:
    """Whether a rank left by an exception of its own: whom a scheduler ends does not come to that."""
    of_an_end = sign.failure_class in {*_FROM_OUTSIDE, FailureClass.KILLED}
    return sign.is_exception and sign.role is Role.ROOT and not of_an_end and is_fatal(sign)


def _only_rank_on(node: str | None, facts: Facts) -> int | None:
    ranks = [rank for rank, where in facts.nodes.items() if where == node]
    return ranks[0] if len(ranks) == 1 else None


# ---- did a rank fail on its own account? -----------------------------------------------------------------------


def _own_causes(facts: Facts) -> list[Cause]:
    causes = []
    for rank in _ranks_with_signs(facts):
        cause = _own_cause(rank, facts)
        if cause is not None:
            causes.append(cause)
    return causes


def _own_cause(rank: int | None, facts: Facts) -> Cause | None:
    """What this rank died of, if it did not merely follow others."""
    failure = next((f for f in facts.failures if f.rank == rank), None)
    if failure is not None and not exits.failed(failure):
        return None
    signs = [sign for sign in facts.reading.signs if sign.rank == rank]
    if failure is not None and not exits.exception_fits(failure):
        signs = [sign for sign in signs if not sign.is_exception]
    followed = _is_follower([sign for sign in signs if not sign.survived or is_last_word(sign)])
    roots = [] if followed else _credible(signs, failure)
    told = _most_telling(roots) or (None if followed else _only_explanation(signs, failure))
    from_exit = None if failure is None or followed else _from_exit(failure, facts)
    if told is None and not followed and _left_by_itself(failure):
        told = facts.last_words.get(rank)
    if told is not None and told.failure_class is FailureClass.HANG and _stood_waiting(rank, facts):
        return None
    if told is None or (from_exit is not None and _outranks(from_exit, told)):
        return from_exit
    moment = None if failure is None else failure.time
    return replace(of_signs([told], rank), moment=moment)


def _left_by_itself(failure: RankFailure | None) -> bool:
    return failure is not None and exits.signal_of(failure) is None and not failure.hung


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
    lines = [sign for sign in roots if not sign.is_exception and _may_end(sign, failure)]
    if failure is not None and not exits.exception_fits(failure):
        return lines
    fatal = [sign for sign in roots if sign.is_exception and is_fatal(sign)]
    last = max(fatal, key=lambda sign: sign.offset, default=None)
    if last is None:
        return lines
    return [*(sign for sign in lines if _says_more(sign, last)), last]


def _only_explanation(signs: Sequence[Sign], failure: RankFailure | None) -> Sign | None:
    """The last exception a rank seems to have survived, where nothing else says why it left.

    Output that was held back and written late can make the end look like the middle.
    """
    if failure is not None and (failure.hung or not exits.exception_fits(failure)):
        return None
    raised = [sign for sign in signs if sign.is_exception and sign.role is Role.ROOT]
    last = max(raised, key=lambda sign: sign.offset, default=None)
    if last is None or last.survived or not went_on(last):
        return None
    certainty = min(last.certainty, Certainty.LIKELY, key=lambda each: each.weight)
    return replace(last, survived=True, certainty=certainty)


def _says_more(line: Sign, last: Sign) -> bool:
    return line.certainty.weight > last.certainty.weight and line.failure_class not in _BY_SCHEDULER


def _may_end(line: Sign, failure: RankFailure | None) -> bool:
    """Whether a rank can have ended with this line: it did not go on, and who refuses its input falls silent."""
    if failure is not None and not exits.line_fits(failure, line.failure_class):
        return False
    if went_on(line):
        return False
    return line.failure_class not in _REFUSALS or is_last_word(line)


def _most_telling(signs: Sequence[Sign]) -> Sign | None:
    return max(signs, key=lambda sign: (sign.certainty.weight, sign.offset), default=None)


def _from_exit(failure: RankFailure, facts: Facts) -> Cause | None:
    """A cause told by an exit status alone; none where a launcher was only tidying up."""
    if _tidied_up(failure, facts) or (failure.hung and _stood_waiting(failure.rank, facts)):
        return None
    failure_class, certainty = exits.class_of_exit(failure)
    words = exits.words(failure)
    return Cause(
        failure_class,
        certainty,
        words.replace(f"rank {failure.rank} ", "") + _stack_of(failure, facts),
        words,
        failure.rank,
        moment=failure.time,
        confidence=UNEXPLAINED if failure_class is FailureClass.UNKNOWN else None,
    )


def _stack_of(failure: RankFailure, facts: Facts) -> str:
    """Where a rank that hung stood, if its stack was shown: two hangs are the same bug if they stood in the same place."""
    stacks = [
        sign.signature
        for sign in facts.reading.signs
        if failure.hung and sign.rank == failure.rank and sign.role is Role.STANDING
    ]
    return f" > {max(stacks, key=len)}" if stacks else ""


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


def _stood_waiting(rank: int | None, facts: Facts) -> bool:
    """Whether its stack shows this rank in a collective while another that hung with it was elsewhere."""
    signs = facts.reading.signs
    waiting = {
        sign.rank
        for sign in signs
        if sign.role is Role.STANDING and sign.failure_class is FailureClass.COLLECTIVE_TIMEOUT
    }
    hung = {sign.rank for sign in signs if sign.role is Role.ROOT and sign.failure_class is FailureClass.HANG}  # fmt: skip
    hung |= {failure.rank for failure in facts.failures if failure.hung}
    return rank in waiting and bool(hung - waiting)


def _before(earlier: RankFailure, later: RankFailure) -> bool:
    return (
        earlier.time is not None
        and later.time is not None
        and later.time - earlier.time > _SAME_MOMENT
    )


def _outranks(from_exit: Cause, told: Sign) -> bool:
    """A crash by signal is certain; only an equally certain line of its own says more about it."""
    if from_exit.failure_class is FailureClass.UNKNOWN:
        return False
    return from_exit.certainty.weight > told.certainty.weight


def _first_of(causes: Sequence[Cause]) -> tuple[Cause, int]:
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


def _order(cause: Cause) -> float:
    """Where the rank stands among causes that nothing else orders."""
    offset = cause.signs[0].offset if cause.signs and cause.signs[0].source.rank is None else 0
    return offset * 1e6 + (cause.rank if cause.rank is not None else 0)


# ---- nothing but exits, or nothing at all ------------------------------------------------------------------------


def _silent(facts: Facts) -> Cause:
    """No rank failed on its own: all were ended from outside, or nothing at all is known."""
    ended = [failure for failure in facts.failures if exits.failed(failure)]
    if not ended:
        words = "nothing in the evidence says why it ended"
        return Cause(FailureClass.UNKNOWN, Certainty.WEAK, "", words, None, confidence=UNEXPLAINED)
    first = min(ended, key=lambda f: (f.time if f.time is not None else 0.0, f.rank))
    failure_class, certainty = exits.class_of_exit(first)
    words = exits.words(first)
    return Cause(failure_class, certainty, "ended from outside", words, first.rank)


def _confirmed(cause: Cause, facts: Facts) -> Cause:
    """The cause, or what a confirming sign says was behind it."""
    for sign in facts.reading.signs:
        explains = _EXPLAINS.get(sign.failure_class, set())
        if sign.role is not Role.CONFIRM or cause.failure_class not in explains:
            continue
        if sign.rank in {None, cause.rank} and not went_on(sign):
            told = replace(of_signs([sign, *cause.signs], cause.rank), ranks=cause.ranks)
            return replace(told, signature=sign.pattern, moment=cause.moment)
    return cause


def _ranks_with_signs(facts: Facts) -> list[int | None]:
    ranks: set[int | None] = {sign.rank for sign in facts.reading.signs}
    ranks |= {failure.rank for failure in facts.failures}
    return sorted(ranks, key=lambda rank: -1 if rank is None else rank)


def with_summaries(facts: Facts) -> tuple[RankFailure, ...]:
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
