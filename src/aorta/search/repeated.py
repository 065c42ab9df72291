"""Searches through a list of points (all, up to the first that reproduces, in turns), or searches.

A `RankedSearch` states its ideal list of questions from the verdicts so far; the base makes that
the `Search` contract. Pending points are left out, and still wanted while they are on the list.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from aorta.core.axis import Point
from aorta.core.trial import Tally, Verdict

SPECULATION_DEPTH = 64


class RankedSearch(ABC):
    @abstractmethod
    def ranked(self, n: int) -> Sequence[Point]:
        """Up to `n` points, most valuable first; pending ones included. Empty when done."""

    @abstractmethod
    def tell(self, point: Point, verdict: Verdict) -> None: ...

    @property
    @abstractmethod
    def best(self) -> Point | None: ...

    @property
    def done(self) -> bool:
        return not self.ranked(1)

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        waiting = set(pending)
        return [p for p in self.ranked(n + len(waiting)) if p not in waiting][:n]

    def wants(self, point: Point) -> bool:
        return point in self.ranked(SPECULATION_DEPTH)


class EveryPoint(RankedSearch):
    """Judge each of these points, in this order; the best is the first that reproduces."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = tuple(points)
        self.verdicts: dict[Point, Verdict] = {}
        self._open = dict.fromkeys(self.points)  # in their order

    def ranked(self, n: int) -> list[Point]:
        return list(islice(self._open, n))

    def wants(self, point: Point) -> bool:
        return point in self._open

    def tell(self, point: Point, verdict: Verdict) -> None:
        self.verdicts[point] = verdict
        self._open.pop(point, None)

    @property
    def best(self) -> Point | None:
        return next(
            (p for p in self.points if p in self.verdicts and self.verdicts[p].reproduces), None
        )


class FirstThatReproduces(EveryPoint):
    """The earliest of these points that reproduces; later ones are not asked about."""

    def ranked(self, n: int) -> list[Point]:
        return [p for p in self.more_wanted() if p in self._open][:n]

    def wants(self, point: Point) -> bool:
        return super().wants(point) and point in self.more_wanted()

    def more_wanted(self) -> tuple[Point, ...]:
        """The points before the answer; all of them while there is none."""
        answer = super().best
        return self.points if answer is None else self.points[: self.points.index(answer)]


class SearchStage(Protocol):
    """A part of a search; one that asks nothing is through."""

    def ask(self, n: int, pending: Collection[Point] = ()) -> Sequence[Point]: ...

    def tell(self, point: Point, verdict: Verdict) -> None: ...

    def wants(self, point: Point) -> bool: ...


class StagedSearch(ABC):
    """Stages in turn, each made from what the last found. Known points are answered from memory."""

    def __init__(self) -> None:
        self.verdicts: dict[Point, Verdict] = {}
        self._program = self.stages()
        self._stage: SearchStage | None = next(self._program, None)
        self._advance()

    @abstractmethod
    def stages(self) -> Iterator[SearchStage]:
        """What follows what."""

    def known(self, point: Point) -> Verdict | None:
        return self.verdicts.get(point)

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        if self._stage is None or n <= 0:
            return []
        # All of several may have been asked before; what is asked for alone never was.
        return self._unknown(self._stage.ask(n, pending)) or self._unknown(
            self._stage.ask(1, pending)
        )

    def _unknown(self, points: Iterable[Point]) -> list[Point]:
        return [point for point in points if self.known(point) is None]

    def tell(self, point: Point, verdict: Verdict) -> None:
        self.verdicts[point] = verdict
        if self._stage is not None:
            self._stage.tell(point, verdict)
        self._advance()

    def wants(self, point: Point) -> bool:
        return self._stage is not None and self._stage.wants(point)

    @property
    def done(self) -> bool:
        return self._stage is None

    def _advance(self) -> None:
        """To the next question that has no answer yet."""
        while self._stage is not None:
            queried = self._stage.ask(1)
            verdict = self.known(queried[0]) if queried else None
            if not queried:
                self._stage = next(self._program, None)
            elif verdict is not None:
                self._stage.tell(queried[0], verdict)
            else:
                return


Place = tuple[int, int]
"""Where a trial stands in the order: round, and place in the round."""


class Interleaved:
    """`place(cell, n)` orders the n-th trials; `is_open(cell, tallies)` wants another."""

    def __init__(
        self,
        cells: Sequence[str],
        *,
        place: Callable[[str, int], Place],
        is_open: Callable[[str, Mapping[str, Tally]], bool],
    ) -> None:
        self.tallies: dict[str, Tally] = {cell: Tally() for cell in cells}
        self._place = place
        self._is_open = is_open
        self._recorded: dict[str, set[int]] = {cell: set() for cell in cells}
        self._refresh()

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        busy: dict[str, set[int]] = {cell: set() for cell in self.tallies}
        for point in pending:
            busy[cell_of(point)].add(point.replica)
        queried: list[Point] = []
        while len(queried) < n:
            following = min(self._candidates(busy), default=None)
            if following is None:
                break
            _, cell, number = following
            busy[cell].add(number)
            queried.append(cell_point(cell, number))
        return queried

    def tell(self, point: Point, verdict: Verdict) -> None:
        cell = cell_of(point)
        self._recorded[cell].add(point.replica)
        self.tallies[cell] += verdict.tally
        self._refresh()

    def recorded(self, cell: str) -> Collection[int]:
        """The numbers of the trials of a cell whose verdicts were used."""
        return self._recorded[cell]

    def wants(self, point: Point) -> bool:
        cell = cell_of(point)
        return cell in self._open and point.replica not in self._recorded[cell]

    @property
    def done(self) -> bool:
        return not self._open

    @property
    def best(self) -> Point | None:
        """A matrix has no best cell while it runs."""
        return None

    def _candidates(self, busy: Mapping[str, set[int]]) -> Iterator[tuple[Place, str, int]]:
        for cell in self._open:
            if self._could_use(cell, len(busy[cell])):
                number = self.tallies[cell].trials
                while number in busy[cell] or number in self._recorded[cell]:
                    number += 1
                yield self._place(cell, number), cell, number

    def _could_use(self, cell: str, under_way: int) -> bool:
        """Trials under way are counted as clean: more than the cap are never started."""
        if not under_way:
            return True
        assumed = {**self.tallies, cell: self.tallies[cell] + Tally(clean=under_way)}
        return self._is_open(cell, assumed)

    def _refresh(self) -> None:
        """A cell may open again: trials of another one, its baseline, may undo what was decided."""
        self._open = {cell for cell in self.tallies if self._is_open(cell, self.tallies)}


def cell_point(cell: str, number: int) -> Point:
    return Point.of({"cell": cell}, replica=number)


def cell_of(point: Point) -> str:
    return str(point["cell"])
