"""Back in doubling steps from a state that fails to one that does not, then bisection in between.

States carry a place on a line (a day). Each doubling of the failure's age is equally likely, and so
is one older than every state. Steps double until a state is more likely good than not; then the
bisection asks whatever says most, which may be an older state again.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search.belief import Belief, Counts, Prior
from aorta.search.bisection import Bisection, BisectionSettings, Question
from aorta.search.ends import SILENT, UNSTEADY
from aorta.search.timeline import History, Timeline, Vector

_LIKELY_GOOD = 0.5
# Trials of the newest state: how often it fails says how much silence means on the way back.
_NEWEST_RUNS = 4
_BEFORE_ALL = "before all"


class GallopVerdict(StrEnum):
    OPEN = "open"
    BRACKETED = "bracketed"
    DOES_NOT_FAIL = "the newest does not fail"
    NEVER_GOOD = "none does not fail"
    UNTESTABLE = "the newest cannot be tested"


class GallopBack(Bisection):
    """`names` oldest first, `places` of each on the line; `first` is the place tried first, by
    default the one before the newest. `known_bad`, `known_good`: the newest state, and the one
    tried first, are taken as such without a trial.
    """

    def __init__(
        self,
        axis: str,
        names: Sequence[str],
        places: Sequence[float],
        *,
        first: float | None = None,
        settings: BisectionSettings | None = None,
        known_bad: bool = False,
        known_good: bool = False,
    ) -> None:
        self.names, self.places = tuple(names), tuple(places)
        self._first = places[-1] if first is None else first  # nothing but older ones are tried
        self._walking = True
        given = settings or BisectionSettings()
        further = given.confirmations
        self._newest_runs = _NEWEST_RUNS if further is None else 1 + further
        history = History(axis, (_BEFORE_ALL, *names), (places[0] - 1, *places))
        over_all = replace(
            given, check_ends=False, beyond=True, prior=_by_age(self.places, self._first)
        )
        super().__init__(Timeline([history]), over_all)
        if known_bad:
            self.assume({(len(names),): (_NEWEST_RUNS, 0)})
        if known_good and (start := self._at_or_before(self._first, self._newest)) is not None:
            self.assume({(start + 1,): (0, UNSTEADY)})
        self._look_whether_bracketed()

    @property
    def bisection(self) -> Bisection | None:
        """The search between a good and a bad state, once there is a good one."""
        answer = None if self._walking else self.answer
        return self if answer is not None and any(answer.good) else None

    @property
    def verdict(self) -> GallopVerdict:
        hits, misses = self._runs(self._newest)
        if self._is_untestable(self._newest):
            return GallopVerdict.UNTESTABLE
        if not hits and misses >= SILENT:
            return GallopVerdict.DOES_NOT_FAIL
        if self._walking:
            ended = self._newest_lacks <= 0 and next(self._open_targets(), None) is None
            return GallopVerdict.NEVER_GOOD if ended else GallopVerdict.OPEN
        if self.done and self.bisection is None:
            return GallopVerdict.NEVER_GOOD
        return GallopVerdict.BRACKETED

    def tell(self, point: Point, verdict: Verdict) -> None:
        super().tell(point, verdict)
        self._look_whether_bracketed()

    def wants(self, point: Point) -> bool:
        return self._walking or super().wants(point)

    def _find_question(self, waiting: Counter[Vector]) -> Question | None:
        if not self._walking:
            return super()._find_question(waiting)
        index = self._next_step(waiting) if self.verdict is GallopVerdict.OPEN else None
        if index is None:
            return None
        return (index + 1,), Purpose.CALIBRATE if index == self._newest else Purpose.PROBE

    # -- the way back; a state is named by its place among the names

    @property
    def _newest(self) -> int:
        return len(self.names) - 1

    @property
    def _newest_lacks(self) -> int:
        """Trials of the newest state before the way back begins."""
        hits, misses = self._runs(self._newest)
        return (SILENT if misses and not hits else self._newest_runs) - hits - misses

    def _next_step(self, waiting: Counter[Vector]) -> int | None:
        newest, lacks = self._newest, self._newest_lacks
        if lacks > 0:
            return newest if waiting[(newest + 1,)] < lacks else None
        targets = self._open_targets()
        return next((i for i in targets if waiting[(i + 1,)] < self._silence_wanted(i)), None)

    def _open_targets(self) -> Iterator[int]:
        """The states of the way back that may still turn out good, nearest first."""
        for index in self._way_back():
            if not self._is_untestable(index) and not self._runs(index)[0]:
                yield index

    def _way_back(self) -> Iterator[int]:
        """1, 2, 4 ... days back, each moved to a state that exists and that can be tested."""
        newest, target, before = self.places[-1], self._first, self._newest
        while (index := self._at_or_before(target, before)) is not None:
            yield index
            before = index
            if not self._is_untestable(index):
                target = newest - 2 * (newest - self.places[index])

    def _at_or_before(self, target: float, before: int) -> int | None:
        """The state nearest to `target` among those older than `before`."""
        older = range(before)
        return min(older, key=lambda i: (abs(self.places[i] - target), -i)) if older else None

    def _silence_wanted(self, index: int) -> int:
        """How many more clean trials, one at least, make this state more likely good than not."""
        more = 0 if self._runs(index)[1] else 1
        while more < SILENT and not self._likely_good(index, more):
            more += 1
        return more

    def _likely_good(self, index: int, further_misses: int = 0) -> bool:
        hits, misses = self._runs(index)
        trials = {**self.trials, (index + 1,): (hits, misses + further_misses)}
        prior = self.settings.prior
        belief = Belief.after(self.prior_rates, self.timeline, trials, prior=prior)
        newer = (1 << self.timeline.changes) - (1 << index + 1)
        return belief.mass(newer) >= _LIKELY_GOOD

    def _look_whether_bracketed(self) -> None:
        if not self._walking or self._newest_lacks > 0 or not self._runs(self._newest)[0]:
            return
        target = next(self._open_targets(), None)
        if target is not None and self._runs(target)[1] and self._likely_good(target):
            self._walking = False
            self._next = []

    def _runs(self, index: int) -> Counts:
        return self.trials.get((index + 1,), (0, 0))

    def _is_untestable(self, index: int) -> bool:
        vector = (index + 1,)
        return vector in self.untestable or self.is_exhausted(vector)


def _by_age(places: Sequence[float], first: float) -> Prior:
    """Each doubling of the age weighs the same, dealt out among its changes."""
    unit = max(places[-1] - first, 1.0)
    masks: dict[int, int] = {}
    for candidate, place in enumerate(places[1:], 1):
        age = places[-1] - place
        doubling = max(0, math.floor(math.log2(age / unit)) + 1) if age > 0 else 0
        masks[doubling] = masks.get(doubling, 0) | 1 << candidate
    return [(1, 1.0), *((mask, 1.0 / mask.bit_count()) for mask in masks.values())]
