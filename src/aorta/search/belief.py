"""What the trials so far say about where the change is, and which state would say most next.

Every candidate change splits all trials in two: those without it, which failed at the good rate,
and those with it, which failed at the bad rate. Both rates are unknown and integrated over. Along a
path, candidates between the same trials have the same weight, so all sums run over these *atoms*
and the cost does not grow with the number of changes. Where some changes are likelier from the
start, the prior goes in steps, and atoms end where a step does.

Trials still running are answered both ways: a belief is a set of scenarios, each with its
probability.
"""

import heapq
import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import TypeVar

from aorta.search.rates import BetaMixture
from aorta.search.timeline import Change, Timeline, Vector

Counts = tuple[int, int]  # hits, misses
Split = tuple[int, int, int, int]  # hits and misses without the change, hits and misses with it
Weighed = tuple[float, tuple[float, float], float]
"""The log-probability of trials split like this, how often both sides fail over all kinds of tests,
and the probability of the last kind.
"""
Prior = Sequence[tuple[int, float]]
"""From this candidate on, the weight of each; in order, the first at 0."""

EVERY_CHANGE_ALIKE: Prior = ((0, 1.0),)

Weights = Callable[[], Sequence[tuple[int, int, float]]]
"""What is believed now: `(first candidate, one past the last, weight of each)`."""

_T = TypeVar("_T")

_SCENARIOS_KEPT = 32
_NEGLIGIBLE = 0.004  # of the belief: no question is worth asking out there


@dataclass(frozen=True)
class Rates:
    """How often states fail without the change and with it. `steady` is the prior probability that
    nothing is flaky at all: every state with the change fails, none without it. One trial that says
    otherwise refutes it for good. `once_flaky` takes over as soon as no candidate is left that
    every trial agrees with.
    """

    good: BetaMixture
    bad: BetaMixture
    steady: float = 0.0
    once_flaky: "MixedRates | None" = None

    def after(self, splits: Iterable["Split"]) -> "Rates | MixedRates":
        """What to weigh the candidates by that split the trials like this."""
        if self.once_flaky is None or any(not h0 and not m1 for h0, _, _, m1 in splits):
            return self
        return self.once_flaky

    def log_marginal(self, split: "Split") -> float:
        """The log-probability of trials that a candidate splits like this, whatever the rates."""
        h0, m0, h1, m1 = split
        flaky = self.good.log_marginal(h0, m0) + self.bad.log_marginal(h1, m1)
        if not self.steady:
            return flaky
        flaky += math.log1p(-self.steady)
        return flaky if h0 or m1 else _log_sum(math.log(self.steady), flaky)

    def means(self, split: "Split") -> tuple[float, float]:
        """The chance that the next trial fails: without the change, and with it."""
        h0, m0, h1, m1 = split
        good, bad = self.good.mean(h0, m0), self.bad.mean(h1, m1)
        if not self.steady or h0 or m1:
            return good, bad
        steady = math.exp(math.log(self.steady) - self.log_marginal(split))
        return (1 - steady) * good, steady + (1 - steady) * bad

    def noisy(self, _: "Split") -> float:
        return 0.0


