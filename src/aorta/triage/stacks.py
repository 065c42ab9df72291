"""The smallest stack that works: which mitigations may be stacked, when a stack is known to work,
and what was found: optimize.json and optimize.md.
"""

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta.core.axis import Point, Purpose, as_indexes
from aorta.core.durations import show_duration
from aorta.core.errors import SpecError
from aorta.core.stats import rate_to_json
from aorta.core.trial import Tally, Verdict
from aorta.engine.events import Reason
from aorta.engine.judge import (
    Calibration,
    HitCount,
    Judge,
    PresenceTest,
    calibrating,
    fewest_that_decide,
    log_chance,
)
from aorta.probe.gpus import platform_here
from aorta.registry.environments import NO_MITIGATION
from aorta.registry.mitigation import Mitigation, why_inert
from aorta.registry.mitigations import load_mitigations, shown_env
from aorta.search.cure import AXIS, Cure, CureSearch
from aorta.triage.cells import CellStats
from aorta.triage.markdown import different_lines, in_sections
from aorta.triage.matrix import TriageReport
from aorta.triage.plan import Plan

_LONGEST_NAME = 80


@dataclass(frozen=True)
class StackPlan(Plan):
    """With the mitigations to stack on the baseline; `left_out` says why others not."""

    candidates: tuple[Mitigation, ...]
    left_out: Mapping[str, str]
    sets: int  # so many minimal ones are looked for

    @property
    def fingerprint(self) -> Mapping[str, object]:
        chosen = [[entry.name, sorted(entry.env.items())] for entry in self.candidates]
        return {**super().fingerprint, "candidates": chosen, "sets": self.sets}

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
    yield f"at most {plan.baseline.trials} trials a stack"


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
    return StackPlan(plan.recipe, plan.cells, plan.baseline, tuple(chosen), left_out, sets)


def _named(plan: Plan) -> list[Mitigation]:
    """The mitigations that the recipe names, each once; none means: all there are."""
    known = load_mitigations(plan.recipe.sidecars)
    names = dict.fromkeys(name for cell in plan.cells for name in cell.cell.mitigations)
    return [known[name] for name in names if known[name].env]


def _why_not(entry: Mitigation, plan: Plan, owner: Mapping[str, Mitigation]) -> str | None:
    for name, value in entry.env.items():
        if name in owner and owner[name].env[name] != value:
            return f"sets {name} otherwise than {owner[name].name}"
    return why_inert(entry, platform_here(), plan.baseline.variables)


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


# -- what was found

_SURE = 0.05  # bounds are 95 %


@dataclass(frozen=True)
class Stack:
    """One set that makes the failure go away, and why none of it can be left out."""

    mitigations: tuple[str, ...]
    tally: Tally
    luck: float
    step_time_ms: float | None
    seconds: float
    needed: Mapping[str, Verdict | None]  # by mitigation: the verdict without it

    @property
    def rate_below(self) -> float:
        return failures(self.tally).high(_SURE)

    @property
    def is_minimal(self) -> bool:
        return all(v is not None and v.reproduces is False for v in self.needed.values())

    @property
    def cost(self) -> tuple[int, float]:
        return len(self.mitigations), self.step_time_ms or self.seconds

    def to_json(self) -> dict[str, Any]:
        return {
            "mitigations": list(self.mitigations),
            "failed": failures(self.tally).hits,
            "of": self.tally.evidence,
            "rate_below": round(self.rate_below, 4),
            "confidence": 1 - _SURE,
            "chance_of_luck": float(f"{self.luck:.3g}"),
            "one_minimal": self.is_minimal,
            "step_time_ms": self.step_time_ms,
            "mean_wall_clock_sec": round(self.seconds, 6),
            "without": {
                name: None if verdict is None else _counts(verdict)
                for name, verdict in self.needed.items()
            },
        }


