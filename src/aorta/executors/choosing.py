"""Which executor was asked for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache

from aorta.core.errors import UsageError
from aorta.core.trial import Resources
from aorta.executors import Executor


@dataclass(frozen=True)
class ExecutorChoice:
    """Where trials run, how many side by side, and what each of them needs."""

    name: str = "local"  # local, slurm or ray
    jobs: int | None = None  # trials side by side; None: one here, on a cluster what fits
    resources: Resources = field(default_factory=Resources)
    ray_address: str | None = None
    warm: bool = False  # trials may be forked from a process that has imported their libraries
    job_per_trial: bool = False  # slurm: one job a trial, and not one for many

    def open(self) -> Executor:
        """A fresh one, for the caller to close."""
        match self.name:
            case "local":
                return _local(self)
            case "slurm":
                from aorta.executors.slurm import slurm_executor

                return slurm_executor(self.resources, self.jobs, job_per_trial=self.job_per_trial)
            case "ray":
                from aorta.executors.ray import RayExecutor

                return RayExecutor(self.ray_address, self.resources, self.jobs)
        raise UsageError(f"unknown executor {self.name!r}; expected one of: local, ray, slurm")

    @contextmanager
    def opened(self) -> Iterator[Callable[[], Executor]]:
        """One for several searches: opened when it is first asked for, closed at the end."""
        with ExitStack() as stack:
            yield cache(lambda: stack.enter_context(closing(self.open())))


def _local(choice: ExecutorChoice) -> Executor:
    from aorta.executors.local import LocalExecutor

    wanted = choice.resources
    if wanted.tasks > 1:
        raise UsageError(
            f"--nodes {wanted.nodes} and --tasks-per-node {wanted.tasks_per_node} need a "
            "scheduler; add --executor slurm, or let the command start its own ranks"
        )
    devices: list[str] = []
    if wanted.gpus:
        from aorta.probe import collect_env
        from aorta.runtimes.engine import visible_devices

        devices = visible_devices([str(n) for n, _ in enumerate(collect_env().gpus)])
    return LocalExecutor(
        choice.jobs or 1, gpus_per_trial=wanted.gpus, devices=devices, warm=choice.warm
    )
