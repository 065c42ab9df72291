"""A search that is told at once what an earlier run already found out."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search import Search

SearchT = TypeVar("SearchT", bound=Search)


class Remembered(Generic[SearchT]):
    """`known`: the answers to a point's configuration, in the order they were given. Each is used
    once. The ends are always tried anew; where one is not as it was, nothing that was known counts.
    """

    def __init__(self, search: SearchT, known: Callable[[Point], Sequence[bool]]) -> None:
        self.search = search
        self.used = 0
        self._known = known
        self._used_of: Counter[str] = Counter()
        self.outdated = False
        self._absorb()

    def ask(self, n: int, pending: Collection[Point] = ()) -> Sequence[Point]:
        return self.search.ask(n, pending)

    def tell(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.CALIBRATE and verdict.reproduces is not None:
            before = set(self._known(point))
            self.outdated = self.outdated or (bool(before) and verdict.reproduces not in before)
        self.search.tell(point, verdict)
        self._absorb()

    def wants(self, point: Point) -> bool:
        return self.search.wants(point)

    @property
    def done(self) -> bool:
        return self.search.done

    @property
    def best(self) -> Point | None:
        return self.search.best

    def _absorb(self) -> None:
        while not self.outdated and (asked := self.search.ask(1)):
            if asked[0].purpose is Purpose.CALIBRATE:
                return
            answers, key = self._known(asked[0]), asked[0].config_key
            if len(answers) <= self._used_of[key]:
                return
            answer = answers[self._used_of[key]]
            self._used_of[key] += 1
            self.used += 1
            self.search.tell(asked[0], Verdict(answer, why="known from an earlier run"))
