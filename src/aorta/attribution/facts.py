"""All that was read about one cycle, and a candidate for what began it: what the questions of `causes` are asked about."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from aorta.attribution.flight import Stragglers
from aorta.attribution.nouns import RankFailure
from aorta.attribution.progress import Progress
from aorta.attribution.signs import Reading, Sign
from aorta.attribution.taxonomy import Certainty, FailureClass, Role


@dataclass(frozen=True)
class Cause:
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
    heard: frozenset[int] | None = (
        None  # ranks whose output is known; None: all of them share a log
    )
    last_words: dict[int | None, Sign] = field(default_factory=dict)  # of ranks that raised nothing


def of_signs(signs: Sequence[Sign], rank: int | None) -> Cause:
    first = signs[0]
    return Cause(
        first.failure_class,
        first.certainty,
        first.signature,
        first.text,
        rank,
        tuple(signs),
        node=first.node,
        device=first.device,
    )


def by_rank(facts: Facts, role: Role) -> dict[int | None, Sign]:
    """The last sign of a role that each rank shows."""
    return {sign.rank: sign for sign in facts.reading.signs if sign.role is role}
