"""The verb `run`, n trials of one thing: what may be asked, and the function that answers it."""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.errors import Exit, UsageError
from aorta.core.failure import Failure, failure_to_json
from aorta.core.names import slug, spelled
from aorta.core.oracle import Oracle, known_failure
from aorta.core.stats import percent_range, percentile, rate_to_json
from aorta.core.trial import Outcome, Tally, TrialEnd
from aorta.engine.events import Ending, Listener, Reason, TrialRecord, failed_differently
from aorta.engine.judge import (
    NOTHING,
    Calibration,
    EveryTrial,
    HitCount,
    Judge,
    KOfN,
    SameJudge,
    calibrating,
)
from aorta.engine.question import Budget, Question, independent_starts
from aorta.engine.rundir import write_atomically, write_json
from aorta.engine.session import Resume, Session, keep_request, taken_up
from aorta.engine.snapshots import snapshot_of
from aorta.executors import Executor
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.environments import EnvironmentLayers
from aorta.search.repeated import EveryPoint
from aorta.workloads.base import COMMAND, rank_of
from aorta.workloads.results import TrialLabel, read_trial, trial_document
from aorta.workloads.trial import (
    WorkloadExperiment,
    WorkloadRequest,
    check_command,
    script_digests,
    workload_experiment,
)

