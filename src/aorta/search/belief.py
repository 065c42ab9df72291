"""What the trials so far say about where the change is, and which state would say most next.

A change splits the trials: states without it fail at the good rate, with it at the bad rate. Both
are unknown and integrated over (numbers in their place make a noisy search overconfident), each as
a mixture of Beta distributions, which has a closed form. Changes that split all trials alike, with
the same prior, are one *atom* of the sums. Trials still running are answered both ways: a belief is
a set of scenarios with probabilities.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import mul

from aorta.core.stats import log_beta
from aorta.search.timeline import Timeline, Vector, lowest_bit

Counts = tuple[int, int]  # hits, misses
Split = tuple[int, int, int, int]  # hits and misses without the change, hits and misses with it
Weighed = tuple[float, tuple[float, float], float]
"""The log-probability of trials split like this, how often both sides fail over all kinds of tests,
and the probability of the last kind.
"""
Prior = Sequence[tuple[int, float]]
"""Masks that share no change, and how likely each change in them is before any trial."""

_SCENARIOS_KEPT = 32
_NEGLIGIBLE = 1e-6  # of the belief
_REMEMBERED = 1 << 16
OfCounts = Callable[[int, int], float]  # hits, misses


class BetaMixture:
    """Weights and Beta parameters: `(weight, a, b)`; the weights sum to one.

    `log_marginal(hits, misses)`: the log-probability of one sequence of so many, whatever the
    rate. `mean(hits, misses)`: the chance that the next trial is a hit, after these.
    """

    def __init__(self, *components: tuple[float, float, float]) -> None:
        self.components = components
        self._offsets = [math.log(w) - log_beta(a, b) for w, a, b in components]
        self.log_marginal: OfCounts = lru_cache(_REMEMBERED)(self._log_marginal)
        self.mean: OfCounts = lru_cache(_REMEMBERED)(self._mean)

    def _mean(self, hits: int, misses: int) -> float:
        return math.exp(self.log_marginal(hits + 1, misses) - self.log_marginal(hits, misses))

    def _log_marginal(self, hits: int, misses: int) -> float:
        parts = [
            offset + log_beta(a + hits, b + misses)
            for offset, (_, a, b) in zip(self._offsets, self.components, strict=True)
        ]
        top = max(parts)
        return top + math.log(math.fsum(math.exp(part - top) for part in parts))


BAD_RATE = BetaMixture((0.50, 4.0, 7.0), (0.30, 6.0, 1.0), (0.20, 40.0, 0.5))
"""P(fails | bad): now and then, mostly, or always. One that fires hardly ever is no question for a
bisection: its bad end would not have failed when it was asked.
"""

GOOD_RATE = BetaMixture((0.35, 0.4, 150.0), (0.50, 1.0, 50.0), (0.15, 1.0, 6.0))
"""P(fails | good): mostly never, often a machine that flakes now and then, sometimes a noisy test.
All of these were chosen in simulation (`benchmarks bisection` and `merges`).
"""

STEADY = 0.10  # that nothing is flaky at all

QUIET = BetaMixture((0.40, 0.4, 150.0), (0.60, 0.7, 50.0))
FLAKY = BetaMixture((0.70, 6.0, 8.0), (0.25, 6.0, 1.0), (0.05, 40.0, 0.5))
"""Both sides of a test that is known to be flaky, and fails on good states hardly ever."""

NOISY_SHARE = 0.40
NOISY_GOOD, NOISY_BAD = BetaMixture((1.0, 1.0, 6.0)), BetaMixture((1.0, 4.0, 2.0))
"""Of tests known to be flaky, those that fail on good states too: about one time in seven, and
mostly on bad ones. Both go together, so silence on the good side soon refutes it.
"""

# In a history with merges, where noisy tests that are seen through must hardly be wrong.
NOISY_SHARE_WITH_MERGES = 0.70

ANY_RATE = BetaMixture((1.0, 1.0, 1.0))


@dataclass(frozen=True)
class Rates:
    """How often states fail without the change and with it.

    `steady`: prior probability that nothing is flaky; one contrary trial refutes it. `once_flaky`
    takes over as soon as no candidate is left that every trial agrees with.
    """

    good: BetaMixture
    bad: BetaMixture
    steady: float = 0.0
    once_flaky: "MixedRates | None" = None

    def after(self, splits: Iterable[Split]) -> "Rates | MixedRates":
        """What to weigh the candidates by that split the trials like this."""
        if self.once_flaky is None or any(not h0 and not m1 for h0, _, _, m1 in splits):
            return self
        return self.once_flaky

    def log_marginal(self, split: Split) -> float:
        """The log-probability of trials that a candidate splits like this, whatever the rates."""
        h0, m0, h1, m1 = split
        flaky = self.good.log_marginal(h0, m0) + self.bad.log_marginal(h1, m1)
        if not self.steady:
            return flaky
        flaky += math.log1p(-self.steady)
        return flaky if h0 or m1 else _log_sum(math.log(self.steady), flaky)

    def means(self, split: Split) -> tuple[float, float]:
        """The chance that the next trial fails: without the change, and with it."""
        h0, m0, h1, m1 = split
        good, bad = self.good.mean(h0, m0), self.bad.mean(h1, m1)
        if not self.steady or h0 or m1:
            return good, bad
        steady = math.exp(math.log(self.steady) - self.log_marginal(split))
        return (1 - steady) * good, steady + (1 - steady) * bad

    def noisy(self, _: Split) -> float:
        return 0.0


class MixedRates:
    """Several kinds of tests, each with its share; the last is the noisiest."""

    def __init__(self, *kinds: tuple[float, Rates]) -> None:
        self.kinds = kinds
        self._weighed: Callable[[Split], Weighed] = lru_cache(_REMEMBERED)(self._weigh)

    def log_marginal(self, split: Split) -> float:
        return self._weighed(split)[0]

    def means(self, split: Split) -> tuple[float, float]:
        return self._weighed(split)[1]

    def noisy(self, split: Split) -> float:
        """The probability that the test is of the noisiest kind, after these trials."""
        return self._weighed(split)[2]

    def _weigh(self, split: Split) -> Weighed:
        logs = [math.log(share) + rates.log_marginal(split) for share, rates in self.kinds]
        top = max(logs)
        whole = top + math.log(math.fsum([math.exp(log - top) for log in logs]))
        weights = [math.exp(log - whole) for log in logs]
        means = [rates.means(split) for _, rates in self.kinds]
        good = math.fsum([w * mean for w, (mean, _) in zip(weights, means, strict=True)])
        bad = math.fsum([w * mean for w, (_, mean) in zip(weights, means, strict=True)])
        return whole, (good, bad), weights[-1]


@dataclass(frozen=True)
class _Atom:
    mask: int
    prior: float  # of each change in it

    def cut(self, held: int) -> Iterator[tuple["_Atom", bool]]:
        """Its parts, and whether a state that holds these changes has them."""
        for mask, included in ((self.mask & held, True), (self.mask & ~held, False)):
            if mask:
                yield _Atom(mask, self.prior), included


class Belief:
    """A distribution over the changes of a timeline. States are given by their masks."""

    def __init__(
        self,
        rates: Rates | MixedRates,
        atoms: Sequence[_Atom],
        scenarios: Sequence[tuple[float, Sequence[Split]]],
    ) -> None:
        self._rates, self._atoms = rates, tuple(atoms)
        self._sizes = [atom.mask.bit_count() for atom in atoms]
        priors = [atom.prior for atom in atoms]
        self._scenarios = [
            _Scenario(chance, splits, rates, self._sizes, priors) for chance, splits in scenarios
        ]

    @classmethod
    def after(
        cls,
        rates: Rates,
        timeline: Timeline,
        trials: Mapping[Vector, Counts],
        among: int | None = None,
        prior: Prior | None = None,
    ) -> "Belief":
        """With the change one of `among` (default: any), by default as likely as its commits."""
        masks = timeline.classes if prior is None else prior
        seen: dict[int, Counts] = {}
        for vector, (hits, misses) in trials.items():
            held = timeline.mask(vector)
            before = seen.get(held, (0, 0))
            seen[held] = (before[0] + hits, before[1] + misses)
        among = -1 if among is None else among
        cut = [(_Atom(m & among, weight), (0, 0, 0, 0)) for m, weight in masks if m & among]
        for held, (hits, misses) in seen.items():
            cut = [
                (part, _with(split, hits, misses, included=included))
                for atom, split in cut
                for part, included in atom.cut(held)
            ]
        splits = [split for _, split in cut]
        return cls(rates.after(splits), [atom for atom, _ in cut], [(1.0, splits)])

    def supposing(self, held: int) -> "Belief":
        """With one more trial of a state that holds these changes, whose end is not known yet."""
        parts = [
            (part, index, included)
            for index, atom in enumerate(self._atoms)
            for part, included in atom.cut(held)
        ]
        branches: list[tuple[float, list[Split]]] = []
        counts = self._inside(held)
        for scenario in self._scenarios:
            failing = scenario.failing(counts)
            for hit, chance in ((1, failing), (0, 1.0 - failing)):
                splits = [
                    _with(scenario.splits[index], hit, 1 - hit, included=included)
                    for _, index, included in parts
                ]
                branches.append((scenario.chance * chance, splits))
        kept = heapq.nlargest(_SCENARIOS_KEPT, branches, key=lambda branch: branch[0])
        whole = math.fsum(chance for chance, _ in kept)
        scenarios = [(chance / whole, splits) for chance, splits in kept]
        return Belief(self._rates, [part for part, _, _ in parts], scenarios)

    def gain(self, held: int) -> float:
        """The information in nats that one trial of this state is expected to bring."""
        counts = self._inside(held)
        return math.fsum([s.chance * s.gain(counts) for s in self._scenarios])

    def _inside(self, held: int) -> list[int]:
        return [(atom.mask & held).bit_count() for atom in self._atoms]

    @cached_property
    def weighted(self) -> list[tuple[int, float]]:
        """Masks and the probability of each change in them, likeliest first."""
        found = [
            (atom.mask, math.fsum(s.chance * s.weights[index] for s in self._scenarios))
            for index, atom in enumerate(self._atoms)
        ]
        kept = [(a, w) for a, w in found if w * a.bit_count() > _NEGLIGIBLE]
        return sorted(kept, key=lambda pair: (-pair[1], lowest_bit(pair[0])))

    def mass(self, changes: int) -> float:
        """The probability that the change is one of these."""
        return math.fsum(
            s.chance * s.weights[index] * (atom.mask & changes).bit_count()
            for index, atom in enumerate(self._atoms)
            for s in self._scenarios
        )

    def entropy(self) -> float:
        """In nats: what is still not known about the change."""
        return -math.fsum(a.bit_count() * w * math.log(w) for a, w in self.weighted)

    def expected_rates(self) -> tuple[float, float]:
        """The mean failure rates of the good and the bad side."""
        good = math.fsum(s.chance * s.mean_of(s.good, self._sizes) for s in self._scenarios)
        bad = math.fsum(s.chance * s.mean_of(s.bad, self._sizes) for s in self._scenarios)
        return good, bad

    def noisy(self) -> float:
        """The probability that the test fails on good states, too."""
        return math.fsum(
            s.chance * s.mean_of([self._rates.noisy(split) for split in s.splits], self._sizes)
            for s in self._scenarios
        )


class _Scenario:
    """One way the running trials may end: each change's weight, and both failure rates."""

    def __init__(
        self,
        chance: float,
        splits: Sequence[Split],
        rates: Rates | MixedRates,
        sizes: Sequence[int],
        priors: Sequence[float],
    ) -> None:
        self.chance, self.splits = chance, splits
        means = [rates.means(split) for split in splits]
        self.good, self.bad = [good for good, _ in means], [bad for _, bad in means]
        logs = [rates.log_marginal(split) for split in splits]
        top = max(logs)
        raw = [prior * math.exp(log - top) for prior, log in zip(priors, logs, strict=True)]
        whole = math.fsum(size * weight for size, weight in zip(sizes, raw, strict=True))
        self.weights = [weight / whole for weight in raw]
        noise_good = [entropy(rate) for rate in self.good]
        noise_bad = [entropy(rate) for rate in self.bad]
        self._chance = self.mean_of(self.good, sizes)
        self._noise = self.mean_of(noise_good, sizes)
        self._rise = self._steps(self.good, self.bad)
        self._louder = self._steps(noise_good, noise_bad)

    def mean_of(self, of_each: Sequence[float], sizes: Sequence[int]) -> float:
        """Over all changes."""
        return math.fsum(n * w * x for n, w, x in zip(sizes, self.weights, of_each, strict=True))

    def _steps(self, good: Sequence[float], bad: Sequence[float]) -> list[float]:
        """What one change more inside a state adds."""
        return [w * (b - g) for w, g, b in zip(self.weights, good, bad, strict=True)]

    def failing(self, inside: Sequence[int]) -> float:
        rise: float = sum(map(mul, inside, self._rise))
        return self._chance + rise

    def gain(self, inside: Sequence[int]) -> float:
        louder: float = sum(map(mul, inside, self._louder))
        return entropy(self.failing(inside)) - self._noise - louder


def _with(split: Split, hits: int, misses: int, *, included: bool) -> Split:
    h0, m0, h1, m1 = split
    return (h0, m0, h1 + hits, m1 + misses) if included else (h0 + hits, m0 + misses, h1, m1)


def _log_sum(one: float, other: float) -> float:
    return max(one, other) + math.log1p(math.exp(-abs(one - other)))


def entropy(chance: float) -> float:
    if chance <= 0.0 or chance >= 1.0:
        return 0.0
    return -chance * math.log(chance) - (1.0 - chance) * math.log1p(-chance)
