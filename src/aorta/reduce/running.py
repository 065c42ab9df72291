"""`aorta reduce` from a plan to its report: claim or resume a run directory, search, try what would
ship, write it.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
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
from aorta.engine.judge import NOTHING, HitCount, Judge, KOfN, SameJudge, misses_that_tell
from aorta.engine.question import Answer, Budget, Experiment, Keep, Question
from aorta.engine.rundir import write_atomically
from aorta.engine.session import Session
from aorta.engine.snapshots import host_snapshot, snapshot_of
from aorta.executors import Executor
from aorta.reduce.bindings import changed_sources, settings_of
from aorta.reduce.experiment import (
    IGNORED,
    IgnoredExperiment,
    ImpatientJudges,
    WatchedExperiment,
    clear_data,
)
from aorta.reduce.files import WorkloadFiles, watch_opened, with_files
from aorta.reduce.output import CopyExperiment, Output
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
_OF_THE_LAUNCHER = frozenset({AxisKind.WORLD_SIZE, AxisKind.RANKS})
_OPENED_AXES = "opened_axes.json"  # those whose files the answer was seen to open
_MISSED = 0.01
_MOST_TRIALS_OF_COPY = 40
_MOST_UNDONE = 4  # steps that lost what a known fix repairs


def reduce_workload(
    plan: ReducePlan,
    session: Session,
    open_executor: OpenExecutor,
    listeners: Sequence[Listener],
    *,
    sees_opened_files: bool,
) -> ReduceReport:
    """Search to the end, then write all that ships; partial results where it was stopped.
    `sees_opened_files`: trials are processes of this machine.
    """
    output = Output(session.run, plan, plan.scrubber())
    output.begin()
    run = ReductionRun(plan, session, open_executor, listeners, sees_opened_files)
    trace = Trace(plan.axes, partial(settings_of, plan.bindings))
    report = run.search(trace, BestSoFar(partial(_keep_best, run, output, trace)))
    reproducer = run.reproducer(report, output.scrubber.file_name)
    if reproducer is not None:
        report, reproducer = run.rehearse(report, reproducer, output)
        programs = [str(place) for place in reproducer.portable.programs]
        session.run.describe(programs=programs, python=reproducer.python)
    changed = changed_sources(plan.bindings)
    if changed:
        # Trials get copies: somebody else did that, and the answer may rest on both.
        said = f"{', '.join(map(str, changed))} changed while it was reduced"
        report = replace(report, hint="; ".join(filter(None, [report.hint, said])))
    output.finish(report, trace.lines, reproducer, run.env_at(report.reduction.best))
    return report


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


def _keep_best(
    run: "ReductionRun", output: Output, trace: Trace, records: Sequence[TrialRecord]
) -> None:
    """`shrunken/`, result.json and SHIP.md as if the search ended here."""
    report = run.report_so_far(records)
    reproducer = run.reproducer(report, output.scrubber.file_name)
    output.finish(report, trace.lines, reproducer, run.env_at(report.reduction.best))


class ReductionRun:
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
        originals, once = EveryPoint(source.originals), KOfN(1, 1)
        answer = self._ask(
            "source: original", originals, once, source.traced, keep=keep, expected=report.failure
        )
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
            last, sure = EveryPoint([source.to_confirm]), source.to_be_sure
            answer = self._ask(
                "source: confirm", last, sure, source.traced, keep=keep, guard_signature=False
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
            search, name = EveryPoint([point]), f"source: {point[AXIS]}"
            more = {"keep": keep, "guard_signature": False}
            answers.append(self._ask(name, search, KOfN(1, 1), source.traced, **more))
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
        answer = self._ask(
            "ignored axes",
            search,
            KOfN(1, _enough(reduction, self.plan.seen)),
            IgnoredExperiment(self.experiment, reduction.best),
            expected=report.failure,
            keep=lambda record, _end: clear_data(self.session.run.private / record.path),
        )
        found = [
            name for name, point in zip(suspects, points, strict=True) if _failed(search, point)
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
        most = self.plan.budget.max_trials
        trials_left = most is None or len(report.records) < most
        if report.ending.reason is Reason.BUDGET and trials_left:
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
        judge = once or KOfN(1, _enough(report.reduction, self.plan.seen))
        answer = self._ask(
            f"copy {replica}",
            search,
            judge,
            copy,
            guard_signature=self.plan.is_command,
            expected=self._expected(report),
            **({"budget": Budget()} if once else {}),
        )
        verdict = search.verdicts.get(point)
        found = verdict.reproduces if verdict is not None else None
        found = found or None if once else found  # one that did not fail may be chance
        names = reproducer.files.names if reproducer.files else ()
        tried = [record for record in answer.records if record.point == point]
        if verdict is not None and found is None and not once and tried and tried[-1].exit_code:
            found = False  # it ended by itself, without a file or program that it needs
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
            with watch_opened(files.root) as opened:
                self._ask("opened files", EveryPoint([point]), KOfN(1, 1), self.experiment)
            write_atomically(kept, json.dumps(sorted(opened)))
        opened_names = json.loads(kept.read_text("utf-8"))
        fuller = with_files(files, opened_names, self._apart())
        return replace(reproducer, files=fuller) if fuller is not None else None

    def _ask(
        self, name: str, search: Search, judge: Judge, experiment: Experiment, **more: Any
    ) -> Answer:
        """A question beside the search, which no limit of trials keeps from being asked."""
        question = Question(
            search=search,
            judges=SameJudge(judge),
            experiment=experiment,
            fingerprint=self.plan.fingerprint,
            budget=replace(self._budget(), max_trials=None),
            keep=self._keep,
            name=name,
            private_trials=True,
        )
        return self._answer(replace(question, **more), self.listeners)

    def env_at(self, point: Point) -> dict[str, Any]:
        """env.json as the workload at this point sees it."""
        if self._inside is not None:
            return dict(self._inside)
        return host_snapshot({**self.plan.base.env, **settings_of(self.plan.bindings, point)})

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
        settings = settings_of(self.plan.bindings, record.point)
        return {ENV_FINGERPRINT: fingerprint_of(self._machine, settings)}

    def _apart(self) -> list[Path]:
        """Never copied as workload: reduced data, the spec, and the results themselves."""
        sources = [binding.source for binding in self.plan.bindings if binding.source]
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


def _failed(search: EveryPoint, point: Point) -> bool:
    verdict = search.verdicts.get(point)
    return verdict is not None and verdict.reproduces is True


def _enough(reduction: Reduction, before: HitCount) -> int:
    """So many trials that a copy which fails as often as the answer is missed less than once in a
    hundred times. `before`: how often the original was seen to fail before the reduction.
    """
    verdict = reduction.confirmation or reduction.calibration
    judged = [v for v in (reduction.calibration, reduction.confirmation) if v is not None]
    missed = before.misses or reduction.setbacks or any(v.tally.against for v in judged)
    if judged and not missed:
        return 1
    seen = before + (HitCount.of(verdict.tally) if verdict else NOTHING)
    return min(misses_that_tell(seen, _MISSED), _MOST_TRIALS_OF_COPY)
