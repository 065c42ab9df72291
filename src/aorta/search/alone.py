"""Does the culprit fail alone? Asked before it is searched for what else it takes.

A search for a partner has no candidate for "nothing else": where the failure is flaky, one quiet
trial of the culprit alone would send it after an innocent one. So that state is first tried until
its trials are clearly those of the good side or of the bad side, as a sequential test of the two
rates that were seen.
"""

import math
from collections.abc import Collection, Sequence

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search import Search
from aorta.search.belief import Counts, log_beta
from aorta.search.timeline import Timeline

_MOST = 60  # trials: rates so near to each other are not told apart by more
_HARM = (
    5  # an innocent partner is a wrong answer, a trial more is not: how much surer "passes" must be
)
_GOOD_PRIOR, _BAD_PRIOR = (0.05, 1.0), (1.0, 1.0)


class AloneFirst:
    """`search` goes on only where its good end, the culprit alone, passes."""

    def __init__(
        self, search: Search, timeline: Timeline, good: Counts, bad: Counts, confidence: float
    ) -> None:
        self.search, self._timeline = search, timeline
        self._good, self._bad = good, bad
        self._fails_at = math.log(1 / (1 - confidence))
        self._passes_at = math.log(_HARM / (1 - confidence))
        self._counts = (0, 0)
        self._told: set[int] = set()
        self._untestable = False

    @property
    def fails(self) -> bool | None:
        """None while it is open, or cannot be told."""
        odds = self._odds(self._counts)
        if odds >= self._fails_at:
            return True
        if odds <= -self._passes_at or len(self._told) >= _MOST:
            return odds > 0
        return None

    def _odds(self, counts: Counts) -> float:
        """How much likelier such trials are on the bad side than on the good one."""
        return _predicted(counts, self._bad, _BAD_PRIOR) - _predicted(
            counts, self._good, _GOOD_PRIOR
        )

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
        more = 1
        while more < _MOST and self._odds((hits, misses + more)) > -self._passes_at:
            more += 1
        return more

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


def _predicted(counts: Counts, seen: Counts, prior: tuple[float, float]) -> float:
    """The logarithm of the probability of these trials, after those that were seen."""
    hits, misses = seen[0] + prior[0], seen[1] + prior[1]
    return log_beta(hits + counts[0], misses + counts[1]) - log_beta(hits, misses)