@dataclass(frozen=True)
class MixedRates:
    """Several kinds of tests, each with its share, the noisiest last: in it the rates of both sides
    are other ones.
    """

    kinds: tuple[tuple[float, Rates], ...]
    _weighed: Callable[["Split"], "Weighed"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_weighed", lru_cache(1 << 16)(self._weigh))

    def log_marginal(self, split: "Split") -> float:
        return self._weighed(split)[0]

    def means(self, split: "Split") -> tuple[float, float]:
        return self._weighed(split)[1]

    def noisy(self, split: "Split") -> float:
        """The probability that it is a test of the last, the noisiest kind, after trials split like
        this.
        """
        return self._weighed(split)[2]

    def _weigh(self, split: "Split") -> "Weighed":
        logs = [math.log(share) + rates.log_marginal(split) for share, rates in self.kinds]
        top = max(logs)
        whole = top + math.log(math.fsum([math.exp(log - top) for log in logs]))
        weights = [math.exp(log - whole) for log in logs]
        means = [rates.means(split) for _, rates in self.kinds]
        good = math.fsum([w * mean for w, (mean, _) in zip(weights, means, strict=True)])
        bad = math.fsum([w * mean for w, (_, mean) in zip(weights, means, strict=True)])
        return whole, (good, bad), weights[-1]


class Belief:
    """A distribution over the candidates of one path. Candidate `i` is the change from state i to
    state i + 1.
    """

    def __init__(
        self,
        rates: Rates | MixedRates,
        starts: Sequence[int],
        stop: int,
        prior: Sequence[float],
        scenarios: Sequence[tuple[float, tuple[Split, ...]]],
    ) -> None:
        self._rates, self._starts, self._stop = rates, tuple(starts), stop
        self._prior = tuple(prior)
        self._lengths = [b - a for a, b in zip(starts, (*starts[1:], stop), strict=True)]
        self._scenarios = [
            _Scenario(chance, splits, rates, self._prior, self._lengths)
            for chance, splits in scenarios
        ]

    @classmethod
    def after(
        cls,
        rates: Rates,
        timeline: Timeline,
        trials: Mapping[Vector, Counts],
        floor: int = 0,
        prior: Prior = EVERY_CHANGE_ALIKE,
    ) -> "Belief":
        """The belief after these trials. No change before `floor` is a candidate."""
        runs = list(_runs(timeline, trials, floor))
        starts, splits, weights = zip(*_in_steps(runs, prior, timeline.changes), strict=True)
        return cls(rates.after(splits), starts, timeline.changes, weights, [(1.0, splits)])

    def supposing(self, position: int) -> "Belief":
        """The belief with one more trial at `position` whose end is not known yet."""
        starts, cut = self._cut(position)
        branches: list[tuple[float, tuple[Split, ...]]] = []
        for scenario in self._scenarios:
            failing = scenario.failing(*self._locate(position))
            splits = cut(scenario.splits)
            for hit, chance in ((1, failing), (0, 1.0 - failing)):
                told = tuple(
                    with_trial(split, hit, included=start < position)
                    for start, split in zip(starts, splits, strict=True)
                )
                branches.append((scenario.chance * chance, told))
        kept = heapq.nlargest(_SCENARIOS_KEPT, branches, key=lambda branch: branch[0])
        whole = math.fsum(chance for chance, _ in kept)
        told_of = [(chance / whole, splits) for chance, splits in kept]
        return Belief(self._rates, starts, self._stop, cut(self._prior), told_of)

    def gain(self, position: int) -> float:
        """The information in nats that one trial at `position` is expected to bring about the
        change.
        """
        atom, offset = self._locate(position)
        return self._gain_in(atom)(offset)

    @cached_property
    def best_position(self) -> int:
        """The state whose trial brings most. Within an atom the gain is concave, so it is searched,
        not scanned.
        """
        best = max(
            map(self._best_of, self._plausible_atoms()), key=lambda found: round(found[1], 12)
        )
        return best[0]

    def _best_of(self, atom: int) -> tuple[int, float]:
        offset, gain = _concave_maximum(self._gain_in(atom), self._lengths[atom])
        return self._starts[atom] + offset, gain

    def plausible_positions(self) -> range:
        """The states between which nearly all of the belief lies."""
        atoms = list(self._plausible_atoms())
        last = atoms[-1]
        return range(self._starts[atoms[0]], self._starts[last] + self._lengths[last] + 1)

    def mass(self, start: int, stop: int) -> float:
        """The probability that the change is one of the candidates in [start, stop)."""
        total = 0.0
        for atom, (begin, length) in enumerate(zip(self._starts, self._lengths, strict=True)):
            overlap = min(stop, begin + length) - max(start, begin)
            if overlap > 0:
                total += overlap * self._weights[atom]
        return total

    def atoms(self) -> Iterator[tuple[int, int, float]]:
        """`(start, stop, weight of each candidate)`, along the path."""
        for begin, length, weight in zip(self._starts, self._lengths, self._weights, strict=True):
            yield begin, begin + length, weight

    @cached_property
    def _weights(self) -> list[float]:
        """Of each candidate of an atom, over all scenarios."""
        if len(self._scenarios) == 1:
            return self._scenarios[0].weights
        chances = [scenario.chance for scenario in self._scenarios]
        return [
            math.fsum(map(operator.mul, chances, weights))
            for weights in zip(*(scenario.weights for scenario in self._scenarios), strict=True)
        ]

    def entropy(self) -> float:
        """In nats: what is still not known about the change."""
        return -math.fsum(
            (stop - start) * weight * math.log(weight)
            for start, stop, weight in self.atoms()
            if weight > 0
        )

    def expected_rates(self) -> tuple[float, float]:
        """The mean failure rates of the good and the bad side."""
        good = math.fsum(s.chance * s.mean_of(s.good, self._lengths) for s in self._scenarios)
        bad = math.fsum(s.chance * s.mean_of(s.bad, self._lengths) for s in self._scenarios)
        return good, bad

    def _plausible_atoms(self) -> Iterator[int]:
        below = 0.0
        for atom, (start, stop, weight) in enumerate(self.atoms()):
            above = below + weight * (stop - start)
            if above > _NEGLIGIBLE and below < 1.0 - _NEGLIGIBLE:
                yield atom
            below = above

    def _gain_in(self, atom: int) -> Callable[[int], float]:
        if len(self._scenarios) == 1:
            return self._scenarios[0].gain_in(atom)
        gains = [(s.chance, s.gain_in(atom)) for s in self._scenarios]
        return lambda offset: math.fsum([chance * gain(offset) for chance, gain in gains])

    def _locate(self, position: int) -> tuple[int, int]:
        """The atom that a state ends in: the last one that starts before it."""
        atom = max(0, bisect_left(self._starts, position) - 1)
        return atom, position - self._starts[atom]

    def _cut(self, position: int) -> tuple[list[int], "_Cut"]:
        """The atoms with one boundary more, and how what is known of each atom follows."""
        if position in self._starts or position >= self._stop:
            return list(self._starts), _Cut(None)
        atom = self._locate(position)[0]
        starts = [*self._starts[: atom + 1], position, *self._starts[atom + 1 :]]
        return starts, _Cut(atom)


@dataclass(frozen=True)
class _Cut:
    atom: int | None

    def __call__(self, of_each: tuple[_T, ...]) -> tuple[_T, ...]:
        if self.atom is None:
            return of_each
        return (*of_each[: self.atom + 1], *of_each[self.atom :])


class _Scenario:
    """One way the running trials may end: the weight of each candidate, and sums along the path."""

    def __init__(
        self,
        chance: float,
        splits: tuple[Split, ...],
        rates: Rates | MixedRates,
        prior: Sequence[float],
        lengths: Sequence[int],
    ) -> None:
        self.chance, self.splits = chance, splits
        means = [rates.means(split) for split in splits]
        self.good, self.bad = [good for good, _ in means], [bad for _, bad in means]
        logs = [rates.log_marginal(split) for split in splits]
        top = max(logs)
        raw = [weight * math.exp(log - top) for weight, log in zip(prior, logs, strict=True)]
        whole = math.fsum(n * weight for n, weight in zip(lengths, raw, strict=True))
        self.weights = [weight / whole for weight in raw]
        self._sum_along_the_path(lengths)

    def _sum_along_the_path(self, lengths: Sequence[int]) -> None:
        """At the start of each atom: the chance to fail there, and the entropy that would be left
        of it.
        """
        noise_good, noise_bad = [entropy(q) for q in self.good], [entropy(p) for p in self.bad]
        masses = [n * weight for n, weight in zip(lengths, self.weights, strict=True)]
        chance = math.fsum(m * q for m, q in zip(masses, self.good, strict=True))
        noise = math.fsum(m * h for m, h in zip(masses, noise_good, strict=True))
        self._chance_at, self._noise_at = [], []
        self._chance_slope, self._noise_slope = [], []
        for atom, mass in enumerate(masses):
            self._chance_at.append(chance)
            self._noise_at.append(noise)
            rise = self.bad[atom] - self.good[atom]
            noisier = noise_bad[atom] - noise_good[atom]
            self._chance_slope.append(self.weights[atom] * rise)
            self._noise_slope.append(self.weights[atom] * noisier)
            chance += mass * rise
            noise += mass * noisier

    def failing(self, atom: int, offset: int) -> float:
        return self._chance_at[atom] + offset * self._chance_slope[atom]

    def gain_in(self, atom: int) -> Callable[[int], float]:
        """What a trial so far into the atom is expected to tell."""
        chance, rise = self._chance_at[atom], self._chance_slope[atom]
        noise, noisier = self._noise_at[atom], self._noise_slope[atom]

        def gain(offset: int) -> float:
            return entropy(chance + offset * rise) - (noise + offset * noisier)

        return gain

    def mean_of(self, rates: Sequence[float], lengths: Sequence[int]) -> float:
        return math.fsum(
            n * weight * rate for n, weight, rate in zip(lengths, self.weights, rates, strict=True)
        )


def _in_steps(
    runs: Sequence[tuple[int, Split]], prior: Prior, stop: int
) -> Iterator[tuple[int, Split, float]]:
    """The runs of candidates, cut where the prior changes, and the prior weight of each candidate
    in them.
    """
    starts, steps = [start for start, _ in runs], [start for start, _ in prior]
    for mark in sorted({*starts, *(step for step in steps if step in range(starts[0], stop))}):
        split = runs[bisect_right(starts, mark) - 1][1]
        yield mark, split, prior[bisect_right(steps, mark) - 1][1]


def _runs(
    timeline: Timeline, trials: Mapping[Vector, Counts], floor: int
) -> Iterator[tuple[int, Split]]:
    """The atoms: stretches of the path whose candidates split the trials alike."""
    placed: list[tuple[int, Counts]] = []
    for vector, counts in trials.items():
        position = timeline.position(vector)
        if position is None:
            yield from _runs_off_the_path(timeline, trials, floor)
            return
        placed.append((position, counts))
    yield from _runs_on_the_path(placed, timeline.changes, floor)


def _runs_on_the_path(
    placed: list[tuple[int, Counts]], stop: int, floor: int
) -> Iterator[tuple[int, Split]]:
    h0 = m0 = 0
    h1, m1 = sum(hits for _, (hits, _) in placed), sum(misses for _, (_, misses) in placed)
    start = floor
    for position, (hits, misses) in sorted(placed):
        if start < position:
            yield start, (h0, m0, h1, m1)
            start = position
        h0, m0, h1, m1 = h0 + hits, m0 + misses, h1 - hits, m1 - misses
    if start < stop:
        yield start, (h0, m0, h1, m1)


def _runs_off_the_path(
    timeline: Timeline, trials: Mapping[Vector, Counts], floor: int
) -> Iterator[tuple[int, Split]]:
    """With trials of another order of the changes, candidates are told apart one by one."""
    path = timeline.path[floor:]
    splits = [_split(trials, change) for change in path]
    for split, group in groupby(range(len(path)), lambda offset: splits[offset]):
        yield floor + next(group), split


def _split(trials: Mapping[Vector, Counts], change: Change) -> Split:
    h0 = m0 = h1 = m1 = 0
    for vector, (hits, misses) in trials.items():
        if vector[change.package] > change.rank:
            h1, m1 = h1 + hits, m1 + misses
        else:
            h0, m0 = h0 + hits, m0 + misses
    return h0, m0, h1, m1


def with_trial(split: Split, hit: int, *, included: bool) -> Split:
    h0, m0, h1, m1 = split
    return (h0, m0, h1 + hit, m1 + 1 - hit) if included else (h0 + hit, m0 + 1 - hit, h1, m1)


def _log_sum(one: float, other: float) -> float:
    return max(one, other) + math.log1p(math.exp(-abs(one - other)))


def entropy(chance: float) -> float:
    if chance <= 0.0 or chance >= 1.0:
        return 0.0
    return -chance * math.log(chance) - (1.0 - chance) * math.log1p(-chance)


def _concave_maximum(value: Callable[[int], float], last: int) -> tuple[int, float]:
    """The place in 1..last where a concave function is largest."""
    low, high = 1, last
    while low < high:
        middle = (low + high) // 2
        if value(middle) < value(middle + 1):
            low = middle + 1
        else:
            high = middle
    return low, value(low)
