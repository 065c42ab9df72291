"""A belief written out change by change, from nothing but how likely the trials are where each is
the one sought.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from aorta.search.belief import Counts, MixedRates, Rates, Split


@dataclass(frozen=True)
class WrittenOut:
    """`has(state, change)` says what a state holds; `prior` is the weight of each change before any
    trial.
    """

    rates: Rates | MixedRates
    prior: Sequence[float]
    has: Callable[[int, int], bool]
    trials: tuple[tuple[int, Counts], ...]

    @classmethod
    def after(
        cls,
        rates: Rates,
        prior: Sequence[float],
        has: Callable[[int, int], bool],
        trials: Mapping[int, Counts],
    ) -> "WrittenOut":
        """While some change agrees with every trial nothing need be flaky."""
        found = cls(rates, prior, has, tuple(trials.items()))
        splits = [found.split(change) for change in range(len(prior))]
        if any(not h0 and not m1 for h0, _, _, m1 in splits) or rates.once_flaky is None:
            return found
        return replace(found, rates=rates.once_flaky)

    def split(self, change: int) -> Split:
        counts = [0, 0, 0, 0]
        for state, (hits, misses) in self.trials:
            side = 2 * self.has(state, change)
            counts[side] += hits
            counts[side + 1] += misses
        return counts[0], counts[1], counts[2], counts[3]

    def weights(self) -> list[float]:
        raw = [p * likelihood(self.rates, self.split(c)) for c, p in enumerate(self.prior)]
        return [one / math.fsum(raw) for one in raw]

    def fails(self, state: int, change: int) -> float:
        """The chance that one more trial of a state fails, where this change is the one sought."""
        again = self.told(state, hit=True).split(change)
        return likelihood(self.rates, again) / likelihood(self.rates, self.split(change))

    def told(self, state: int, *, hit: bool) -> "WrittenOut":
        return replace(self, trials=(*self.trials, (state, (int(hit), int(not hit)))))

    def failing(self, state: int) -> float:
        return math.fsum(w * self.fails(state, c) for c, w in enumerate(self.weights()))

    def gain(self, state: int) -> float:
        noise = (w * entropy(self.fails(state, c)) for c, w in enumerate(self.weights()))
        return entropy(self.failing(state)) - math.fsum(noise)

    def gain_beside(self, state: int, running: Sequence[int]) -> float:
        """With trials under way, over all the ways they may end."""
        if not running:
            return self.gain(state)
        first, *rest = running
        fails = self.failing(first)
        return math.fsum(
            chance * self.told(first, hit=hit).gain_beside(state, rest)
            for hit, chance in ((True, fails), (False, 1 - fails))
            if chance > 0
        )

    def entropy(self) -> float:
        return -math.fsum(w * math.log(w) for w in self.weights() if w > 0)


def likelihood(rates: Rates | MixedRates, split: Split) -> float:
    if isinstance(rates, MixedRates):
        return math.fsum(share * likelihood(kind, split) for share, kind in rates.kinds)
    h0, m0, h1, m1 = split
    flaky = math.exp(rates.good.log_marginal(h0, m0) + rates.bad.log_marginal(h1, m1))
    return (1 - rates.steady) * flaky + rates.steady * (not h0 and not m1)


def entropy(chance: float) -> float:
    return -math.fsum(p * math.log(p) for p in (chance, 1 - chance) if p > 0)
