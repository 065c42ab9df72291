"""The trivial searches: one point, and a list of points."""

from collections.abc import Sequence

from aorta.core.outcome import Verdict
from aorta.core.point import Point
from aorta.search.ranked import RankedSearch


class EveryPoint(RankedSearch):
    """Judge each of these points, in this order; the best is the first that reproduces."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = tuple(points)
        self.verdicts: dict[Point, Verdict] = {}

    def ranked(self, n: int) -> list[Point]:
        return [p for p in self.points if p not in self.verdicts][:n]

    def wants(self, point: Point) -> bool:
        return point in self.points and point not in self.verdicts

    def tell(self, point: Point, verdict: Verdict) -> None:
        self.verdicts[point] = verdict

    @property
    def best(self) -> Point | None:
        return next(
            (p for p in self.points if p in self.verdicts and self.verdicts[p].reproduces), None
        )
