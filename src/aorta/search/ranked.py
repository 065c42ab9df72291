"""A base for searches that can rank every useful question at any moment.

Such a search states its ideal list of questions from what it was told, and this base turns the list into the
contract: pending points are left out, and a pending point is still wanted while it stands on the list.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from aorta.core.axis import Point
from aorta.core.trial import Verdict

_SPECULATION_DEPTH = 64


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
        return point in self.ranked(_SPECULATION_DEPTH)