SCHEMA = "aorta.run/1"


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Either a registered workload or a command, and how often."""

    workload: str | None = None
    command: tuple[str, ...] | str = ()  # words, or a text for a shell
    cwd: Path | None = None  # of every trial; None: here
    trials: int | None = 1  # None: as many as it takes to know how often it fails
    seen: HitCount = NOTHING  # how often it was seen to fail before, where trials is None
    stop_at_failure: bool = False  # the first trial that shows the failure is the last
    steps: int | None = None  # of one trial
    layers: EnvironmentLayers = field(default_factory=EnvironmentLayers)
    oracle: Oracle | None = None  # None: any failing exit, or the workload's own
    timeout: float | None = None  # of one trial, in seconds
    max_wall_clock: float | None = None  # in seconds
    retries: int = 2  # so many more trials that could not tell than trials that could
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    results_dir: Path = Path("results")
    run_dir: Path | None = None  # exactly there, and not in a new one below results_dir
    resume: Resume | None = None

    @property
    def judge(self) -> Judge:
        if self.trials is None:
            return calibrating(Calibration(), self.seen)
        return KOfN(1, self.trials) if self.stop_at_failure else EveryTrial(self.trials)


@dataclass(frozen=True)
class RunReport:
    """Every trial, and what they amount to."""

    workload: str
    run_dir: Path
    records: Sequence[TrialRecord]
    ending: Ending
    failure: Failure | None
    step_times_ms: Sequence[float] = field(default_factory=tuple)
    is_kept: bool = True  # False on every rank but the first, whose results are kept

    @property
    def tally(self) -> Tally:
        return Tally.of(record.outcome for record in self.records)

    @property
    def starts(self) -> int:
        """What the interval of the rate rests on: forks of one server share its hash seed."""
        return independent_starts(self.records)

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not Reason.DONE:
            return self.ending.exit_code
        clean = bool(self.records) and self.tally.clean == len(self.records)
        return Exit.OK if clean else Exit.FAILED

    def to_json(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "workload": self.workload,
            "run_dir": str(self.run_dir) if self.is_kept else None,
            "status": self.ending.reason.value,
            "trials": [_trial_row(index, self.run_dir, r) for index, r in enumerate(self.records)],
            "counts": vars(tally),
            "rate": rate_to_json(tally.reproduced, tally.evidence, self.starts),
            "independent_starts": self.starts,
            "signature": self.failure.text if self.failure else None,
            "failure": failure_to_json(self.failure),
            "step_time_ms": _step_times(self.step_times_ms),
            "resumed_trials": self.ending.resumed_trials,
            "warm": self.ending.warm_to_json(),
            "summary": list(self.lines()),
        }

    def lines(self) -> Iterator[str]:
        """The answer in a sentence, and what it rests on."""
        tally = self.tally
        rate = rate_to_json(tally.reproduced, tally.evidence, self.starts)
        steps = _step_times(self.step_times_ms)
        shared = f", from {self.starts} independent starts" if self.starts < rate["of"] else ""
        if rate["of"]:
            yield (
                f"{self.workload}: {rate['reproduced']} of {rate['of']} trials reproduced the "
                f"failure (95 % interval {percent_range(rate['low'], rate['high'])}{shared})"
            )
        else:
            yield f"{self.workload}: no trial could tell whether it fails"
        yield "  " + "   ".join(f"{count} {outcome}" for outcome, count in vars(tally).items())
        if self.failure:
            yield f"  failure    {self.failure.text}"
        yield from (f"  {words}" for words in failed_differently(self.records))
        for index, record in enumerate(self.records):
            if record.outcome in {Outcome.OTHER, Outcome.ERROR}:
                yield f"  trial {index}: {record.outcome.value}: {record.why}"
        if steps:
            of_steps = f"median {steps['median']} ms, p90 {steps['p90']} ms"
            yield f"  step time  {of_steps} over {steps['count']} steps"
        yield f"  results    {self.run_dir if self.is_kept else 'kept by rank 0 alone'}"


def run(
    request: RunRequest,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _words: None,
) -> RunReport:
    """Run every trial. Under torchrun every rank runs its trials, and rank 0 keeps them. `say` is
    called with the run that is resumed, where the request names none.
    """
    if request.trials is not None and request.trials < 1:
        raise UsageError(f"--trials: found {request.trials}, expected at least 1")
    request = _resumed(request, say)
    request = replace(request, cwd=(request.cwd or Path()).absolute())
    what = _workload(request)
    experiment = workload_experiment(what)
    check_command(experiment, request.executor.name)
    executor = request.executor.open()
    with closing(executor):
        if rank_of(os.environ) == 0:
            session = _session(request, what.workload)
            return _run_in(session, request, what, experiment, executor, listeners())
        with tempfile.TemporaryDirectory(prefix="aorta-rank-") as scratch:
            session = Session.fresh(Path(scratch), "run")
            report = _run_in(session, request, what, experiment, executor, ())
            return replace(report, is_kept=False)


def _resumed(request: RunRequest, say: Callable[[str], None]) -> RunRequest:
    says_it = bool(request.command or request.workload)
    return taken_up(request, request.results_dir, "run", is_whole=says_it, say=say)


def plan_lines(request: RunRequest) -> Iterator[str]:
    """What would run, for people; nothing is run or written."""
    request = _resumed(request, lambda _words: None)
    what = _workload(request)
    experiment = workload_experiment(what)
    place = f"{what.environment.name}, {experiment.subject.cwd}"
    yield f"{request.trials} trials of {what.workload} in {place}"
    if request.command:
        yield f"  command   {spelled(request.command)}"
    if experiment.env:
        yield f"  variables {', '.join(sorted(experiment.env))}"
    yield f"  oracle    {experiment.oracle.kind}"


def _workload(request: RunRequest) -> WorkloadRequest:
    if request.workload == "":
        raise UsageError("--workload is empty; name a workload, or leave it out")
    if bool(request.command) == bool(request.workload):
        raise UsageError("give either --workload NAME or a command behind --")
    command = {"command": request.command, "cwd": str(request.cwd or ".")}
    return WorkloadRequest(
        workload=request.workload or COMMAND,
        config=command if request.command else {},
        environment=request.layers.resolved_environment(),
        mitigations=request.layers.resolved_mitigations(),
        extra_env=[request.layers.extra_env],
        steps=request.steps,
        oracle=request.oracle,
        timeout=request.timeout,
        base=request.cwd,
    )


def _session(request: RunRequest, workload: str) -> Session:
    if request.resume is not None:
        return Session.resuming(request.results_dir, "run", request.resume)
    place = request.run_dir or request.results_dir / slug(workload)
    session = Session.fresh(place.parent, "run", name=place.name, workload=workload)
    keep_request(session.run, replace(request, layers=request.layers.absolute()))
    return session


def _fingerprint(
    request: RunRequest, what: WorkloadRequest, experiment: WorkloadExperiment
) -> Mapping[str, object]:
    depends = request.trials is None or request.stop_at_failure  # on what they say
    return {
        "workload": [what.workload, dict(what.config), what.steps],
        "environment": repr(what.environment),
        "variables": sorted(what.resolved_env().items()),
        "oracle": repr(what.oracle),
        "number of trials": repr(request.judge) if depends else request.trials,
        **script_digests(experiment),
    }


def _run_in(
    session: Session,
    request: RunRequest,
    what: WorkloadRequest,
    experiment: WorkloadExperiment,
    executor: Executor,
    listeners: Sequence[Listener],
) -> RunReport:
    with session:
        # Once: what a run's trials see does not change between them.
        env = snapshot_of(
            experiment.environment,
            experiment.env,
            executor,
            session.run.private / "snapshot",
            experiment.subject.cwd,
        )
        question = Question(
            search=EveryPoint([Point.of({})]),
            judges=SameJudge(request.judge),
            experiment=experiment,
            fingerprint=_fingerprint(request, what, experiment),
            budget=Budget(max_seconds=request.max_wall_clock, retries=request.retries),
            expected=known_failure(experiment.oracle),
            keep=partial(_keep, session.path, what, env),
            must_tell=True,
            warm=True,
        )
        answer = session.answer(question, executor, listeners)
        kept = (read_trial(session.path / _result_name(record)) for record in answer.records)
        report = RunReport(
            workload=what.workload,
            run_dir=session.path,
            records=answer.records,
            ending=answer.ending,
            failure=answer.expected,
            step_times_ms=[time for one in kept for time in one.workload_result.step_times_ms],
        )
        write_json(session.path / "result.json", SCHEMA, report.to_json())
        return report


def _keep(
    run_dir: Path,
    request: WorkloadRequest,
    env: Mapping[str, Any],
    record: TrialRecord,
    end: TrialEnd,
) -> None:
    label = TrialLabel(request.workload, record.index)
    document = trial_document(label, request, end, record, env=env)
    write_atomically(run_dir / label.relative_path.name, document.to_json())


def _trial_row(index: int, run_dir: Path, record: TrialRecord) -> dict[str, Any]:
    return {
        "index": index,
        "outcome": record.outcome.value,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "timed_out": record.timed_out,
        "duration_sec": record.duration,
        "warm": record.saved > 0,
        "why": record.why,
        "path": str(run_dir / _result_name(record)),
        "logs": str(run_dir / record.path),
    }


def _result_name(record: TrialRecord) -> str:
    return TrialLabel("", record.index).relative_path.name


def _step_times(times: Sequence[float]) -> dict[str, float] | None:
    if not times:
        return None
    ordered = sorted(times)
    return {
        "count": len(ordered),
        "mean": round(statistics.fmean(ordered), 4),
        "median": round(statistics.median(ordered), 4),
        "p90": round(percentile(ordered, 0.9), 4),
        "max": round(ordered[-1], 4),
    }
