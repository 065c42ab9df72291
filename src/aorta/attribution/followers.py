"""No rank failed on its own account: some waited for one that never came, or lost a peer that says nothing."""

from collections.abc import Sequence
from dataclasses import replace

from aorta.attribution.facts import Cause, Facts, of_signs
from aorta.attribution.signs import Sign
from aorta.attribution.taxonomy import Certainty, FailureClass


def never_came(facts: Facts, waiting: dict[int | None, Sign]) -> Cause:
    signs = list(waiting.values())
    if signs:
        cause = of_signs(_last_sequence_first(signs), None)
    else:
        cause = Cause(
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


def lost_peer(facts: Facts, cascades: dict[int | None, Sign]) -> Cause:
    sign = next(iter(cascades.values()))
    silent = _others(facts, cascades)
    cause = replace(
        of_signs([sign], min(silent, default=None)),
        failure_class=FailureClass.NETWORK_LOSS if sign.failure_class is not FailureClass.UNKNOWN else sign.failure_class,
        certainty=Certainty.WEAK,
    )  # fmt: skip
    return replace(cause, ranks=silent)
