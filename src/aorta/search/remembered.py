"""A search that is told at once what an earlier run already found out."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from aorta.core.outcome import Verdict
from aorta.core.point import Point
from aorta.search import Search

SearchT = TypeVar("SearchT", bound=Search)


class Remembered(Generic[SearchT]):
    """`known`: the answers to a point's configuration, in the order they were given. Each is used once."""

    def __init__(self, search: SearchT, known: Callable[[Point], Sequence[bool]]) -> None:
        self.search = search
        self.used = 0
        self._known = known
        self._used_of: Counter[str] = Counter()
        self._absorb()

    def ask(self, n: int, pending: Collection[Point] = ()) -> Sequence[Point]:
        return self.search.ask(n, pending)

    def tell(self, point: Point, verdict: Verdict) -> None:
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
        while asked := self.search.ask(1):
            answers, key = self._known(asked[0]), asked[0].config_key
            if len(answers) <= self._used_of[key]:
                return
            answer = answers[self._used_of[key]]
            self._used_of[key] += 1
            self.used += 1
            self.search.tell(asked[0], Verdict(answer, why="known from an earlier run"))
