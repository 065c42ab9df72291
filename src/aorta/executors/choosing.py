"""Which executor a name stands for. Others can add theirs: the entry-point group is `aorta.executors`.

An entry point is a callable that takes `Wishes` and returns an `Executor`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points

from aorta.core.errors import UsageError
from aorta.core.trial import Resources
from aorta.executors import Executor

GROUP = "aorta.executors"


@dataclass(frozen=True)
class Wishes:
    """What the user asked of an executor; each takes what it understands."""

    jobs: int | None = None  # None: as many as make sense there
    resources: Resources = field(default_factory=Resources)
    devices: Sequence[str] = ()  # the GPUs of this machine
    address: str | None = None  # of a cluster


def open_executor(name: str, wishes: Wishes) -> Executor:
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name in points:
        maker: Callable[[Wishes], Executor] = points[name].load()
    elif name in _BUILT_IN:
        maker = _BUILT_IN[name]
    else:
        known = sorted({*_BUILT_IN, *points})
        raise UsageError(f"unknown executor {name!r}; expected one of: {', '.join(known)}")
    return maker(wishes)


def _local(wishes: Wishes) -> Executor:
    from aorta.executors.local import LocalExecutor

    _refuse_what_one_machine_cannot_give(wishes.resources)
    return LocalExecutor(
        wishes.jobs or 1, gpus_per_trial=wishes.resources.gpus, devices=wishes.devices
    )


def _slurm(wishes: Wishes) -> Executor:
    from aorta.executors.cluster import ClusterExecutor
    from aorta.executors.slurm import slurm_placement

    placement = slurm_placement(wishes.resources)
    return ClusterExecutor(placement, jobs=wishes.jobs, resources=wishes.resources)


def _ray(wishes: Wishes) -> Executor:
    from aorta.executors.cluster import ClusterExecutor
    from aorta.executors.ray import RayTasks

    placement = RayTasks(wishes.address, wishes.resources)
    return ClusterExecutor(placement, jobs=wishes.jobs, resources=wishes.resources)


_BUILT_IN: dict[str, Callable[[Wishes], Executor]] = {
    "local": _local,
    "slurm": _slurm,
    "ray": _ray,
}


def _refuse_what_one_machine_cannot_give(resources: Resources) -> None:
    if resources.tasks > 1:
        raise UsageError(
            f"--nodes {resources.nodes} and --tasks-per-node {resources.tasks_per_node} need a scheduler; "
            "add --executor slurm, or let the command start its own ranks"
        )
