"""Searches: which question is worth a trial next?

A search knows points and verdicts and nothing else: no process, no clock, no file. The engine asks
it for points, finds their verdicts in whatever way, and tells them back. Told the same verdicts in
the same order it asks the same questions, so one object is driven live, replayed from a journal, or
simulated in a benchmark with a fake oracle.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from aorta.core.axis import Point
from aorta.core.trial import Verdict


class Search(Protocol):
    """The ask/tell contract. `ask` and `wants` change nothing; only `tell` does."""

    def ask(self, n: int, pending: Collection[Point] = ()) -> Sequence[Point]:
        """Up to `n` further points worth judging now, most valuable first.

        `pending` are points already being judged: they are never returned again. With n > 1 a
        search may speculate, but its first point is one that it will certainly use.
        """

    def tell(self, point: Point, verdict: Verdict) -> None:
        """The verdict of a point. `verdict.reproduces is None`: it could not be told."""

    def wants(self, point: Point) -> bool:
        """Whether this pending point's verdict would still be used; else it is cancelled."""

    @property
    def done(self) -> bool:
        """True when no further verdict would change `best`."""

    @property
    def best(self) -> Point | None:
        """The best point known so far; None while there is none."""


__all__ = ["Search"]
