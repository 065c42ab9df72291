"""The changes between a good and a bad end, and the states that hold some of them.

A *vector* names a state: how many changes of each package are applied. The changes of a timeline
are numbered by one order of all of them, its *path*; which of them a state holds is a *mask*, a
number with a bit for each. On a path neighbouring states differ by one change of one package, so
whatever flips between them is the culprit. In a history with merges (`GraphTimeline`) every commit
is a state of its own, which holds what it is built on and nothing of what happened beside it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aorta.core.axis import Point, Purpose

Vector = tuple[int, ...]

# With more changes, the masks of all states are too much to keep for a picture.
_DRAWN = 2000
# That a stretch of broken states ends between two of them: a build there says hardly anything.
_NOT_WORTH_A_BUILD = 0.05
# Chance to run of a state whose versions ran in other combinations, and of one off any tried path.
_SEEN, _OFF_THE_PATH = 0.85, 0.5


@dataclass(frozen=True)
class History:
    """One package: its versions, oldest first. The first is the good end, no candidate."""

    package: str
    versions: tuple[str, ...]
    times: tuple[float, ...] | None = None  # one a version; None where versions carry no date
    weights: tuple[int, ...] | None = None  # one a change: how many commits it brings

    @property
    def changes(self) -> int:
        return len(self.versions) - 1


@dataclass(frozen=True)
class Change:
    """The step of one package to its version number `rank` + 1."""

    package: int
    rank: int


class Timeline:
    """Histories, and one order of all their changes."""

    has_merges = False

    def __init__(self, histories: Sequence[History], order: Sequence[int] | None = None) -> None:
        self.histories = tuple(histories)
        self.order = tuple(order) if order is not None else _by_date(self.histories)

    @property
    def changes(self) -> int:
        return len(self.order)

    def to_json(self) -> dict[str, object]:
        """What draws this timeline again without the repositories."""
        histories = [{"package": h.package, "versions": list(h.versions)} for h in self.histories]
        return {"histories": histories, "order": list(self.order)}

    @cached_property
    def path(self) -> tuple[Change, ...]:
        seen = [0] * len(self.histories)
        path: list[Change] = []
        for package in self.order:
            path.append(Change(package, seen[package]))
            seen[package] += 1
        return tuple(path)

    @cached_property
    def _states(self) -> tuple[Vector, ...]:
        vector = [0] * len(self.histories)
        states = [tuple(vector)]
        for package in self.order:
            vector[package] += 1
            states.append(tuple(vector))
        return tuple(states)

    @cached_property
    def _positions(self) -> Mapping[Vector, int]:
        return {vector: position for position, vector in enumerate(self._states)}

    @cached_property
    def classes(self) -> tuple[tuple[int, int], ...]:
        """`(mask, commits of each)` by how many commits a change brings, one by default."""
        masks: dict[int, int] = {}
        for bit, change in enumerate(self.path):
            weights = self.histories[change.package].weights
            weight = weights[change.rank] if weights else 1
            masks[weight] = masks.get(weight, 0) | 1 << bit
        return tuple((mask, weight) for weight, mask in masks.items())

    @property
    def good_end(self) -> Vector:
        return self._states[0]

    @property
    def bad_end(self) -> Vector:
        return self._states[-1]

    def mask(self, vector: Vector) -> int:
        """The changes that a state holds."""
        if (position := self.position(vector)) is not None:
            return (1 << position) - 1
        return sum(self._masks[package][rank] for package, rank in enumerate(vector))

    @cached_property
    def _masks(self) -> tuple[tuple[int, ...], ...]:
        """By package and number of its changes applied: the changes."""
        masks = [[0] for _ in self.histories]
        for bit, change in enumerate(self.path):
            masks[change.package].append(masks[change.package][-1] | 1 << bit)
        return tuple(tuple(of_package) for of_package in masks)

    def around(self, bit: int) -> tuple[Vector, Vector]:
        """The states before and after one change."""
        return self._states[bit], self._states[bit + 1]

    def cutting(self, part: int) -> Iterator[Vector]:
        """The states that hold some of these changes and not all of them; perhaps others too."""
        low, high = lowest_bit(part), part.bit_length()
        return iter(self._states[low + 1 : high])

    def every_state(self) -> Sequence[Vector]:
        """The good end first, the bad end last."""
        return self._states

    def position(self, vector: Vector) -> int | None:
        """Its place among the states, or None: it belongs to another order."""
        return self._positions.get(vector)

    def in_order(self, good: Vector, bad: Vector, packages: Sequence[int]) -> Iterator[Vector]:
        """The states between two others, going package by package in this order."""
        here = list(good)
        for package in packages:
            for rank in range(good[package] + 1, bad[package] + 1):
                here[package] = rank
                yield tuple(here)

    def versions(self, vector: Vector) -> dict[str, str]:
        return {
            history.package: history.versions[rank]
            for history, rank in zip(self.histories, vector, strict=True)
        }

    def point(self, vector: Vector, purpose: Purpose, replica: int = 0) -> Point:
        return Point.of(self.versions(vector), purpose, replica)

    def vector(self, point: Point) -> Vector:
        return tuple(
            ranks[str(point[history.package])]
            for history, ranks in zip(self.histories, self._ranks, strict=True)
        )

    @cached_property
    def _ranks(self) -> tuple[dict[str, int], ...]:
        return tuple(
            {version: rank for rank, version in enumerate(history.versions)}
            for history in self.histories
        )


@dataclass(frozen=True)
class GraphHistory:
    """The states of one package, the good end first and the bad end last, and the mask of each.
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
    """A history with merges. A vector is one number: that of a state."""

    has_merges = True

    def __init__(self, graph: GraphHistory) -> None:
        super().__init__([History(graph.package, graph.states)], (0,) * graph.changes)
        self.graph = graph

    @cached_property
    def _states(self) -> tuple[Vector, ...]:
        """Neighbours in this order mostly are so in the history."""
        return tuple((state,) for state in range(len(self.graph.states)))

    def mask(self, vector: Vector) -> int:
        return self.graph.holds[vector[0]]

    def around(self, bit: int) -> tuple[Vector, Vector]:
        return (self.graph.before[bit],), (self.graph.after[bit],)

    def cutting(self, part: int) -> Iterator[Vector]:
        return ((n,) for n, held in enumerate(self.graph.holds) if held & part not in (0, part))

    def to_json(self) -> dict[str, object]:
        drawn = super().to_json()
        if self.changes <= _DRAWN:
            drawn["holds"] = [format(held, "x") for held in self.graph.holds]
        return drawn


