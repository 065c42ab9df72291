"""`run_recipe`: the one way from a recipe to a matrix, whether the recipe came from a file or from
flags.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.errors import Exit, InfrastructureError, UsageError
from aorta.core.failure import Failure
from aorta.core.oracle import Classified, Deciding, known_failure
from aorta.core.trial import Outcome, StreamEnd, TrialEnd, TrialSpec
from aorta.engine import events
from aorta.engine.events import Ending, Event, Listener, TrialRecord
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Budget, Keep, Question
from aorta.engine.rundir import write_atomically
from aorta.engine.session import Resume, Session
from aorta.engine.warmth import of_independent_starts
from aorta.executors import Executor
from aorta.search.repeated import Interleaved, cell_of
from aorta.triage.cells import CellStats, aggregate_cell
from aorta.triage.files import RunFiles
from aorta.triage.matrix import Matrix, SearchResult, build_matrix
from aorta.triage.plan import Plan, PlannedCell, Schedule, build_plan, check_ticket_directory
from aorta.triage.recipe import Recipe, with_timeout
from aorta.triage.statistics import Call, Stopping
from aorta.workloads.results import TrialDocument, read_trial, trial_document

VERB = "triage"


@dataclass(frozen=True)
class RunSettings:
    """How to run a recipe, apart from what it says itself."""

    output_dir: Path
    timeout: float | None = None
    resume: Resume | None = None
    budget: Budget = field(default_factory=Budget)
    run_dir: Path | None = None  # exactly there, and not in a new one below output_dir


@dataclass(frozen=True)
class MatrixReport:
    """The matrix of a run, and where it lies."""

    matrix: Matrix
    run_dir: Path

    @property
    def ending(self) -> Ending:
        return self.matrix.ending

    def to_json(self) -> dict[str, Any]:
        return {**self.matrix.to_json(), "run_dir": str(self.run_dir)}

    @property
    def no_answer(self) -> str | None:
        """Why a run that went to its end has no answer."""
        baseline = self.matrix.baseline
        if baseline.comparison.call is not Call.DID_NOT_RUN:
            return None
        return f"the baseline {baseline.name} did not run: {baseline.stats.error}"

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not events.Reason.DONE:
            return self.ending.exit_code
        return Exit.NO_ANSWER if self.no_answer else Exit.OK


def run_recipe(
    recipe: Recipe,
    settings: RunSettings,
    open_executor: Callable[[], Executor],
    listeners: Sequence[Listener] = (),
) -> MatrixReport:
    """Run every cell and write the matrix; also when the run is stopped before its end."""
    recipe = with_timeout(recipe, settings.timeout)
    plan = check_recipe(recipe, settings)
    session = open_session(plan, settings)
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
            keep=_keeper(run, snapshots),
            expected=known_failure(plan.baseline.experiment.oracle),
            shows_it=lambda point: cell_of(point) == plan.baseline.name,
            warm=True,
        )
        answer = session.answer(question, TolerantExecutor(executor), listeners)
        search, resumed = run.search, answer.records[: answer.ending.resumed_trials]
        counts = Counter(cell_of(record.point) for record in resumed)
        run.expected = answer.expected
        measured = {name: run.stats(name) for name in plan.names}
        independent = {
            name: of_independent_starts(
                stats.tally, [r for r in answer.records if cell_of(r.point) == name]
            )
            for name, stats in measured.items()
        }
        tried = SearchResult(plan, measured, independent, counts, search.told, answer.expected)
        matrix = build_matrix(tried, answer.ending, session.run.about()["created"], warnings)
        files.write_matrix(matrix)
        return MatrixReport(matrix, session.path)


def check_recipe(recipe: Recipe, settings: RunSettings) -> Plan:
    """Every check that leaves no trace: what a dry run says is what a run would say."""
    if os.environ.get("WORLD_SIZE", "1") not in {"", "1"}:
        raise UsageError(
            "a matrix starts the ranks of each trial itself; put the launcher behind --, such as: "
            "aorta triage run --recipe r.yaml -- torchrun ..."
        )
    plan = build_plan(with_timeout(recipe, settings.timeout))
    check_ticket_directory(settings.output_dir, plan)
    return plan


def open_session(plan: Plan, settings: RunSettings) -> Session:
    parent = settings.output_dir / plan.parent
    if settings.resume is not None:
        return Session.resuming(parent, VERB, settings.resume)
    content = plan.recipe.content
    if settings.run_dir is not None:
        place = settings.run_dir
        return Session.fresh(
            place.parent,
            VERB,
            name=place.name,
            ticket=content.ticket,
            workload=content.workload,
        )
    session = Session.fresh(parent, VERB, ticket=content.ticket, workload=content.workload)
    write_atomically(parent.parent / ".ticket", content.ticket or "")
    return session


def without_single_verdicts(listener: Listener) -> Listener:
    """In a matrix every trial decides its own point; saying so would repeat its outcome."""

    def listen(event: Event) -> None:
        if not isinstance(event, events.PointSettled):
            listener(event)

    return listen


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
        documents = self._documents(cell, numbers)
        return aggregate_cell(documents, cell.request.steps, expected=self.expected)

    def _documents(self, cell: PlannedCell, numbers: Sequence[int]) -> Iterator[TrialDocument]:
        for number in numbers:
            yield read_trial(self.files.path / cell.trial_file(number))


def _keeper(run: _MatrixRun, snapshots: Callable[[PlannedCell], dict[str, object]]) -> Keep:
    def keep(record: TrialRecord, end: TrialEnd) -> None:
        cell = run.plan.by_name[cell_of(record.point)]
        found = Classified(record.outcome, record.why, record.failure)
        label = cell.label(record.point.replica)
        document = trial_document(label, cell.request, end, found, env=snapshots(cell))
        path = run.files.path / cell.trial_file(record.point.replica)
        write_atomically(path, document.to_json())
        if record.outcome is Outcome.CLEAN and not run.plan.recipe.content.save_logs:
            run.files.drop_logs(record.path)

    return keep


class TolerantExecutor:
    """An `Executor` where a trial without its container or engine ends as lost."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.warm = getattr(executor, "warm", False)
        self._not_started: list[TrialEnd] = []

    @property
    def slots(self) -> int:
        return self._executor.slots

    def start(self, trial: TrialSpec) -> None:
        try:
            self._executor.start(trial)
        except InfrastructureError as wrong:
            nothing = StreamEnd(trial.trial_dir / "none")
            end = TrialEnd(trial.id, nothing, nothing, lost=str(wrong), started_at=time.time())
            self._not_started.append(end)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        if self._not_started:
            ended, self._not_started = self._not_started, []
            return ended
        return self._executor.wait(timeout)

    def cancel(self, trial_id: str) -> None:
        self._executor.cancel(trial_id)

    def close(self) -> None:
        self._executor.close()
