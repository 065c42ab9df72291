"""Judges: when do the outcomes seen so far settle a point?

A judge sees counts and nothing else. It says what they amount to, or how many more trials the answer needs at least
and could use at most; the engine runs no trial after a judge is sure. Errors are no evidence: the engine retries them.
"""

from dataclasses import dataclass
from typing import Protocol

from aorta.core.outcome import Tally, Verdict
from aorta.core.point import Point


class Judge(Protocol):
    def verdict(self, tally: Tally) -> Verdict | None:
        """The verdict once the evidence settles it; None while it is open."""

    def needs(self, tally: Tally) -> int:
        """The fewest further trials that could settle it: these are certain not to be wasted. 0 when settled."""

    def at_most(self, tally: Tally) -> int:
        """The most further trials it could use. 0 when settled."""


class Judges(Protocol):
    """Chooses the judge of each point, and may learn from every verdict."""

    def judge_for(self, point: Point) -> Judge: ...

    def learn(self, point: Point, verdict: Verdict) -> None: ...


@dataclass(frozen=True)
class KOfN:
    """Reproduces if `k` of `n` trials do; stops at the k-th hit, and as soon as k is out of reach."""

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
