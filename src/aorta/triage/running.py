"""`run_recipe`: the one way from a recipe to a matrix, whether the recipe came from a file or from
flags.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.errors import UsageError
from aorta.core.failure import Failure
from aorta.core.names import slug
from aorta.core.oracle import Deciding, known_failure
from aorta.core.trial import Environment, Outcome, TrialEnd, TrialSpec
from aorta.engine import events
from aorta.engine.events import Event, Listener, TrialRecord
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Budget, Keep, Question, of_independent_starts
from aorta.engine.rundir import RunDir, write_atomically, write_json
from aorta.engine.session import Resume, Session
from aorta.engine.snapshots import host_snapshot, is_captured, snapshot_of
from aorta.executors import Executor
from aorta.registry.sidecars import RESOLVED_RECIPE, SIDECARS
from aorta.scrub.secrets import safe_value
from aorta.search.repeated import Interleaved, cell_of
from aorta.triage.cells import CellStats, aggregate_cell
from aorta.triage.markdown import matrix_markdown
from aorta.triage.matrix import SCHEMA, MatrixReport, doubts, matrix_rows
from aorta.triage.plan import Plan, PlannedCell, Schedule, build_plan
from aorta.triage.recipe import InlineImage, Recipe, resolved_yaml
from aorta.triage.statistics import Stopping
from aorta.workloads.results import keep_trial, read_trial

VERB = "triage"

SnapshotFor = Callable[[PlannedCell], dict[str, object]]


@dataclass(frozen=True)
class RunSettings:
    """How to run a recipe, apart from what it says itself."""

    output_dir: Path
    resume: Resume | None = None
    budget: Budget = field(default_factory=Budget)
    run_dir: Path | None = None  # exactly there, and not in a new one below output_dir


def run_recipe(
    recipe: Recipe,
    settings: RunSettings,
    open_executor: Callable[[], Executor],
    listeners: Sequence[Listener] = (),
) -> MatrixReport:
    """Run every cell and write the matrix; also when the run is stopped before its end."""
    session = open_session(check_recipe(recipe), settings)
    executor = open_executor()
    with session, closing(executor):
        files = RunFiles(session.run)
        plan = build_plan(files.adopt(recipe))
        snapshots, warnings = files.take_snapshots(plan, executor)
        run = _MatrixRun(plan, files)
        question = Question(
            search=run.search,
            judges=SameJudge(EveryTrial(1)),
            experiment=run,
            fingerprint=plan.fingerprint,
            # A trial that could not be told is another trial of its cell.
            budget=replace(settings.budget, retries=0),
            tolerant=True,
            keep=_keeper(run, snapshots),
            expected=known_failure(plan.baseline.experiment.oracle),
            shows_it=lambda point: cell_of(point) == plan.baseline.name,
            warm=True,
        )
        answer = session.answer(question, executor, listeners)
        resumed = answer.records[: answer.ending.resumed_trials]
        counts = Counter(cell_of(record.point) for record in resumed)
        run.expected = answer.expected
        measured = {name: run.stats(name) for name in plan.names}
        independent = {
            name: of_independent_starts(
                stats.tally, [r for r in answer.records if cell_of(r.point) == name]
            )
            for name, stats in measured.items()
        }
        rows = matrix_rows(plan, measured, independent, counts, run.search.told)
        matrix = MatrixReport(
            plan=plan,
            rows=rows,
            ending=answer.ending,
            created=session.run.about()["created"],
            run_dir=session.path,
            warnings=[*doubts(plan, rows), *warnings],
            failure=answer.expected,
        )
        write_json(session.path / "matrix.json", SCHEMA, matrix.content())
        write_atomically(session.path / "matrix.md", matrix_markdown(matrix))
        return matrix


def check_recipe(recipe: Recipe) -> Plan:
    """Every check that leaves no trace: what a dry run says is what a run would say."""
    if os.environ.get("WORLD_SIZE", "1") not in {"", "1"}:
        raise UsageError(
            "a matrix starts the ranks of each trial itself; put the launcher behind --, such as: "
            "aorta triage run --recipe r.yaml -- torchrun ..."
        )
    return build_plan(recipe)


def open_session(plan: Plan, settings: RunSettings) -> Session:
    parent = settings.output_dir / plan.parent
    if settings.resume is not None:
        return Session.resuming(parent, VERB, settings.resume)
    content, place, name = plan.recipe.content, settings.run_dir, None
    if place is not None:
        parent, name = place.parent, place.name
    return Session.fresh(parent, VERB, name=name, ticket=content.ticket, workload=content.workload)


def without_single_verdicts(listener: Listener) -> Listener:
    """In a matrix every trial decides its own point; saying so would repeat its outcome."""

    def listen(event: Event) -> None:
        if not isinstance(event, events.PointSettled):
            listener(event)

    return listen


# -- the files of a run directory around its trials


class RunFiles:
    def __init__(self, run: RunDir) -> None:
        self.run = run

    @property
    def path(self) -> Path:
        return self.run.path

    def adopt(self, recipe: Recipe) -> Recipe:
        """The recipe as it will run, resolved from copies of its sidecars."""
        copies = tuple(self._copy(sidecar) for sidecar in recipe.sidecars)
        write_atomically(self.path / RESOLVED_RECIPE, resolved_yaml(recipe))
        inline = {
            cell.environment_name: {"docker": cell.environment.docker}
            for cell in recipe.content.cells
            if isinstance(cell.environment, InlineImage)
        }
        if inline:
            document = {"version": 1, "environments": inline}
            text = json.dumps(document, indent=2) + "\n"
            write_atomically(self.path / "inline_environments.sidecar.json", text)
        return replace(recipe, sidecars=copies)

    def _copy(self, sidecar: Path) -> Path:
        """A copy that is already there belongs to the resumed run, and stays."""
        copy = self.path / SIDECARS / sidecar.name
        if not copy.exists():
            write_atomically(copy, sidecar.read_bytes())
        return copy

    def take_snapshots(self, plan: Plan, executor: Executor) -> tuple[SnapshotFor, list[str]]:
        """The host's once and each environment's once, before any trial; returns warnings."""
        host = self._once(self.path / "host_env.json", host_snapshot)
        said = {"host": _missing_in(host)}
        taken: dict[str, dict[str, Any]] = {}
        for environment in plan.environments.values():
            path = self.path / "environments" / slug(environment.name) / "env.json"
            snapshot = self._once(path, partial(self._inside, environment, executor))
            said[f"environment:{environment.name}"] = _missing_in(snapshot)
            taken[environment.name] = snapshot
        scopes: dict[str, list[str]] = {}
        for scope, missing in said.items():
            scopes.setdefault(missing, []).append(scope)
        warnings = [
            f"{', '.join(names)}: {missing}" for missing, names in scopes.items() if missing
        ]
        return lambda cell: _as_seen_by(cell, taken[cell.environment.name]), warnings

    def _inside(self, environment: Environment, executor: Executor) -> dict[str, Any]:
        scratch = self.run.private / "snapshots" / slug(environment.name)
        scratch.mkdir(parents=True, exist_ok=True)
        return snapshot_of(environment, environment.env, executor, scratch, self.path.resolve())

    def _once(self, path: Path, take: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            earlier = json.loads(path.read_bytes())
            if isinstance(earlier, dict) and is_captured(earlier):
                return earlier
        snapshot = take()
        write_atomically(path, json.dumps(snapshot, indent=2, ensure_ascii=False) + "\n")
        return snapshot


def _missing_in(snapshot: Mapping[str, Any]) -> str:
    if not is_captured(snapshot):
        return f"no snapshot: {snapshot['skip_reason']}"
    reasons = snapshot.get("partial_reasons") or []
    if not snapshot.get("partial"):
        return ""
    return f"the snapshot is partial: {'; '.join(str(reason) for reason in reasons)}"


def _as_seen_by(cell: PlannedCell, snapshot: Mapping[str, Any]) -> dict[str, object]:
    """The environment's snapshot, with the cell's variables that a snapshot records."""
    seen = dict(snapshot)
    known = snapshot.get("env_vars")
    if isinstance(known, dict):
        mine = {name: safe_value(name, value) for name, value in cell.env.items() if name in known}
        seen["env_vars"] = {**known, **mine}
    return seen


# -- the experiment of a matrix


class _MatrixRun:
    """The experiment of a matrix: a point names a cell, and the cell knows what it runs."""

    def __init__(self, plan: Plan, files: RunFiles) -> None:
        self.plan = plan
        self.files = files
        self.expected: Failure | None = None
        self.search = Interleaved(
            plan.names, place=Schedule(plan).place, is_open=Stopping(plan).is_open
        )

    @property
    def oracle(self) -> Deciding:
        return self.plan.baseline.experiment.deciding

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        experiment = self.plan.by_name[cell_of(point)].experiment
        return experiment.trial(Point.of({}), point.replica + index, trial_dir)

    def stats(self, name: str) -> CellStats:
        """What is known of a cell, read from the records of the trials that were used."""
        cell = self.plan.by_name[name]
        numbers = sorted(self.search.told(name))
        documents = (read_trial(self.files.path / cell.trial_file(number)) for number in numbers)
        return aggregate_cell(documents, cell.request.steps, expected=self.expected)


def _keeper(run: _MatrixRun, snapshots: Callable[[PlannedCell], dict[str, object]]) -> Keep:
    def keep(record: TrialRecord, end: TrialEnd) -> None:
        cell = run.plan.by_name[cell_of(record.point)]
        label = cell.label(record.point.replica)
        path = run.files.path / cell.trial_file(record.point.replica)
        keep_trial(path, label, cell.request, record, end, env=snapshots(cell))
        if record.outcome is Outcome.CLEAN and not run.plan.recipe.content.save_logs:
            shutil.rmtree(run.files.path / record.path, ignore_errors=True)

    return keep