class Testability:
    """Which states ran, which could not be tested, and how likely another one is to run.

    Broken states come in stretches: the longer a known one, the further away the next probe.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.untestable: set[Vector] = set()
        self._versions: set[tuple[int, int]] = set()  # package and rank: they ran somewhere
        self._tried: list[int] = []  # places on the path, rising
        self._ran: set[int] = set()  # those of them that ran

    def learn(self, vector: Vector, *, ran: bool) -> None:
        if ran:
            self._versions.update(enumerate(vector))
        else:
            self.untestable.add(vector)
        place = self._timeline.position(vector)
        if place is not None and place not in self._tried:
            insort(self._tried, place)
            self._ran |= {place} if ran else set()

    def forget(self, vector: Vector) -> None:
        """It is taken as it was said to be: not known to be untestable."""
        self.untestable.discard(vector)
        self._tried = [place for place in self._tried if place != self._timeline.position(vector)]

    def chance(self, vector: Vector) -> float:
        """0 for a state not worth a build: broken, or deep in a stretch where nothing ran."""
        if not self.untestable or vector in self.untestable:
            return float(not self.untestable)
        if self._versions.issuperset(enumerate(vector)):
            return _SEEN
        place = self._timeline.position(vector)
        if place is None:
            return _OFF_THE_PATH
        broken = [side for step in (-1, 1) if (side := self._stretch(place, step))]
        if not broken:
            return 1.0
        gap, known = min(gap for gap, _ in broken), sum(length for _, length in broken)
        if len(broken) > 1:  # it is one stretch with both
            known += sum(gap for gap, _ in broken) - 1
        # That the stretch ends before it: one twice as long is half as likely.
        ends = gap / (gap + known - 1)
        return 0.0 if len(broken) > 1 and ends < _NOT_WORTH_A_BUILD else ends * gap / (gap + 1)

    def _stretch(self, place: int, step: int) -> tuple[int, int] | None:
        """Distance and known length of the nearest broken stretch; None if a state nearer ran."""
        first = bisect_left(self._tried, place) - (step < 0)
        last = first
        while 0 <= last < len(self._tried) and self._tried[last] not in self._ran:
            last += step
        if last == first:
            return None
        nearest, furthest = self._tried[first], self._tried[last - step]
        return abs(place - nearest), abs(furthest - nearest) + 1


def bits_of(mask: int) -> Iterator[int]:
    """The numbers of the changes in a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def lowest_bit(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _by_date(histories: Sequence[History]) -> tuple[int, ...]:
    """By date, keeping the order within a package: a change is no earlier than those before it, as
    dates may go backwards (rebases, clocks). Equal dates are dealt out evenly between packages.
    """
    known = [time for history in histories for time in (history.times or ())]
    first, last = (min(known), max(known)) if known else (0.0, 0.0)
    keyed: list[tuple[float, float, int]] = []
    for package, history in enumerate(histories):
        latest = float("-inf")
        for change in range(history.changes):
            share = (change + 0.5) / history.changes
            dated = history.times[change + 1] if history.times else first + share * (last - first)
            latest = max(latest, dated)
            keyed.append((latest, share, package))
    return tuple(package for _, _, package in sorted(keyed))
