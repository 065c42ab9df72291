"""A history with merges: which states contain which changes, and what trials say about where the
one sought is.

On a line a state contains everything before it. With merges it does not: a commit of a branch
contains what the branch was begun from and nothing of what happened beside it. So every state says
itself what it contains, as a set of changes (a number with a bit for each), and a trial speaks for
or against exactly these, as in `git bisect`.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import mul

from aorta.search.belief import Counts, MixedRates, Rates, Split, entropy, with_trial
from aorta.search.timeline import Change, History, Timeline, Vector

_SCENARIOS_KEPT = 8
_NEGLIGIBLE = 1e-6  # of the belief
_DRAWN = (
    2000  # changes: with more of them, what every state contains is too much to keep for a picture
)


@dataclass(frozen=True)
class GraphHistory:
    """The states of one package, the good end first and the bad end last, and what each contains.
    `before` and `after` are the states on both sides of each change. The order of the changes is
    one in which none comes before another that it is built on.
    """

    package: str
    states: tuple[str, ...]
    holds: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def changes(self) -> int:
        return len(self.before)


class GraphTimeline(Timeline):
    """The same words as for a line. A vector is one number: that of a state."""

    def __init__(self, graph: GraphHistory) -> None:
        super().__init__([History(graph.package, graph.states)], (0,) * graph.changes)
        self.graph = graph

    @property
    def good_end(self) -> Vector:
        return (0,)

    @property
    def bad_end(self) -> Vector:
        return (len(self.graph.states) - 1,)

    def contains(self, vector: Vector, change: Change) -> bool:
        return bool(self.graph.holds[vector[0]] >> change.rank & 1)

    def every_state(self) -> Sequence[Vector]:
        return [(state,) for state in range(len(self.graph.states))]

    def position(self, vector: Vector) -> int:
        """How near two states are: neighbours in this order mostly are so in the history."""
        return vector[0]

    def to_json(self) -> dict[str, object]:
        graph = self.graph
        histories = [{"package": graph.package, "versions": list(graph.states)}]
        drawn: dict[str, object] = {"histories": histories, "order": list(self.order)}
        if graph.changes <= _DRAWN:
            drawn["holds"] = [format(held, "x") for held in graph.holds]
        return drawn


class GraphBelief:
    """A distribution over changes. Changes that all trials split alike are one atom: a set, with
    what they make of the trials. Trials still running are answered both ways, as scenarios.
    """

    def __init__(
        self,
        rates: Rates | MixedRates,
        atoms: Sequence[int],
        scenarios: Sequence[tuple[float, Sequence[Split]]],
    ) -> None:
        self._rates, self._atoms = rates, tuple(atoms)
        self._sizes = [atom.bit_count() for atom in atoms]
        self._scenarios = [_Scenario(c, splits, rates, self._sizes) for c, splits in scenarios]

    @classmethod
    def after(
        cls, rates: Rates, graph: GraphHistory, trials: Mapping[Vector, Counts], among: int
    ) -> "GraphBelief":
        """After these trials, where the change is one of `among`."""
        cut: list[tuple[int, Split]] = [(among, (0, 0, 0, 0))]
        for (state,), counts in trials.items():
            cut = list(_cut(cut, graph.holds[state], *counts))
        atoms, splits = [atom for atom, _ in cut], [split for _, split in cut]
        return cls(rates.after(splits), atoms, [(1.0, splits)])

    def supposing(self, held: int) -> "GraphBelief":
        """With one more trial of a state that holds these changes, whose end is not known yet."""
        parts: list[tuple[int, int, bool]] = []
        for index, atom in enumerate(self._atoms):
            sides = ((atom & held, True), (atom & ~held, False))
            parts += [(part, index, included) for part, included in sides if part]
        branches: list[tuple[float, list[Split]]] = []
        counts = self._inside(held)
        for scenario in self._scenarios:
            failing = scenario.failing(counts)
            for hit, chance in ((1, failing), (0, 1.0 - failing)):
                told = [
                    with_trial(scenario.splits[index], hit, included=included)
                    for _, index, included in parts
                ]
                branches.append((scenario.chance * chance, told))
        kept = heapq.nlargest(_SCENARIOS_KEPT, branches, key=lambda branch: branch[0])
        whole = math.fsum(chance for chance, _ in kept)
        atoms = [part for part, _, _ in parts]
        return GraphBelief(self._rates, atoms, [(chance / whole, told) for chance, told in kept])

    def gain(self, held: int) -> float:
        """The information in nats that one trial of a state that holds these changes is expected to
        bring.
        """
        counts = self._inside(held)
        return math.fsum(s.chance * s.gain(counts) for s in self._scenarios)

    def _inside(self, held: int) -> list[int]:
        return [(atom & held).bit_count() for atom in self._atoms]

    def weighted(self) -> list[tuple[int, float]]:
        """Sets of changes and the probability of each change in them, the likeliest first; what is
        negligible is left out.
        """
        found = [
            (atom, math.fsum(s.chance * s.weights[index] for s in self._scenarios))
            for index, atom in enumerate(self._atoms)
        ]
        kept = [(a, w) for a, w in found if w * a.bit_count() > _NEGLIGIBLE]
        return sorted(kept, key=lambda pair: (-pair[1], first_of(pair[0])))

    def mass(self, changes: int) -> float:
        return math.fsum(
            s.chance * s.weights[index] * (atom & changes).bit_count()
            for index, atom in enumerate(self._atoms)
            for s in self._scenarios
        )

    def runs(self, changes: int) -> Iterator[tuple[int, int, float]]:
        """`(first, one past the last, probability of each)` in the order of the changes."""
        weights = [0.0] * changes
        for atom, weight in self.weighted():
            for rank in ranks_of(atom):
                weights[rank] = weight
        start = 0
        for weight, group in groupby(weights):
            stop = start + len(list(group))
            yield start, stop, weight
            start = stop

    def entropy(self) -> float:
        return -math.fsum(a.bit_count() * w * math.log(w) for a, w in self.weighted())

    def expected_rates(self) -> tuple[float, float]:
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
    """One way the running trials may end: the weight of a change of each atom, and how often both
    sides fail then.
    """

    def __init__(
        self,
        chance: float,
        splits: Sequence[Split],
        rates: Rates | MixedRates,
        sizes: Sequence[int],
    ) -> None:
        self.chance, self.splits = chance, splits
        means = [rates.means(split) for split in splits]
        self.good, self.bad = [good for good, _ in means], [bad for _, bad in means]
        logs = [rates.log_marginal(split) for split in splits]
        top = max(logs)
        raw = [math.exp(log - top) for log in logs]
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


def changes_of(candidates: int) -> tuple[Change, ...]:
    return tuple(Change(0, rank) for rank in ranks_of(candidates))


def ranks_of(candidates: int) -> Iterator[int]:
    while candidates:
        lowest = candidates & -candidates
        yield lowest.bit_length() - 1
        candidates ^= lowest


def first_of(candidates: int) -> int:
    return (candidates & -candidates).bit_length() - 1


def _cut(
    atoms: Sequence[tuple[int, Split]], held: int, hits: int, misses: int
) -> Iterator[tuple[int, Split]]:
    for atom, (h0, m0, h1, m1) in atoms:
        if inside := atom & held:
            yield inside, (h0, m0, h1 + hits, m1 + misses)
        if outside := atom & ~held:
            yield outside, (h0 + hits, m0 + misses, h1, m1)
