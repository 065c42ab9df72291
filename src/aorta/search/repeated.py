"""The searches that only go through a list of points: all of them, or up to the first that reproduces."""

from collections.abc import Sequence
from itertools import islice

from aorta.core.axis import Point
from aorta.core.trial import Verdict
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


class FirstThatReproduces(RankedSearch):
    """The earliest of these points that reproduces; points after a known answer are not asked about."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = tuple(points)
        self.verdicts: dict[Point, Verdict] = {}

    def ranked(self, n: int) -> list[Point]:
        return [p for p in self.more_wanted() if p not in self.verdicts][:n]

    def wants(self, point: Point) -> bool:
        return point not in self.verdicts and point in self.more_wanted()

    def tell(self, point: Point, verdict: Verdict) -> None:
        self.verdicts[point] = verdict

    @property
    def best(self) -> Point | None:
        return next((p for p in self.points if self._reproduces(p)), None)

    def more_wanted(self) -> tuple[Point, ...]:
        """The points before the answer; all of them while there is none."""
        answer = next((i for i, p in enumerate(self.points) if self._reproduces(p)), None)
        return self.points[:answer]

    def _reproduces(self, point: Point) -> bool:
        verdict = self.verdicts.get(point)
        return verdict is not None and verdict.reproduces is True
