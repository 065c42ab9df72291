"""Which executor was asked for. Others can add theirs: the entry-point group is `aorta.executors`.

An entry point is a callable that takes `ExecutorOptions` and returns an `Executor`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Resources, TrialEnd, TrialSpec
from aorta.executors import Executor, WarmExecutor
from aorta.probe import collect_env
from aorta.registry.catalogue import registered
from aorta.runtimes.devices import visible_devices

GROUP = "aorta.executors"
_PATIENCE = 10.0  # seconds for the end of cancelled trials; to open a cluster again takes as long


@dataclass(frozen=True)
class ExecutorChoice:
    """Where trials run, how many side by side, and what each of them needs."""

    name: str = "local"  # local, slurm, ray, or one of an entry point
    jobs: int | None = None  # trials side by side; None: one here, on a cluster what fits
    resources: Resources = field(default_factory=Resources)
    ray_address: str | None = None
    cold: bool = False  # no trial is forked from a process that has imported its libraries

    def open(self) -> Executor:
        """A fresh one; whoever opens it closes it."""
        here = self.name == "local"  # elsewhere the scheduler knows and hands out the devices
        devices: list[str] = []
        if self.resources.gpus and here:
            devices = visible_devices([str(n) for n, _ in enumerate(collect_env().gpus)])
        options = ExecutorOptions(self.jobs, self.resources, devices, self.ray_address, self.cold)
        return open_executor(self.name, options)


class KeptOpen:
    """The executor between two stages: to open one of a cluster takes seconds, here the start of a
    supervisor a slot.
    """

    def __init__(self, chosen: ExecutorChoice) -> None:
        self._chosen = chosen
        self._idle: Executor | None = None

    def open(self) -> Executor:
        """For one stage, which closes it; a stage that leaves it idle leaves it to the next."""
        idle, self._idle = self._idle, None
        opened = idle if idle is not None else self._chosen.open()
        # Here closing is cheap and sees them end itself, unless it is interrupted once more.
        return _OfAStage(self, opened, patience=0.0 if self._chosen.name == "local" else _PATIENCE)

    def give_back(self, executor: Executor, *, idle: bool) -> None:
        """One that is not idle, or did not answer as it should, is closed."""
        if idle and self._idle is None:
            self._idle = executor
        else:
            executor.close()

    def close(self) -> None:
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _OfAStage:
    """Implements `Executor`: one that is kept, as long as a stage has it."""

    def __init__(self, kept: KeptOpen, inner: Executor, *, patience: float) -> None:
        self._kept = kept
        self.inner = inner
        self._patience = patience
        self._is_open = True
        self._unended: set[str] = set()  # also one whose start failed

    @property
    def slots(self) -> int:
        return self.inner.slots

    def start(self, trial: TrialSpec) -> None:
        self._unended.add(trial.id)
        try:
            self.inner.start(trial)
        except InfrastructureError:
            self._patience = 0.0  # it has no end to wait for
            raise

    def keeps_warm(self, trial: TrialSpec) -> bool:
        return isinstance(self.inner, WarmExecutor) and self.inner.keeps_warm(trial)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        ended = self.inner.wait(timeout)
        self._unended.difference_update(end.trial_id for end in ended)
        return ended

    def cancel(self, trial_id: str) -> None:
        self.inner.cancel(trial_id)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            try:
                with suppress(InfrastructureError):  # then it is not idle
                    self._end_what_runs()
            finally:
                self._kept.give_back(self.inner, idle=not self._unended)

    def _end_what_runs(self) -> None:
        """Trials that were begun ahead, and that the answer made needless."""
        until = time.monotonic() + self._patience
        for trial_id in self._unended if self._patience else ():
            self.inner.cancel(trial_id)
        while self._unended and (left := until - time.monotonic()) > 0:
            self.wait(left)


def runs_here(executor: Executor) -> bool:
    """Whether its trials are processes of this machine, and the files that they open can be
    seen.
    """
    from aorta.executors.local import LocalExecutor

    opened = executor.inner if isinstance(executor, _OfAStage) else executor
    return isinstance(opened, LocalExecutor)


@dataclass(frozen=True)
class ExecutorOptions:
    """What an executor is made from; each takes what it understands."""

    jobs: int | None = None  # None: as many as make sense there
    resources: Resources = field(default_factory=Resources)
    devices: Sequence[str] = ()  # the GPUs of this machine
    address: str | None = None  # of a cluster
    cold: bool = False


def open_executor(name: str, options: ExecutorOptions) -> Executor:
    maker = _BUILT_IN.get(name) or _added(name)
    return maker(options)


def _added(name: str) -> Callable[[ExecutorOptions], Executor]:
    """What an installed distribution calls so. Asked last: a look through all of them takes 10 ms
    for a hundred.
    """
    points = {point.name: point for point in registered(GROUP)}
    if name not in points:
        known = sorted({*_BUILT_IN, *points})
        raise UsageError(f"unknown executor {name!r}; expected one of: {', '.join(known)}")
    maker: Callable[[ExecutorOptions], Executor] = points[name].load()
    return maker


def _local(options: ExecutorOptions) -> Executor:
    from aorta.executors.local import LocalExecutor

    _refuse_what_one_machine_cannot_give(options.resources)
    return LocalExecutor(
        options.jobs or 1,
        gpus_per_trial=options.resources.gpus,
        devices=options.devices,
        warm=not options.cold,
    )


def _slurm(options: ExecutorOptions) -> Executor:
    from aorta.executors.cluster import ClusterExecutor
    from aorta.executors.slurm import slurm_scheduler

    scheduler = slurm_scheduler(options.resources)
    return ClusterExecutor(scheduler, jobs=options.jobs, resources=options.resources)


def _ray(options: ExecutorOptions) -> Executor:
    from aorta.executors.cluster import ClusterExecutor
    from aorta.executors.ray import RayTasks

    scheduler = RayTasks(options.address, options.resources)
    return ClusterExecutor(
        scheduler, jobs=options.jobs, resources=options.resources, warm=not options.cold
    )


_BUILT_IN: dict[str, Callable[[ExecutorOptions], Executor]] = {
    "local": _local,
    "slurm": _slurm,
    "ray": _ray,
}


def _refuse_what_one_machine_cannot_give(resources: Resources) -> None:
    if resources.tasks > 1:
        raise UsageError(
            f"--nodes {resources.nodes} and --tasks-per-node {resources.tasks_per_node} need a "
            "scheduler; "
            "add --executor slurm, or let the command start its own ranks"
        )
