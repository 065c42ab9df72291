"""Judges: when do the outcomes seen so far settle a point?

A judge sees counts and nothing else. It says what they amount to, or how many more trials the
answer needs at least and could use at most; the engine runs no trial after a judge is sure. Errors
are no evidence: the engine retries them.

Where no k-of-n is given, the sequential judge measures how often the original fails, then chooses
the number of trials itself. Every candidate is a test between "fails like what was accepted so far"
and "does not fail". What happens next is a function of what was learned, in its order: replayed, it
judges the same.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from aorta.core.axis import Point, Purpose
from aorta.core.sprt import NOTHING, Calibration, HitCount, PresenceTest, Sprt, misses_that_tell
from aorta.core.trial import Tally, Verdict


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


@dataclass(frozen=True)
class SequentialRules:
    """Error rates. A wrong acceptance loses the bug, a wrong rejection costs size alone."""

    alpha: float = 0.002  # 0.2 wrong acceptances expected in a hundred candidates
    beta: float = 0.1
    recheck_beta: float = 0.002  # what minimality rests on is asked again with fresh trials
    confirm_alpha: float = 1e-4
    replay_beta: float = 1e-3  # a false alarm throws accepted work away
    cap: int = 80
    calibration: Calibration = field(default_factory=Calibration)


_LEAST_FALSE_RATE = 0.005  # no oracle is trusted further than this when the answer is confirmed
_MOST_RATE = 0.99  # of the drift tests: no failure is taken to be certain
_LEAST_RATE = 0.03  # rarer failures would need more trials than the cap allows
# of failures, before anything was seen, are taken to show every time: 35 trials where 0 costs 43
_CERTAIN = 0.2
_LEARN_ALPHA = 0.2  # the learned rate is the 80 % lower bound
_DRIFT = 0.8  # a candidate must be able to fail this often, relative to the original
_DRIFT_ALPHA = 0.05
_DRIFTED = 4.0  # a confirmed answer is told apart from what fails this many times less often
# After a setback candidates must do better than that, or they fail it again.
_DRIFTED_CANDIDATE = 2.0
_DRIFT_TEST_ALPHA = 0.02


Test = Sprt | PresenceTest | Calibration


@dataclass(frozen=True)
class SequentialJudge:
    """Accepts when every test does; rejects when one does, at the cap, or at a lower rate."""

    tests: tuple[Test, ...]
    cap: int
    prior: HitCount = NOTHING
    least_rate: float = 0.0

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.evidence == 0:
            return None  # every question gets at least one trial of its own
        fresh = HitCount.of(tally)
        decision = self.decide(self.prior + fresh)
        if decision is None and fresh.trials < self.cap:
            return None
        return Verdict(decision is True, tally, _said(fresh, self.prior, decision))

    def decide(self, evidence: HitCount) -> bool | None:
        decisions = {test.decide(evidence) for test in self.tests}
        if False in decisions:
            return False
        if None in decisions:
            return None
        return evidence.high(_DRIFT_ALPHA) >= self.least_rate

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
    """Chooses the judge of each point from the evidence of all points before it, and from what was
    `known` of the original before the first.
    """

    def __init__(self, rules: SequentialRules | None = None, known: HitCount = NOTHING) -> None:
        self.rules = rules or SequentialRules()
        self._known = known
        self._ledger: dict[str, HitCount] = {}
        self._accepted: set[str] = set()
        self._original: str | None = None
        self._setbacks = 0
        self._unseen_misses = 0.0

    def judge_for(self, point: Point) -> Judge:
        rules = self.rules
        if point.purpose is Purpose.CALIBRATE:
            known = self._known.hits >= rules.calibration.straight and not self._known.misses
            again = replace(rules.calibration, straight=1) if known else rules.calibration
            return calibrating(again)
        if point.purpose is Purpose.REPLAY:
            return self._judge(self._tests(rules.alpha, rules.replay_beta))
        if point.purpose is Purpose.CONFIRM:
            strict = self._tests(rules.confirm_alpha, rules.replay_beta, _LEAST_FALSE_RATE)
            return self._judge((*strict, self._drift_test(rules.replay_beta, _DRIFTED)))
        if point.replica == 0:
            return self._judge(self._candidate_tests(rules.beta))
        prior = self._ledger.get(point.config_key, NOTHING)
        return self._judge(self._candidate_tests(rules.recheck_beta), prior)

    def learn(self, point: Point, verdict: Verdict) -> None:
        key, fresh = point.config_key, HitCount.of(verdict.tally)
        before = self._ledger.get(key, NOTHING)
        self._ledger[key] = before + fresh
        if point.purpose is Purpose.CALIBRATE:
            self._original = key
        if verdict.reproduces:
            if point.purpose is Purpose.PROBE:
                self._unseen_misses += self._misses_of_the_wrongly_rejected()
            self._accepted.add(key)
        elif verdict.reproduces is False and point.purpose in {Purpose.REPLAY, Purpose.CONFIRM}:
            self._accepted.discard(key)
            self._setbacks += 1

    @property
    def rate(self) -> float:
        """The rate at which what was accepted so far is known to fail at least."""
        return min(_MOST_RATE, max(_LEAST_RATE, self._seen.low(_LEARN_ALPHA)))

    @property
    def _seen(self) -> HitCount:
        """Every trial of what was accepted, and the misses of such points that were not."""
        pooled = sum((self._ledger[key] for key in sorted(self._accepted)), self._known)
        return pooled + HitCount(0, round(self._unseen_misses))

    def _misses_of_the_wrongly_rejected(self) -> float:
        """Per acceptance, the misses that went into candidates like it and were rejected by bad
        luck.

        Accepted candidates alone look better than they are, which would make the test hastier,
        which would make them look better still. While nothing accepted has ever missed, there is
        nothing to correct.
        """
        seen = self._seen
        if not seen.misses:
            return 0.0
        beta = self.rules.beta
        return beta / (1 - beta) * misses_that_tell(seen, beta)

    def _judge(self, tests: tuple[Test, ...], prior: HitCount = NOTHING) -> SequentialJudge:
        return SequentialJudge(tests, self.rules.cap, prior, self._least_rate())

    def _candidate_tests(self, beta: float) -> tuple[Test, ...]:
        """Stricter after every setback; from the first one on, a rarer failure is another one."""
        alpha = self.rules.alpha / 10**self._setbacks
        tests = (PresenceTest(self._seen, 0.0, alpha, beta, _CERTAIN),)
        return (*tests, self._drift_test(beta, _DRIFTED_CANDIDATE)) if self._setbacks else tests

    def _tests(self, alpha: float, beta: float, absent: float = 0.0) -> tuple[PresenceTest, ...]:
        return (PresenceTest(self._seen, absent, alpha, beta),)

    def _drift_test(self, beta: float, factor: float) -> Sprt:
        """As often as the original, or far less often?"""
        rate = min(self.rate, max(_LEAST_RATE, self._anchor().low(_LEARN_ALPHA)))
        return Sprt(rate, rate / factor, _DRIFT_TEST_ALPHA, beta)

    def _least_rate(self) -> float:
        return _DRIFT * self._anchor().low(_LEARN_ALPHA)

    def _anchor(self) -> HitCount:
        """What is known of the original alone."""
        return self._known if self._original is None else self._known + self._ledger[self._original]


def _said(fresh: HitCount, prior: HitCount, decision: bool | None) -> str:
    words = f"{fresh.hits} of {fresh.trials} reproduced"
    if prior.trials:
        words += f", after {prior.hits} of {prior.trials} before"
    return words if decision is not None else f"{words}: undecided"
