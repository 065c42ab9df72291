"""Bisection of a timeline whose trials may lie.

Both ends are run first until their failure rates are roughly known. While no trial contradicts a
sharp boundary the open interval is halved, which needs the fewest builds; as soon as the failure
shows itself to be flaky, each next trial is the one expected to say most about where the change is.
It stops when one candidate holds the wanted probability and both of its sides have been seen.
States that cannot be built or tested are gone around; what they hide is told as one group, after
other orders of the same changes have been tried.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from aorta.core.axis import Point, Purpose
from aorta.search.belief import EVERY_CHANGE_ALIKE, Belief, Prior
from aorta.search.bisecting import (
    SIDE_RUNS,
    USUAL_RATES,
    WORTHLESS,
    Bisection,
    BisectionSettings,
    Question,
)
from aorta.search.contradiction import fixed_in_between
from aorta.search.ends import EndsVerdict
from aorta.search.interval import Interval, Rotation, likeliest_group, shortest_interval
from aorta.search.timeline import Timeline, Vector

__all__ = ["USUAL_RATES", "BisectionSettings", "TimelineBisection"]

_NEARLY = 0.995  # of the information of the best state, from one that needs no build


class TimelineBisection(Bisection):
    """The search. `answer` is the interval known so far; `fixed_before` tells of an older break
    that was repaired.
    """

    def __init__(self, timeline: Timeline, settings: BisectionSettings | None = None) -> None:
        super().__init__(timeline, settings)
        self._floor = 0
        self._rotation = Rotation()
        self._believe()

    def wants(self, point: Point) -> bool:
        if self.done:
            return False
        position = self.timeline.position(self.timeline.vector(point))
        if position is None or not self._ends_known or point.purpose is not Purpose.PROBE:
            return True
        window = self._sharp_window()
        return window is None or window[0] <= position <= window[1]

    # -- what is known

    @property
    def answer(self) -> Interval | None:
        """The likeliest group of candidates, or the shortest interval that holds the wanted
        probability.
        """
        if not self._ends_known:
            return None
        if window := self._unconfirmed or self._close_window:
            return Interval(self.timeline, *window, self._belief.mass(*window))
        return self._group if self.is_sure else self._shortest()

    @property
    def is_sure(self) -> bool:
        """Whether one candidate, or one group that nothing can split, holds the wanted
        probability.
        """
        window = self._unconfirmed
        closed = window is not None and window[1] - window[0] == 1
        return self._ends_known and (closed or self._group.mass >= self._wanted)

    @property
    def _unconfirmed(self) -> tuple[int, int] | None:
        """The boundary where it is taken as it was seen, without further trials of its sides."""
        return None if self.settings.confirm else self._sharp_window()

    def atoms(self) -> Sequence[tuple[int, int, float]]:
        return list(self._belief.atoms())

    @property
    def rates(self) -> tuple[float, float]:
        return self._belief.expected_rates()

    def expected_questions(self) -> int:
        """About how many more trials: exact halving where nothing is flaky, by information
        otherwise.
        """
        if self.done:
            return 0
        window = self._sharp_window()
        if window:
            return max(0, window[1] - window[0] - 1).bit_length() + SIDE_RUNS
        gain = max(self._belief.gain(self._belief.best_position), WORTHLESS)
        return min(self._trials_left, max(1, round(self._belief.entropy() / gain)))

    # -- choosing the next question

    def _question(self, waiting: Counter[Vector]) -> Question | None:
        if self.ends is EndsVerdict.OPEN:
            return self._wanted_end(waiting)
        if not self._ends_known:
            return None
        if self._is_spent or self._is_close_enough:
            return None
        stand_in = self._in_place_of_the_bad_end(lambda: self.timeline.every_state()[-2::-1])
        if stand_in is not None and not waiting[stand_in] and self._is_open(stand_in):
            return stand_in, Purpose.PROBE
        if self._group.mass < self._wanted:
            position, purpose = self._next_position(waiting)
            return None if position is None else (self.timeline.state(position), purpose)
        return self._confirmation(self._group, waiting) if self.settings.confirm else None

    def _is_open(self, vector: Vector) -> bool:
        window, position = self._sharp_window(), self.timeline.position(vector)
        return window is None or position is None or position in range(window[0] + 1, window[1])

    @property
    def _is_close_enough(self) -> bool:
        return self._close_window is not None or (
            self.settings.close_enough is not None and self.settings.close_enough(self._shortest())
        )

    @property
    def _close_window(self) -> tuple[int, int] | None:
        """The last state that passed and the first that failed, where they are near enough to each
        other.
        """
        close_enough, window = self.settings.close_enough, self._sharp_window()
        if close_enough is None or window is None:
            return None
        return window if close_enough(Interval(self.timeline, *window, 1.0)) else None

    def _next_position(self, waiting: Counter[Vector]) -> tuple[int | None, Purpose]:
        window = self._sharp_window()
        pending = sorted(
            position
            for vector, count in waiting.items()
            for position in [self.timeline.position(vector)] * count
            if position is not None
        )
        if window is None:
            return self._most_telling(pending), Purpose.PROBE
        halved = self._halving(window, pending)
        if halved is not None:
            return halved, Purpose.PROBE
        sides = self._surer_side(window, pending) if self.settings.confirm else None
        return sides, Purpose.CONFIRM

    def _halving(self, window: tuple[int, int], pending: list[int]) -> int | None:
        """The middle of the widest open gap, or the most promising state near it if that cannot be
        built.
        """
        marks = sorted({*window, *(p for p in pending if p in range(*window))})
        weight = self.timeline.weight_before
        gaps = sorted(pairwise(marks), key=lambda gap: weight[gap[0]] - weight[gap[1]])
        for low, high in gaps:
            inside = range(low + 1, high)
            if inside and self._chance(middle := self._middle(low, high)) == 1.0:
                return middle
            promising = [
                ((weight[p] - weight[low]) * (weight[high] - weight[p]) * self._chance(p), -p)
                for p in inside
                if self._chance(p)
            ]
            if promising:
                return -max(promising)[1]
        return None

    def _middle(self, low: int, high: int) -> int:
        """The state that halves what lies between two others: each change counts as the commits it
        brings.
        """
        weight = self.timeline.weight_before
        at = bisect_left(weight, (weight[low] + weight[high]) / 2, low + 1, high - 1)
        before = at - 1
        if before > low and weight[high] - weight[before] <= weight[at] - weight[low]:
            return before
        return at

    def _surer_side(self, window: tuple[int, int], pending: list[int]) -> int | None:
        """The boundary is sharp so far: its two sides are built, and only their rates are in
        question.
        """
        sides = [side for side in window if not self.is_exhausted(self.timeline.state(side))]
        if window[1] in sides and not self._fails_firmly(
            Counter(self.timeline.state(p) for p in pending)
        ):
            return window[1]
        belief = self._supposing(pending)
        return max(sides, key=belief.gain, default=None)

    def _supposing(self, pending: list[int]) -> Belief:
        belief = self._belief
        for position in pending:
            belief = belief.supposing(position)
        return belief

    def _most_telling(self, pending: list[int]) -> int | None:
        belief = self._supposing(pending)
        best = self._built_instead(belief, belief.best_position)
        if self._answers(best) < 1.0:
            best = max(
                belief.plausible_positions(), key=lambda p: belief.gain(p) * self._answers(p)
            )
        if belief.gain(best) * self._answers(best) < WORTHLESS:
            return None
        return best

    def _answers(self, position: int) -> float:
        """The chance that a trial of this state tells anything."""
        return 0.0 if self.is_exhausted(self.timeline.state(position)) else self._chance(position)

    def _built_instead(self, belief: Belief, best: int) -> int:
        """A state that is built already, where its trial says nearly as much as one that must be
        built first.
        """
        built = [p for vector in self.trials if (p := self.timeline.position(vector)) is not None]
        nearly = max(built, key=belief.gain)
        return nearly if belief.gain(nearly) >= _NEARLY * belief.gain(best) else best

    def _chance(self, position: int) -> float:
        return self._chance_of(self.timeline.state(position))

    def _confirmation(self, group: Interval, waiting: Counter[Vector]) -> Question | None:
        runs = SIDE_RUNS if self._sharp_window() else 1
        for vector in (group.bad, group.good):
            if (
                not self.is_exhausted(vector)
                and sum(self.trials.get(vector, (0, 0))) + waiting[vector] < runs
            ):
                return vector, Purpose.CONFIRM
        if self._sharp_window() and not self.settings.steady_sentinels:
            return None
        places = self._sentinel_positions(group)
        return self._elsewhere(((self.timeline.state(p), p >= group.stop) for p in places), waiting)

    def _splits(self, position: int) -> bool:
        """Whether a trial at this state could still tell its two neighbours apart, or has done
        so.
        """
        return self._chance(position) > 0

    def _shortest(self) -> Interval:
        return shortest_interval(self.timeline, self._belief, self.settings.confidence)

    # -- bookkeeping

    def _believe(self) -> None:
        self._belief = self._belief_now()
        if not self._ends_known:
            return
        if fixed := fixed_in_between(self.timeline, self.trials, self._floor, self.prior_rates):
            sides = self.timeline.state(fixed.broken), self.timeline.state(fixed.repaired)
            self.fixed_before.append(sides)
            self._floor = fixed.repaired
            self._belief = self._belief_now()
        while (group := self._stuck_group()) and (order := self._rotation.next_order(group)):
            self.timeline = self.timeline.reordered(group.start, group.stop, order)
            self._belief = self._belief_now()

    def _belief_now(self) -> Belief:
        self._counted = {
            vector: counts
            for vector, counts in self.trials.items()
            if not any(vector) or (self.timeline.position(vector) or 0) >= self._floor
        }
        belief = Belief.after(
            self.prior_rates, self.timeline, self._counted, self._floor, self._prior
        )
        self._group = likeliest_group(
            self.timeline, belief, self._splits if self.untestable else None
        )
        return belief

    @property
    def _prior(self) -> Prior:
        given = self.settings.prior
        return self.timeline.prior if given is EVERY_CHANGE_ALIKE else given

    def _stuck_group(self) -> Interval | None:
        """A group that holds the answer, spans packages, and that no question on this path can
        split.
        """
        group = self._group
        sure = group.mass >= self._wanted
        return group if sure and len(group.packages) > 1 else None

    @property
    def _contradicted(self) -> bool:
        return self._sharp_window() is None

    def _sharp_window(self) -> tuple[int, int] | None:
        """(last good, first bad) on this path while every trial agrees with one sharp boundary."""
        low, high = self._floor, self.timeline.changes
        for vector, (hits, misses) in self._counted.items():
            if hits and misses:
                return None
            if hits:
                high = min(high, self.timeline.first_with(vector))
            else:
                low = max(low, self.timeline.last_within(vector))
        return (low, high) if low < high else None

    def _sentinel_positions(self, group: Interval) -> list[int]:
        """The middles of the widest untried stretches: inside the bad side, and one inside the good
        side.
        """
        sought = self.trials.keys() - self._sentinels
        tried = {p for v in sought if (p := self.timeline.position(v)) is not None}
        chosen: list[int] = []
        sides = [(group.stop, self.timeline.changes)] * self.settings.sentinels
        for low, high in [*sides, *[(self._floor, group.start)] * bool(sides)]:
            known = sorted({low, high, *(p for p in {*tried, *chosen} if low < p < high)})
            wide = max(pairwise(known), key=lambda g: g[1] - g[0], default=None)
            if wide and wide[1] - wide[0] > 1 and self._chance(sum(wide) // 2):
                chosen.append(sum(wide) // 2)
        return chosen
