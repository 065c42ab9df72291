"""`aorta run`: n trials of one thing. Does it fail, how often, how fast?"""

import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.errors import Exit
from aorta.core.names import slug
from aorta.core.oracle import Classified
from aorta.core.signature import Signature
from aorta.core.stats import wilson
from aorta.core.trial import Tally, TrialEnd
from aorta.engine.events import Ending, Listener, Reason
from aorta.engine.journal import TrialRecord
from aorta.engine.judge import EveryTrial, Judge, SameJudge
from aorta.engine.question import Budget, Keep, Question
from aorta.engine.rundir import write_atomically, write_json
from aorta.engine.session import Resume, Session
from aorta.engine.snapshots import snapshot_of
from aorta.engine.warmth import WarmRules
from aorta.executors import Executor
from aorta.search.repeated import EveryPoint
from aorta.workloads.base import rank_of
from aorta.workloads.results import TrialLabel, read_trial, trial_document
from aorta.workloads.trial import WorkloadExperiment, WorkloadRequest, workload_experiment

SCHEMA = "aorta.run/1"


@dataclass(frozen=True)
class RunPlan:
    """What to run, how often, and where the results go."""

    request: WorkloadRequest
    trials: int
    results_dir: Path
    budget: Budget = field(default_factory=Budget)
    judge: Judge | None = None  # stops as soon as it is sure; without one every trial is run
    run_dir: Path | None = None  # exactly there, and not in a new one below results_dir

    @property
    def fingerprint(self) -> Mapping[str, object]:
        request = self.request
        return {
            "workload": [request.workload, dict(request.config), request.steps],
            "environment": repr(request.environment),
            "variables": sorted(request.resolved_env().items()),
            "oracle": repr(request.oracle),
            "number of trials": self.trials if self.judge is None else repr(self.judge),
        }


@dataclass(frozen=True)
class RunReport:
    """Every trial, and what they amount to."""

    workload: str
    run_dir: Path
    records: Sequence[TrialRecord]
    ending: Ending
    signature: Signature | None
    step_times_ms: Sequence[float] = field(default_factory=tuple)
    asked: int = 0  # how many trials the user wanted

    @property
    def tally(self) -> Tally:
        return Tally.of(record.outcome for record in self.records)

    @property
    def retried(self) -> int:
        """Trials that could not tell, and were run again: the number asked for is of trials that can."""
        return max(0, len(self.records) - self.asked) if self.asked else 0

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not Reason.DONE:
            return self.ending.exit_code
        clean = bool(self.records) and self.tally.clean == len(self.records)
        return Exit.OK if clean else Exit.FAILED

    def to_json(self) -> dict[str, Any]:
        tally = self.tally
        low, high = wilson(tally.reproduced, tally.evidence)
        return {
            "workload": self.workload,
            "run_dir": str(self.run_dir),
            "status": self.ending.reason.value,
            "trials": [_trial_row(index, self.run_dir, r) for index, r in enumerate(self.records)],
            "counts": vars(tally),
            "rate": {
                "reproduced": tally.reproduced,
                "of": tally.evidence,
                "low": round(low, 4),
                "high": round(high, 4),
            },
            "signature": self.signature.text if self.signature else None,
            "step_time_ms": _step_times(self.step_times_ms),
            "resumed_trials": self.ending.resumed_trials,
            "warm": self.ending.warm_to_json(),
            "retried_trials": self.retried,
        }


def run_trials(
    plan: RunPlan,
    open_executor: Callable[[], Executor],
    listeners: Sequence[Listener] = (),
    *,
    resume: Resume | None = None,
) -> RunReport:
    """Run the plan to its end. Under torchrun every rank runs its trials, and rank 0 alone keeps the results."""
    experiment = workload_experiment(plan.request)
    executor = open_executor()
    with closing(executor):
        if rank_of(os.environ) == 0:
            return _run_in(_session(plan, resume), plan, experiment, executor, listeners)
        with tempfile.TemporaryDirectory(prefix="aorta-rank-") as scratch:
            return _run_in(Session.fresh(Path(scratch), "run"), plan, experiment, executor, ())


def _session(plan: RunPlan, resume: Resume | None) -> Session:
    if resume is not None:
        return Session.resuming(plan.results_dir, "run", resume)
    workload = plan.request.workload
    place = plan.run_dir or plan.results_dir / slug(workload)
    return Session.fresh(place.parent, "run", name=place.name, workload=workload)


def _run_in(
    session: Session,
    plan: RunPlan,
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
        point = Point.of({})
        question = Question(
            search=EveryPoint([point]),
            judges=SameJudge(plan.judge or EveryTrial(plan.trials)),
            experiment=experiment,
            fingerprint=plan.fingerprint,
            budget=plan.budget,
            keep=_keeper(session.path, plan.request, env),
            warm=WarmRules(),
        )
        answer = session.answer(question, executor, listeners)
        report = RunReport(
            workload=plan.request.workload,
            run_dir=session.path,
            records=answer.records,
            ending=answer.ending,
            signature=answer.expected,
            asked=plan.trials if plan.judge is None else 0,
            step_times_ms=_all_step_times(session.path, answer.records),
        )
        write_json(session.path / "result.json", SCHEMA, report.to_json())
        return report


def _keeper(run_dir: Path, request: WorkloadRequest, env: Mapping[str, Any]) -> Keep:
    def keep(record: TrialRecord, end: TrialEnd) -> None:
        label = TrialLabel(request.workload, record.index)
        found = Classified(record.outcome, record.why, record.signature)
        document = trial_document(label, request, end, found, env=env)
        write_atomically(run_dir / label.relative_path.name, document.to_json())

    return keep


def _trial_row(index: int, run_dir: Path, record: TrialRecord) -> dict[str, Any]:
    return {
        "index": index,
        "outcome": record.outcome.value,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "timed_out": record.timed_out,
        "duration_sec": record.duration,
        "warm": record.spared > 0,
        "why": record.why,
        "path": str(run_dir / _result_name(record)),
        "logs": str(run_dir / record.path),
    }


def _result_name(record: TrialRecord) -> str:
    return TrialLabel("", record.index).relative_path.name


def _all_step_times(run_dir: Path, records: Sequence[TrialRecord]) -> list[float]:
    times: list[float] = []
    for record in records:
        times += read_trial(run_dir / _result_name(record)).workload_result.step_times_ms
    return times


def _step_times(times: Sequence[float]) -> dict[str, float] | None:
    if not times:
        return None
    ordered = sorted(times)
    return {
        "count": len(ordered),
        "mean": round(statistics.fmean(ordered), 4),
        "median": round(statistics.median(ordered), 4),
        "p90": round(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], 4),
        "max": round(ordered[-1], 4),
    }
