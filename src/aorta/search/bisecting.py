"""What every bisection does, whatever its states look like: ask, be told, count, and know its two
ends.

How the next question is chosen is a subclass's own: along a merged timeline of packages
(`bisection`), or over the commits of a history with merges (`graph_bisection`).
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search.belief import EVERY_CHANGE_ALIKE, Counts, MixedRates, Prior, Rates
from aorta.search.ends import SILENT, UNSTEADY, Ends, EndsVerdict
from aorta.search.interval import Candidates, Interval
from aorta.search.rates import (
    BAD_RATE,
    FLAKY,
    GOOD_RATE,
    NOISY_BAD,
    NOISY_GOOD,
    NOISY_SHARE,
    NOISY_SHARE_WITH_MERGES,
    QUIET,
    STEADY,
)
from aorta.search.testable import Testability
from aorta.search.timeline import Timeline, Vector

WORTHLESS = 1e-4  # nats: a trial that says less than this is not run
# failures, before silence elsewhere says much: how often the bad side fails must be known first
FIRMLY = 3
SIDE_RUNS = 2  # trials wanted on each side of a boundary that looks sharp
# trials of a state with evidence that told nothing, and outnumber it, before it is asked no more
_ASTRAY = 3
_PLAIN = math.log(8)  # how clear a state beside the answer must be before it is left alone
_ONCE_FLAKY_DOUBT = 0.7  # of the doubt that is allowed, where the answer is checked
# of a search, for each halving of its changes and two more: what they did not tell, more will not
_MOST_TRIALS = 80


def _rates(noisy: float) -> Rates:
    kinds = ((1 - noisy, Rates(QUIET, FLAKY)), (noisy, Rates(NOISY_GOOD, NOISY_BAD)))
    return Rates(GOOD_RATE, BAD_RATE, STEADY, MixedRates(kinds))


USUAL_RATES, RATES_WITH_MERGES = _rates(NOISY_SHARE), _rates(NOISY_SHARE_WITH_MERGES)

Question = tuple[Vector, Purpose]


@dataclass(frozen=True)
class BisectionSettings:
    """`trust_ends`: one end that cannot be tested is taken as it was said. `confirm`: run the two
    sides of a sharp boundary again until the wanted probability is reached. `sentinels`: states
    inside the side that should fail, and one in the other, that are tried once the answer stands
    (with merges one each, where trials contradicted each other); without `steady_sentinels` only
    where trials contradicted each other. `silent`: trials of a bad end that never fails, before
    that is believed. `close_enough` may end the search before one candidate is left. `prior`: which
    changes are likelier from the start. `beyond`: the first state stands for everything before the
    others and cannot be run; that the change is older than all of them is then one candidate.
    """

    confidence: float = 0.95
    rates: Rates | None = None  # those that are usual for the kind of history
    check_ends: bool = True
    trust_ends: bool = True
    confirm: bool = True
    sentinels: int = 0
    steady_sentinels: bool = True
    silent: int = SILENT
    close_enough: Callable[[Interval], bool] | None = None
    prior: Prior = EVERY_CHANGE_ALIKE
    beyond: bool = False


class Bisection(ABC):
    """`answer` is what is known so far; `fixed_before` tells of older breaks that were repaired, as
    two states each.
    """

    usual_rates = USUAL_RATES

    def __init__(self, timeline: Timeline, settings: BisectionSettings | None = None) -> None:
        self.timeline, self.settings = timeline, settings or BisectionSettings()
        self.trials: dict[Vector, Counts] = {}
        self.fixed_before: list[tuple[Vector, Vector]] = []
        self.taken_on_trust: set[Vector] = set()  # ends that cannot be tested, as they were said
        self._told: set[Point] = set()
        self._lost: set[Vector] = set()  # states whose trials never came to an end of their own
        self._sentinels: set[Vector] = set()  # states that only a check of the answer asked for
        self._testability = Testability()
        self._astray: Counter[Vector] = Counter()
        self.prior_rates = self.settings.rates or self.usual_rates
        self._ends = Ends(timeline, self.prior_rates, self.settings.silent)
        self._ends_verdict = EndsVerdict.OPEN
        if not self.settings.check_ends:
            self._ends_verdict = EndsVerdict.DIFFER
        if not self.settings.check_ends and not self.settings.beyond:
            self._trust(timeline.good_end, hit=False)
            self._trust(timeline.bad_end, hit=True)

    # -- the contract

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
            if verdict.tally.error:
                self._lost.add(vector)
            self._could_not_tell(vector)
        else:
            if vector not in self.trials:
                self._testability.learn(self.timeline, vector, ran=True)
                if point.purpose is Purpose.REPLAY:
                    self._sentinels.add(vector)
            hits, misses = self.trials.get(vector, (0, 0))
            hit = int(verdict.reproduces)
            self.trials[vector] = (hits + hit, misses + 1 - hit)
        self._know()

    def assume(self, trials: Mapping[Vector, Counts]) -> None:
        """Trials that were made elsewhere, before this search began."""
        self.trials |= trials
        self._ends_verdict = EndsVerdict.OPEN if self.settings.check_ends else EndsVerdict.DIFFER
        self._know()

    def remember(self, point: Point, verdict: Verdict) -> None:
        """A question that was asked elsewhere: never to be asked again. Its answer is in what is
        assumed.
        """
        self._told.add(point)
        vector = self.timeline.vector(point)
        if verdict.reproduces is None and vector not in self.trials:
            self._could_not_tell(vector)
            self._know()

    @property
    def done(self) -> bool:
        return self._question(Counter()) is None

    @property
    def best(self) -> Point | None:
        answer = self.answer
        return self.timeline.point(answer.bad, Purpose.PROBE, 0) if answer else None

    @abstractmethod
    def wants(self, point: Point) -> bool: ...

    # -- what is known

    @property
    def ends(self) -> EndsVerdict:
        return self._ends_verdict

    @property
    @abstractmethod
    def answer(self) -> Interval | Candidates | None:
        """The likeliest group of candidates, or the fewest that hold the wanted probability."""

    @property
    @abstractmethod
    def is_sure(self) -> bool:
        """Whether one candidate, or one group that nothing can split, holds the wanted
        probability.
        """

    @property
    @abstractmethod
    def rates(self) -> tuple[float, float]: ...

    @abstractmethod
    def atoms(self) -> Sequence[tuple[int, int, float]]:
        """What is believed now: `(first candidate, one past the last, weight of each)`."""

    @abstractmethod
    def expected_questions(self) -> int: ...

    def sides(self) -> tuple[Counts, Counts]:
        """The trials of all states without any of the candidates left, and of those with all of
        them.
        """
        answer = self.answer
        sums = [[0, 0], [0, 0]]
        for vector, counts in self.trials.items():
            if answer is None:
                break
            has = {self.timeline.contains(vector, change) for change in answer.changes}
            if len(has) == 1 and vector not in self.taken_on_trust:
                side = sums[has.pop()]
                side[0], side[1] = side[0] + counts[0], side[1] + counts[1]
        return (sums[0][0], sums[0][1]), (sums[1][0], sums[1][1])

    @property
    def untestable(self) -> frozenset[Vector]:
        return frozenset(self._testability.untestable)

    def is_exhausted(self, vector: Vector) -> bool:
        """A state that could be tested once, and then no more; or what lies beyond all states."""
        if self.settings.beyond and not any(vector):
            return True
        astray = self._astray[vector]
        return astray >= _ASTRAY and astray > sum(self.trials[vector])

    @property
    def states_tried(self) -> int:
        """Distinct states that were built: what a bisection costs where building is what takes the
        time.
        """
        return len(self.untestable | self.trials.keys())

    @property
    def most_trials(self) -> int:
        """No search runs more than this, whatever it is told."""
        return round(_MOST_TRIALS * (2 + math.log2(self.timeline.changes + 1)))

    # -- for the subclasses

    @abstractmethod
    def _question(self, waiting: Counter[Vector]) -> Question | None: ...

    @abstractmethod
    def _believe(self) -> None:
        """Take in what was told last."""

    @property
    @abstractmethod
    def _contradicted(self) -> bool:
        """Whether some trial contradicts another, whatever the answer: something is flaky."""

    @property
    def _wanted(self) -> float:
        """Of the answer."""
        confidence = self.settings.confidence
        if not self.settings.sentinels or not self._contradicted:
            return confidence
        return 1 - self._doubt * (1 - confidence)

    @property
    def _doubt(self) -> float:
        """How much of the allowed doubt an answer may leave once trials contradicted each other.
        Where the rates are guessed from few trials some of it is of them: 7 of 100 answers were
        wrong at .5 and .1 with all of it, although they were checked.
        """
        return _ONCE_FLAKY_DOUBT

    @property
    def _ends_known(self) -> bool:
        return self.ends is EndsVerdict.DIFFER

    def _know(self) -> None:
        if self._ends_verdict is EndsVerdict.OPEN:
            exhausted = {vector for vector in self._astray if self.is_exhausted(vector)}
            self._ends_verdict = self._ends.verdict(self.trials, self.untestable | exhausted)
            self._move_off_an_untestable_end()
        elif self._ends_known and self.settings.check_ends and self._ends.are_alike(self.trials):
            self._ends_verdict = EndsVerdict.GOOD_FAILS_TOO
        self._believe()

    def _move_off_an_untestable_end(self) -> None:
        """One end that cannot be tested is taken as it was said, as by `git bisect`; both are no
        question.
        """
        sides = {
            EndsVerdict.GOOD_UNTESTABLE: (self.timeline.good_end, False),
            EndsVerdict.BAD_UNTESTABLE: (self.timeline.bad_end, True),
        }
        side = sides.get(self._ends_verdict)
        if side is None or not self.settings.trust_ends or self.timeline.changes < 2:
            return
        end, hit = side
        if self.taken_on_trust:
            self._ends_verdict = EndsVerdict.BAD_UNTESTABLE
        elif end not in self._lost:
            self._trust(end, hit=hit)
            self._testability.untestable.discard(end)
            self._ends_verdict = self._ends.verdict(self.trials, self.untestable)

    def _in_place_of_the_bad_end(self, nearest: Callable[[], Sequence[Vector]]) -> Vector | None:
        """Where the bad end cannot be tested, the state nearest to it that can, by doubling steps:
        if that passes, little is left to look at, and nobody builds half of a history that shows no
        failure.
        """
        end = self.timeline.bad_end
        if end not in self.taken_on_trust or not self.settings.check_ends:
            return None
        if any(hits for vector, (hits, _) in self.trials.items() if vector != end):
            return None
        states, step = nearest(), 1
        while step <= len(states) and states[step - 1] in self.untestable:
            step *= 2
        vector = states[step - 1] if step <= len(states) else None
        return None if vector in self.trials else vector

    def _trust(self, vector: Vector, *, hit: bool) -> None:
        self.taken_on_trust.add(vector)
        self.trials[vector] = (int(hit), int(not hit))

    def _fails_firmly(self, waiting: Mapping[Vector, int]) -> bool:
        """Whether enough failures were seen, or are being looked for, to know what a silent trial
        means.
        """
        return sum(hits for hits, _ in self.trials.values()) + sum(waiting.values()) >= FIRMLY

    @property
    def _trials_left(self) -> int:
        return max(0, self.most_trials - len(self._told))

    @property
    def _is_spent(self) -> bool:
        return not self._trials_left

    def _wanted_end(self, waiting: Mapping[Vector, int]) -> Question | None:
        end = self._ends.wanted(self.trials, waiting)
        return (end, Purpose.CALIBRATE) if end else None

    def _fresh(self, vector: Vector, purpose: Purpose, taken: Collection[Point]) -> Point:
        return self.timeline.point(vector, purpose).fresh(taken)

    def _elsewhere(
        self, beside: Iterable[tuple[Vector, bool]], waiting: Mapping[Vector, int]
    ) -> Question | None:
        """A state beside the answer whose trials do not say yet that it is as it should be: with
        whether it should fail.
        """
        for vector, fails in beside:
            plain = self._is_plain(vector, fails=fails)
            if not (waiting.get(vector) or plain or self.is_exhausted(vector)):
                return vector, Purpose.REPLAY
        return None

    def _could_not_tell(self, vector: Vector) -> None:
        """A state with evidence stays testable: one trial of it went astray. It is not asked for
        ever.
        """
        if vector in self.trials:
            self._astray[vector] += 1
        else:
            self._testability.learn(self.timeline, vector, ran=False)

    def _chance_of(self, vector: Vector) -> float:
        """The chance that a state can be tested at all."""
        return 1.0 if vector in self.trials else self._testability.chance(self.timeline, vector)

    def _is_plain(self, vector: Vector, *, fails: bool) -> bool:
        """Whether the trials of a state already say clearly enough that it is as it should be, or
        that it is not.
        """
        hits, misses = self.trials.get(vector, (0, 0))
        good, bad = self.rates
        weight = hits * math.log(bad / good) + misses * math.log((1 - bad) / (1 - good))
        return hits + misses >= UNSTEADY or (weight > _PLAIN if fails else weight < -_PLAIN)
