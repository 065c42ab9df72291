"""The two ends of a timeline: does the bad one fail, does the good one not, and how often?

A few trials say whether there is a question at all. They need not say how often an end fails: every
later trial is evidence of the rates as well, and where more of it is wanted from an end, the belief
asks for it.
"""

import math
from collections.abc import Collection, Mapping
from enum import StrEnum

from aorta.search.belief import ANY_RATE, Counts, Rates
from aorta.search.timeline import Timeline, Vector

TWICE = 2  # trials of a good end that always fails, before that is believed
UNSTEADY = 6  # trials of a good end that fails at all
SILENT = 16  # trials of a bad end that never fails, before that is believed
_SAME = math.log(20)  # how much likelier one common rate must be before the ends count as alike


class EndsVerdict(StrEnum):
    OPEN = "open"
    DIFFER = "differ"
    BAD_DOES_NOT_FAIL = "bad does not fail"
    GOOD_FAILS_TOO = "good fails too"
    BAD_UNTESTABLE = "bad cannot be tested"
    GOOD_UNTESTABLE = "good cannot be tested"


class Ends:
    def __init__(
        self, timeline: Timeline, rates: Rates, silent: int = SILENT, runs: int = 1
    ) -> None:
        """`runs`: trials of an end before the states between are looked at."""
        self._silent, self._runs = silent, runs
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
        if bad[0] == 0 and bad[1] >= self._silent:
            return EndsVerdict.BAD_DOES_NOT_FAIL
        if self._alike(good, bad):
            return EndsVerdict.GOOD_FAILS_TOO
        settled = sum(bad) >= self._wanted_bad(bad) and sum(good) >= self._wanted_good(good)
        return EndsVerdict.DIFFER if settled else EndsVerdict.OPEN

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
        return self._silent if misses and not hits else self._runs

    def _wanted_good(self, counts: Counts) -> int:
        return UNSTEADY if counts[0] else self._runs

    def _alike(self, good: Counts, bad: Counts) -> bool:
        if not good[0] or sum(good) < (TWICE if good[1] == 0 else UNSTEADY):
            return False
        same = ANY_RATE.log_marginal(good[0] + bad[0], good[1] + bad[1])
        apart = self._rates.good.log_marginal(*good) + self._rates.bad.log_marginal(*bad)
        return same - apart > _SAME
