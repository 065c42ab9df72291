"""Two levels of a noisy number, the good one and the bad one, and what a few values say about which
of them they are of.

Both levels are only known by their own samples, so a value is weighed by Student's distribution and
not by the normal one: far from both, or with few samples, it says little, and more values are
wanted. Knows nothing of trials or searches.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

# What is held of the noise before any sample: a sixth of the gap, and not firmly.
_PRIOR_FREEDOM = 2.0
_PRIOR_SPREAD = 1 / 6
_LEAST_SPREAD = 0.01  # of the gap: a number that never varies is still taken to vary a little
_STANDARD_ERRORS = 2.0
# Standard errors from both levels: neither of them; more while the noise is hardly known.
_OUTSIDE = 4.0
_OUTSIDE_AT_LEAST = 4  # values, before a state is called neither


@dataclass(frozen=True)
class Levels:
    """Samples of both sides, at least one each; and the noise seen elsewhere: squares about their
    own mean, their number of degrees of freedom.
    """

    good: tuple[float, ...]
    bad: tuple[float, ...]
    noise: tuple[float, int] = (0.0, 0)

    def with_noise_of(self, values: Sequence[float]) -> "Levels":
        """A state measured more than once tells of the noise, at whichever level it is."""
        if len(values) < 2:
            return self
        squares, freedom = self.noise
        mean = statistics.fmean(values)
        squares += sum((value - mean) ** 2 for value in values)
        return replace(self, noise=(squares, freedom + len(values) - 1))

    @cached_property
    def centres(self) -> tuple[float, float]:
        return statistics.fmean(self.good), statistics.fmean(self.bad)

    @property
    def gap(self) -> float:
        good, bad = self.centres
        return bad - good

    def log_odds(self, values: Sequence[float]) -> float:
        """How much likelier the values are at the bad level than at the good one, in nats."""
        good, bad = self.centres
        freedom, square = self._noise
        if not values or not square:
            return 0.0
        scale, count = freedom * square, len(values)
        half = (freedom + count) / 2
        at_good = scale + _distance(values, good, len(self.good))
        at_bad = scale + _distance(values, bad, len(self.bad))
        width = math.log((len(self.good) + count) / len(self.good))
        width -= math.log((len(self.bad) + count) / len(self.bad))
        return half * (math.log(at_good) - math.log(at_bad)) + width / 2

    def are_missed_by(self, values: Sequence[float]) -> bool:
        """Whether the values lie between the levels, and clearly at neither of them."""
        if len(values) < _OUTSIDE_AT_LEAST or not self.gap:
            return False
        mean = statistics.fmean(values)
        freedom, square = self._noise
        spread, outside = math.sqrt(square), _OUTSIDE * (1 + 6 / freedom)
        between = min(self.centres) < mean < max(self.centres)
        errors = (
            abs(mean - centre) / (spread * math.sqrt(1 / len(values) + 1 / len(samples)))
            for centre, samples in zip(self.centres, (self.good, self.bad), strict=True)
        )
        return between and min(errors) > outside

    @property
    def separation(self) -> float:
        """The gap in units of the noise."""
        return abs(self.gap) / self.spread if self.gap else 0.0

    @property
    def spread(self) -> float:
        """The noise of one value, as it was seen."""
        return max(math.sqrt(self._squares / self._freedom), _LEAST_SPREAD * abs(self.gap))

    @property
    def sure_separation(self) -> float:
        """What the separation is at least, by what is known so far."""
        return self.separation - _STANDARD_ERRORS * self._error

    def are_apart(self, least: float) -> bool | None:
        """Whether they are so many units of noise apart; None while samples are too few."""
        if self.sure_separation > least:
            return True
        return False if self.separation + _STANDARD_ERRORS * self._error < least else None

    @property
    def _error(self) -> float:
        """The standard error of the separation."""
        counts = 1 / len(self.good) + 1 / len(self.bad)
        return math.sqrt(counts + self.separation**2 / (2 * self._freedom))

    @property
    def _freedom(self) -> int:
        return max(1, len(self.good) + len(self.bad) - 2 + self.noise[1])

    @cached_property
    def _squares(self) -> float:
        return self.noise[0] + sum(
            (value - centre) ** 2
            for centre, samples in zip(self.centres, (self.good, self.bad), strict=True)
            for value in samples
        )

    @cached_property
    def _noise(self) -> tuple[float, float]:
        """Degrees of freedom, and the variance of one value."""
        freedom = len(self.good) + len(self.bad) - 2 + self.noise[1] + _PRIOR_FREEDOM
        prior = _PRIOR_FREEDOM * (_PRIOR_SPREAD * self.gap) ** 2
        return freedom, (self._squares + prior) / freedom


def _distance(values: Sequence[float], centre: float, samples: int) -> float:
    """The squared distance of values from a centre that is itself a mean of so many samples."""
    mean, count = statistics.fmean(values), len(values)
    own = sum((value - mean) ** 2 for value in values)
    return own + (mean - centre) ** 2 * count * samples / (count + samples)
