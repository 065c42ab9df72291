"""Bisection of a timeline whose trials may lie.

Both ends are run first until their failure rates are roughly known. While no trial contradicts a sharp boundary the
open interval is halved, which needs the fewest builds; as soon as the failure shows itself to be flaky, each next
trial is the one expected to say most about where the change is. It stops when one candidate holds the wanted
probability and both of its sides have been seen. States that cannot be built or tested are gone around; what they
hide is told as one group, after other orders of the same changes have been tried.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise

from aorta.core.outcome import Verdict
from aorta.core.point import Point, Purpose
from aorta.search.belief import EVERY_CHANGE_ALIKE, Belief, Counts, Prior, Rates
from aorta.search.contradiction import fixed_in_between
from aorta.search.ends import SILENT, UNSTEADY, Ends, EndsVerdict
from aorta.search.interval import Interval, Rotation, likeliest_group, shortest_interval
from aorta.search.rates import BAD_RATE, GOOD_RATE
from aorta.search.testable import Testability
from aorta.search.timeline import Timeline, Vector

_WORTHLESS = 1e-4  # nats: a trial that says less than this is not run
_NEARLY = 0.995  # of the information of the best state, from one that needs no build
_PLAIN = math.log(8)  # how clear a state beside the answer must be before it is left alone
_SIDE_RUNS = 2  # trials wanted on each side of a boundary that looks sharp
_ASTRAY = 3  # trials of a state with evidence that told nothing, and outnumber it, before it is asked no more


USUAL_RATES = Rates(GOOD_RATE, BAD_RATE)


@dataclass(frozen=True)
class Settings:
    """`sentinels`: trials inside the side that should fail, and one in the other, once the answer stands.
    `silent`: trials of a bad end that never fails, before that is believed. `close_enough` may end the search before one
    candidate is left. `prior`: which changes are likelier from the start. `beyond`: the first state stands for
    everything before the others and cannot be run; that the change is older than all of them is then one candidate.
    """

    confidence: float = 0.95
    rates: Rates = USUAL_RATES
    check_ends: bool = True
    sentinels: int = 0
    silent: int = SILENT
    close_enough: Callable[[Interval], bool] | None = None
    prior: Prior = EVERY_CHANGE_ALIKE
    beyond: bool = False


class TimelineBisection:
    """The search. `answer` is the interval known so far; `fixed_before` tells of an older break that was repaired."""

    def __init__(self, timeline: Timeline, settings: Settings | None = None) -> None:
        self.timeline, self.settings = timeline, settings or Settings()
        self.trials: dict[Vector, Counts] = {}
        self.fixed_before: list[Interval] = []
        self._floor = 0
        self._told: set[Point] = set()
        self._sentinels: set[Vector] = set()
        self._testability = Testability()
        self._astray: Counter[Vector] = Counter()
        self._ends = Ends(timeline, self.settings.rates, self.settings.silent)
        self._rotation = Rotation()
        self._ends_verdict: EndsVerdict = EndsVerdict.OPEN
        if not self.settings.check_ends:
            self._ends_verdict = EndsVerdict.DIFFER
        if not self.settings.check_ends and not self.settings.beyond:
            self.trials[timeline.state(0)] = (0, 1)
            self.trials[timeline.state(timeline.changes)] = (1, 0)
        self._believe()

    # -- the contract ---------------------------------------------------------------------------------------------

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        waiting = Counter(self.timeline.vector(point) for point in pending)
        taken = {*self._told, *pending}
        asked: list[Point] = []
        while len(asked) < n and (question := self._question(waiting)):
            vector, purpose = question
            waiting[vector] += 1
            point = self._fresh(vector, purpose, taken)
            taken.add(point)
            asked.append(point)
        return asked

    def tell(self, point: Point, verdict: Verdict) -> None:
        if point in self._told:
            return
        self._told.add(point)
        vector = self.timeline.vector(point)
        if verdict.reproduces is None:
            self._could_not_tell(vector)
        else:
            if vector not in self.trials:
                self._testability.learn(self.timeline, vector, ran=True)
                if point.purpose is Purpose.REPLAY:
                    self._sentinels.add(vector)
            hits, misses = self.trials.get(vector, (0, 0))
            hit = int(verdict.reproduces)
            self.trials[vector] = (hits + hit, misses + 1 - hit)
        self._believe()

    def assume(self, vector: Vector, counts: Counts) -> None:
        """Trials of a state that were made elsewhere, before this search began."""
        self.trials[vector] = counts
        self._ends_verdict = EndsVerdict.OPEN if self.settings.check_ends else EndsVerdict.DIFFER
        self._believe()

    def remember(self, point: Point, verdict: Verdict) -> None:
        """A question that was asked elsewhere: never to be asked again. Its answer is in what is assumed."""
        self._told.add(point)
        vector = self.timeline.vector(point)
        if verdict.reproduces is None and vector not in self.trials:
            self._could_not_tell(vector)
            self._believe()

    def wants(self, point: Point) -> bool:
        if self.done:
            return False
        position = self.timeline.position(self.timeline.vector(point))
        if position is None or not self._ends_known or point.purpose is not Purpose.PROBE:
            return True
        window = self._sharp_window()
        return window is None or window[0] <= position <= window[1]

    @property
    def done(self) -> bool:
        return self._question(Counter()) is None

    @property
    def best(self) -> Point | None:
        answer = self.answer
        return self.timeline.point(answer.bad, Purpose.PROBE, 0) if answer else None

    # -- what is known --------------------------------------------------------------------------------------------

    @property
    def ends(self) -> EndsVerdict:
        return self._ends_verdict

    @property
    def answer(self) -> Interval | None:
        """The likeliest group of candidates, or the shortest interval that holds the wanted probability."""
        if not self._ends_known:
            return None
        group = self._group
        return group if group.mass >= self.settings.confidence else self._shortest()

    @property
    def is_sure(self) -> bool:
        """Whether one candidate, or one group that nothing can split, holds the wanted probability."""
        return self._ends_known and self._group.mass >= self.settings.confidence

    @property
    def belief(self) -> Belief:
        """Where the change is thought to be now."""
        return self._belief

    @property
    def rates(self) -> tuple[float, float]:
        return self._belief.expected_rates()

    @property
    def untestable(self) -> frozenset[Vector]:
        return frozenset(self._testability.untestable)

    def is_exhausted(self, vector: Vector) -> bool:
        """A state that could be tested once, and then no more; or what lies beyond all states."""
        if self.settings.beyond and not any(vector):
            return True
        astray = self._astray[vector]
        return astray >= _ASTRAY and astray > sum(self.trials.get(vector, (0, 0)))

    @property
    def states_tried(self) -> int:
        """Distinct states that were built: what a bisection costs where building is what takes the time."""
        return len(self.untestable | self.trials.keys())

    def expected_questions(self) -> int:
        """About how many more trials: exact halving where nothing is flaky, by information otherwise."""
        if self.done:
            return 0
        window = self._sharp_window()
        if window:
            return max(0, window[1] - window[0] - 1).bit_length() + _SIDE_RUNS
        gain = max(self._belief.gain(self._belief.best_position()), _WORTHLESS)
        return max(1, round(self._belief.entropy() / gain))

    # -- choosing the next question -------------------------------------------------------------------------------

    @property
    def _ends_known(self) -> bool:
        return self.ends is EndsVerdict.DIFFER

    def _question(self, waiting: Counter[Vector]) -> tuple[Vector, Purpose] | None:
        if self.ends is EndsVerdict.OPEN:
            end = self._ends.wanted(self.trials, waiting)
            return (end, Purpose.CALIBRATE) if end else None
        if not self._ends_known:
            return None
        group = self._group
        if group.mass < self.settings.confidence:
            if self.settings.close_enough and self.settings.close_enough(self._shortest()):
                return None
            position = self._next_position(waiting)
            return None if position is None else (self.timeline.state(position), Purpose.PROBE)
        return self._confirmation(group, waiting)

    def _next_position(self, waiting: Counter[Vector]) -> int | None:
        window = self._sharp_window()
        pending = sorted(
            position
            for vector, count in waiting.items()
            for position in [self.timeline.position(vector)] * count
            if position is not None
        )
        if window is None:
            return self._most_telling(pending)
        halved = self._halving(window, pending)
        return halved if halved is not None else self._surer_side(window, pending)

    def _halving(self, window: tuple[int, int], pending: list[int]) -> int | None:
        """The middle of the widest open gap, or the most promising state near it if that cannot be built."""
        marks = [
            window[0],
            *(p for p in dict.fromkeys(pending) if window[0] < p < window[1]),
            window[1],
        ]
        gaps = sorted(pairwise(marks), key=lambda gap: gap[0] - gap[1])
        for low, high in gaps:
            middle = (low + high) // 2
            if high - low > 1 and self._chance(middle) == 1.0:
                return middle
            promising = [
                ((p - low) * (high - p) * self._chance(p), -p) for p in range(low + 1, high)
            ]
            score, place = max(promising, default=(0.0, 0))
            if score > 0:
                return -place
        return None

    def _surer_side(self, window: tuple[int, int], pending: list[int]) -> int | None:
        """The boundary is sharp so far: its two sides are built, and only their rates are in question."""
        belief = self._supposing(pending)
        sides = [side for side in window if not self.is_exhausted(self.timeline.state(side))]
        return max(sides, key=belief.gain, default=None)

    def _supposing(self, pending: list[int]) -> Belief:
        belief = self._belief
        for position in pending:
            belief = belief.supposing(position)
        return belief

    def _most_telling(self, pending: list[int]) -> int | None:
        belief = self._supposing(pending)
        best = self._built_instead(belief, belief.best_position())
        if self._answers(best) < 1.0:
            best = max(
                belief.plausible_positions(), key=lambda p: belief.gain(p) * self._answers(p)
            )
        if belief.gain(best) * self._answers(best) < _WORTHLESS:
            return None
        return best

    def _answers(self, position: int) -> float:
        """The chance that a trial of this state tells anything."""
        return 0.0 if self.is_exhausted(self.timeline.state(position)) else self._chance(position)

    def _built_instead(self, belief: Belief, best: int) -> int:
        """A state that is built already, where its trial says nearly as much as one that must be built first."""
        built = [p for vector in self.trials if (p := self.timeline.position(vector)) is not None]
        nearly = max(built, key=belief.gain)
        return nearly if belief.gain(nearly) >= _NEARLY * belief.gain(best) else best

    def _chance(self, position: int) -> float:
        vector = self.timeline.state(position)
        return 1.0 if vector in self.trials else self._testability.chance(self.timeline, vector)

    def _confirmation(
        self, group: Interval, waiting: Counter[Vector]
    ) -> tuple[Vector, Purpose] | None:
        runs = _SIDE_RUNS if self._sharp_window() else 1
        for vector in (group.bad, group.good):
            if (
                not self.is_exhausted(vector)
                and sum(self.trials.get(vector, (0, 0))) + waiting[vector] < runs
            ):
                return vector, Purpose.CONFIRM
        for position in self._sentinel_positions(group):
            vector = self.timeline.state(position)
            plain = self._is_plain(position, fails=position >= group.stop)
            if waiting[vector] == 0 and not plain and not self.is_exhausted(vector):
                return vector, Purpose.REPLAY
        return None

    def _is_plain(self, position: int, *, fails: bool) -> bool:
        """Whether the trials of a state already say clearly enough that it is as it should be, or that it is not."""
        hits, misses = self.trials.get(self.timeline.state(position), (0, 0))
        good, bad = self.rates
        weight = hits * math.log(bad / good) + misses * math.log((1 - bad) / (1 - good))
        return hits + misses >= UNSTEADY or (weight > _PLAIN if fails else weight < -_PLAIN)

    def _splits(self, position: int) -> bool:
        """Whether a trial at this state could still tell its two neighbours apart, or has done so."""
        return self._chance(position) > 0

    def _shortest(self) -> Interval:
        return shortest_interval(self.timeline, self._belief, self.settings.confidence)

    # -- bookkeeping ----------------------------------------------------------------------------------------------

    def _fresh(self, vector: Vector, purpose: Purpose, taken: Collection[Point]) -> Point:
        replica = 0
        while (point := self.timeline.point(vector, purpose, replica)) in taken:
            replica += 1
        return point

    def _could_not_tell(self, vector: Vector) -> None:
        """A state with evidence stays testable: one trial of it went astray. It is not asked for ever."""
        if vector in self.trials:
            self._astray[vector] += 1
        else:
            self._testability.learn(self.timeline, vector, ran=False)

    def _believe(self) -> None:
        if self._ends_verdict is EndsVerdict.OPEN:
            exhausted = {vector for vector in self._astray if self.is_exhausted(vector)}
            self._ends_verdict = self._ends.verdict(self.trials, self.untestable | exhausted)
        self._belief = self._belief_now()
        if not self._ends_known:
            return
        if fixed := fixed_in_between(self.timeline, self.trials, self._floor, self.settings.rates):
            self.fixed_before.append(Interval(self.timeline, fixed.broken, fixed.repaired, 1.0))
            self._floor = fixed.repaired
            self._belief = self._belief_now()
        while (group := self._stuck_group()) and (order := self._rotation.next_order(group)):
            self.timeline = self.timeline.reordered(group.start, group.stop, order)
            self._belief = self._belief_now()

    def _belief_now(self) -> Belief:
        self._counted = {
            vector: counts
            for vector, counts in self.trials.items()
            if self._floor == 0
            or not any(vector)
            or (self.timeline.position(vector) or 0) >= self._floor
        }
        belief = Belief.after(
            self.settings.rates, self.timeline, self._counted, self._floor, self.settings.prior
        )
        self._group = likeliest_group(
            self.timeline, belief, self._splits if self.untestable else None
        )
        return belief

    def _stuck_group(self) -> Interval | None:
        """A group that holds the answer, spans packages, and that no question on this path can split."""
        group = self._group
        sure = group.mass >= self.settings.confidence
        return group if sure and len(group.packages) > 1 else None

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
        """The middles of the widest untried stretches: inside the bad side, and one inside the good side."""
        sought = self.trials.keys() - self._sentinels
        tried = {p for v in sought if (p := self.timeline.position(v)) is not None}
        chosen: list[int] = []
        sides = [(group.stop, self.timeline.changes)] * self.settings.sentinels
        for low, high in [*sides, *[(self._floor, group.start)] * bool(sides)]:
            known = sorted({low, high, *chosen, *(p for p in tried if low < p < high)})
            wide = max(pairwise(known), key=lambda g: g[1] - g[0], default=None)
            if wide and wide[1] - wide[0] > 1 and self._chance(sum(wide) // 2):
                chosen.append(sum(wide) // 2)
        return chosen
