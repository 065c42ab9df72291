"""`--mode optimize`: the smallest stack of mitigations that makes the failure go away, in one environment."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.durations import show_duration
from aorta.core.errors import Exit
from aorta.core.names import slug
from aorta.core.oracle import Classified, Deciding
from aorta.core.stats import wilson
from aorta.core.trial import Tally, TrialEnd, TrialSpec, Verdict
from aorta.engine import events
from aorta.engine.events import Ending, Event, Listener, Reason, TrialRecord, failed_differently
from aorta.engine.question import Keep, Question
from aorta.engine.rundir import write_atomically, write_json
from aorta.engine.warmth import WarmRules
from aorta.executors import Executor
from aorta.search.cure import AXIS, Cure, CureSearch
from aorta.triage.cells import CellStats, aggregate_cell
from aorta.triage.files import RunFiles, SnapshotFor
from aorta.triage.markdown import aligned, different_lines
from aorta.triage.recipe import SCHEMA_VERSION, Recipe, with_timeout
from aorta.triage.running import RunSettings, check_recipe, open_session
from aorta.triage.stacks import (
    Goal,
    GoneJudges,
    StackPlan,
    failures,
    plan_stacks,
    stack_plan,
)
from aorta.workloads.results import TrialLabel, read_trial, trial_document
from aorta.workloads.trial import WorkloadExperiment, workload_experiment

_NO_ANSWER = {
    "did_not_reproduce": "the failure did not show without mitigations",
    "not_found": "no stack of these mitigations makes the failure go away",
}


@dataclass(frozen=True)
class StackReport:
    """The smallest stacks of a run, and where it lies."""

    optimized: "Optimized"
    run_dir: Path

    @property
    def ending(self) -> Ending:
        return self.optimized.ending

    def to_json(self) -> dict[str, Any]:
        return {**self.optimized.to_json(), "run_dir": str(self.run_dir)}

    @property
    def no_answer(self) -> str | None:
        """Why a run that went to its end has no answer."""
        return _NO_ANSWER.get(self.optimized.status)

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not Reason.DONE:
            return self.ending.exit_code
        return Exit.NO_ANSWER if self.no_answer else Exit.OK


def optimize(
    recipe: Recipe,
    settings: RunSettings,
    goal: Goal,
    open_executor: Callable[[], Executor],
    listeners: Sequence[Listener] = (),
) -> StackReport:
    """Find the smallest stack, and write what was found; also when the run is stopped before its end."""
    recipe = with_timeout(recipe, settings.timeout)
    plan = plan_stacks(recipe, settings, goal)
    session = open_session(plan.plan, settings)
    executor = open_executor()
    with session, closing(executor):
        files = RunFiles(session.run)
        resolved = files.adopt(recipe)
        plan = stack_plan(check_recipe(resolved, settings), goal)
        snapshots, warnings = files.take_snapshots(plan.plan, executor)
        run = _StackRun(plan, files)
        question = Question(
            search=run.search,
            judges=run.judges,
            experiment=run,
            fingerprint=plan.fingerprint,
            budget=settings.budget,
            keep=_keeper(run, snapshots),
            learn=run.learn,
            warm=WarmRules(proof=True),
            restart=run.begin_again,
        )
        words = [_in_words(listener, plan) for listener in listeners]
        answer = session.answer(question, executor, words)
        optimized = build_optimized(
            plan, run.search, run.judges, run.stats, answer.ending, session.run.about()["created"]
        )
        different = failed_differently(answer.records)
        optimized = replace(optimized, warnings=warnings, failed_differently=different)
        write_json(session.path / "optimize.json", SCHEMA, optimized.to_json())
        write_atomically(session.path / "optimize.md", optimize_markdown(optimized))
        return StackReport(optimized, session.path)


class _StackRun:
    """The experiment of a search for stacks: a point says which candidates are on."""

    def __init__(self, plan: StackPlan, files: RunFiles) -> None:
        self.plan = plan
        self.files = files
        self._warm_documents: list[Path] = []
        self._begin()

    def _begin(self) -> None:
        plan = self.plan
        self.search = CureSearch([entry.name for entry in plan.candidates], plan.goal.sets)
        self.judges = GoneJudges(plan.original.trials, plan.goal.max_rate)

    def learn(self, record: TrialRecord) -> None:
        if record.spared:
            self._warm_documents.append(self.trial_file(record.point, record.index))

    def begin_again(self) -> tuple[CureSearch, GoneJudges]:
        """Without anything that warm trials said."""
        while self._warm_documents:
            (self.files.path / self._warm_documents.pop()).unlink(missing_ok=True)
        self._begin()
        return self.search, self.judges

    @property
    def oracle(self) -> Deciding:
        return self.plan.original.experiment.deciding

    def experiment(self, point: Point) -> WorkloadExperiment:
        request = self.plan.original.request
        stack = [(entry.name, entry.env) for entry in self.plan.stack(point)]
        return workload_experiment(replace(request, mitigations=stack))

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        return self.experiment(point).trial(Point.of({}), index, trial_dir)

    def trial_file(self, point: Point, index: int) -> Path:
        label = TrialLabel(self.plan.original.request.workload, index)
        asked = f"{point.purpose.value}{point.replica}"
        return Path("cells", slug(self.plan.stack_name(point)), asked) / label.relative_path

    def stats(self, items: Sequence[int]) -> CellStats:
        """What the trials of one stack amount to, whatever they were asked for."""
        point = Point.of({AXIS: tuple(items)})
        folder = self.files.path / "cells" / slug(self.plan.stack_name(point))
        documents = (read_trial(path) for path in sorted(folder.rglob("trial_*.json")))
        return aggregate_cell(documents, self.plan.original.request.steps)


def _keeper(run: _StackRun, snapshots: SnapshotFor) -> Keep:
    def keep(record: TrialRecord, end: TrialEnd) -> None:
        request = run.experiment(record.point).request
        label = TrialLabel(request.workload, record.index)
        found = Classified(record.outcome, record.why, record.signature)
        document = trial_document(label, request, end, found, env=snapshots(run.plan.original))
        path = run.files.path / run.trial_file(record.point, record.index)
        write_atomically(path, document.to_json())

    return keep


def _in_words(listener: Listener, plan: StackPlan) -> Listener:
    """Here a verdict says "gone", where other searches say "reproduces"."""

    def listen(event: Event) -> None:
        if not isinstance(event, events.PointSettled):
            listener(event)
            return
        point, verdict = event.point, event.verdict
        if not plan.stack(point):
            word = {True: "it fails", False: "it does not fail", None: "cannot tell"}
        else:
            word = {True: "gone", False: "still fails", None: "cannot tell"}
        name = plan.stack_name(point)
        listener(events.Note(f"{name}: {word[verdict.reproduces]} ({verdict.why})"))

    return listen


SCHEMA = "aorta.optimize/1"
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


@dataclass(frozen=True)
class Optimized:
    plan: StackPlan
    ending: Ending
    created: str
    original: Tally
    original_fails: bool | None
    stacks: Sequence[Stack]
    unconfirmed: Sequence[tuple[str, ...]] = ()
    stacks_judged: int = 0
    warnings: Sequence[str] = ()
    failed_differently: Sequence[str] = ()

    @property
    def candidates(self) -> list[str]:
        return [entry.name for entry in self.plan.candidates]

    @property
    def status(self) -> str:
        if self.ending.reason is not Reason.DONE:
            return "partial"
        if not self.original_fails:
            return "did_not_reproduce"
        return "found" if self.stacks else "not_found"

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

    def to_json(self) -> dict[str, Any]:
        content = self.plan.plan.recipe.content
        low, high = wilson(self.original.reproduced, self.original.evidence)
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "workload": content.workload,
            "ticket": content.ticket,
            "environment": self.plan.original.environment.name,
            "run_timestamp": self.created,
            "original": {
                "reproduced": self.original.reproduced,
                "of": self.original.evidence,
                "low": round(low, 4),
                "high": round(high, 4),
            },
            "candidates": self.candidates,
            "left_out": dict(self.plan.left_out),
            "recommended": self.recommended.to_json() if self.recommended else None,
            "environment_lines": self.lines,
            "sets": [stack.to_json() for stack in self.stacks],
            "unconfirmed": [list(names) for names in self.unconfirmed],
            "trials": self.ending.trials,
            "resumed_trials": self.ending.resumed_trials,
            "warm": self.ending.warm_to_json(),
            "stacks_judged": self.stacks_judged,
            "warnings": list(self.warnings),
            "failed_differently": list(self.failed_differently),
        }


def build_optimized(
    plan: StackPlan,
    search: CureSearch,
    judges: GoneJudges,
    stats: Callable[[Sequence[int]], CellStats],
    ending: Ending,
    created: str,
) -> Optimized:
    """The sets that were found, smallest first, and the cheapest in step time among equals."""
    original = search.verdicts.get(search.without_any, Verdict(None))
    stacks = [_stack(cure, search, judges, stats(cure.items)) for cure in search.cures]
    return Optimized(
        plan=plan,
        ending=ending,
        created=created,
        original=original.tally,
        original_fails=search.fails_at_all,
        stacks=sorted(stacks, key=lambda stack: stack.cost),
        unconfirmed=[tuple(search.names[i] for i in items) for items in search.unconfirmed],
        stacks_judged=len(search.verdicts),
    )


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


def optimize_markdown(found: Optimized) -> str:
    content = found.plan.plan.recipe.content
    rate = f"{found.original.reproduced} of {found.original.evidence}"
    sections = [
        [f"# The smallest stack that works - {content.workload}"],
        *(["> [!WARNING]", f"> {' '.join(warning.split())}"] for warning in found.warnings),
        [
            *([f"- Ticket: {content.ticket}"] if content.ticket else []),
            f"- Environment: {found.plan.original.environment.name}",
            f"- Without mitigations: {rate} trials failed",
            f"- Candidates: {len(found.candidates)} ({', '.join(found.candidates)})",
            f"- Trials: {found.ending.trials} for {found.stacks_judged} stacks, "
            + show_duration(found.ending.seconds),
            *([f"- **Not finished**: {found.ending.detail}"] if found.ending.detail else []),
        ],
        _answer(found),
        _sets(found),
        different_lines(found.failed_differently),
        [f"- left out `{name}`: {reason}" for name, reason in found.plan.left_out.items()],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _answer(found: Optimized) -> list[str]:
    best = found.recommended
    if best is None:
        words = {
            "did_not_reproduce": "The failure did not show without mitigations: there is nothing to mend.",
            "not_found": "No stack of these candidates makes the failure go away.",
            "partial": "Stopped before an answer.",
        }
        return ["## Answer", "", words.get(found.status, "")]
    return [
        "## Recommended",
        "",
        "```sh",
        *found.lines,
        "```",
        "",
        (
            f"With {' + '.join(best.mitigations)}, {failures(best.tally).hits} of {best.tally.evidence} fresh trials "
            f"failed: the rate is below {100 * best.rate_below:.0f} % (95 % sure), and luck alone would do this "
            f"with a chance of {best.luck:.1g}."
        ),
    ]


def _sets(found: Optimized) -> list[str]:
    if not found.stacks:
        return []
    head = ["Mitigations", "Failed", "Rate below", "Step (ms)", "Without each of them"]
    rows = [_set_row(stack) for stack in found.stacks]
    return ["## Minimal sets", "", *aligned([head, *rows])]


def _set_row(stack: Stack) -> list[str]:
    return [
        " + ".join(stack.mitigations),
        f"{failures(stack.tally).hits} / {stack.tally.evidence}",
        f"{100 * stack.rate_below:.0f}%",
        f"{stack.step_time_ms:.4g}" if stack.step_time_ms else "n/a",
        "; ".join(_proof(name, verdict) for name, verdict in stack.needed.items()),
    ]


def _proof(name: str, verdict: Verdict | None) -> str:
    if verdict is None:
        return f"{name}: not tried"
    seen = failures(verdict.tally)
    return f"{name}: {seen.hits} of {seen.trials} failed"
