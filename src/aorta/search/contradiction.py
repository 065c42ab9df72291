"""Broken, repaired and broken again: noticed when one boundary cannot explain the trials and three
can.

Flaky trials look like that too, so both explanations are weighed with their failure rates
integrated over.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aorta.search.belief import Counts, Rates

_CLEARLY = math.log(50)
_BLOCKS = 4  # good, bad, repaired, bad


@dataclass(frozen=True)
class Repaired:
    """States after `broken` failed, the state `repaired` did not, and later ones fail again."""

    broken: int
    repaired: int


def repaired_among(counted: Sequence[Counts], rates: Rates) -> Repaired | None:
    """By place in the list: the trials of states that each contain the one before."""
    if len(counted) < _BLOCKS or not _ever_worse_before_better(counted):
        return None
    one = max(_with_one_boundary(counted, rates))
    blocks = _best_blocks(_leanings(counted, rates), _BLOCKS)
    three = _likelihood(counted, blocks, rates)
    if three - one <= _CLEARLY + 2 * math.log(len(counted)):
        return None
    return Repaired(blocks[1], blocks[3] - 1)


def _ever_worse_before_better(counted: Sequence[Counts]) -> bool:
    """A cheap look first: some state failed, and a later one ran clean."""
    failed_at = next((i for i, (hits, _) in enumerate(counted) if hits), len(counted))
    return any(misses for _, misses in counted[failed_at + 1 :])


def _with_one_boundary(counted: Sequence[Counts], rates: Rates) -> Iterator[float]:
    """The likelihood of a boundary before each state."""
    h0 = m0 = 0
    h1, m1 = sum(hits for hits, _ in counted), sum(misses for _, misses in counted)
    for hits, misses in counted:
        yield rates.good.log_marginal(h0, m0) + rates.bad.log_marginal(h1, m1)
        h0, m0, h1, m1 = h0 + hits, m0 + misses, h1 - hits, m1 - misses


def _likelihood(counted: Sequence[Counts], starts: Sequence[int], rates: Rates) -> float:
    """Of alternating good and bad blocks that start there; the rates are integrated over."""
    sums = [0, 0, 0, 0]
    for block, (start, stop) in enumerate(pairwise([*starts, len(counted)])):
        side = 2 * (block % 2)
        sums[side] += sum(hits for hits, _ in counted[start:stop])
        sums[side + 1] += sum(misses for _, misses in counted[start:stop])
    return rates.good.log_marginal(sums[0], sums[1]) + rates.bad.log_marginal(sums[2], sums[3])


def _leanings(counted: Sequence[Counts], rates: Rates) -> list[float]:
    """How much each state leans to bad, at the rates of the two ends."""
    flakes, fails = rates.good.mean(*counted[0]), rates.bad.mean(*counted[-1])
    per_hit, per_miss = math.log(fails / flakes), math.log((1 - fails) / (1 - flakes))
    return [hits * per_hit + misses * per_miss for hits, misses in counted]


def _best_blocks(evidence: list[float], blocks: int) -> list[int]:
    """The best cut into alternating good and bad blocks: where each block starts."""
    best: list[tuple[float, list[int]]] = [(0.0, [0])]
    best += [(-math.inf, [0] * (block + 1)) for block in range(1, blocks)]
    for index, weight in enumerate(evidence):
        for block in reversed(range(blocks)):
            stay = best[block]
            enter = best[block - 1] if block else (-math.inf, [])
            score, starts = stay if stay[0] >= enter[0] else (enter[0], [*enter[1], index])
            best[block] = (score + (weight if block % 2 else 0.0), starts)
    return best[blocks - 1][1]
