"""Answers: groups of neighbouring candidates that hold the change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from aorta.search.belief import Belief
from aorta.search.timeline import Change, Timeline, Vector


@dataclass(frozen=True)
class Interval:
    """Candidates [start, stop) of a timeline that hold the change with probability `mass`."""

    timeline: Timeline
    start: int
    stop: int
    mass: float

    @property
    def changes(self) -> tuple[Change, ...]:
        return self.timeline.path[self.start : self.stop]

    @property
    def packages(self) -> list[int]:
        return sorted({change.package for change in self.changes})

    @property
    def good(self) -> Vector:
        return self.timeline.state(self.start)

    @property
    def bad(self) -> Vector:
        return self.timeline.state(self.stop)


@dataclass(frozen=True)
class Candidates:
    """Changes that hold the one sought with probability `mass`, and the two states they lie
    between.
    """

    changes: tuple[Change, ...]
    good: Vector
    bad: Vector
    mass: float

    @property
    def packages(self) -> list[int]:
        return sorted({change.package for change in self.changes})


def likeliest_group(
    timeline: Timeline, belief: Belief, splits: Callable[[int], bool] | None
) -> Interval:
    """The candidate, or the run of candidates that no testable state tells apart, with the largest
    probability.
    """
    start, _, weight = max(belief.atoms(), key=lambda atom: atom[2])
    best = Interval(timeline, start, start + 1, weight)
    if splits is None:
        return best
    within = belief.plausible_positions()
    low = within.start
    for position in range(within.start + 1, within.stop):
        if position == within.stop - 1 or splits(position):
            mass = belief.mass(low, position) if position - low > 1 else 0.0
            if mass > best.mass:
                best = Interval(timeline, low, position, mass)
            low = position
    return best


def shortest_interval(timeline: Timeline, belief: Belief, confidence: float) -> Interval:
    """The fewest neighbouring candidates that together hold `confidence`."""
    atoms = list(belief.atoms())
    first = atoms[0][0]
    weights = [weight for start, stop, weight in atoms for _ in range(stop - start)]
    below = [0.0, *accumulate(weights)]
    wanted = min(confidence, below[-1])
    best, stop = (0, len(weights)), 0
    for start in range(len(weights)):
        while stop < len(weights) and below[stop] - below[start] < wanted - 1e-12:
            stop += 1
        if below[stop] - below[start] < wanted - 1e-12:
            break
        if stop - start < best[1] - best[0]:
            best = (start, stop)
    start, stop = best
    return Interval(timeline, first + start, first + stop, below[stop] - below[start])


@dataclass
class Rotation:
    """Which orders of a stuck group were tried: each package first, once; again from the start when
    it shrank.
    """

    _group: frozenset[Change] = frozenset()
    _tried: int = 0
    _packages: Sequence[int] = field(default=())

    def next_order(self, group: Interval) -> Sequence[int] | None:
        changes = frozenset(group.changes)
        if changes != self._group:
            self._group, self._tried, self._packages = changes, 0, group.packages
        if self._tried >= len(self._packages):
            return None
        turn = self._tried
        self._tried += 1
        return [*self._packages[turn:], *self._packages[:turn]]
