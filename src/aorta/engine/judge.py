"""Judges: when do the outcomes seen so far settle a point?

A judge sees counts and nothing else. It says what they amount to, or how many more trials the
answer needs at least and could use at most; the engine runs no trial after a judge is sure. Errors
are no evidence: the engine retries them.

Where no k-of-n is given, the sequential judge measures how often the original fails, then chooses
the number of trials itself. Every candidate is a test between "fails like what was accepted so far"
and "does not fail". What happens next is a function of what was learned, in its order: replayed, it
judges the same.

A candidate's test is Wald's sequential probability ratio test. It weighs two rates against each
other: the rate at which the failure shows where it is `present`, and the rate of false alarms where
it is `absent`. Every trial moves one sum; the sum crosses one of two lines, and the question is
decided. Of all tests with the same two error rates it needs the fewest trials on average.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from aorta.core.axis import Point, Purpose
from aorta.core.stats import clopper_pearson_high, clopper_pearson_low, log_beta
from aorta.core.trial import Tally, Verdict

# A judge looks at the same few counts again and again.
_low = lru_cache(maxsize=4096)(clopper_pearson_low)
_high = lru_cache(maxsize=4096)(clopper_pearson_high)


@dataclass(frozen=True)
class HitCount:
    """How often it was tried, and how often it showed."""

    hits: int = 0
    trials: int = 0

    @classmethod
    def of(cls, tally: Tally) -> "HitCount":
        return cls(tally.reproduced, tally.evidence)

    @property
    def misses(self) -> int:
        return self.trials - self.hits

    def __add__(self, more: "HitCount") -> "HitCount":
        return HitCount(self.hits + more.hits, self.trials + more.trials)

    def low(self, alpha: float) -> float:
        """The exact one-sided lower bound of the rate; 0 when nothing was tried."""
        return _low(self.hits, self.trials, alpha) if self.trials else 0.0

    def high(self, alpha: float) -> float:
        """The exact one-sided upper bound of the rate; 1 when nothing was tried."""
        return _high(self.hits, self.trials, alpha)


NOTHING = HitCount()


def log_chance(evidence: HitCount, seen: HitCount, certain: float = 0.0) -> float:
    """The log of how likely these hits and misses are, in their order, where the rate is only known
    by what was `seen`.

    The rate is not taken to be what was seen: five hits of five leave a rate of .7 possible, and
    one miss in seven likely. Every rate that could have shown it has its weight (a uniform prior,
    so Laplace's rule of succession); `certain` is the weight, before anything was seen, that it
    always fails.
    """
    return _log_evidence(seen + evidence, certain) - _log_evidence(seen, certain)


def _log_evidence(seen: HitCount, certain: float) -> float:
    """The log of how likely all of this is under the prior."""
    uniform = math.log1p(-certain) + log_beta(seen.hits + 1, seen.misses + 1)
    return uniform if seen.misses else math.log(certain + math.exp(uniform))


def misses_that_tell(seen: HitCount, chance: float) -> int:
    """How many misses in a row are at most so likely where it fails as often as what was seen."""
    misses = 1
    while log_chance(HitCount(0, misses), seen) > math.log(chance):
        misses += 1
    return misses


def _crossed(weight: float, alpha: float, beta: float) -> bool | None:
    """Wald's two lines, for the log of how much likelier the evidence is where the failure is
    present: True or False once one of them is crossed, None between them. Where one hit is proof,
    no number of misses outweighs it.
    """
    if weight >= math.log((1 - beta) / alpha):
        return True
    return False if weight <= math.log(beta / (1 - alpha)) else None


@dataclass(frozen=True)
class PresenceTest:
    """Wald's test where the rate of the failure is only known by what was `seen` of it."""

    seen: HitCount
    absent: float  # the rate of false alarms where it is not there
    alpha: float
    beta: float
    certain: float = 0.0  # how likely it was, before anything was seen, that it always fails

    def decide(self, evidence: HitCount) -> bool | None:
        return _crossed(self.weight(evidence), self.alpha, self.beta)

    def weight(self, evidence: HitCount) -> float:
        alarms = _times(evidence.hits, _log_ratio(self.absent, 1.0))
        silence = _times(evidence.misses, math.log1p(-self.absent))
        return log_chance(evidence, self.seen, self.certain) - alarms - silence


@dataclass(frozen=True)
class Sprt:
    """`present` against `absent`, wrong with chance `alpha` (accepts) or `beta` (misses)."""

    present: float
    absent: float
    alpha: float
    beta: float

    def decide(self, evidence: HitCount) -> bool | None:
        return _crossed(self.weight(evidence), self.alpha, self.beta)

    def weight(self, evidence: HitCount) -> float:
        return _times(evidence.hits, _log_ratio(self.present, self.absent)) + _times(
            evidence.misses, _log_ratio(1 - self.present, 1 - self.absent)
        )


@dataclass(frozen=True)
class Calibration:
    """When the original is known: after `hits`, `straight` ones without a miss, or `cap` trials.

    Two straight hits are enough to begin with: what follows goes on measuring the rate.
    """

    hits: int = 4
    straight: int = 2
    cap: int = 40

    def decide(self, evidence: HitCount) -> bool | None:
        unbroken = evidence.misses == 0
        if evidence.hits >= (self.straight if unbroken else self.hits):
            return True
        return None if evidence.trials < self.cap else evidence.hits > 0


def _log_ratio(above: float, below: float) -> float:
    if above == below:
        return 0.0
    if above == 0:
        return -math.inf
    return math.inf if below == 0 else math.log(above / below)


def _times(count: int, weight: float) -> float:
    return count * weight if count else 0.0  # 0 x infinity is nothing here, not nan


# -- judges ----------------------------------------------------------------------------------------


class Judge(Protocol):
    def verdict(self, tally: Tally) -> Verdict | None:
        """The verdict once the evidence settles it; None while it is open."""

    def needs(self, tally: Tally) -> int:
        """The fewest further trials that could decide it; none of them is wasted. 0: decided."""

    def at_most(self, tally: Tally) -> int:
        """The most further trials it could use. 0 when decided."""


class Judges(Protocol):
    """Chooses the judge of each point, and may learn from every verdict."""

    def judge_for(self, point: Point) -> Judge: ...

    def learn(self, point: Point, verdict: Verdict) -> None: ...


@dataclass(frozen=True)
class KOfN:
    """Reproduces if `k` of `n` trials do; stops at the k-th, or when k is out of reach."""

    k: int
    n: int

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.reproduced >= self.k:
            return Verdict(True, tally, f"{tally.reproduced} of {tally.evidence} reproduced")
        if tally.against > self.n - self.k:
            return Verdict(False, tally, f"{tally.reproduced} of {tally.evidence} reproduced")
        return None

    def needs(self, tally: Tally) -> int:
        if self.verdict(tally):
            return 0
        return min(self.k - tally.reproduced, self.n - self.k + 1 - tally.against)

    def at_most(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else self.n - tally.evidence


@dataclass(frozen=True)
class EveryTrial:
    """Runs all `n`, whatever they say: for measuring a rate."""

    n: int

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.evidence < self.n:
            return None
        return Verdict(
            tally.reproduced > 0, tally, f"{tally.reproduced} of {tally.evidence} reproduced"
        )

    def needs(self, tally: Tally) -> int:
        return max(0, self.n - tally.evidence)

    at_most = needs


@dataclass(frozen=True)
class SameJudge:
    """One judge for every point; learns nothing."""

    judge: Judge

    def judge_for(self, point: Point) -> Judge:
        return self.judge

    def learn(self, point: Point, verdict: Verdict) -> None:
        """A fixed rule has nothing to learn."""


# Error rates: a wrong acceptance loses the bug, a wrong rejection costs size alone.
_ALPHA = 0.002  # 0.2 wrong acceptances expected in a hundred candidates
_BETA = 0.1
_RECHECK_BETA = 0.002  # what minimality rests on is asked again with fresh trials
_CONFIRM_ALPHA = 1e-4
_REPLAY_BETA = 1e-3  # a false alarm throws accepted work away
_CAP = 80
_LEAST_FALSE_RATE = 0.005  # no oracle is trusted further than this when the answer is confirmed
_MOST_RATE = 0.99  # of the drift tests: no failure is taken to be certain
_LEAST_RATE = 0.03  # rarer failures would need more trials than the cap allows
# of failures, before anything was seen, are taken to show every time: 35 trials where 0 costs 43
_CERTAIN = 0.2
_LEARN_ALPHA = 0.2  # the learned rate is the 80 % lower bound
_RARER = 2.0  # what fails so many times less often than the original is no answer
_RARER_ALPHA = 0.125  # the chance that it passes for one; three failures of three tell so much
_RARER_BETA, _CONFIRM_RARER_BETA = 0.05, 0.02
_RARER_CAP = 160
# Of the original, before the answer is compared with it, and before one that failed is given up.
_MEASURED_HITS, _MEASURED_AGAIN_HITS, _MEASURED_CAP = 12, 24, 400
_COMPARED_ALPHA = 0.35  # the original's rate is taken as this lower bound: a lucky start costs work


Test = Sprt | PresenceTest | Calibration


@dataclass(frozen=True)
class SequentialJudge:
    """Accepts when every test does; rejects when one does, or at the cap."""

    tests: tuple[Test, ...]
    cap: int
    prior: HitCount = NOTHING

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.evidence == 0:
            return None  # every question gets at least one trial of its own
        fresh = HitCount.of(tally)
        decision = self.decide(self.prior + fresh)
        if decision is None and fresh.trials < self.cap:
            return None
        words = f"{fresh.hits} of {fresh.trials} reproduced"
        if self.prior.trials:
            words += f", after {self.prior.hits} of {self.prior.trials} before"
        return Verdict(decision is True, tally, words + ": undecided" * (decision is None))

    def decide(self, evidence: HitCount) -> bool | None:
        decisions = {test.decide(evidence) for test in self.tests}
        if False in decisions:
            return False
        return None if None in decisions else True

    def needs(self, tally: Tally) -> int:
        evidence, left = self.prior + HitCount.of(tally), self.at_most(tally)
        return fewest_that_decide(self.decide, evidence, left)

    def at_most(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else max(1, self.cap - tally.evidence)


def calibrating(calibration: Calibration, prior: HitCount = NOTHING) -> SequentialJudge:
    """Runs the original until its rate is known well enough, or it plainly does not fail. `prior`:
    how often it was seen to fail before."""
    return SequentialJudge((calibration,), calibration.cap, prior)


def fewest_that_decide(
    decide: Callable[[HitCount], bool | None], evidence: HitCount, left: int
) -> int:
    """How many of the `left` trials could decide it, if all of them end alike."""
    for more in range(1, left):
        alike = (HitCount(more, more), HitCount(0, more))
        if any(decide(evidence + end) is not None for end in alike):
            return more
    return left


class SequentialJudges:
    """Chooses each point's judge by the evidence so far and what was `known` of the original."""

    def __init__(self, known: HitCount = NOTHING) -> None:
        self._known = known
        self._ledger: dict[str, HitCount] = {}
        self._accepted: set[str] = set()
        self._as_often: set[str] = set()  # shown to fail about as often as the original
        self._original: str | None = None
        self._setbacks = 0
        self._unseen_misses = 0.0

    def judge_for(self, point: Point) -> Judge:
        if point.purpose is Purpose.CALIBRATE:
            usual = Calibration()
            known = self._known.hits >= usual.straight and not self._known.misses
            return calibrating(Calibration(straight=1) if known else usual)
        if point.purpose is Purpose.REPLAY:
            return self._judge((PresenceTest(self._seen, 0.0, _ALPHA, _REPLAY_BETA),))
        if point.purpose is Purpose.RATE and point.config_key == self._original:
            hits = _MEASURED_AGAIN_HITS if self._setbacks else _MEASURED_HITS
            return calibrating(Calibration(hits, hits, _MEASURED_CAP), self._anchor())
        if point.purpose is Purpose.RATE:
            return SequentialJudge((self._rate_test(_RARER_BETA),), _RARER_CAP)
        if point.purpose is Purpose.CONFIRM:
            strict = PresenceTest(self._seen, _LEAST_FALSE_RATE, _CONFIRM_ALPHA, _REPLAY_BETA)
            return SequentialJudge((strict, self._rate_test(_CONFIRM_RARER_BETA)), _RARER_CAP)
        if point.replica == 0:
            return self._judge(self._candidate_tests(_BETA))
        prior = self._ledger.get(point.config_key, NOTHING)
        return self._judge(self._candidate_tests(_RECHECK_BETA), prior)

    def learn(self, point: Point, verdict: Verdict) -> None:
        key, fresh = point.config_key, HitCount.of(verdict.tally)
        before = self._ledger.get(key, NOTHING)
        self._ledger[key] = before + fresh
        if point.purpose is Purpose.CALIBRATE:
            self._original = key
        if verdict.reproduces:
            if point.purpose in {Purpose.CALIBRATE, Purpose.RATE, Purpose.CONFIRM}:
                self._as_often.add(key)
            if point.purpose is Purpose.PROBE:
                self._unseen_misses += self._misses_of_the_wrongly_rejected()
            self._accepted.add(key)
        elif verdict.reproduces is False and point.purpose in {Purpose.REPLAY, Purpose.CONFIRM}:
            self._accepted = set(self._as_often)
            self._setbacks += 1

    @property
    def rate(self) -> float:
        """The rate at which what was accepted so far is known to fail at least."""
        return _within_bounds(self._seen.low(_LEARN_ALPHA))

    @property
    def _seen(self) -> HitCount:
        """Every trial of what was accepted, and the misses of such points that were not."""
        pooled = sum((self._ledger[key] for key in sorted(self._accepted)), self._known)
        return pooled + HitCount(0, round(self._unseen_misses))

    def _misses_of_the_wrongly_rejected(self) -> float:
        """Per acceptance, the misses in candidates like it that were rejected by bad luck.

        Accepted candidates alone look better than they are, which would make the test hastier.
        """
        seen = self._seen
        if not seen.misses:
            return 0.0
        return _BETA / (1 - _BETA) * misses_that_tell(seen, _BETA)

    def _judge(self, tests: tuple[Test, ...], prior: HitCount = NOTHING) -> SequentialJudge:
        return SequentialJudge(tests, _CAP, prior)

    def _candidate_tests(self, beta: float) -> tuple[Test, ...]:
        """Stricter after every setback."""
        alpha = _ALPHA / 10**self._setbacks
        return (PresenceTest(self._seen, 0.0, alpha, beta, _CERTAIN),)

    def _rate_test(self, beta: float) -> Sprt:
        """As often as the original, or far less often?"""
        rate = _within_bounds(self._anchor().low(_COMPARED_ALPHA))
        return Sprt(rate, rate / _RARER, _RARER_ALPHA, beta)

    def _anchor(self) -> HitCount:
        """What is known of the original alone."""
        return self._known if self._original is None else self._known + self._ledger[self._original]


def _within_bounds(rate: float) -> float:
    return min(_MOST_RATE, max(_LEAST_RATE, rate))
