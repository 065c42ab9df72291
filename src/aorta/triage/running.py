"""`run_recipe`: the one way from a recipe to an answer, whether the recipe came from a file or from
flags, and in either mode; and the mode that makes a matrix.
"""

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from aorta.core.axis import Point
from aorta.core.errors import UsageError
from aorta.core.names import slug
from aorta.core.oracle import Deciding, known_failure
from aorta.core.trial import Environment, Outcome, TrialEnd, TrialSpec
from aorta.engine.events import Event, Listener, Note, PointSettled, TrialRecord
from aorta.engine.judge import EveryTrial, Judges, SameJudge
from aorta.engine.question import Answer, Budget, Keep, Question, of_independent_starts
from aorta.engine.rundir import RunDir, write_atomically, write_json
from aorta.engine.session import Resume, Session
from aorta.engine.snapshots import host_snapshot, is_captured, snapshot_of
from aorta.executors import Executor
from aorta.registry.sidecars import RESOLVED_RECIPE, SIDECARS
from aorta.scrub.secrets import safe_value
from aorta.search import Search
from aorta.search.repeated import Interleaved, cell_of
from aorta.triage.cells import aggregate_cell
from aorta.triage.markdown import matrix_markdown
from aorta.triage.matrix import MatrixReport, TriageReport, doubts, matrix_rows
from aorta.triage.plan import Plan, PlannedCell, Schedule, build_plan
from aorta.triage.recipe import InlineImage, Recipe, resolved_yaml
from aorta.triage.statistics import Stopping
from aorta.workloads.results import TrialDocument, TrialLabel, keep_trial, read_trial
from aorta.workloads.trial import WorkloadRequest

VERB = "triage"

SnapshotFor = Callable[[PlannedCell], dict[str, object]]
R = TypeVar("R", bound=TriageReport)


@dataclass(frozen=True)
class RunSettings:
    """How to run a recipe, apart from what it says itself."""

    output_dir: Path
    resume: Resume | None = None
    budget: Budget = field(default_factory=Budget)
    run_dir: Path | None = None  # exactly there, and not in a new one below output_dir


class TriageRun(ABC, Generic[R]):
    """The experiment of one mode on a plan: which trials it asks for, what each of them runs, and
    what is said of them in the end.
    """

    search: Search
    judges: Judges
    markdown: Callable[[R], str]

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def oracle(self) -> Deciding:
        return self.plan.baseline.experiment.deciding

    @abstractmethod
    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec: ...

    @abstractmethod
    def place(self, record: TrialRecord) -> tuple[PlannedCell, WorkloadRequest, TrialLabel, Path]:
        """The cell of a trial, what ran, and where its record lies in the run directory."""

    @abstractmethod
    def settled(self, event: PointSettled) -> Note | None:
        """What listeners hear of a point that is decided, in the words of this mode."""

    @abstractmethod
    def report(self, answer: Answer, run_dir: Path, created: str, warnings: Sequence[str]) -> R: ...

    def rules(self, budget: Budget) -> dict[str, Any]:
        """Of the question, besides what every mode asks."""
        return {"budget": budget}


def run_recipe(
    recipe: Recipe,
    settings: RunSettings,
    mode: Callable[[Plan], TriageRun[R]],
    open_executor: Callable[[], Executor],
    listeners: Sequence[Listener] = (),
) -> R:
    """Every trial that the mode asks for, then its answer on disk; also of a run that is stopped
    before its end.
    """
    checked = mode(check_recipe(recipe))
    session = open_session(checked.plan, settings)
    executor = open_executor()
    with session, closing(executor):
        files = RunFiles(session.run)
        run = mode(build_plan(files.adopt(recipe)))
        snapshots, warnings = files.take_snapshots(run.plan, executor)
        question = Question(
            search=run.search,
            judges=run.judges,
            experiment=run,
            fingerprint=run.plan.fingerprint,
            expected=known_failure(run.plan.baseline.experiment.oracle),
            keep=_keeper(run, session.path, snapshots),
            warm=True,
            **run.rules(settings.budget),
        )
        answer = session.answer(question, executor, [_telling(run, each) for each in listeners])
        report = run.report(answer, session.path, session.run.about()["created"], warnings)
        write_json(session.path / f"{report.NAME}.json", report.SCHEMA, report.content())
        write_atomically(report.page, run.markdown(report))
        return report


def _keeper(run: TriageRun[Any], run_dir: Path, snapshots: SnapshotFor) -> Keep:
    def keep(record: TrialRecord, end: TrialEnd) -> None:
        cell, request, label, path = run.place(record)
        keep_trial(run_dir / path, label, request, record, end, env=snapshots(cell))
        if record.outcome is Outcome.CLEAN and not run.plan.recipe.content.save_logs:
            shutil.rmtree(run_dir / record.path, ignore_errors=True)

    return keep


def _telling(run: TriageRun[Any], listener: Listener) -> Listener:
    def listen(event: Event) -> None:
        told = run.settled(event) if isinstance(event, PointSettled) else event
        if told is not None:
            listener(told)

    return listen


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


class MatrixRun(TriageRun[MatrixReport]):
    """A point names a cell, and the cell knows what it runs."""

    markdown = staticmethod(matrix_markdown)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.judges = SameJudge(EveryTrial(1))
        self.search = self.cells = Interleaved(
            plan.names, place=Schedule(plan).place, is_open=Stopping(plan).is_open
        )

    def rules(self, budget: Budget) -> dict[str, Any]:
        """A trial that could not be told is another trial of its cell."""
        return {
            "budget": replace(budget, retries=0),
            "tolerant": True,
            "shows_it": lambda point: cell_of(point) == self.plan.baseline.name,
        }

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        experiment = self.plan.by_name[cell_of(point)].experiment
        return experiment.trial(Point.of({}), point.replica + index, trial_dir)

    def place(self, record: TrialRecord) -> tuple[PlannedCell, WorkloadRequest, TrialLabel, Path]:
        cell, number = self.plan.by_name[cell_of(record.point)], record.point.replica
        return cell, cell.request, cell.label(number), cell.trial_file(number)

    def settled(self, event: PointSettled) -> None:
        """Every trial decides its own point; saying so would repeat its outcome."""

    def report(
        self, answer: Answer, run_dir: Path, created: str, warnings: Sequence[str]
    ) -> MatrixReport:
        resumed = answer.records[: answer.ending.resumed_trials]
        measured = {
            cell.name: aggregate_cell(
                self._documents(cell, run_dir), cell.request.steps, expected=answer.expected
            )
            for cell in self.plan.cells
        }
        independent = {
            name: of_independent_starts(
                stats.tally, [r for r in answer.records if cell_of(r.point) == name]
            )
            for name, stats in measured.items()
        }
        counts = Counter(cell_of(record.point) for record in resumed)
        rows = matrix_rows(self.plan, measured, independent, counts, self.cells.told)
        return MatrixReport(
            plan=self.plan,
            rows=rows,
            ending=answer.ending,
            created=created,
            run_dir=run_dir,
            warnings=[*doubts(self.plan, rows), *warnings],
            failure=answer.expected,
        )

    def _documents(self, cell: PlannedCell, run_dir: Path) -> Iterator[TrialDocument]:
        """The records of the trials of a cell that were used."""
        for number in sorted(self.cells.told(cell.name)):
            yield read_trial(run_dir / cell.trial_file(number))
