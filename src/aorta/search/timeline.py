"""One merged timeline of the changes of several packages.

A *vector* says how many changes of each package are applied: the good end is all zeros, the bad end
all of them. A *path* is an order of all the changes; its states are its prefixes, so neighbouring
states differ by one change of one package and whatever flips between them is the culprit: no second
phase has to find out which package it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from aorta.core.axis import Point, Purpose

Vector = tuple[int, ...]


@dataclass(frozen=True)
class History:
    """One package: its versions, oldest first. The first is the good end and no candidate
    itself.
    """

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
    def weight_before(self) -> tuple[int, ...]:
        """For each state how many commits are in it; a change is one, unless its history says
        more.
        """
        weights = (self.histories[c.package].weights for c in self.path)
        each = (w[c.rank] if w else 1 for w, c in zip(weights, self.path, strict=True))
        return tuple(accumulate(each, initial=0))

    @cached_property
    def prior(self) -> tuple[tuple[int, float], ...]:
        """A change is as likely as the commits it brings: `(from this one on, the weight of
        each)`.
        """
        steps = [(0, 1.0)]
        for position, (before, after) in enumerate(pairwise(self.weight_before)):
            if position == 0 or after - before != steps[-1][1]:
                steps.append((position, float(after - before)))
        return tuple(steps[1:] or steps)

    @property
    def good_end(self) -> Vector:
        return self._states[0]

    @property
    def bad_end(self) -> Vector:
        return self._states[-1]

    def contains(self, vector: Vector, change: Change) -> bool:
        return vector[change.package] > change.rank

    def every_state(self) -> Sequence[Vector]:
        """The good end first, the bad end last."""
        return self._states

    def state(self, position: int) -> Vector:
        """The versions after the first `position` changes."""
        return self._states[position]

    def position(self, vector: Vector) -> int | None:
        """Where a vector stands on this path, or None: it belongs to another order."""
        return self._positions.get(vector)

    def first_with(self, vector: Vector) -> int:
        """The first state of this path that holds everything `vector` holds."""
        if (position := self.position(vector)) is not None:
            return position
        needed = (self._step[Change(p, rank - 1)] for p, rank in enumerate(vector) if rank)
        return max(needed, default=-1) + 1

    def last_within(self, vector: Vector) -> int:
        """The last state of this path that holds nothing `vector` does not hold."""
        if (position := self.position(vector)) is not None:
            return position
        missing = (Change(p, rank) for p, rank in enumerate(vector))
        return min((self._step[c] for c in missing if c in self._step), default=self.changes)

    @cached_property
    def _step(self) -> Mapping[Change, int]:
        return {change: index for index, change in enumerate(self.path)}

    def reordered(self, start: int, stop: int, first: Sequence[int]) -> "Timeline":
        """The same changes, those in [start, stop) taken package by package in the order
        `first`.
        """
        block = sorted(self.order[start:stop], key=list(first).index)
        return Timeline(self.histories, (*self.order[:start], *block, *self.order[stop:]))

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


def _by_date(histories: Sequence[History]) -> tuple[int, ...]:
    """By date, never against the order within a package; equal dates are dealt out evenly between
    packages.

    Dates of a history may go backwards (rebases, clocks): a change counts as made no earlier than
    those before it.
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
