"""Unknown failure rates, integrated over.

A rate is never plugged in as a number: that makes a noisy search overconfident (right 70 to 93 % of
the time where it claims 95 to 99 %). It is a mixture of Beta distributions, whose integral over any
count of hits and misses is a closed form, so no grid and no numerical library is needed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

OfCounts = Callable[[int, int], float]  # hits, misses

_REMEMBERED = 1 << 16


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@dataclass(frozen=True)
class BetaMixture:
    """Weights and Beta parameters: `(weight, a, b)`; the weights sum to one."""

    components: tuple[tuple[float, float, float], ...]
    log_marginal: OfCounts = field(init=False, repr=False, compare=False)
    """The log-probability of one sequence of so many hits and misses, whatever the rate."""
    mean: OfCounts = field(init=False, repr=False, compare=False)
    """The chance that the next trial is a hit, after these."""
    _offsets: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        offsets = tuple(math.log(w) - _log_beta(a, b) for w, a, b in self.components)
        object.__setattr__(self, "_offsets", offsets)
        # Each remembers its own: to hash the components at every look-up took as long as the search
        # itself.
        object.__setattr__(self, "log_marginal", lru_cache(_REMEMBERED)(self._log_marginal))
        object.__setattr__(self, "mean", lru_cache(_REMEMBERED)(self._mean))

    def _mean(self, hits: int, misses: int) -> float:
        return math.exp(self.log_marginal(hits + 1, misses) - self.log_marginal(hits, misses))

    def _log_marginal(self, hits: int, misses: int) -> float:
        parts = [
            offset + _log_beta(a + hits, b + misses)
            for offset, (_, a, b) in zip(self._offsets, self.components, strict=True)
        ]
        top = max(parts)
        return top + math.log(math.fsum(math.exp(part - top) for part in parts))


BAD_RATE = BetaMixture(((0.50, 4.0, 7.0), (0.30, 6.0, 1.0), (0.20, 40.0, 0.5)))
"""P(fails | bad): now and then, mostly, or always. One that fires hardly ever is no question for a
bisection: its bad end would not have failed when it was asked.
"""

GOOD_RATE = BetaMixture(((0.35, 0.4, 150.0), (0.50, 1.0, 50.0), (0.15, 1.0, 6.0)))
"""P(fails | good): mostly never, often a machine that flakes now and then, sometimes a noisy test.

Both were chosen in simulation: a lighter tail of noisy tests saves trials where nothing flakes
(three at 0.3 / 0) and is wrong more often than it says where something does.
"""

STEADY = 0.10
"""That nothing is flaky at all. At .25 a steady failure is named .4 trials earlier, and where every
second trial of the bad side passes 7 answers in a hundred are wrong instead of 6 (of 1,024
candidates; of 128: 5 and 3), most of which by luck agree with every trial.
"""

QUIET = BetaMixture(((0.40, 0.4, 150.0), (0.60, 0.7, 50.0)))
FLAKY = BetaMixture(((0.70, 6.0, 8.0), (0.25, 6.0, 1.0), (0.05, 40.0, 0.5)))
"""Both sides of a test that is known to be flaky, and fails on good states hardly ever."""

NOISY_SHARE, NOISY_GOOD, NOISY_BAD = (
    0.40,
    BetaMixture(((1.0, 1.0, 6.0),)),
    BetaMixture(((1.0, 4.0, 2.0),)),
)
"""Of tests known to be flaky, those that fail on good states too: about one time in seven, and
mostly on bad ones. Both go together, so silence on the good side soon refutes it. With rates that
know nothing of each other a test of .7 and .1 is wrong 14 times in a hundred where 4 are stated,
with these 7; more of it costs a test of .5 and 0 two trials.
"""

NOISY_SHARE_WITH_MERGES = 0.70
"""The same in a history with merges, where noisy tests that are seen through must hardly be wrong
(see `Bisection`). Those that were took a few failures of a good state for the change and all
else for quiet: of 100 at .9 and .2 two with the share above, none of 206 with this one.
"""

ANY_RATE = BetaMixture(((1.0, 1.0, 1.0),))
