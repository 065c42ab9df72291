"""Is the failure gone? The judge of a stack of mitigations, as flaky-aware as the failure demands.

First the original is run until its rate is known. A stack is then a test between "fails like the original" and "fails at
most this often". A failure of another kind counts as a failure here: a stack that crashes has mended nothing.
"""

from dataclasses import dataclass

from aorta.core.outcome import Tally, Verdict
from aorta.core.point import Point, Purpose
from aorta.core.sprt import Calibration, Evidence, Sprt
from aorta.engine.judge import CalibrationJudge, Judge

_ALPHA = 0.01  # the chance to call a stack failing that is good enough
_BETA = 0.01  # the chance to call a stack good that fails like the original
_CONFIRM_BETA = 0.005
_CERTAIN = 0.99
_LEARN_ALPHA = 0.2  # the rate of the original is its 80 % lower bound
_LIKELY_ALPHA = 0.5
_LEAST_RATE = 0.02


@dataclass(frozen=True)
class GoneJudge:
    """`reproduces` of its verdicts means: gone. None where the cap comes before the answer."""

    test: Sprt
    cap: int

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.evidence == 0:
            return None
        fails = self.test.decide(failures(tally))
        if fails is None and tally.evidence < self.cap:
            return None
        return Verdict(None if fails is None else not fails, tally, _said(tally))

    def needs(self, tally: Tally) -> int:
        if self.verdict(tally):
            return 0
        evidence, left = failures(tally), self.cap - tally.evidence
        for more in range(1, left):
            ends = (Evidence(more, more), Evidence(0, more))
            if any(self.test.decide(evidence + end) is not None for end in ends):
                return more
        return max(1, left)

    def at_most(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else max(1, self.cap - tally.evidence)


class GoneJudges:
    """Learns the rate of the original from its calibration; `max_rate` is how often a mended run may still fail."""

    def __init__(self, cap: int, max_rate: float = 0.0) -> None:
        self.cap = cap
        self.max_rate = max_rate
        self.original = Evidence()
        self._calibration = Calibration(cap=max(cap, Calibration().straight))

    def judge_for(self, point: Point) -> Judge:
        if point.purpose is Purpose.CALIBRATE:
            return CalibrationJudge(self._calibration)
        strict = point.purpose is Purpose.CONFIRM
        rate = self.rate if strict else self.likely_rate
        present = max(rate, min(0.99, 2 * self.max_rate))
        test = Sprt(present, self.max_rate, _ALPHA, _CONFIRM_BETA if strict else _BETA)
        return GoneJudge(test, 2 * self.cap if strict else self.cap)

    def learn(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.CALIBRATE:
            self.original = Evidence.of(verdict.tally)

    @property
    def rate(self) -> float:
        """What the original is known to fail at least."""
        return min(_CERTAIN, max(_LEAST_RATE, self.original.low(_LEARN_ALPHA)))

    @property
    def likely_rate(self) -> float:
        """For candidates, whose luck a confirmation would find out: the rate as it looks, not the least it can be."""
        if self._calibration.is_certain(self.original):
            return _CERTAIN
        return min(_CERTAIN, max(_LEAST_RATE, self.original.low(_LIKELY_ALPHA)))


def failures(tally: Tally) -> Evidence:
    return Evidence(tally.reproduced + tally.other, tally.evidence)


def chance_of_luck(rate: float, tally: Tally) -> float:
    """How likely so many trials in a row would be clean if nothing had changed."""
    clean = tally.evidence - failures(tally).hits
    return float((1 - rate) ** clean)


def _said(tally: Tally) -> str:
    seen = failures(tally)
    return f"{seen.hits} of {seen.trials} failed"
