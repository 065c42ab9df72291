"""Does the culprit fail alone? Asked before it is searched for what else it takes.

A search for a partner has no candidate for "nothing else": where the failure is flaky, one quiet trial of the culprit alone
would send it after an innocent one. So that state is first tried until its trials are clearly those of the good side or of
the bad side, as a sequential test of the two rates that were seen.
"""

import math
from collections.abc import Collection, Sequence

from aorta.core.outcome import Verdict
from aorta.core.point import Point, Purpose
from aorta.search import Search
from aorta.search.belief import Counts
from aorta.search.timeline import Timeline

_MOST = 60  # trials: rates so near to each other are not told apart by more


class AloneFirst:
    """`search` goes on only where its good end, the culprit alone, passes."""

    def __init__(
        self, search: Search, timeline: Timeline, good: Counts, bad: Counts, confidence: float
    ) -> None:
        self.search, self._timeline = search, timeline
        rates = _rate(good, 0.05), _rate(bad, 0.5)
        self._low, self._high = rates[0], max(rates[1], min(0.5, 2 * rates[0]))
        self._wanted = math.log(confidence / (1 - confidence))
        self._counts = (0, 0)
        self._told: set[int] = set()
        self._untestable = False

    @property
    def fails(self) -> bool | None:
        """None while it is open, or cannot be told."""
        hits, misses = self._counts
        odds = hits * math.log(self._high / self._low)
        odds += misses * math.log((1 - self._high) / (1 - self._low))
        if odds >= self._wanted:
            return True
        if odds <= -self._wanted or len(self._told) >= _MOST:
            return odds > 0
        return None

    @property
    def _is_open(self) -> bool:
        return self.fails is None and not self._untestable

    def ask(self, n: int, pending: Collection[Point] = ()) -> Sequence[Point]:
        if not self._is_open:
            return [] if self.fails else self.search.ask(n, pending)
        alone = self._timeline.good_end
        replicas = (
            self._timeline.point(alone, Purpose.CALIBRATE, number)
            for number in range(len(self._told) + n + len(pending))
        )
        fresh = [p for p in replicas if p not in pending and p.replica not in self._told]
        return fresh[: max(0, min(n, self._left - len(pending)))]

    @property
    def _left(self) -> int:
        """Quiet trials that would settle it."""
        hits, misses = self._counts
        each = -math.log((1 - self._high) / (1 - self._low))
        odds = hits * math.log(self._high / self._low) - misses * each
        return max(1, math.ceil((self._wanted + odds) / each))

    def tell(self, point: Point, verdict: Verdict) -> None:
        was_open = self._is_open
        self.search.tell(point, verdict)
        if not was_open:
            return
        self._told.add(point.replica)
        if verdict.reproduces is None:
            self._untestable = self._counts == (0, 0)
        else:
            hits, misses = self._counts
            hit = int(verdict.reproduces)
            self._counts = (hits + hit, misses + 1 - hit)

    def wants(self, point: Point) -> bool:
        return not self.done and (self._is_open or self.search.wants(point))

    @property
    def done(self) -> bool:
        return bool(self.fails) or (not self._is_open and self.search.done)

    @property
    def best(self) -> Point | None:
        return self.search.best


def _rate(counts: Counts, prior: float) -> float:
    """What was seen, with one trial of what is usual."""
    hits, misses = counts
    return min(0.99, max(0.001, (hits + prior) / (hits + misses + 1)))
