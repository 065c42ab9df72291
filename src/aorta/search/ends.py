"""Whether there is a question at all: does the bad end fail, the good one not, and do the trials
between them fit one break?

Broken, repaired and broken again is reported when three boundaries explain the trials and one does
not; flaky trials look like that too, so both are weighed with failure rates integrated over.

Whether a culprit fails alone is asked of a good end, tried until its trials are clearly those of
one side: one quiet trial of a flaky failure would send the search after an innocent partner.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from aorta.core.stats import log_beta
from aorta.search.belief import ANY_RATE, Counts, Rates
from aorta.search.timeline import Timeline, Vector

TWICE = 2  # trials of a good end that always fails, before that is believed
UNSTEADY = 6  # trials of a good end that fails at all
SILENT = 16  # trials of a bad end that never fails, before that is believed
_SAME = math.log(20)  # how much likelier one common rate must be before the ends count as alike
_CLEARLY = math.log(50)
_MOST_ALONE = 60  # trials: rates so near to each other are not told apart by more
# An innocent partner is a wrong answer, a trial more is not: how much surer "passes" must be.
_HARM = 5


class EndsVerdict(StrEnum):
    OPEN = "open"
    DIFFER = "differ"
    BAD_DOES_NOT_FAIL = "bad does not fail"
    GOOD_FAILS_TOO = "good fails too"
    BAD_UNTESTABLE = "bad cannot be tested"
    GOOD_UNTESTABLE = "good cannot be tested"


@dataclass(frozen=True)
class SeenRates:
    """Hits and misses of both sides of an earlier search; a good end must be clearly like one."""

    good: Counts
    bad: Counts
    confidence: float

    def fails(self, counts: Counts) -> bool | None:
        """Whether such trials are of the bad side; None while that is open."""
        # How much likelier such trials are on the bad side than on the good one.
        odds = _predicted(counts, self.bad, (1.0, 1.0)) - _predicted(counts, self.good, (0.05, 1.0))
        if odds >= math.log(1 / (1 - self.confidence)):
            return True
        passes = odds <= -math.log(_HARM / (1 - self.confidence))
        return odds > 0 if passes or sum(counts) >= _MOST_ALONE else None

    def wanted(self, counts: Counts) -> int:
        """How many trials decide it if all further ones are quiet."""
        hits, misses = counts
        while self.fails((hits, misses)) is None:
            misses += 1
        return hits + misses


def _predicted(counts: Counts, seen: Counts, prior: tuple[float, float]) -> float:
    """The logarithm of the probability of these trials, after those that were seen."""
    hits, misses = seen[0] + prior[0], seen[1] + prior[1]
    return log_beta(hits + counts[0], misses + counts[1]) - log_beta(hits, misses)


class Ends:
    def __init__(
        self, timeline: Timeline, rates: Rates, runs: int = 1, alone: SeenRates | None = None
    ) -> None:
        """`runs`: trials of an end before states between; `alone`: the good end is a culprit."""
        self._runs, self._alone = runs, alone
        self._good, self._bad = timeline.good_end, timeline.bad_end
        self._rates = rates

    def verdict(
        self, trials: Mapping[Vector, Counts], untestable: Collection[Vector]
    ) -> EndsVerdict:
        if self._bad in untestable:
            return EndsVerdict.BAD_UNTESTABLE
        if self._good in untestable:
            return EndsVerdict.GOOD_UNTESTABLE
        bad, good = trials.get(self._bad, (0, 0)), trials.get(self._good, (0, 0))
        if bad[0] == 0 and bad[1] >= SILENT:
            return EndsVerdict.BAD_DOES_NOT_FAIL
        if self._alike(good, bad):
            return EndsVerdict.GOOD_FAILS_TOO
        decided = sum(bad) >= self._wanted_bad(bad) and sum(good) >= self._wanted_good(good)
        return EndsVerdict.DIFFER if decided else EndsVerdict.OPEN

    def are_alike(self, trials: Mapping[Vector, Counts]) -> bool:
        """Whether what is known by now says that both ends fail equally often."""
        return self._alike(trials.get(self._good, (0, 0)), trials.get(self._bad, (0, 0)))

    def wanted(
        self, trials: Mapping[Vector, Counts], waiting: Mapping[Vector, int]
    ) -> Vector | None:
        """The end that needs one more trial than it has or is having; the bad end first."""
        bad, good = trials.get(self._bad, (0, 0)), trials.get(self._good, (0, 0))
        if self._alike(good, bad):
            return None
        if sum(bad) + waiting.get(self._bad, 0) < self._wanted_bad(bad):
            return self._bad
        if bad[0] and sum(good) + waiting.get(self._good, 0) < self._wanted_good(good):
            return self._good
        return None

    def _wanted_bad(self, counts: Counts) -> int:
        hits, misses = counts
        return SILENT if misses and not hits else self._runs

    def _wanted_good(self, counts: Counts) -> int:
        if self._alone is not None:
            return self._alone.wanted(counts)
        return UNSTEADY if counts[0] else self._runs

    def _alike(self, good: Counts, bad: Counts) -> bool:
        if self._alone is not None:
            return self._alone.fails(good) is True
        if not good[0] or sum(good) < (TWICE if good[1] == 0 else UNSTEADY):
            return False
        same = ANY_RATE.log_marginal(good[0] + bad[0], good[1] + bad[1])
        apart = self._rates.good.log_marginal(*good) + self._rates.bad.log_marginal(*bad)
        return same - apart > _SAME


def repaired_among(counted: Sequence[Counts], rates: Rates) -> tuple[int, int] | None:
    """Of nested states: where it was broken, and where it was repaired before it broke again."""
    size = len(counted)
    hits = [0, *accumulate(hits for hits, _ in counted)]
    misses = [0, *accumulate(misses for _, misses in counted)]

    def likelihood(cut: tuple[int, int, int]) -> float:
        """Of broken, repaired and broken again at these places, rates integrated over."""
        broken, repaired, again = cut
        h0 = hits[broken] + hits[again] - hits[repaired]
        m0 = misses[broken] + misses[again] - misses[repaired]
        good = rates.good.log_marginal(h0, m0)
        return good + rates.bad.log_marginal(hits[-1] - h0, misses[-1] - m0)

    failed = [place for place, (some, _) in enumerate(counted) if some]
    passed = [place for place, (_, some) in enumerate(counted) if some]
    cuts = [
        (broken, repaired, again)
        for repaired in passed
        for broken in failed[: bisect_left(failed, repaired)]
        for again in failed[bisect_right(failed, repaired) :]
    ]
    if not cuts:
        return None
    best, once = max(cuts, key=likelihood), max(likelihood((n, size, size)) for n in range(size))
    if likelihood(best) - once <= _CLEARLY + 2 * math.log(size):
        return None
    return best[0], best[2] - 1
