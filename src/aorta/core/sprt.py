"""Does it still reproduce? The arithmetic of answering that with as few trials as a given certainty
allows.

Wald's sequential probability ratio test weighs two rates against each other: the rate at which the
failure shows where it is `present`, and the rate of false alarms where it is `absent`. Every trial
moves one sum; the sum crosses one of two lines, and the question is decided. Of all tests with the
same two error rates it needs the fewest trials on average. This module knows counts and rates; it
does not know points, searches or processes.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

from aorta.core.stats import binomial_tail, clopper_pearson_high, clopper_pearson_low
from aorta.core.trial import Tally

# A judge looks at the same few counts again and again.
_low = lru_cache(maxsize=4096)(clopper_pearson_low)
_high = lru_cache(maxsize=4096)(clopper_pearson_high)


@dataclass(frozen=True)
class HitCount:
    """How often it was tried, and how often it showed."""

    hits: int = 0
    trials: int = 0

    @classmethod
    def of(cls, tally: Tally) -> "HitCount":
        return cls(tally.reproduced, tally.evidence)

    @property
    def misses(self) -> int:
        return self.trials - self.hits

    def __add__(self, more: "HitCount") -> "HitCount":
        return HitCount(self.hits + more.hits, self.trials + more.trials)

    def low(self, alpha: float) -> float:
        """The exact one-sided lower bound of the rate; 0 when nothing was tried."""
        return _low(self.hits, self.trials, alpha) if self.trials else 0.0

    def high(self, alpha: float) -> float:
        """The exact one-sided upper bound of the rate; 1 when nothing was tried."""
        return _high(self.hits, self.trials, alpha)


NOTHING = HitCount()


def log_chance(evidence: HitCount, seen: HitCount, certain: float = 0.0) -> float:
    """The log of how likely these hits and misses are, in their order, where the rate is only known
    by what was `seen`.

    The rate is not taken to be what was seen: five hits of five leave a rate of .7 possible, and
    one miss in seven likely. Every rate that could have shown it has its weight (a uniform prior,
    so Laplace's rule of succession); `certain` is the weight, before anything was seen, that it
    always fails.
    """
    return _log_evidence(seen + evidence, certain) - _log_evidence(seen, certain)


def _log_evidence(seen: HitCount, certain: float) -> float:
    """The log of how likely all of this is under the prior."""
    uniform = math.log1p(-certain) + _log_beta(seen.hits + 1, seen.misses + 1)
    return uniform if seen.misses else math.log(certain + math.exp(uniform))


def misses_that_tell(seen: HitCount, chance: float) -> int:
    """How many misses in a row are at most so likely where it fails as often as what was seen."""
    misses = 1
    while log_chance(HitCount(0, misses), seen) > math.log(chance):
        misses += 1
    return misses


class _Wald(ABC):
    """Two lines that the weight of the evidence may cross."""

    alpha: float
    beta: float

    @abstractmethod
    def weight(self, evidence: HitCount) -> float:
        """The log of how much likelier the evidence is where the failure is present."""

    def decide(self, evidence: HitCount) -> bool | None:
        """True or False once a line is crossed; None between the lines.

        Where `absent` is 0 one hit is proof, and no number of misses outweighs it.
        """
        weight = self.weight(evidence)
        if weight >= math.log((1 - self.beta) / self.alpha):
            return True
        return False if weight <= math.log(self.beta / (1 - self.alpha)) else None


@dataclass(frozen=True)
class PresenceTest(_Wald):
    """Wald's test where the rate of the failure is only known by what was `seen` of it."""

    seen: HitCount
    absent: float  # the rate of false alarms where it is not there
    alpha: float
    beta: float
    certain: float = 0.0  # how likely it was, before anything was seen, that it always fails

    def weight(self, evidence: HitCount) -> float:
        alarms = _times(evidence.hits, _log_ratio(self.absent, 1.0))
        silence = _times(evidence.misses, math.log1p(-self.absent))
        return log_chance(evidence, self.seen, self.certain) - alarms - silence


@dataclass(frozen=True)
class Sprt(_Wald):
    """`present` against `absent`, wrong with chance `alpha` (accepts) or `beta` (misses)."""

    present: float
    absent: float
    alpha: float
    beta: float

    def weight(self, evidence: HitCount) -> float:
        return _times(evidence.hits, _log_ratio(self.present, self.absent)) + _times(
            evidence.misses, _log_ratio(1 - self.present, 1 - self.absent)
        )


@dataclass(frozen=True)
class Calibration:
    """How many trials of the original: enough hits for a rate, or enough trials to give up.

    Two failures without a miss are enough to begin with: what follows goes on measuring the rate.
    """

    hits: int = 4
    straight: int = 2
    cap: int = 40
    absent: float = 0.0  # the rate of false alarms
    alpha: float = 0.01  # the chance that false alarms alone are taken for the failure

    def decide(self, evidence: HitCount) -> bool | None:
        unbroken = evidence.misses == 0
        if evidence.hits >= (self.straight if unbroken else self.hits):
            return True
        if evidence.trials < self.cap:
            return None
        chance = binomial_tail(evidence.hits, evidence.trials, self.absent)
        return evidence.hits > 0 and chance <= self.alpha


def _log_beta(a: int, b: int) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _log_ratio(above: float, below: float) -> float:
    if above == below:
        return 0.0
    if above == 0:
        return -math.inf
    return math.inf if below == 0 else math.log(above / below)


def _times(count: int, weight: float) -> float:
    return count * weight if count else 0.0  # 0 x infinity is nothing here, not nan
