"""`aorta reduce` from a plan to its report: claim or resume a run directory, search, try what would
ship, write it.
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.axis import AxisKind, ChoiceAxis, Point, Purpose
from aorta.core.failure import ORACLE, Failure, named_failure
from aorta.core.oracle import known_failure
from aorta.core.trial import Outcome, Tally, TrialEnd
from aorta.engine.events import (
    Ending,
    Event,
    Listener,
    Note,
    PointSettled,
    Reason,
    RunEnded,
    TrialEnded,
    TrialRecord,
    TrialStarted,
)
from aorta.engine.judge import Judge, KOfN, SameJudge
from aorta.engine.question import Answer, Budget, Experiment, Keep, Question
from aorta.engine.rundir import write_atomically
from aorta.engine.session import Resume, Session
from aorta.engine.snapshots import host_snapshot, snapshot_of
from aorta.executors import Executor
from aorta.reduce.checks import (
    CopyExperiment,
    IgnoredExperiment,
    WatchedExperiment,
    enough,
    failed,
)
from aorta.reduce.experiment import IGNORED, ImpatientJudges, clear_data
from aorta.reduce.files import WorkloadFiles, watch_opened, with_files
from aorta.reduce.materials import changed_sources, settings_of
from aorta.reduce.output import Output
from aorta.reduce.plan import ReducePlan
from aorta.reduce.report import COPY_REPLICA, ReduceReport, Shipped
from aorta.reduce.shrunken import Reproducer, files_of
from aorta.reduce.source.running import SourceRun
from aorta.reduce.source.search import AXIS
from aorta.reduce.trace import ENV_FINGERPRINT, OtherEnds, Trace, fingerprint_of
from aorta.search import Search
from aorta.search.descent import Descent
from aorta.search.reduction import Reduction, Status
from aorta.search.repeated import EveryPoint

OpenExecutor = Callable[[], Executor]
VERB = "reduce"
_OF_THE_LAUNCHER = frozenset({AxisKind.WORLD_SIZE, AxisKind.RANKS})
_OPENED_AXES = "opened_axes.json"  # those whose files the answer was seen to open
_MOST_UNDONE = 4  # steps that lost what a known fix repairs


@dataclass(frozen=True)
class Place:
    """Where the run goes, or which one is gone on with."""

    output: Path
    jobs: int = 1  # how many trials side by side, for a later resume to do the same
    resume: Resume | None = None
    name: str | None = None  # of the run directory in `output`; None: the time
    sees_opened_files: bool = False  # trials are processes of this machine
    command: tuple[str, ...] = ()  # of a run without a spec, for a later resume
    source: bool = False
    fixed_by: Path | None = None


def reduce_workload(
    plan: ReducePlan, place: Place, open_executor: OpenExecutor, listeners: Sequence[Listener] = ()
) -> ReduceReport:
    """Search to the end, then write all that ships; partial results where it was stopped."""
    with _session(plan, place) as session:
        output = Output.of(session.run, plan)
        output.begin()
        run = _Run(plan, session, open_executor, listeners, place.sees_opened_files)
        trace = Trace(plan.axes, partial(settings_of, plan.materials))
        report = run.search(trace, BestSoFar(partial(_keep_best, run, output, trace)))
        reproducer = run.reproducer(report, output.scrubber.file_name)
        if reproducer is not None:
            report, reproducer = run.rehearse(report, reproducer, output)
            programs = [str(place) for place in reproducer.portable.programs]
            session.run.describe(programs=programs, python=reproducer.python)
        report = _with_changed_data(report, changed_sources(plan.materials))
        output.finish(report, trace.lines, reproducer, run.env_at(report.reduction.best))
        return report


def _with_changed_data(report: ReduceReport, changed: Sequence[Path]) -> ReduceReport:
    """Trials get copies, so that nothing of theirs reaches the originals; who changed them is not
    known, and the answer may rest on both.
    """
    if not changed:
        return report
    said = f"{', '.join(map(str, changed))} changed while it was reduced"
    return replace(report, hint="; ".join(filter(None, [report.hint, said])))


class BestSoFar:
    """Calls `write` with every trial so far whenever something smaller was seen to fail, before the
    next trial begins. A listener of the engine's events.
    """

    def __init__(self, write: Callable[[Sequence[TrialRecord]], None]) -> None:
        self._write = write
        self._records: list[TrialRecord] = []
        self._best: Point | None = None
        self._is_new = False

    def __call__(self, event: Event) -> None:
        match event:
            case TrialEnded(record, _):
                self._records.append(record)
            case PointSettled(_, _, best) if best is not None and best != self._best:
                # The first is the original itself, which lies where it always did.
                self._is_new, self._best = self._best is not None, best
            case TrialStarted() | RunEnded() if self._is_new:
                self._is_new = False
                self._write(self._records)


def _keep_best(run: "_Run", output: Output, trace: Trace, records: Sequence[TrialRecord]) -> None:
    """`shrunken/`, result.json and SHIP.md as if the search ended here."""
    report = run.report_so_far(records)
    reproducer = run.reproducer(report, output.scrubber.file_name)
    output.finish(report, trace.lines, reproducer, run.env_at(report.reduction.best))


def rehearse(
    plan: ReducePlan, open_executor: OpenExecutor, listeners: Sequence[Listener] = ()
) -> ReduceReport:
    """The same search in a temporary place, of which nothing is left."""
    with (
        tempfile.TemporaryDirectory(prefix="aorta-reduce-") as scratch,
        Session.fresh(Path(scratch), VERB) as session,
    ):
        run = _Run(plan, session, open_executor, listeners)
        return run.search()


def _session(plan: ReducePlan, place: Place) -> Session:
    if place.resume is not None:
        return Session.resuming(place.output, VERB, place.resume)
    return Session.fresh(
        place.output,
        VERB,
        name=place.name,
        private_beside=True,
        ticket=plan.ticket,
        spec=_absolute(plan),
        jobs=place.jobs,
        **({"command": list(place.command)} if place.command else {}),
        **({"source": True} if place.source else {}),
        **({"fixed_by": str(place.fixed_by.absolute())} if place.fixed_by else {}),
    )


def _absolute(plan: ReducePlan) -> str:
    """The spec's absolute path; None for a workload that declares its axes."""
    file = Path(plan.spec.file)
    return str(file.absolute()) if file.is_file() else plan.spec.file


