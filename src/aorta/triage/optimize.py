"""`--mode optimize`: the smallest stack of mitigations that makes the failure go away, in one environment."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from aorta.core.errors import SpecError, UsageError
from aorta.core.names import slug
from aorta.core.oracle import Classified, Oracle
from aorta.core.point import Point
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.engine import events
from aorta.engine.drive import Budget, Keep
from aorta.engine.events import Event, Listener
from aorta.engine.records import TrialRecord
from aorta.engine.rundir import write_atomically
from aorta.engine.session import Question
from aorta.executors import Executor
from aorta.probe.platform import platform_here
from aorta.registry.mitigation import Mitigation, why_inert
from aorta.registry.mitigations import load_mitigations
from aorta.search.cure import AXIS, CureSearch
from aorta.triage.cells import CellStats, aggregate_cell
from aorta.triage.files import RunFiles, SnapshotFor
from aorta.triage.gone import GoneJudges
from aorta.triage.plan import NONE, Plan, PlannedCell
from aorta.triage.recipe import Recipe, with_timeout
from aorta.triage.running import RunSettings, check_recipe, open_session
from aorta.triage.stacks import Optimized, build_optimized
from aorta.workloads.results import TrialLabel, read_trial, trial_document
from aorta.workloads.trial import WorkloadExperiment, workload_experiment

_LONGEST_NAME = 80


@dataclass(frozen=True)
class Goal:
    """How many sets to look for, and how often a mended run may still fail."""

    sets: int = 1
    max_rate: float = 0.0


@dataclass(frozen=True)
class StackPlan:
    """The original, and the mitigations that may be stacked on it; `left_out` says why others may not."""

    plan: Plan
    candidates: tuple[Mitigation, ...]
    left_out: Mapping[str, str]
    goal: Goal

    @property
    def original(self) -> PlannedCell:
        return self.plan.baseline

    @property
    def fingerprint(self) -> Mapping[str, object]:
        chosen = [[entry.name, sorted(entry.env.items())] for entry in self.candidates]
        return {
            **self.plan.fingerprint,
            "candidates": chosen,
            "goal": [self.goal.sets, self.goal.max_rate],
        }

    def stack(self, point: Point) -> tuple[Mitigation, ...]:
        value = point[AXIS]
        if not isinstance(value, tuple):
            raise TypeError(f"{AXIS} holds {value!r}, expected indexes")
        return tuple(self.candidates[index] for index in value)

    def stack_name(self, point: Point) -> str:
        """`a+b`, or how many of how many where that would be too long."""
        stack = self.stack(point)
        joined = "+".join(entry.name for entry in stack)
        if len(joined) <= _LONGEST_NAME:
            return joined or NONE
        return f"{len(stack)}_of_{len(self.candidates)}_{point.config_key[:8]}"


@dataclass(frozen=True)
class FinishedStacks:
    optimized: Optimized
    run_dir: Path


def plan_stacks(recipe: Recipe, settings: RunSettings, goal: Goal) -> StackPlan:
    """Every check before the first trial, and the choice of what can act here at all."""
    if not 0 <= goal.max_rate < 1:
        raise UsageError(f"--max-rate: found {goal.max_rate}, expected a rate from 0 to below 1")
    plan = check_recipe(recipe, settings)
    return _stack_plan(plan, goal)


def optimize(
    recipe: Recipe,
    settings: RunSettings,
    goal: Goal,
    open_executor: Callable[[], Executor],
    listeners: Sequence[Listener] = (),
) -> FinishedStacks:
    """Find the smallest stack, and write what was found; also when the run is stopped before its end."""
    recipe = with_timeout(recipe, settings.timeout)
    plan = plan_stacks(recipe, settings, goal)
    session = open_session(plan.plan, settings)
    executor = open_executor()
    with session, closing(executor):
        files = RunFiles(session.run)
        resolved = files.adopt(recipe)
        plan = _stack_plan(check_recipe(resolved, settings), goal)
        snapshots, warnings = files.take_snapshots(plan.plan, executor)
        run = _StackRun(plan, files)
        question = Question(
            search=run.search,
            judges=run.judges,
            experiment=run,
            fingerprint=plan.fingerprint,
            budget=Budget(),
            keep=_keeper(run, snapshots),
        )
        words = [_in_words(listener, plan) for listener in listeners]
        answer = session.answer(question, executor, words)
        found = build_optimized(
            plan.plan,
            [entry.name for entry in plan.candidates],
            run.search,
            run.judges,
            run.stats,
            answer.ending,
        )
        optimized = replace(
            found,
            environments={entry.name: dict(entry.env) for entry in plan.candidates},
            left_out=dict(plan.left_out),
            warnings=warnings,
            created=session.run.about()["created"],
        )
        files.write_optimized(optimized)
        return FinishedStacks(optimized, session.path)


def _stack_plan(plan: Plan, goal: Goal) -> StackPlan:
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
    return StackPlan(plan, tuple(chosen), left_out, goal)


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


class _StackRun:
    """The experiment of a search for stacks: a point says which candidates are on."""

    def __init__(self, plan: StackPlan, files: RunFiles) -> None:
        self.plan = plan
        self.files = files
        self.search = CureSearch([entry.name for entry in plan.candidates], plan.goal.sets)
        self.judges = GoneJudges(plan.original.trials, plan.goal.max_rate)

    @property
    def oracle(self) -> Oracle:
        return self.plan.original.experiment.oracle

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
