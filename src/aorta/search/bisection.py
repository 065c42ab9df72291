"""Bisection of a timeline whose trials may lie: of one line, of several packages, or with merges.

Both ends are run first. While no trial contradicts another, the next state is the one that cuts the
changes left most nearly in half, as in `git bisect`; as soon as one does, it is the one whose trial
is expected to say most. The search stops when one change, or a group that no testable state tells
apart, holds the wanted probability and both of its sides were seen; after `most_trials` at the
latest, and as soon as states that were tried before are tried again without any gain.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search.belief import (
    BAD_RATE,
    FLAKY,
    GOOD_RATE,
    NOISY_BAD,
    NOISY_GOOD,
    NOISY_SHARE,
    NOISY_SHARE_WITH_MERGES,
    QUIET,
    STEADY,
    Belief,
    Counts,
    MixedRates,
    Prior,
    Rates,
)
from aorta.search.ends import UNSTEADY, Ends, EndsVerdict, SeenRates, repaired_among
from aorta.search.timeline import Change, Testability, Timeline, Vector, bits_of, lowest_bit

_FAINT = 4e-3  # of what is not known: a side that says less than this is not run again
_WORTHLESS = 1e-4  # nats: a trial that says less than this is not run
_SIDE_RUNS = 2  # trials wanted on each side of a boundary that looks sharp
_SIDE_TRIALS = 5  # about so many of both sides make a sharp boundary as sure as is mostly wanted
# Trials of a state with evidence that told nothing, and outnumber it, before it is asked no more.
_ASTRAY = 3
_CLEAR = math.log(8)  # how clear a state beside the answer must be before it is left alone
# Of the doubt that is allowed, where the answer is checked. Where the rates are guessed from few
# trials some of it is of them: 7 of 100 answers were wrong at .5 and .1 with all of it.
_ONCE_FLAKY_DOUBT = 0.7
_NOISY_DOUBT = 0.15  # the same with merges, for a test that is known to be noisy
_LIKELY = 0.5  # to be testable: a state beside the answer that is not is no check of it
_NEARLY = 0.995  # of the information of the best state, from one that needs no build
_NEGLIGIBLE = 1e-3  # of the belief: no question is worth asking out there
_SAMPLED = 1500  # states that are looked at for one unlike those tried
_WEIGHED = 128  # states weighed for one question before only a sample of them is
# For each halving of the changes and two more: what so many trials did not tell, more will not.
_MOST_TRIALS = 60
_IDLE = 4  # trials in a row of states tried before that change the belief by nothing


def _rates(noisy: float) -> Rates:
    kinds = MixedRates((1 - noisy, Rates(QUIET, FLAKY)), (noisy, Rates(NOISY_GOOD, NOISY_BAD)))
    return Rates(GOOD_RATE, BAD_RATE, STEADY, kinds)


USUAL_RATES, RATES_WITH_MERGES = _rates(NOISY_SHARE), _rates(NOISY_SHARE_WITH_MERGES)

Question = tuple[Vector, Purpose]


@dataclass(frozen=True)
class Candidates:
    """Changes that hold the culprit with probability `mass`, and the states around them."""

    changes: tuple[Change, ...]
    good: Vector
    bad: Vector
    mass: float

    @property
    def packages(self) -> list[int]:
        return sorted({change.package for change in self.changes})


@dataclass(frozen=True)
class BisectionSettings:
    """`trust_ends`: one end that cannot be tested is taken as it was said. `trust_bad`: so is the
    bad end without a trial. `confirm`: run the two sides of a sharp boundary again until the wanted
    probability is reached. `sanity_probes`: states inside the side that should fail, and one in the
    other, that are tried once the answer stands (with merges one each, where trials contradicted
    each other); without `probe_steady` only where trials contradicted each other. `close_enough`
    may end the search before one candidate is left. `prior`: which changes are likelier from the
    start. `beyond`: the first state stands for everything before the others and cannot be run; that
    the change is older than all of them is then one candidate.
    """

    confidence: float = 0.95
    check_ends: bool = True
    trust_ends: bool = True
    trust_bad: bool = False
    confirm: bool = True
    sanity_probes: int = 0
    probe_steady: bool = True
    confirmations: int | None = None  # further runs of both ends and of both sides at least
    close_enough: Callable[[Candidates], bool] | None = None
    prior: Prior | None = None
    beyond: bool = False
    # The good end is a culprit without what it may need: does it fail alone?
    alone: SeenRates | None = None


class Bisection:
    """The search. `answer` is what is known so far; `fixed_before` are older breaks that were
    repaired, as two states each; `taken_on_trust` the ends that count as they were said, by whether
    they fail.
    """

    def __init__(self, timeline: Timeline, settings: BisectionSettings | None = None) -> None:
        self.timeline, self.settings = timeline, settings or BisectionSettings()
        self.trials: dict[Vector, Counts] = {}
        self.fixed_before: list[tuple[Vector, Vector]] = []
        self.taken_on_trust: dict[Vector, bool] = {}
        self.prior_rates = RATES_WITH_MERGES if timeline.has_merges else USUAL_RATES
        self._recorded: set[Point] = set()
        self._lost: set[Vector] = set()  # states whose trials never came to an end of their own
        self._probed: set[Vector] = set()  # states that only a sanity probe asked for
        self._testability = Testability(timeline)
        self._astray: Counter[Vector] = Counter()
        self._untestable_ends: set[Vector] = set()  # they count as they were said
        self._idle = 0
        self._next: list[Question | None] = []  # the next question, once it was looked for
        self._among = (1 << timeline.changes) - 1
        self._is_whole = False
        self._other_orders: dict[Vector, None] = {}  # states of the same changes in another order
        self._orders_tried: tuple[int, int] = (0, 0)  # of this group, so many
        runs = self.settings.confirmations
        self._side_runs = _SIDE_RUNS if runs is None else 1 + runs
        self._ends = Ends(timeline, self.prior_rates, 1 + (runs or 0), self.settings.alone)
        self._ends_verdict = EndsVerdict.OPEN
        if not self.settings.check_ends:
            self._ends_verdict = EndsVerdict.DIFFER
            if not self.settings.beyond:
                self._trust(timeline.good_end, hit=False)
                self._trust(timeline.bad_end, hit=True)
        elif self.settings.trust_bad:
            self._trust(timeline.bad_end, hit=True)
        self._believe()

    # -- the contract

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        waiting = Counter(self.timeline.vector(point) for point in pending)
        taken = {*self._recorded, *pending}
        queried: list[Point] = []
        while len(queried) < n and (question := self._question(waiting)):
            vector, purpose = question
            waiting[vector] += 1
            point = self.timeline.point(vector, purpose).fresh(taken)
            taken.add(point)
            queried.append(point)
        return queried

    def tell(self, point: Point, verdict: Verdict) -> None:
        if point in self._recorded:
            return
        self._recorded.add(point)
        vector = self.timeline.vector(point)
        if verdict.reproduces is None:
            if verdict.tally.error:
                self._lost.add(vector)
            self._could_not_tell(vector)
            self._learn()
            return
        again, before = vector in self.trials, self._belief.entropy()
        if not again:
            self._testability.learn(vector, ran=True)
            if point.purpose is Purpose.REPLAY:
                self._probed.add(vector)
        if (
            vector not in self._untestable_ends
            and self.taken_on_trust.pop(vector, None) is not None
        ):
            del self.trials[vector]  # now it is known
            if self.settings.check_ends:
                self._ends_verdict = EndsVerdict.OPEN
        hits, misses = self.trials.get(vector, (0, 0))
        hit = int(verdict.reproduces)
        self.trials[vector] = (hits + hit, misses + 1 - hit)
        self._learn()
        again = again and self._ends_known and point.purpose is not Purpose.CALIBRATE
        nothing = again and abs(self._belief.entropy() - before) < _WORTHLESS
        self._idle = self._idle + 1 if nothing else 0
        self._next = []

    def wants(self, point: Point) -> bool:
        """Whether its verdict would still be used."""
        if self.done:
            return False
        if not self._ends_known or point.purpose is not Purpose.PROBE:
            return True
        return self._is_open(self.timeline.vector(point))

    def assume(self, trials: Mapping[Vector, Counts]) -> None:
        """Trials that were made elsewhere, before this search began."""
        self.trials |= trials
        for vector in trials:
            self.taken_on_trust.pop(vector, None)
        self._ends_verdict = EndsVerdict.OPEN if self.settings.check_ends else EndsVerdict.DIFFER
        self._learn()

    def remember(self, point: Point, verdict: Verdict) -> None:
        """A question that was answered elsewhere: never to be asked again."""
        self._recorded.add(point)
        vector = self.timeline.vector(point)
        if verdict.reproduces is None and vector not in self.trials:
            self._could_not_tell(vector)
            self._learn()

    @property
    def done(self) -> bool:
        return self._question(Counter()) is None

    @property
    def best(self) -> Point | None:
        answer = self.answer
        return self.timeline.point(answer.bad, Purpose.PROBE, 0) if answer else None

    # -- what is known

    @property
    def ends(self) -> EndsVerdict:
        return self._ends_verdict

    @property
    def answer(self) -> Candidates | None:
        """The likeliest group of candidates, or the fewest that hold the wanted probability."""
        if not self._ends_known:
            return None
        return self._between(self._answer)

    @property
    def _answer(self) -> int:
        left = self._left
        sharp = left if not self.settings.confirm or self._is_close(left) else None
        return sharp or self._group

    @property
    def is_sure(self) -> bool:
        """Whether one candidate, or one group that nothing splits, is probable enough."""
        if not self._ends_known:
            return False
        left = None if self.settings.confirm else self._left
        closed = left is not None and left.bit_count() == 1
        return closed or (self._is_whole and self._mass >= self._wanted)

    @property
    def agrees(self) -> bool:
        """Whether no trial contradicts another: nothing was seen to be flaky."""
        return self._left is not None

    @property
    def possible(self) -> int:
        """How many commits no trial rules out, or, if flaky, hold the wanted probability."""
        return self._weight(self._left or self._group)

    @property
    def rates(self) -> tuple[float, float]:
        return self._belief.expected_rates()

    def expected_questions(self) -> int:
        """About how many more trials: halving where nothing is flaky, else by information."""
        if self.done:
            return 0
        if left := self._left:
            probes = self.settings.sanity_probes if self._probes_steady else 0
            tried = sum(sum(self.trials.get(side, (0, 0))) for side in self._good_and_bad(left))
            is_one = left.bit_count() == 1
            repeats = max(_SIDE_TRIALS, 2 * self._side_runs) - tried if is_one else self._side_runs
            checks = max(0, repeats) + max(0, probes + bool(probes) - len(self._probed))
            more = (self._weight(left) - 1).bit_length() + checks * self.settings.confirm
        else:
            best = self._most_telling(Counter())
            gain = self._belief.gain(self.timeline.mask(best)) if best else 0.0
            more = round(self._belief.entropy() / max(gain, _WORTHLESS))
        return min(self._trials_left, max(1, more))

    def good_and_bad(self) -> tuple[Counts, Counts]:
        """Trials of states without any remaining candidate, and with all; without an answer those
        of the two ends. What is taken on trust is none.
        """
        if not self._ends_known:
            return self._seen(self.timeline.good_end), self._seen(self.timeline.bad_end)
        group = self._answer
        sums = {0: (0, 0), group: (0, 0)}
        for vector in self.trials:
            if (held := self.timeline.mask(vector) & group) in sums:
                (hits, misses), (more, fewer) = self._seen(vector), sums[held]
                sums[held] = hits + more, misses + fewer
        return sums[0], sums[group]

    def _seen(self, vector: Vector) -> Counts:
        hits, misses = self.trials.get(vector, (0, 0))
        trusted = self.taken_on_trust.get(vector)
        return hits - (trusted is True), misses - (trusted is False)

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
    def most_trials(self) -> int:
        """No search runs more than this, whatever it is told."""
        return round(_MOST_TRIALS * (2 + math.log2(self.timeline.changes + 1)))

    @property
    def _ends_known(self) -> bool:
        return self.ends is EndsVerdict.DIFFER

    @property
    def _wanted(self) -> float:
        """The wanted probability; once trials contradict each other, some allowed doubt is kept."""
        confidence = self.settings.confidence
        if not self.settings.sanity_probes or self.agrees:
            return confidence
        doubt = _ONCE_FLAKY_DOUBT
        if self.timeline.has_merges:
            doubt = 1 - (1 - _NOISY_DOUBT) * self._belief.noisy()
        return 1 - doubt * (1 - confidence)

    @property
    def _trials_left(self) -> int:
        return max(0, self.most_trials - len(self._recorded))

    def _weight(self, mask: int) -> int:
        """How many commits these changes bring."""
        return sum(w * (mask & of_class).bit_count() for of_class, w in self.timeline.classes)

    def _between(self, group: int) -> Candidates:
        good, bad = self._good_and_bad(group)
        changes = tuple(self.timeline.path[bit] for bit in bits_of(group))
        return Candidates(changes, good, bad, self._belief.mass(group))

    def _good_and_bad(self, group: int) -> tuple[Vector, Vector]:
        """The states on both sides of one change; else the nearest ones that were tried."""
        if group.bit_count() == 1:
            around = self.timeline.around(lowest_bit(group))
            if not self._testability.untestable.intersection(around):
                return around
        bad = self._nearest(self.timeline.bad_end, group, fails=True)
        return self._nearest(self.timeline.good_end, group, fails=False, within=bad), bad

    def _nearest(
        self, end: Vector, group: int, *, fails: bool, within: Vector | None = None
    ) -> Vector:
        best, size = end, self._size(end)
        inside = self.timeline.mask(within) if within is not None else -1
        for vector, (hits, misses) in self.trials.items():
            held = self.timeline.mask(vector)
            if (hits > misses) is not fails or held & ~inside:
                continue
            if held & group != (group if fails else 0):
                continue
            if (held.bit_count() < size) if fails else (held.bit_count() > size):
                best, size = vector, held.bit_count()
        return best

    def _size(self, vector: Vector) -> int:
        return self.timeline.mask(vector).bit_count()

    # -- choosing the next question

    def _question(self, waiting: Counter[Vector]) -> Question | None:
        if waiting:
            return self._find_question(waiting)
        if not self._next:  # it is wanted many times between two trials
            self._next = [self._find_question(waiting)]
        return self._next[0]

    def _find_question(self, waiting: Counter[Vector]) -> Question | None:
        if self.ends is EndsVerdict.OPEN:
            end = self._ends.wanted(self.trials, waiting)
            return (end, Purpose.CALIBRATE) if end else None
        if not self._ends_known or not self._trials_left:
            return None
        left = self._left
        if self._is_close(left or self._group):
            return None
        if self._idle >= _IDLE:
            # Sides that were run again beside a state that takes long to build say nothing of it.
            halved = self._halving(left, waiting) if left and not self.is_sure else None
            is_new = halved and self.timeline.point(halved, Purpose.PROBE) not in self._recorded
            return (halved, Purpose.PROBE) if halved and is_new else None
        if self.is_sure:
            return self._check(waiting)
        if left and (halved := self._halving(left, waiting)):
            return halved, Purpose.PROBE
        if left and not self.settings.confirm:
            return None
        telling = self._most_telling(waiting)
        purpose = Purpose.CONFIRM if left else Purpose.PROBE
        return (telling, purpose) if telling else None

    def _is_close(self, group: int | None) -> bool:
        close_enough = self.settings.close_enough
        if close_enough is None or not group:
            return False
        found = self._between(group)
        # Nothing is close to what is older than every state.
        return (any(found.good) or not self.settings.beyond) and close_enough(found)

    def _is_open(self, vector: Vector) -> bool:
        """Whether its trial would cut what is left."""
        left = self._left
        return left is None or (self.timeline.mask(vector) & left) not in (0, left)

    def _find_left(self) -> int | None:
        """The changes in every failing state and no passing one; None after a contradiction."""
        left = self._among
        for vector, (hits, misses) in self._counted().items():
            if hits and misses:
                return None
            held = self.timeline.mask(vector)
            left &= held if hits else ~held if misses else left
        return left or None

    def _halving(self, left: int, waiting: Counter[Vector]) -> Vector | None:
        """The state nearest to half of the largest part that the running trials leave."""
        parts = [left]
        for vector in waiting:
            held = self.timeline.mask(vector)
            parts = [side for part in parts for side in (part & held, part & ~held) if side]
        for part in sorted(parts, key=self._weight, reverse=True):
            best: tuple[float, Vector] | None = None
            whole = self._weight(part)
            for vector in self._cutting(part):
                inside = self._weight(part & self.timeline.mask(vector))
                fewer = min(inside, whole - inside)
                if not fewer or vector in waiting or (best and fewer <= best[0]):
                    continue
                evenly = fewer * self._chance_of(vector)
                if evenly and (best is None or evenly > best[0]):
                    best = evenly, vector
            if best:
                return best[1]
        return None

    def _cutting(self, part: int) -> Iterator[Vector]:
        """The states that may hold some of these changes and not all of them."""
        return chain(self.timeline.cutting(part), self._other_orders)

    def _most_telling(self, waiting: Counter[Vector]) -> Vector | None:
        """The state whose trial says most; one tried already while no trial contradicts another."""
        belief = self._belief
        for under_way in waiting.elements():
            belief = belief.supposing(self.timeline.mask(under_way))

        def worth(vector: Vector) -> float:
            if not self._may_run(vector):
                return 0.0
            return belief.gain(self.timeline.mask(vector)) * self._chance_of(vector)

        plausible = sum(m for m, w in self._belief.weighted if w * m.bit_count() > _NEGLIGIBLE)
        states = [] if self.agrees else list(self._cutting(plausible))
        stride = math.isqrt(len(states)) if len(states) > _WEIGHED else 1
        worths = {vector: worth(vector) for vector in states[::stride]}
        while stride > 1:  # ever closer around the best of the sample
            best = states.index(max(worths, key=worths.__getitem__))
            near, stride = slice(max(0, best - stride + 1), best + stride), math.isqrt(stride)
            sample = states[near][::stride]
            worths |= {vector: worth(vector) for vector in sample if vector not in worths}
        worths |= {vector: worth(vector) for vector in self.trials if vector not in worths}
        chosen = max(worths, key=worths.__getitem__)
        if worths[chosen] < (_FAINT * belief.entropy() if self.agrees else _WORTHLESS):
            return None
        # One that needs no build, if it says nearly as much.
        built = max(self.trials, key=lambda vector: worths[vector])
        return built if worths[built] >= _NEARLY * worths[chosen] else chosen

    def _may_run(self, vector: Vector) -> bool:
        if vector in self._untestable_ends and sum(self.trials[vector]) == 1:
            return False
        return not self.is_exhausted(vector) and bool(self._chance_of(vector))

    def _check(self, waiting: Counter[Vector]) -> Question | None:
        """What a sure answer lacks: a failure on the bad side, a pass on the good one, probes."""
        checks, steady = self.settings.confirm, self._left is not None
        at_least = self._side_runs if steady or self.settings.confirmations else 1
        good, bad = self._good_and_bad(self._left or self._group)
        (_, passes), (fails, _) = self.good_and_bad()
        for vector, seen in ((bad, fails), (good, passes)):
            tried = sum(self.trials.get(vector, (0, 0))) + waiting[vector]
            is_open = not (seen or waiting[vector]) or (checks and tried < at_least)
            if is_open and self._may_run(vector):
                return vector, Purpose.CONFIRM
        if not checks or (steady and not self._probes_steady):
            return None
        for vector, should_fail in self._sanity_states():
            if not (waiting.get(vector) or self._is_clear(vector, should_fail=should_fail)):
                return vector, Purpose.REPLAY
        return None

    @property
    def _probes_steady(self) -> bool:
        """Whether an answer that no trial contradicts is checked elsewhere, too."""
        return self.settings.probe_steady and not self.timeline.has_merges

    def _sanity_states(self) -> Iterator[tuple[Vector, bool]]:
        """States unlike those tried, with all of the answer or none, and whether they must fail."""
        probes = self.settings.sanity_probes
        failing = min(probes, 1) if self.timeline.has_merges else probes
        tried = [self.timeline.mask(vector) for vector in self.trials.keys() - self._probed]
        states = self.timeline.every_state()
        sample = states[:: len(states) // _SAMPLED + 1]
        for fails in [*[True] * failing, *[False] * bool(probes)]:
            wanted = self._group if fails else 0
            beside = [
                (far, -place)
                for place, vector in enumerate(sample)
                if (held := self.timeline.mask(vector)) & self._group == wanted
                and (held & self._among or not held)
                and self._may_run(vector)
                and self._chance_of(vector) > _LIKELY
                and (far := min((held ^ other).bit_count() for other in tried))
            ]
            if beside:
                vector = sample[-max(beside)[1]]
                tried.append(self.timeline.mask(vector))
                yield vector, fails

    def _is_clear(self, vector: Vector, *, should_fail: bool) -> bool:
        """Whether the trials of a state say clearly enough what it is."""
        hits, misses = self.trials.get(vector, (0, 0))
        good, bad = self.rates
        weight = hits * math.log(bad / good) + misses * math.log((1 - bad) / (1 - good))
        return hits + misses >= UNSTEADY or (weight > _CLEAR if should_fail else weight < -_CLEAR)

    # -- bookkeeping

    def _learn(self) -> None:
        if self._ends_verdict is EndsVerdict.OPEN:
            exhausted = {vector for vector in self._astray if self.is_exhausted(vector)}
            self._ends_verdict = self._ends.verdict(self.trials, self.untestable | exhausted)
            self._move_off_an_untestable_end()
        elif self._ends_known and self.settings.check_ends and self._ends.are_alike(self.trials):
            self._ends_verdict = EndsVerdict.GOOD_FAILS_TOO
        self._believe()

    def _move_off_an_untestable_end(self) -> None:
        """One untestable end is taken as said, as by `git bisect`; both are no question."""
        good_and_bad = {
            EndsVerdict.GOOD_UNTESTABLE: (self.timeline.good_end, False),
            EndsVerdict.BAD_UNTESTABLE: (self.timeline.bad_end, True),
        }
        side = good_and_bad.get(self._ends_verdict)
        trusts = self.settings.trust_ends and self.settings.alone is None
        if side is None or not trusts or self.timeline.changes < 2:
            return
        end, hit = side
        if self._untestable_ends:
            self._ends_verdict = EndsVerdict.BAD_UNTESTABLE
        elif end not in self._lost and end not in self.taken_on_trust:
            self._trust(end, hit=hit)
            self._untestable_ends.add(end)
            self._testability.forget(end)
            self._ends_verdict = self._ends.verdict(self.trials, self.untestable)

    def _trust(self, vector: Vector, *, hit: bool) -> None:
        self.taken_on_trust[vector] = hit
        self.trials[vector] = (int(hit), int(not hit))

    def _could_not_tell(self, vector: Vector) -> None:
        """A state with evidence stays testable: one trial went astray. Retries are bounded."""
        if vector in self.trials and vector not in self.taken_on_trust:
            self._astray[vector] += 1
        else:
            self._testability.learn(vector, ran=False)

    def _chance_of(self, vector: Vector) -> float:
        """The chance that a state can be tested at all."""
        if vector in self.trials and vector not in self._testability.untestable:
            return 1.0
        return self._testability.chance(vector)

    def _believe(self) -> None:
        self._next = []
        self._take_in()
        if not self._ends_known:
            return
        if older := self._repaired():
            self.fixed_before.append(older)
            self._among &= ~self.timeline.mask(older[1])
            self._take_in()
        while self._is_whole and self._mass >= self._wanted and self._try_another_order():
            self._is_whole = not self._can_be_cut(self._group)

    def _counted(self) -> dict[Vector, Counts]:
        """The trials that say something of the changes that are candidates."""
        masks = ((vector, self.timeline.mask(vector)) for vector in self.trials)
        return {v: self.trials[v] for v, held in masks if held & self._among or not held}

    def _take_in(self) -> None:
        self._left = self._find_left()
        self._belief = Belief.after(
            self.prior_rates, self.timeline, self._counted(), self._among, self.settings.prior
        )
        self._group, self._mass = self._likeliest()
        self._is_whole = not self._can_be_cut(self._group)

    def _likeliest(self) -> tuple[int, float]:
        """The fewest changes with the wanted probability; inseparable ones go together."""
        group, mass, wanted = 0, 0.0, self._wanted
        for atom, weight in self._belief.weighted:
            if mass >= wanted:
                break
            group |= atom
            mass += weight * atom.bit_count()
        return group, mass

    def _can_be_cut(self, group: int) -> bool:
        """Whether a state that can be tested has some of these changes and not the others."""
        if group.bit_count() == 1:
            return False
        return any(
            self.timeline.mask(vector) & group not in (0, group) and self._chance_of(vector)
            for vector in self._cutting(group)
        )

    def _try_another_order(self) -> bool:
        """Changes that no state tells apart may be told in another order of packages."""
        answer = self._between(self._group)
        packages = answer.packages
        group, turn = self._orders_tried
        turn = turn if group == self._group else 0
        if len(packages) < 2 or turn >= len(packages):
            return False
        self._orders_tried = self._group, turn + 1
        order = [*packages[turn:], *packages[:turn]]
        found = self.timeline.in_order(answer.good, answer.bad, order)
        self._other_orders |= dict.fromkeys(v for v in found if self.timeline.position(v) is None)
        return True

    def _repaired(self) -> tuple[Vector, Vector] | None:
        """Two states between which an older break was repaired, each containing the last."""
        chain: list[tuple[Vector, Counts]] = []
        for vector in sorted(self.trials, key=self._size, reverse=True):
            held = self.timeline.mask(vector)
            inside = not chain or held & self.timeline.mask(chain[-1][0]) == held
            if held & self._among and inside:
                chain.append((vector, self.trials[vector]))
        chain.reverse()
        found = repaired_among([counts for _, counts in chain], self.prior_rates)
        return (chain[found[0]][0], chain[found[1]][0]) if found else None
