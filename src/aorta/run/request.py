"""The door of the room: everything that may be asked of a run of trials, and the one function that answers it."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.oracle import Oracle
from aorta.engine.events import Listener
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.layers import EnvironmentLayers
from aorta.run.running import RunPlan, RunReport, run_trials
from aorta.workloads.discovery import COMMAND
from aorta.workloads.trial import WorkloadRequest, workload_experiment


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Either a registered workload or a command, and how often."""

    workload: str | None = None
    command: tuple[str, ...] = ()
    trials: int = 1
    steps: int | None = None  # of one trial
    layers: EnvironmentLayers = field(default_factory=EnvironmentLayers)
    oracle: Oracle | None = None  # None: any failing exit, or the workload's own
    timeout: float | None = None  # of one trial, in seconds
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    results_dir: Path = Path("results")
    resume: Resume | None = None


def run(request: RunRequest, listeners: Callable[[], Sequence[Listener]] = tuple) -> RunReport:
    """Run every trial: does it fail, how often, how fast?"""
    plan = _plan(request)
    return run_trials(plan, request.executor.open, listeners(), resume=request.resume)


def plan_lines(request: RunRequest) -> Iterator[str]:
    """What would run, for people; nothing is run or written."""
    plan = _plan(request)
    experiment = workload_experiment(plan.request)
    yield f"{plan.trials} trials of {plan.request.workload} in {plan.request.environment.name}"
    yield f"  in        {experiment.subject.cwd}"
    if request.command:
        yield f"  command   {shlex.join(request.command)}"
    if experiment.env:
        yield f"  variables {', '.join(sorted(experiment.env))}"
    yield f"  oracle    {experiment.oracle.kind}"


def _plan(request: RunRequest) -> RunPlan:
    if request.workload == "":
        raise UsageError("--workload is empty; name a workload, or leave it out")
    if bool(request.command) == bool(request.workload):
        raise UsageError("give either --workload NAME or a command behind --")
    what = WorkloadRequest(
        workload=request.workload or COMMAND,
        config={"command": list(request.command)} if request.command else {},
        environment=request.layers.resolved_environment(),
        mitigations=request.layers.resolved_mitigations(),
        extra_env=[request.layers.extra_env],
        steps=request.steps,
        oracle=request.oracle,
        timeout=request.timeout,
    )
    return RunPlan(what, request.trials, request.results_dir)
