"""Intervals and exact tests on counts, and two levels of a noisy number; no scipy (100 MB)."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

_Z = 1.959963984540054  # 95 %


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """The Wilson score interval of a rate; (0, 1) when nothing was tried."""
    if trials == 0:
        return 0.0, 1.0
    rate, z2 = hits / trials, _Z * _Z
    centre = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z / (1 + z2 / trials) * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return (0.0 if hits == 0 else centre - half), (1.0 if hits == trials else centre + half)


def rate_to_json(hits: int, trials: int, starts: int | None = None) -> dict[str, float]:
    """How often it failed, with the Wilson interval of the trials or of the fewer `starts`."""
    fewer = trials if starts is None else min(starts, trials)
    low, high = wilson(round(hits * fewer / trials) if trials else 0, fewer)
    return {"reproduced": hits, "of": trials, "low": round(low, 4), "high": round(high, 4)}


def _mass(counts: range, trials: int, rate: float) -> float:
    """P(the number of hits is one of these), for a rate strictly between 0 and 1."""
    hit, miss = math.log(rate), math.log1p(-rate)  # in logs: the counts of a long run overflow
    ways = (-math.log(trials + 1) - log_beta(i + 1, trials - i + 1) for i in counts)
    logs = (w + i * hit + (trials - i) * miss for w, i in zip(ways, counts, strict=True))
    return math.fsum(map(math.exp, logs))


def clopper_pearson_low(hits: int, trials: int, alpha: float) -> float:
    """The exact one-sided lower bound: the rate that gives `hits` or more with chance `alpha`."""
    if hits == 0:
        return 0.0
    if hits == trials:
        return float(alpha ** (1 / trials))
    if 2 * hits < trials:  # the sum over fewer hits is the shorter one
        return _root(lambda rate: 1.0 - _mass(range(hits), trials, rate) - alpha)
    return _root(lambda rate: _mass(range(hits, trials + 1), trials, rate) - alpha)


def clopper_pearson_high(hits: int, trials: int, alpha: float) -> float:
    """The one-sided exact upper bound."""
    return 1.0 - clopper_pearson_low(trials - hits, trials, alpha) if trials else 1.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """By linear interpolation between the two nearest of the sorted values."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def counted(count: int, noun: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def percent_range(low: float, high: float, to: str = "-") -> str:
    """`12-34 %`, with enough digits that what is possible does not read as 0: `0-0.4 %`."""
    digits = 0
    while digits < 6 and (round(100 * high, digits) == 0 or round(100 * low, digits) == 100):
        digits += 1
    return f"{_percent(low, digits)}{to}{_percent(high, digits)} %"


def _percent(rate: float, digits: int) -> str:
    return f"{100 * rate:.0f}" if rate in {0, 1} else f"{100 * rate:.{digits}f}"


def fisher_fewer(hits_a: int, trials_a: int, hits_b: int, trials_b: int) -> float:
    """One-sided Fisher p-value of so few hits of `a`, or fewer, at equal rates."""
    total, hits = trials_a + trials_b, hits_a + hits_b
    low = max(0, hits - trials_b)
    ways = (math.comb(trials_a, i) * math.comb(trials_b, hits - i) for i in range(low, hits_a + 1))
    return sum(ways) / math.comb(total, hits)


def ratio_above(hits: int, trials: int, base_hits: int, base_trials: int, ratio: float) -> float:
    """How likely so many hits are if the rate is at most `ratio`, below 1, of the base's rate.

    Exact and unconditional: Fisher's test says nothing of a base that always fails, as most do.
    """
    seen = _ratio_score(hits, trials, base_hits, base_trials, ratio)
    if seen <= 0:
        return 1.0
    if max(trials, base_trials) > _MOST_EXACT:
        return math.erfc(seen / math.sqrt(2)) / 2
    least = _least_as_extreme(seen, trials, base_trials, ratio)
    return max(_chance_beyond(least, trials, step / 64, ratio) for step in range(1, 65))


# beyond, the normal approximation is within 0.04 of the exact value (0.015 where below 0.1)
_MOST_EXACT = 120


def _ratio_score(hits: int, trials: int, base_hits: int, base_trials: int, ratio: float) -> float:
    """Farrington and Manning's z of rate - ratio * base rate, at the best equal rates."""
    if not hits:
        return 0.0
    a = (trials + base_trials) * ratio
    b = -(trials * ratio + hits + base_trials + base_hits * ratio)
    base_rate = (-b - math.sqrt(max(0.0, b * b - 4 * a * (hits + base_hits)))) / (2 * a)
    rate = ratio * base_rate
    variance = rate * (1 - rate) / trials + ratio**2 * base_rate * (1 - base_rate) / base_trials
    difference = hits / trials - ratio * base_hits / base_trials
    return difference / math.sqrt(variance)  # above 0: there is a hit, and the ratio is below 1


def _least_as_extreme(seen: float, trials: int, base_trials: int, ratio: float) -> list[int]:
    """For each count of the base, the fewest hits whose score is at least `seen`."""
    least, hits = [], 1  # none at all has no score
    for base_hits in range(base_trials + 1):
        while (
            hits <= trials
            and _ratio_score(hits, trials, base_hits, base_trials, ratio) < seen - 1e-9
        ):
            hits += 1
        least.append(hits)
    return least


def _chance_beyond(least: Sequence[int], trials: int, base_rate: float, ratio: float) -> float:
    base_trials = len(least) - 1
    rarest_first = reversed(_binomial(trials, ratio * base_rate))
    tails = [*accumulate(rarest_first, initial=0.0)][::-1]
    chances = _binomial(base_trials, base_rate)
    return math.fsum(c * tails[hits] for c, hits in zip(chances, least, strict=True))


def _binomial(trials: int, rate: float) -> list[float]:
    """The chances of 0, 1, ... `trials` hits."""
    if rate >= 1.0:
        return [0.0] * trials + [1.0]
    odds = rate / (1 - rate)
    chances = [(1 - rate) ** trials]
    for hits in range(trials):
        chances.append(chances[-1] * odds * (trials - hits) / (hits + 1))
    return chances


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given."""
    adjusted, worst = list(p_values), 0.0
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    for rank, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = worst
    return adjusted


def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def student_t(confidence: float, freedom: int) -> float:
    """The two-sided quantile of Student's t for a whole number of degrees of freedom."""
    share = _root(lambda x: _between(math.tan(x * math.pi / 2), freedom) - confidence)
    return math.tan(share * math.pi / 2)


def _between(t: float, freedom: int) -> float:
    """P(-t < T < t), by the finite series that whole degrees of freedom have."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine2 = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for i in range(1 + odd, freedom, 2):
        total += term
        term *= cosine2 * i / (i + 1)
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


# -- two levels of a noisy number, the good one and the bad one

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
    """Two levels of a noisy number, by samples of both, and the noise seen elsewhere (squares,
    degrees of freedom). A value is weighed by Student's distribution: of few samples it says less.
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
