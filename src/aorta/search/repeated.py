"""The trivial searches: one point, and a list of points."""

from collections.abc import Sequence
from itertools import islice

from aorta.core.outcome import Verdict
from aorta.core.point import Point
from aorta.search.ranked import RankedSearch


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