@dataclass(frozen=True, kw_only=True)
class StackReport(TriageReport):
    """The smallest stacks of a run, smallest first and the cheapest in step time among equals."""

    NAME = "optimize"
    SCHEMA = "aorta.optimize/1"

    plan: StackPlan
    search: CureSearch
    stacks: Sequence[Stack]
    failed_differently: Sequence[str] = ()

    @property
    def original(self) -> Tally:
        return self.search.verdicts.get(self.search.without_any, Verdict(None)).tally

    @property
    def undecided(self) -> list[tuple[tuple[str, ...], int]]:
        """Sets that did not fail once, in too few trials to tell that from luck."""
        return [] if self.stacks else _undecided(self.search)

    @property
    def candidates(self) -> list[str]:
        return [entry.name for entry in self.plan.candidates]

    @property
    def status(self) -> str:
        if self.ending.reason is not Reason.DONE:
            return "partial"
        if not self.search.fails_at_all:
            return "did_not_reproduce"
        return "found" if self.stacks else "not_found"

    @property
    def no_answer(self) -> str | None:
        if self.status == "did_not_reproduce":
            return "the failure did not show without mitigations: there is nothing to mend"
        if self.status != "not_found":
            return None
        if not self.undecided:
            return "no stack of these mitigations makes the failure go away"
        names, trials = self.undecided[0]
        return (
            f"not known: with {' + '.join(names)} it failed in 0 of {trials} trials, too few to "
            "tell from luck; more --trials would tell"
        )

    @property
    def recommended(self) -> Stack | None:
        return self.stacks[0] if self.stacks else None

    @property
    def lines(self) -> list[str]:
        """The recommended variables, ready for a shell."""
        if self.recommended is None:
            return []
        chosen: dict[str, str] = {}
        for entry in self.plan.candidates:
            if entry.name in self.recommended.mitigations:
                chosen |= entry.env
        return [f"export {name}={shlex.quote(chosen[name])}" for name in sorted(chosen)]

    def answer(self) -> dict[str, Any]:
        search = self.search
        return {
            "status": self.status,
            "environment": self.plan.baseline.environment.name,
            "original": rate_to_json(self.original.reproduced, self.original.evidence),
            "candidates": self.candidates,
            "left_out": dict(self.plan.left_out),
            "recommended": self.recommended.to_json() if self.recommended else None,
            "environment_lines": self.lines,
            "sets": [stack.to_json() for stack in self.stacks],
            "unconfirmed": [[search.names[i] for i in items] for items in search.unconfirmed],
            "undecided": [
                {"mitigations": list(names), "failed": 0, "of": trials}
                for names, trials in self.undecided
            ],
            "why": self.no_answer,
            "trials": self.ending.trials,
            "resumed_trials": self.ending.resumed_trials,
            "stacks_judged": len(search.verdicts),
            "failed_differently": list(self.failed_differently),
        }


def found_stacks(
    search: CureSearch, judges: GoneJudges, stats: Callable[[Sequence[int]], CellStats]
) -> list[Stack]:
    stacks = [_stack(cure, search, judges, stats(cure.items)) for cure in search.cures]
    return sorted(stacks, key=lambda stack: stack.cost)


def _undecided(search: CureSearch) -> list[tuple[tuple[str, ...], int]]:
    """Smallest first, and of each how many trials there were."""
    trials: Counter[tuple[int, ...]] = Counter()
    failed: set[tuple[int, ...]] = set()
    for point, verdict in search.verdicts.items():
        items, seen = as_indexes(point[AXIS]), failures(verdict.tally)
        trials[items] += seen.trials
        failed |= {items} if seen.hits or not items else set()
    clean = [(items, of) for items, of in trials.items() if of and items not in failed]
    ranked = sorted(clean, key=lambda found: (len(found[0]), -found[1]))
    return [(tuple(search.names[item] for item in items), of) for items, of in ranked]


def _stack(cure: Cure, search: CureSearch, judges: GoneJudges, measured: CellStats) -> Stack:
    times = measured.step_times
    return Stack(
        mitigations=tuple(search.names[item] for item in cure.items),
        tally=cure.confirmed.tally,
        luck=judges.chance_of_luck(cure.confirmed.tally),
        step_time_ms=round(times.mean, 6) if times.source == "per_step" else None,
        seconds=measured.mean_wall_clock_sec,
        needed={search.names[item]: _without(search, cure.items, item) for item in cure.items},
    )


def _without(search: CureSearch, items: Sequence[int], item: int) -> Verdict | None:
    rest = [other for other in items if other != item]
    if not rest:
        original = search.verdicts[search.without_any]
        return Verdict(False, original.tally, original.why)
    return search.verdict_of(rest)


def _counts(verdict: Verdict) -> dict[str, int]:
    seen = failures(verdict.tally)
    return {"failed": seen.hits, "of": seen.trials}


def optimize_markdown(found: StackReport) -> str:
    """optimize.md: what a person pastes into a ticket."""
    content, ending = found.plan.recipe.content, found.ending
    header = [
        *([f"- Ticket: {content.ticket}"] if content.ticket else []),
        f"- Without mitigations: {found.original.reproduced} of {found.original.evidence} failed",
        f"- Candidates: {', '.join(found.candidates)}",
        f"- Trials: {ending.trials}, {show_duration(ending.seconds)}",
        *([f"- **Not finished**: {ending.detail}"] if ending.detail else []),
        *(f"- Left out `{name}`: {reason}" for name, reason in found.plan.left_out.items()),
    ]
    why = found.no_answer or "stopped before an answer"
    answer = ["## Recommended", "", "```sh", *found.lines, "```"]
    return in_sections(
        f"The smallest stack that works - {content.workload}",
        found.warnings,
        header,
        answer if found.recommended else ["## Answer", "", f"{why[:1].upper()}{why[1:]}."],
        [f"- {_in_words(stack)}" for stack in found.stacks],
        different_lines(found.failed_differently),
    )


def _in_words(stack: Stack) -> str:
    without = [
        f"without {name}: {'not tried' if verdict is None else verdict.why}"
        for name, verdict in stack.needed.items()
    ]
    step = f"; {stack.step_time_ms:.4g} ms a step" if stack.step_time_ms else ""
    return (
        f"With {' + '.join(stack.mitigations)}, {_said(stack.tally)}: the rate is below "
        f"{100 * stack.rate_below:.0f} % (95 % sure), and luck alone would do this with a chance "
        f"of {stack.luck:.1g}; {'; '.join(without)}{step}"
    )
