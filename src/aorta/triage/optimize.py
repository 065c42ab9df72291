"""`--mode optimize`: the smallest stack of mitigations that makes the failure go away, in one
environment.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.names import slug
from aorta.core.oracle import Deciding, known_failure
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.engine import events
from aorta.engine.events import Event, Listener, TrialRecord, failed_differently
from aorta.engine.question import Keep, Question
from aorta.engine.rundir import write_atomically, write_json
from aorta.executors import Executor
from aorta.search.cure import AXIS, CureSearch
from aorta.triage.cells import CellStats, aggregate_cell
from aorta.triage.plan import build_plan
from aorta.triage.recipe import Recipe
from aorta.triage.running import RunFiles, RunSettings, SnapshotFor, check_recipe, open_session
from aorta.triage.stacks import (
    SCHEMA,
    GoneJudges,
    StackPlan,
    StackReport,
    found_stacks,
    optimize_markdown,
    stack_plan,
)
from aorta.workloads.results import TrialLabel, keep_trial, read_trial
from aorta.workloads.trial import WorkloadExperiment, workload_experiment


def optimize(
    recipe: Recipe,
    settings: RunSettings,
    sets: int,
    open_executor: Callable[[], Executor],
    listeners: Sequence[Listener] = (),
) -> StackReport:
    """Find the smallest stack and write it, also when the run is stopped."""
    plan = stack_plan(check_recipe(recipe), sets)
    session = open_session(plan.plan, settings)
    executor = open_executor()
    with session, closing(executor):
        files = RunFiles(session.run)
        plan = stack_plan(build_plan(files.adopt(recipe)), sets)
        snapshots, warnings = files.take_snapshots(plan.plan, executor)
        run = _StackRun(plan, files)
        question = Question(
            search=run.search,
            judges=run.judges,
            experiment=run,
            fingerprint=plan.fingerprint,
            budget=settings.budget,
            expected=known_failure(plan.original.experiment.oracle),
            keep=_keeper(run, snapshots),
            warm=True,
        )
        words = [_in_words(listener, plan) for listener in listeners]
        answer = session.answer(question, executor, words)
        report = StackReport(
            plan=plan,
            search=run.search,
            ending=answer.ending,
            created=session.run.about()["created"],
            run_dir=session.path,
            stacks=found_stacks(run.search, run.judges, run.stats),
            warnings=warnings,
            failed_differently=failed_differently(answer.records),
            failure=answer.expected,
        )
        write_json(session.path / "optimize.json", SCHEMA, report.content())
        write_atomically(session.path / "optimize.md", optimize_markdown(report))
        return report


class _StackRun:
    """The experiment of a search for stacks: a point says which candidates are on."""

    def __init__(self, plan: StackPlan, files: RunFiles) -> None:
        self.plan = plan
        self.files = files
        self.search = CureSearch([entry.name for entry in plan.candidates], plan.sets)
        self.judges = GoneJudges(plan.original.trials)

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
        path = run.files.path / run.trial_file(record.point, record.index)
        keep_trial(path, label, request, record, end, env=snapshots(run.plan.original))

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
