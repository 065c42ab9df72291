"""Every point of a grid, interleaved: each cell gets its first trial before any gets its second.

Machines warm up, clocks drift and neighbours come and go; cells that are measured side by side differ by none of that.
"""

from collections.abc import Sequence

from aorta.core.outcome import Verdict
from aorta.core.point import Point
from aorta.search.repeated import EveryPoint


class Grid(EveryPoint):
    """`rounds` questions about each of these points, one round after the other; the pooled verdicts are the result."""

    def __init__(self, points: Sequence[Point], rounds: int = 1) -> None:
        super().__init__(
            [p.asked_for(p.purpose, replica) for replica in range(rounds) for p in points]
        )
        self.cells = tuple(points)
        self.rounds = rounds

    def verdicts_of(self, cell: Point) -> list[Verdict]:
        """The verdicts of one cell so far, in the order of the rounds."""
        asked = (cell.asked_for(cell.purpose, replica) for replica in range(self.rounds))
        return [self.verdicts[p] for p in asked if p in self.verdicts]