class _Run:
    """One reduction in one run directory."""

    def __init__(
        self,
        plan: ReducePlan,
        session: Session,
        open_executor: OpenExecutor,
        listeners: Sequence[Listener],
        sees_opened_files: bool = False,
    ) -> None:
        self.plan = plan
        self.session = session
        self.listeners = listeners
        self.experiment = plan.experiment()
        self._open_executor = open_executor
        self._seconds = 0.0  # that the questions before took, over every resume
        self._began = time.monotonic()
        self._descent = Descent(plan.axes)
        self._sees_opened_files = sees_opened_files
        self._machine: Mapping[str, Any] | None = None  # asked once: it does not change on the way
        self._inside: Mapping[str, Any] | None = None  # the snapshot inside a container
        self._source: SourceRun | None = None  # once the other axes are through

    def search(self, *watching: Listener) -> ReduceReport:
        watched = WatchedExperiment(self.experiment)
        opened = self.session.run.private / _OPENED_AXES

        def keep(record: TrialRecord, end: TrialEnd) -> Mapping[str, str]:
            watched.close(self.session.run.private / record.path)
            if record.point.purpose is Purpose.CONFIRM:
                write_atomically(opened, json.dumps(watched.opened()))
            return self._keep(record, end)

        question = Question(
            search=self._descent,
            judges=ImpatientJudges(self.plan.judges(), self.experiment.patience),
            experiment=watched if self._sees_opened_files else self.experiment,
            fingerprint=self.plan.fingerprint,
            budget=self._budget(),
            expected=known_failure(self.plan.oracle),
            keep=keep,
            learn=self.experiment.patience.learn,
            warm=True,
            private_trials=True,
        )
        others = OtherEnds(self._say_other)
        with closing(watched):
            answer = self._answer(question, (*watching, *self.listeners, others))
        report = self._without_ignored(self._report(self._descent.result, answer))
        return self._with_source(report, watching)

    def _say_other(self, found: Failure) -> None:
        said = f"three candidates in a row ended with {found.text}, which is not the failure looked"
        for listener in self.listeners:
            listener(Note(f"{said} for; if it is, let the oracle say so"))

    def _with_source(self, report: ReduceReport, watching: Sequence[Listener]) -> ReduceReport:
        """The program itself, at what the other axes were reduced to."""
        fails = report.reduction.status in {Status.REDUCED, Status.NOT_REDUCED}
        if not (self.plan.has_source and fails and report.failure is not None):
            return report
        source = SourceRun(
            self.plan, self.experiment, self.session.run.private, report.reduction, report.failure
        )
        keep = source.keeping(self._keep)
        first = self._beyond(
            "source: original", EveryPoint(source.originals), KOfN(1, 1), source.traced
        )
        answer = self._answer(replace(first, keep=keep, expected=report.failure), self.listeners)
        report = report.with_more(answer)
        why = source.begin() if report.ending.reason is Reason.DONE else ""
        if why or source.search is None:
            return replace(report, hint=why)
        self._source = source
        spent = self.plan.budget.max_trials
        left = None if spent is None else max(0, spent - len(report.records))
        question = Question(
            search=source.search,
            judges=source.judges(),
            experiment=source.traced,
            fingerprint=self.plan.fingerprint,
            budget=replace(self._budget(), max_trials=left),
            guard_signature=False,
            keep=keep,
            learn=self.experiment.patience.learn,
            name="source",
            private_trials=True,
        )
        answer = self._answer(question, (*watching, *self.listeners))
        report = report.with_more(answer)
        for number in range(_MOST_UNDONE if source.fixes else 0):
            report, again = self._undone(report, source, keep)
            if not again:
                break
            more = replace(question, name=f"source {number + 2}", budget=self._budget())
            report = report.with_more(self._answer(more, (*watching, *self.listeners)))
        source.count([r for r in report.records if AXIS in dict(r.point.values)])
        if source.to_confirm is not None and report.ending.reason is Reason.DONE:
            last = EveryPoint([source.to_confirm])
            sure = source.to_be_sure
            confirm = self._beyond("source: confirm", last, sure, source.traced)
            answer = self._answer(
                replace(confirm, keep=keep, guard_signature=False), self.listeners
            )
            source.confirmation = last.verdicts.get(source.to_confirm)
            report = report.with_more(answer)
        is_over = report.ending.reason is Reason.DONE
        reduction = source.reduction(is_over=is_over)
        return replace(report, reduction=reduction, source=source.row)

    def _undone(
        self, report: ReduceReport, source: SourceRun, keep: Keep
    ) -> tuple[ReduceReport, bool]:
        """Without the steps after which the known fix does not help any more."""
        answers: list[Answer] = []

        def ends_well(point: Point) -> bool:
            search = EveryPoint([point])
            question = self._beyond(f"source: {point[AXIS]}", search, KOfN(1, 1), source.traced)
            question = replace(question, keep=keep, guard_signature=False)
            answers.append(self._answer(question, self.listeners))
            return point in search.verdicts and search.verdicts[point].tally.clean > 0

        done = report.ending.reason is Reason.DONE and source.best is not None
        again = done and source.undo(ends_well)
        for answer in answers:
            report = report.with_more(answer)
        return report, again

    def report_so_far(self, records: Sequence[TrialRecord]) -> ReduceReport:
        """While the search goes on."""
        ending = Ending(Reason.RUNNING, "still running, or killed", len(records))
        if records:
            ending = replace(ending, seconds=records[-1].elapsed)
        seen = next((r.failure for r in records if r.outcome is Outcome.REPRODUCED), None)
        if self._source is not None:
            self._source.count([r for r in records if AXIS in dict(r.point.values)])
            reduction = self._source.reduction(is_over=False)
            report = self._report(reduction, Answer(ending, records, seen))
            return replace(report, source=self._source.row, failure=self._source.failure)
        return self._report(self._descent.result, Answer(ending, records, seen))

    def _budget(self) -> Budget:
        """What the questions before have left."""
        given = self.plan.budget
        if given.max_seconds is None:
            return given
        spent = time.monotonic() - self._began if given.anew else self._seconds
        return replace(given, max_seconds=max(0.0, given.max_seconds - spent))

    def _without_ignored(self, report: ReduceReport) -> ReduceReport:
        """An axis at its floor may be one that the command never looks at: whether it fails the
        same with nonsense in its place is said.
        """
        reduction = report.reduction
        suspects = [
            facts.axis.name
            for facts in reduction.axes
            if facts.moved
            and facts.at_floor
            and facts.axis.kind not in _OF_THE_LAUNCHER
            and not isinstance(facts.axis, ChoiceAxis)
        ]
        if reduction.status is not Status.REDUCED or not suspects or not self.plan.is_command:
            return report
        kept = self.session.run.private / _OPENED_AXES
        read = json.loads(kept.read_text("utf-8")) if kept.is_file() else []
        suspects = [name for name in suspects if name not in read]
        if not suspects:
            return report
        points = [Point.of({IGNORED: name}) for name in suspects]
        search = EveryPoint(points)
        question = replace(
            self._beyond(
                "ignored axes",
                search,
                KOfN(1, enough(reduction, self.plan.seen)),
                IgnoredExperiment(self.experiment, reduction.best),
            ),
            expected=report.failure,
            keep=lambda record, _end: clear_data(self.session.run.private / record.path),
        )
        answer = self._answer(question, self.listeners)
        found = [
            name for name, point in zip(suspects, points, strict=True) if failed(search, point)
        ]
        return report.with_more(answer, reduction=reduction.with_ignored(found))

    def reproducer(
        self, report: ReduceReport, shipped_name: Callable[[str], str]
    ) -> Reproducer | None:
        if not report.has_reproducer:
            return None
        confirmed = report.reduction.confirmation
        rate = (
            f"failed {confirmed.tally.reproduced} of {confirmed.tally.evidence} times"
            if confirmed
            else ""
        )
        plan, best = self.plan, report.reduction.best
        flaky = confirmed is not None and confirmed.tally.against > 0
        if self._source is not None and self._source.best is not None:
            script = self._source.reproducer(shipped_name, rate)
            return script and replace(script, flaky=flaky, failure=self._expected(report))
        files, module = files_of(plan, self._apart())
        return Reproducer(
            plan,
            self.experiment,
            best,
            files,
            shipped_name,
            rate,
            module,
            flaky=flaky,
            ends_well=report.ends_well,
            failure=self._expected(report) if plan.is_command else None,
        )

    def rehearse(
        self, report: ReduceReport, reproducer: Reproducer, output: Output
    ) -> tuple[ReduceReport, Reproducer]:
        """Whether what ships, as it ships, fails like the original from somewhere else.

        Where it does not, the files that a run opens are added; where that does not help, it runs
        in the original place.
        """
        if self._is_out_of_time(report):
            tried = self._rehearsed(report, reproducer, output, COPY_REPLICA + 6, KOfN(1, 1))
            ending = replace(tried.ending, reason=Reason.BUDGET, detail=report.ending.detail)
            return replace(tried, ending=ending), reproducer
        if report.reduction.status not in {Status.REDUCED, Status.NOT_REDUCED}:
            return report, reproducer
        report = self._rehearsed(report, reproducer, output, COPY_REPLICA)
        alone = self._source is not None and self._source.best is not None
        if report.shipped.reproduces is not False or reproducer.files is None or alone:
            return report, reproducer
        fuller = self._with_opened(report, reproducer, reproducer.files)
        if fuller is not None:
            report = self._rehearsed(report, fuller, output, COPY_REPLICA + 2)
            if report.shipped.reproduces is not False:
                return report, fuller
        return self._in_place(report, replace(reproducer, files=None), output)

    def _in_place(
        self, report: ReduceReport, reproducer: Reproducer, output: Output
    ) -> tuple[ReduceReport, Reproducer]:
        """What is written where no copy fails: whether that does, in the original directory."""
        tried = self._rehearsed(report, reproducer, output, COPY_REPLICA + 4)
        shipped = replace(report.shipped, in_place=tried.shipped.reproduces)
        return replace(tried, shipped=shipped), reproducer

    def _is_out_of_time(self, report: ReduceReport) -> bool:
        """Whether something smaller was found and the time is spent."""
        most = self.plan.budget.max_trials
        trials_left = most is None or len(report.records) < most
        smaller = report.reduction.best != report.reduction.original
        return report.ending.reason is Reason.BUDGET and trials_left and smaller

    def _rehearsed(
        self,
        report: ReduceReport,
        reproducer: Reproducer,
        output: Output,
        replica: int,
        once: KOfN | None = None,
    ) -> ReduceReport:
        point = report.reduction.best.asked_for(Purpose.CONFIRM, replica)
        search = EveryPoint([point])
        copy = CopyExperiment(self.experiment, reproducer, output)
        judge = once or KOfN(1, enough(report.reduction, self.plan.seen))
        question = self._beyond(f"copy {replica}", search, judge, copy)
        question = replace(
            question,
            budget=Budget() if once else question.budget,
            guard_signature=self.plan.is_command,
            expected=self._expected(report),
        )
        answer = self._answer(question, self.listeners)
        verdict = search.verdicts.get(point)
        found = verdict.reproduces if verdict is not None else None
        found = found or None if once else found  # one that did not fail may be chance
        names = reproducer.files.names if reproducer.files else ()
        tried = [record for record in answer.records if record.point == point]
        shipped = Shipped(
            found,
            tally=verdict.tally if verdict else Tally(),
            files=names,
            why=tried[-1].why if tried and found is False else "",
        )
        return report.with_more(answer, shipped=shipped)

    def _expected(self, report: ReduceReport) -> Failure | None:
        """The failure as the answer shows it: a script has its own frames, and is formatted."""
        if self._source is None or self._source.best is None:
            return report.failure
        record = report.last_failing(report.reduction.best)
        found = record.failure if record is not None else report.failure
        return found and found.in_any_version()

    def _with_opened(
        self, report: ReduceReport, reproducer: Reproducer, files: WorkloadFiles
    ) -> Reproducer | None:
        """The reproducer with every file that a run opens; None where that adds nothing."""
        kept = self.session.run.private / "opened.json"
        if not kept.is_file():
            point = report.reduction.best.asked_for(Purpose.CONFIRM, COPY_REPLICA + 1)
            search = EveryPoint([point])
            question = self._beyond("opened files", search, KOfN(1, 1), self.experiment)
            with watch_opened(files.root) as opened:
                self._answer(question, self.listeners)
            write_atomically(kept, json.dumps(sorted(opened)))
        opened_names = json.loads(kept.read_text("utf-8"))
        fuller = with_files(files, opened_names, self._apart())
        return replace(reproducer, files=fuller) if fuller is not None else None

    def _beyond(self, name: str, search: Search, judge: Judge, experiment: Experiment) -> Question:
        """A question beside the search, which no limit of trials keeps from being asked."""
        return Question(
            search=search,
            judges=SameJudge(judge),
            experiment=experiment,
            fingerprint=self.plan.fingerprint,
            budget=replace(self._budget(), max_trials=None),
            keep=self._keep,
            name=name,
            private_trials=True,
        )

    def env_at(self, point: Point) -> dict[str, Any]:
        """env.json as the workload at this point sees it."""
        if self._inside is not None:
            return dict(self._inside)
        return host_snapshot({**self.plan.base.env, **settings_of(self.plan.materials, point)})

    def _answer(self, question: Question, listeners: Sequence[Listener]) -> Answer:
        executor = self._open_executor()
        self._look_inside(executor)
        answer = self.session.answer(question, executor, listeners)
        self._seconds += answer.ending.seconds
        return answer

    def _look_inside(self, executor: Executor) -> None:
        """Once: the inside of a container does not change between candidates."""
        base = self.plan.base
        if base.environment.isolated and self._inside is None:
            scratch = self.session.run.private / "snapshot"
            self._inside = snapshot_of(
                base.environment, base.env, executor, scratch, base.subject.cwd
            )

    def _keep(self, record: TrialRecord, _end: TrialEnd) -> Mapping[str, str]:
        clear_data(self.session.run.private / record.path)
        if self._machine is None:
            self._machine = self._inside or host_snapshot(self.plan.base.env)
        settings = settings_of(self.plan.materials, record.point)
        return {ENV_FINGERPRINT: fingerprint_of(self._machine, settings)}

    def _apart(self) -> list[Path]:
        """Never copied as workload: reduced data, the spec, and the results themselves."""
        sources = [material.source for material in self.plan.materials if material.source]
        return [*sources, Path(self.plan.spec.file), self.session.path.parent]

    def _report(self, reduction: Reduction, answer: Answer) -> ReduceReport:
        return ReduceReport(
            run_dir=self.session.path,
            reduction=reduction,
            ending=answer.ending,
            records=answer.records,
            failure=answer.expected or _named_by_oracle(answer.records, reduction),
            mitigations=self.plan.mitigations,
        )


def _named_by_oracle(records: Sequence[TrialRecord], reduction: Reduction) -> Failure | None:
    """An oracle that names the failure itself, such as a number, says it in its words."""
    key = reduction.best.config_key
    why = [r.why for r in records if r.point.config_key == key and r.outcome.value == "reproduced"]
    return named_failure(ORACLE, why[-1]) if why else None
