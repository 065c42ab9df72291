"""`aorta reduce` from plan to report: claim or resume a run directory, search, rehearse, write."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from aorta.core.axis import AxisKind, Point, Purpose
from aorta.core.errors import InfrastructureError
from aorta.core.failure import ORACLE, Failure, learned, named_failure
from aorta.core.oracle import known_failure
from aorta.core.trial import Outcome, Tally, TrialEnd
from aorta.engine.events import (
    Ending,
    Event,
    Listener,
    Note,
    PointDecided,
    Reason,
    RunEnded,
    TrialEnded,
    TrialRecord,
    TrialStarted,
)
from aorta.engine.judge import HitCount, Judges, KOfN, SameJudge, misses_that_tell
from aorta.engine.question import Answer, Budget, Experiment, Question
from aorta.engine.rundir import fresh_dir, write_atomically
from aorta.engine.session import Session
from aorta.engine.snapshots import host_snapshot, snapshot_of
from aorta.executors import Executor
from aorta.executors.process_tree import watch_opened
from aorta.reduce.bindings import NONSENSE, settings_of
from aorta.reduce.experiment import ImpatientJudges, clear_data
from aorta.reduce.files import WorkloadFiles
from aorta.reduce.handoff import shipped_oracle
from aorta.reduce.output import CopyExperiment, Output
from aorta.reduce.plan import ReducePlan
from aorta.reduce.report import COPY_REPLICA, ReduceReport, Shipped
from aorta.reduce.shrunken import Reproducer, files_of
from aorta.reduce.source.running import SourceRun
from aorta.reduce.source.search import AXIS
from aorta.reduce.trace import ENV_FINGERPRINT, OtherEnds, Trace, fingerprint_of
from aorta.scrub.files import FileScrubber
from aorta.search import Search
from aorta.search.descent import Descent
from aorta.search.reduction import Reduction, Status
from aorta.search.repeated import EveryPoint

OpenExecutor = Callable[[], Executor]
_OF_THE_LAUNCHER = frozenset({AxisKind.WORLD_SIZE, AxisKind.RANKS})
_MISSED = 0.01
_MOST_TRIALS_OF_COPY = 40


def reduce_workload(
    plan: ReducePlan,
    session: Session,
    open_executor: OpenExecutor,
    listeners: Sequence[Listener],
    written: Callable[[], None],
) -> ReduceReport:
    """Search, then write all that ships, also if stopped. `written` is called per improvement."""
    output = Output(session.run, plan, FileScrubber(plan.scrubber()))
    output.begin()
    run = ReductionRun(plan, session, open_executor, listeners)
    trace = Trace()

    def write(report: ReduceReport, reproducer: Reproducer | None) -> None:
        output.finish(report, trace.lines, reproducer, run.env_at(report.reduction.best))

    def keep_best(records: Sequence[TrialRecord]) -> None:
        """`shrunken/`, result.json and SHIP.md as if the search ended here."""
        report = run.report_so_far(records)
        try:
            write(report, run.reproducer(report, output.files.scrubber.file_name))
        except InfrastructureError:
            raise
        except Exception as wrong:  # noqa: BLE001 - the search is worth more; its end writes again
            run.note(f"what was found so far could not be written: {wrong}")
        written()

    report = run.search(trace, BestSoFar(keep_best))
    try:
        reproducer = run.reproducer(report, output.files.scrubber.file_name)
        if reproducer is not None:
            report, reproducer = run.rehearse(report, reproducer, output)
            reproducer = replace(reproducer, failure=reproducer.failure or report.shipped.failure)
            programs = [str(place) for place in reproducer.portable.programs]
            session.run.describe(programs=programs, python=reproducer.python)
        write(report, reproducer)
    except Exception:
        write(report, None)  # what is known, whatever is wrong with what ships
        raise
    return report


class BestSoFar:
    """Engine listener: calls `write` at each smaller failure, before the next trial begins."""

    def __init__(self, write: Callable[[Sequence[TrialRecord]], None]) -> None:
        self._write = write
        self._records: list[TrialRecord] = []
        self._best: Point | None = None
        self._is_new = False

    def __call__(self, event: Event) -> None:
        match event:
            case TrialEnded(record, _):
                self._records.append(record)
            case PointDecided(_, _, best) if best is not None and best != self._best:
                # The first is the original itself, which lies where it always did.
                self._is_new, self._best = self._best is not None, best
            case TrialStarted() | RunEnded() if self._is_new:
                self._is_new = False
                self._write(self._records)


@dataclass(eq=False)
class ReductionRun:
    """One reduction in one run directory: its questions in order, and the report of them."""

    plan: ReducePlan
    session: Session
    open_executor: OpenExecutor
    listeners: Sequence[Listener]
    _began: float = field(default_factory=time.monotonic)
    _machine: Mapping[str, Any] | None = None  # asked once: it does not change on the way
    _inside: Mapping[str, Any] | None = None  # the snapshot inside a container
    _source: SourceRun | None = None  # once the other axes are through

    def __post_init__(self) -> None:
        self._private = self.session.run.private
        self.experiment = self.plan.experiment()
        self._descent = Descent(self.plan.axes)

    def search(self, *watching: Listener) -> ReduceReport:
        answer = self._ask(
            "main",
            self._descent,
            ImpatientJudges(self.plan.judges(), self.experiment.patience),
            self.experiment,
            listeners=(*watching, *self.listeners, OtherEnds(self._say_other)),
            budget=self._budget(),
            expected=known_failure(self.plan.oracle),
            learn=self.experiment.patience.learn,
            must_tell=True,
            warm=True,
        )
        report = self._without_ignored(self._report(self._descent.result, answer))
        return self._with_source(report, watching)

    def _ask(
        self,
        name: str,
        search: Search,
        judges: Judges,
        experiment: Experiment,
        *,
        listeners: Sequence[Listener] | None = None,
        **more: Any,
    ) -> Answer:
        """One question within the time left, trials unlimited. `more`: `Question` fields."""
        question = Question(
            search=search,
            judges=judges,
            experiment=experiment,
            fingerprint=self.plan.fingerprint,
            budget=replace(self._budget(), max_trials=None),
            keep=self._keep,
            name=name,
            private_trials=True,
        )
        executor = self.open_executor()
        self._look_inside(executor)
        listeners = self.listeners if listeners is None else listeners
        return self.session.answer(replace(question, **more), executor, listeners)

    def _budget(self) -> Budget:
        """What the questions before have left."""
        return self.plan.budget.less(time.monotonic() - self._began)

    def _keep(self, record: TrialRecord, _end: TrialEnd) -> Mapping[str, str]:
        clear_data(self._private / record.path)
        if self._machine is None:
            self._machine = self._inside or host_snapshot(self.plan.base.env)
        settings = settings_of(self.plan.bindings, record.point)
        return {ENV_FINGERPRINT: fingerprint_of(self._machine, settings)}

    def _look_inside(self, executor: Executor) -> None:
        """Once: the inside of a container does not change between candidates."""
        base = self.plan.base
        if base.environment.isolated and self._inside is None:
            scratch = self._private / "snapshot"
            self._inside = snapshot_of(
                base.environment, base.env, executor, scratch, base.subject.cwd
            )

    def env_at(self, point: Point) -> dict[str, Any]:
        """env.json as the workload at this point sees it."""
        if self._inside is not None:
            return dict(self._inside)
        return host_snapshot({**self.plan.base.env, **settings_of(self.plan.bindings, point)})

    def _say_other(self, found: Failure) -> None:
        said = f"three candidates in a row ended with {found.text}, which is not the failure looked"
        self.note(f"{said} for; if it is, let the oracle say so")

    def note(self, words: str) -> None:
        for listener in self.listeners:
            listener(Note(words))

    # -- axes that do not matter, and the program itself

    def _without_ignored(self, report: ReduceReport) -> ReduceReport:
        """Marks axes at their floor that the command ignores: it fails the same with nonsense."""
        reduction = report.reduction
        suspects = [
            facts.axis.name
            for facts in reduction.axes
            if facts.moved and facts.at_floor and facts.axis.kind not in _OF_THE_LAUNCHER
        ]
        if reduction.status is not Status.REDUCED or not suspects or not self.plan.is_command:
            return report
        points = {name: reduction.best.with_value(name, NONSENSE) for name in suspects}
        search = EveryPoint(list(points.values()))
        answer = self._ask(
            "ignored axes",
            search,
            SameJudge(KOfN(1, _enough(report, self.plan.seen))),
            self.experiment,
            expected=report.failure,
            keep=lambda record, _end: clear_data(self._private / record.path),
        )
        fails = {point for point, verdict in search.verdicts.items() if verdict.reproduces}
        ignored = [name for name, point in points.items() if point in fails]
        return report.with_more(answer, reduction=reduction.with_ignored(ignored))

    def _with_source(self, report: ReduceReport, watching: Sequence[Listener]) -> ReduceReport:
        """The program itself, at what the other axes were reduced to."""
        fails = report.reduction.status in {Status.REDUCED, Status.NOT_REDUCED}
        if not (self.plan.has_source and fails and report.failure is not None):
            return report
        source = SourceRun(
            self.plan, self.experiment, self._private, report.reduction, report.failure
        )
        keep, once = source.keeping(self._keep), SameJudge(KOfN(1, 1))

        def ask(name: str, search: Search, judges: Judges, **more: Any) -> None:
            nonlocal report
            more = {"keep": keep, "guard_signature": False, **more}
            answer = self._ask(f"source{name}", search, judges, source, **more)
            report = report.with_more(answer)

        originals = EveryPoint(source.originals)
        ask(": original", originals, once, guard_signature=True, expected=report.failure)
        why = source.begin() if report.ending.reason is Reason.DONE else ""
        if why or source.search is None:
            return replace(report, hint=why)
        self._source = source
        most = self.plan.budget.max_trials
        left = None if most is None else max(0, most - len(report.records))
        ask(
            "",
            source.search,
            source.judges(),
            listeners=(*watching, *self.listeners),
            budget=replace(self._budget(), max_trials=left),
            learn=self.experiment.patience.learn,
        )
        if source.fixes and report.ending.reason is Reason.DONE and source.best is not None:
            fixed = EveryPoint([point] if (point := source.repaired) is not None else [])
            ask(": with the known fix", fixed, once)
            source.ends_well_repaired = any(v.tally.clean for v in fixed.verdicts.values())
        source.count([r for r in report.records if AXIS in dict(r.point.values)])
        if source.to_confirm is not None and report.ending.reason is Reason.DONE:
            last = EveryPoint([source.to_confirm])
            ask(": confirm", last, SameJudge(source.to_be_sure))
            source.confirmation = last.verdicts.get(source.to_confirm)
        reduction = source.reduction(is_over=report.ending.reason is Reason.DONE)
        return replace(report, reduction=reduction, source=source.row)

    # -- what it amounts to, and whether that works elsewhere

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
        return Reproducer(
            plan,
            self.experiment,
            best,
            files_of(plan, self._apart()),
            shipped_name,
            rate,
            flaky=flaky,
            ends_well=report.ends_well,
            failure=self._expected(report) if plan.is_command else None,
        )

    def rehearse(
        self, report: ReduceReport, reproducer: Reproducer, output: Output
    ) -> tuple[ReduceReport, Reproducer]:
        """Whether what ships fails from elsewhere; else tried again with all files a run opens."""
        most = self.plan.budget.max_trials
        if report.ending.reason is Reason.BUDGET and (most is None or len(report.records) < most):
            tried = self._rehearsed(report, reproducer, output, 6, once=True)
            ending = replace(tried.ending, reason=Reason.BUDGET, detail=report.ending.detail)
            return replace(tried, ending=ending), reproducer
        if report.reduction.status not in {Status.REDUCED, Status.NOT_REDUCED}:
            return report, reproducer
        report = self._rehearsed(report, reproducer, output, 0)
        alone = self._source is not None and self._source.best is not None
        if report.shipped.reproduces is not False or reproducer.files is None or alone:
            return report, reproducer
        fuller = self._with_opened(report, reproducer, reproducer.files)
        if fuller is None:
            return report, reproducer
        return self._rehearsed(report, fuller, output, 2), fuller

    def _rehearsed(
        self,
        report: ReduceReport,
        reproducer: Reproducer,
        output: Output,
        number: int,
        *,
        once: bool = False,
    ) -> ReduceReport:
        """The report with trials of this copy. `once`: one trial, whatever the budget says."""
        point = report.reduction.best.asked_for(Purpose.CONFIRM, COPY_REPLICA + number)
        search = EveryPoint([point])
        enough = 1 if once else _enough(report, self.plan.seen)
        output.lay_out(report, reproducer, fresh_dir(self._private / "copy"))
        answer = self._ask(
            f"copy {COPY_REPLICA + number}",
            search,
            SameJudge(KOfN(1, enough)),
            CopyExperiment(self.experiment, reproducer, output, report),
            guard_signature=self.plan.is_command or shipped_oracle(self.plan) != self.plan.oracle,
            expected=output.retold(self._expected(report)),
            budget=Budget() if once else replace(self._budget(), max_trials=None),
        )
        verdict = search.verdicts.get(point)
        found = verdict.reproduces if verdict is not None else None
        tried = [record for record in answer.records if record.point == point]
        if once:
            found = found or None  # one that did not fail may be chance
        elif verdict is not None and found is None and tried and tried[-1].exit_code is not None:
            found = False  # it ended by itself, without a file, program or word that it needs
        why = tried[-1].why if tried and found is False else ""
        shown = [r.failure for r in tried if r.outcome is Outcome.REPRODUCED and r.failure]
        failure = reduce(lambda one, two: learned(one, two) or one, shown) if shown else None
        tally = verdict.tally if verdict else Tally()
        taken, alone = len(output.files.taken), not reproducer.left_out
        shipped = Shipped(found, tally, why, failure, alone, taken)
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
        kept = self._private / "opened.json"
        if not kept.is_file():
            point = report.reduction.best.asked_for(Purpose.CONFIRM, COPY_REPLICA + 1)
            with watch_opened(files.root) as opened:
                once = SameJudge(KOfN(1, 1))
                self._ask("opened files", EveryPoint([point]), once, self.experiment)
            write_atomically(kept, json.dumps(sorted(opened)))
        fuller = files_of(self.plan, self._apart(), json.loads(kept.read_text("utf-8")))
        return replace(reproducer, files=fuller) if fuller not in {None, files} else None

    def _apart(self) -> list[Path]:
        """Never copied as workload: reduced data, the spec, and the results themselves."""
        sources = [binding.source for binding in self.plan.bindings if binding.source]
        return [*sources, Path(self.plan.spec.file), self.session.path.parent]

    def _report(self, reduction: Reduction, answer: Answer) -> ReduceReport:
        """An oracle that names the failure itself, such as a number, says it in its words."""
        key = reduction.best.config_key
        failing = [r for r in answer.records if r.outcome is Outcome.REPRODUCED]
        why = [r.why for r in failing if r.point.config_key == key]
        return ReduceReport(
            run_dir=self.session.path,
            reduction=reduction,
            ending=answer.ending,
            records=answer.records,
            failure=answer.expected or (named_failure(ORACLE, why[-1]) if why else None),
            mitigations=self.plan.mitigations,
        )


def _enough(report: ReduceReport, before: HitCount) -> int:
    """Trials after which a copy that fails as often as the accepted is missed with under 1 %."""
    reduction = report.reduction
    accepted = {point.config_key for point in (*reduction.accepted, reduction.best)}
    tried = Tally.of(
        record.outcome
        for record in report.records
        if record.point.config_key in accepted and record.point.replica < COPY_REPLICA
    )
    seen = before + HitCount.of(tried)
    if not seen.misses and not reduction.setbacks:
        return 1
    return min(misses_that_tell(seen, _MISSED), _MOST_TRIALS_OF_COPY)
