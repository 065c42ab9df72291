"""`--mode optimize`: the smallest stack of mitigations that stops the failure (optimize.json)."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from aorta.core.axis import Point, Purpose, as_indexes
from aorta.core.durations import show_duration
from aorta.core.errors import SpecError
from aorta.core.names import slug
from aorta.core.stats import rate_to_json
from aorta.core.trial import Tally, TrialSpec, Verdict
from aorta.engine.events import Note, PointDecided, Reason, TrialRecord
from aorta.engine.judge import (
    NOTHING,
    Calibration,
    HitCount,
    Judge,
    PresenceTest,
    calibrating,
    fewest_that_decide,
    log_chance,
)
from aorta.engine.question import Answer, Budget
from aorta.probe.gpus import platform_here
from aorta.registry.environments import NO_MITIGATION
from aorta.registry.mitigation import Mitigation, why_inert
from aorta.registry.mitigations import load_mitigations, shown_env
from aorta.search.cure import AXIS, CureSearch
from aorta.triage.matrix import in_sections
from aorta.triage.plan import Plan, PlannedCell, TriageReport
from aorta.workloads.results import TrialLabel
from aorta.workloads.trial import WorkloadRequest, workload_experiment

_LONGEST_NAME = 80


class StackRun:
    """Experiment of a stack: points say which candidates are on, `left_out` why others are not."""

    def __init__(self, plan: Plan, seen: HitCount = NOTHING) -> None:
        """`seen`: how often it was seen to fail before, without any."""
        self.plan, self.oracle = plan, plan.baseline.experiment.deciding
        self.candidates, self.left_out = _candidates(plan)
        chosen = [[entry.name, sorted(entry.env.items())] for entry in self.candidates]
        self.fingerprint = {**plan.fingerprint, "candidates": chosen}
        self.search = self.cures = CureSearch([entry.name for entry in self.candidates])
        self.judges = self.gone = GoneJudges(plan.baseline.trials, seen)

    def rules(self, budget: Budget) -> dict[str, Any]:
        """Of the question, besides what every mode asks."""
        return {"budget": budget, "must_tell": True}

    def describe(self) -> Iterator[str]:
        yield f"the smallest of {len(self.candidates)} mitigations that makes the failure go away"
        for entry in self.candidates:
            yield f"  {entry.name}: {shown_env(entry.env)}"
        for name, reason in self.left_out.items():
            yield f"  left out {name}: {reason}"
        yield f"at most {self.plan.baseline.trials} trials a stack"

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        return workload_experiment(self._request(point)).trial(Point.of({}), index, trial_dir)

    def place(self, record: TrialRecord) -> tuple[PlannedCell, WorkloadRequest, TrialLabel, Path]:
        point, request = record.point, self._request(record.point)
        label = TrialLabel(request.workload, record.index)
        purpose = f"{point.purpose.value}{point.replica}"
        folder = Path("cells", slug(self.name_of(point))) / purpose
        return self.plan.baseline, request, label, folder / label.relative_path

    def decided(self, event: PointDecided) -> Note:
        """Here a verdict says "gone", where other searches say "reproduces"."""
        point, verdict = event.point, event.verdict
        if not self._stack(point):
            word = {True: "it fails", False: "it does not fail", None: "cannot tell"}
        else:
            word = {True: "gone", False: "still fails", None: "cannot tell"}
        return Note(f"{self.name_of(point)}: {word[verdict.reproduces]} ({verdict.why})")

    def report(
        self, answer: Answer, run_dir: Path, created: str, warnings: Sequence[str]
    ) -> "StackReport":
        return StackReport(
            plan=self.plan,
            run=self,
            ending=answer.ending,
            created=created,
            run_dir=run_dir,
            warnings=warnings,
            failure=answer.expected,
        )

    def _request(self, point: Point) -> WorkloadRequest:
        stack = [(entry.name, entry.env) for entry in self._stack(point)]
        return replace(self.plan.baseline.request, mitigations=stack)

    def _stack(self, point: Point) -> tuple[Mitigation, ...]:
        return tuple(self.candidates[index] for index in as_indexes(point[AXIS]))

    def name_of(self, point: Point) -> str:
        """`a+b`, or how many of how many where that would be too long."""
        stack = self._stack(point)
        joined = "+".join(entry.name for entry in stack)
        if len(joined) <= _LONGEST_NAME:
            return joined or NO_MITIGATION
        return f"{len(stack)}_of_{len(self.candidates)}_{point.config_key[:8]}"


def _candidates(plan: Plan) -> tuple[list[Mitigation], dict[str, str]]:
    """What may be stacked on the baseline and can act here; and why the others are left out."""
    known = load_mitigations(plan.recipe.sidecars)
    names = dict.fromkeys(name for cell in plan.cells for name in cell.cell.mitigations)
    named = [known[name] for name in names if known[name].env]
    left_out: dict[str, str] = {}
    chosen: list[Mitigation] = []
    owner: dict[str, Mitigation] = {}
    for entry in named or known.values():
        reason = _why_not(entry, plan, owner)
        if reason is None:
            chosen.append(entry)
            owner |= dict.fromkeys(entry.env, entry)
        elif named or reason.startswith("sets"):
            left_out[entry.name] = reason
    if not chosen:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise SpecError(f"no mitigation can act here: {reasons}", where=plan.recipe.file)
    return chosen, left_out


def _why_not(entry: Mitigation, plan: Plan, owner: Mapping[str, Mitigation]) -> str | None:
    for name, value in entry.env.items():
        if name in owner and owner[name].env[name] != value:
            return f"sets {name} otherwise than {owner[name].name}"
    return why_inert(entry, platform_here(), plan.baseline.variables)


# -- when a stack is known to work

_ALPHA = 0.01  # the chance to call a stack failing that is good enough
_BETA = 0.01  # the chance to call a stack good that fails like the original
_CONFIRM_BETA = 0.004  # five clean trials in a row where the original failed five times of five
_CERTAIN = 0.5  # of failures, before anything was seen, always happen
_STRAIGHT = 5  # failures of the original without a miss


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


class GoneJudges:
    """Learns the rate of the original from its calibration, and from what was `seen` before."""

    def __init__(self, cap: int, seen: HitCount = NOTHING) -> None:
        self.cap = cap
        self.original = self.seen = seen
        # That it is gone is believed the sooner, the better its rate is known.
        self._calibration = Calibration(straight=_STRAIGHT, cap=max(cap, _STRAIGHT))

    def judge_for(self, point: Point) -> Judge:
        """What always failed is first taken as certain: confirmation catches lucky stacks."""
        if point.purpose is Purpose.CALIBRATE:
            return calibrating(self._calibration, self.seen)
        if point.purpose is Purpose.CONFIRM:
            return GoneJudge(PresenceTest(self.original, 0.0, _ALPHA, _CONFIRM_BETA), 2 * self.cap)
        return GoneJudge(PresenceTest(self.original, 0.0, _ALPHA, _BETA, _CERTAIN), self.cap)

    def learn(self, point: Point, verdict: Verdict) -> None:
        if point.purpose is Purpose.CALIBRATE:
            self.original = self.seen + HitCount.of(verdict.tally)

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


@dataclass(frozen=True, kw_only=True)
class StackReport(TriageReport):
    """The smallest stack of a run, or why there is none."""

    NAME = "optimize"
    SCHEMA = "aorta.optimize/1"

    run: StackRun

    @property
    def original(self) -> Tally:
        search, seen = self.run.cures, self.run.gone.seen
        fresh = search.verdicts.get(search.without_any, Verdict(None)).tally
        return fresh + Tally(seen.hits, seen.misses)

    @property
    def status(self) -> str:
        if self.ending.reason is not Reason.DONE:
            return "partial"
        if not self.run.cures.fails_at_all:
            return "did_not_reproduce"
        return "found" if self.recommended else "not_found"

    @property
    def no_answer(self) -> str | None:
        if self.status == "did_not_reproduce":
            return "the failure did not show without mitigations: there is nothing to mend"
        if self.status != "not_found":
            return None
        if any(verdict.reproduces is None for verdict in self.run.cures.verdicts.values()):
            return "not known: more --trials would tell"
        return "no stack of these mitigations makes the failure go away"

    @cached_property
    def recommended(self) -> dict[str, Any] | None:
        """The set that makes the failure go away, and why none of it can be left out."""
        search = self.run.cures
        if search.cure is None:
            return None
        items, tally = search.cure.items, search.cure.confirmed.tally
        seen = failures(tally)
        without = {search.names[item]: self._without(items, item) for item in items}
        return {
            "mitigations": [search.names[item] for item in items],
            "failed": seen.hits,
            "of": seen.trials,
            "rate_below": round(seen.high(_SURE), 4),
            "confidence": 1 - _SURE,
            "chance_of_luck": float(f"{self.run.gone.chance_of_luck(tally):.3g}"),
            "one_minimal": all(v and v.reproduces is False for v in without.values()),
            "without": {
                name: v and {"failed": failures(v.tally).hits, "of": v.tally.evidence}
                for name, v in without.items()
            },
        }

    def _without(self, items: Sequence[int], item: int) -> Verdict | None:
        rest = [other for other in items if other != item]
        return self.run.cures.verdict_of(rest) if rest else Verdict(False, self.original)

    @property
    def lines(self) -> list[str]:
        """The recommended variables, ready for a shell."""
        names = self.recommended["mitigations"] if self.recommended else ()
        chosen: dict[str, str] = {}
        for entry in self.run.candidates:
            if entry.name in names:
                chosen |= entry.env
        return [f"export {name}={shlex.quote(chosen[name])}" for name in sorted(chosen)]

    def answer(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "environment": self.plan.baseline.environment.name,
            "original": rate_to_json(self.original.reproduced, self.original.evidence),
            "candidates": [entry.name for entry in self.run.candidates],
            "left_out": dict(self.run.left_out),
            "recommended": self.recommended,
            "environment_lines": self.lines,
            "why": self.no_answer,
            "trials": self.ending.trials,
            "resumed_trials": self.ending.resumed_trials,
            "stacks_judged": len(self.run.cures.verdicts),
        }

    def markdown(self) -> str:
        """optimize.md: what a person pastes into a ticket."""
        content, ending, stack = self.plan.recipe.content, self.ending, self.recommended
        header = [
            *([f"- Ticket: {content.ticket}"] if content.ticket else []),
            f"- Without mitigations: {_said(self.original)}",
            f"- Trials: {ending.trials}, {show_duration(ending.seconds)}",
            *([f"- **Not finished**: {ending.detail}"] if ending.detail else []),
            *(f"- Left out `{name}`: {reason}" for name, reason in self.run.left_out.items()),
        ]
        answer = [f"**No answer**: {self.no_answer or 'stopped before one was known'}."]
        if stack:
            seen = f"{stack['failed']} of {stack['of']} failed"
            below = f"the rate is below {100 * stack['rate_below']:.0f} % (95 % sure)"
            names = " + ".join(stack["mitigations"])
            answer = ["```sh", *self.lines, "```", "", f"With {names}, {seen}: {below}."]
        title = f"The smallest stack that works - {content.workload}"
        return in_sections(title, self.warnings, header, answer)
