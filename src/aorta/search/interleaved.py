"""Many cells, one trial at a time from each: what drifts while they are measured favours none of them.

Every trial of a cell is a point of its own (its replica), so that a cell can be left as soon as its answer is settled.
Which trial goes next, and when a cell has enough, are given as functions; what follows when all have enough, too.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from aorta.core.axis import Point
from aorta.core.trial import Tally, Verdict

Place = tuple[int, int]
"""Where a trial stands in the order: round, and place in the round."""


class Interleaved:
    """`place(cell, n)` orders the n-th trials; `is_open(cell, tallies)` says whether a cell wants another trial.

    `follow_up` is asked once every cell has enough: it may name further cells, and is asked again after those.
    """

    def __init__(
        self,
        cells: Sequence[str],
        *,
        place: Callable[[str, int], Place],
        is_open: Callable[[str, Mapping[str, Tally]], bool],
        follow_up: Callable[[Mapping[str, Tally]], Sequence[str]] = lambda _: (),
    ) -> None:
        self.tallies: dict[str, Tally] = {cell: Tally() for cell in cells}
        self._place = place
        self._is_open = is_open
        self._follow_up = follow_up
        self._told: dict[str, set[int]] = {cell: set() for cell in cells}
        self._open = set(cells)
        self._refresh()

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        busy: dict[str, set[int]] = {cell: set() for cell in self.tallies}
        for point in pending:
            busy[cell_of(point)].add(point.replica)
        asked: list[Point] = []
        while len(asked) < n:
            following = min(self._candidates(busy), default=None)
            if following is None:
                break
            _, cell, number = following
            busy[cell].add(number)
            asked.append(cell_point(cell, number))
        return asked

    def tell(self, point: Point, verdict: Verdict) -> None:
        cell = cell_of(point)
        self._told[cell].add(point.replica)
        self.tallies[cell] += verdict.tally
        self._refresh()

    def told(self, cell: str) -> Collection[int]:
        """The numbers of the trials of a cell whose verdicts were used."""
        return self._told[cell]

    def wants(self, point: Point) -> bool:
        cell = cell_of(point)
        return cell in self._open and point.replica not in self._told[cell]

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
                number = self._next_number(cell, busy[cell])
                yield self._place(cell, number), cell, number

    def _could_use(self, cell: str, under_way: int) -> bool:
        """Trials under way are counted as clean: more than the cap are never started."""
        if not under_way:
            return True
        assumed = {**self.tallies, cell: self.tallies[cell] + Tally(clean=under_way)}
        return self._is_open(cell, assumed)

    def _next_number(self, cell: str, busy: Collection[int]) -> int:
        number = self.tallies[cell].trials
        while number in busy or number in self._told[cell]:
            number += 1
        return number

    def _refresh(self) -> None:
        """Cells do not open again: a cell that was settled stays settled, whatever the others do."""
        self._open = {cell for cell in self._open if self._is_open(cell, self.tallies)}
        if not self._open:
            further = [cell for cell in self._follow_up(self.tallies) if cell not in self.tallies]
            self.tallies.update((cell, Tally()) for cell in further)
            self._told.update((cell, set()) for cell in further)
            self._open = set(further)


def cell_point(cell: str, number: int) -> Point:
    return Point.of({"cell": cell}, replica=number)


def cell_of(point: Point) -> str:
    return str(point["cell"])
