"""What may be stacked: the mitigations that a recipe names, or all, less those that cannot act or
contradict others.
"""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aorta.core.axis import Point, Purpose, as_indexes
from aorta.core.errors import SpecError
from aorta.core.trial import Tally, Verdict
from aorta.engine.judge import (
    Calibration,
    HitCount,
    Judge,
    PresenceTest,
    calibrating,
    fewest_that_decide,
    log_chance,
)
from aorta.probe.platform import platform_here
from aorta.registry.environments import NO_MITIGATION
from aorta.registry.mitigation import Mitigation, why_inert
from aorta.registry.mitigations import load_mitigations, shown_env
from aorta.search.cure import AXIS
from aorta.triage.plan import Plan, PlannedCell

_LONGEST_NAME = 80


@dataclass(frozen=True)
class StackPlan:
    """The original, and the mitigations to stack on it; `left_out` says why others not."""

    plan: Plan
    candidates: tuple[Mitigation, ...]
    left_out: Mapping[str, str]
    sets: int  # so many minimal ones are looked for

    @property
    def original(self) -> PlannedCell:
        return self.plan.baseline

    @property
    def fingerprint(self) -> Mapping[str, object]:
        chosen = [[entry.name, sorted(entry.env.items())] for entry in self.candidates]
        return {**self.plan.fingerprint, "candidates": chosen, "sets": self.sets}

    def stack(self, point: Point) -> tuple[Mitigation, ...]:
        return tuple(self.candidates[index] for index in as_indexes(point[AXIS]))

    def stack_name(self, point: Point) -> str:
        """`a+b`, or how many of how many where that would be too long."""
        stack = self.stack(point)
        joined = "+".join(entry.name for entry in stack)
        if len(joined) <= _LONGEST_NAME:
            return joined or NO_MITIGATION
        return f"{len(stack)}_of_{len(self.candidates)}_{point.config_key[:8]}"


def describe_stacks(plan: StackPlan) -> Iterator[str]:
    """Line by line, before anything runs."""
    yield f"the smallest of {len(plan.candidates)} mitigations that makes the failure go away"
    for entry in plan.candidates:
        yield f"  {entry.name}: {shown_env(entry.env)}"
    for name, reason in plan.left_out.items():
        yield f"  left out {name}: {reason}"
    yield f"at most {plan.original.trials} trials a stack"


def stack_plan(plan: Plan, sets: int = 1) -> StackPlan:
    """Chooses what may be stacked on the baseline of this plan: what can act here at all."""
    left_out: dict[str, str] = {}
    chosen: list[Mitigation] = []
    owner: dict[str, Mitigation] = {}
    named = _named(plan)
    for entry in named or load_mitigations(plan.recipe.sidecars).values():
        reason = _why_not(entry, plan, owner)
        if reason is None:
            chosen.append(entry)
            owner |= dict.fromkeys(entry.env, entry)
        elif named or reason.startswith("sets"):
            left_out[entry.name] = reason
    if not chosen:
        said = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise SpecError(f"no mitigation can act here: {said}", where=plan.recipe.file)
    return StackPlan(plan, tuple(chosen), left_out, sets)


def _named(plan: Plan) -> list[Mitigation]:
    """The mitigations that the recipe names, each once; none means: all there are."""
    known = load_mitigations(plan.recipe.sidecars)
    names = dict.fromkeys(name for cell in plan.cells for name in cell.cell.mitigations)
    return [known[name] for name in names if known[name].env]


def _why_not(entry: Mitigation, plan: Plan, owner: Mapping[str, Mitigation]) -> str | None:
    for name, value in entry.env.items():
        if name in owner and owner[name].env[name] != value:
            return f"sets {name} otherwise than {owner[name].name}"
    environment = plan.baseline.environment
    inherited: Mapping[str, str] = {} if environment.isolated else os.environ
    return why_inert(entry, platform_here(), {**inherited, **plan.baseline.env})


_ALPHA = 0.01  # the chance to call a stack failing that is good enough
_BETA = 0.01  # the chance to call a stack good that fails like the original
_CONFIRM_BETA = 0.004  # five clean trials in a row where the original failed five times of five
_CERTAIN = 0.5  # of failures, before anything was seen, always happen


@dataclass(frozen=True)
class GoneJudge:
    """`reproduces` of its verdicts means: gone. None where the cap comes before the answer."""

    test: PresenceTest
    cap: int

    def verdict(self, tally: Tally) -> Verdict | None:
        if tally.evidence == 0:
            return None
        fails = self.test.decide(failures(tally))
        if fails is None and tally.evidence < self.cap:
            return None
        return Verdict(None if fails is None else not fails, tally, _said(tally))

    def needs(self, tally: Tally) -> int:
        return fewest_that_decide(self.test.decide, failures(tally), self.at_most(tally))

    def at_most(self, tally: Tally) -> int:
        return 0 if self.verdict(tally) else max(1, self.cap - tally.evidence)


_STRAIGHT = 5  # failures of the original without a miss


class GoneJudges:
    """Learns the rate of the original from its calibration."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.original = HitCount()
        # That it is gone is believed the sooner, the better its rate is known.
        self._calibration = Calibration(straight=_STRAIGHT, cap=max(cap, _STRAIGHT))

    def judge_for(self, point: Point) -> Judge:
        """A candidate's good luck is found out by its confirmation, so that what always failed is
        first taken to be certain.
        """
        if point.purpose is Purpose.CALIBRATE:
            return calibrating(self._calibration)
        if point.purpose is Purpose.CONFIRM:
            return GoneJudge(PresenceTest(self.original, 0.0, _ALPHA, _CONFIRM_BETA), 2 * self.cap)
        return GoneJudge(PresenceTest(self.original, 0.0, _ALPHA, _BETA, _CERTAIN), self.cap)

    def learn(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.CALIBRATE:
            self.original = HitCount.of(verdict.tally)

    def chance_of_luck(self, tally: Tally) -> float:
        """How likely so many trials would be clean if nothing had changed."""
        clean = tally.evidence - failures(tally).hits
        return math.exp(log_chance(HitCount(0, clean), self.original))


def failures(tally: Tally) -> HitCount:
    return HitCount(tally.reproduced + tally.other, tally.evidence)


def _said(tally: Tally) -> str:
    seen = failures(tally)
    return f"{seen.hits} of {seen.trials} failed"
