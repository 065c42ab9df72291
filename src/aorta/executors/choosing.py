"""Which executor a name stands for. Others can add theirs: the entry-point group is `aorta.executors`.

An entry point is a callable that takes `Wishes` and returns an `Executor`.
"""

import os
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
    makers: dict[str, Callable[[Wishes], Executor]] = {"local": _local}
    makers |= {
        point.name: point.load() for point in entry_points(group=GROUP) if point.name == name
    }
    if name not in makers:
        known = sorted({"local", *(point.name for point in entry_points(group=GROUP))})
        raise UsageError(f"unknown executor {name!r}; expected one of: {', '.join(known)}")
    return makers[name](wishes)


def _local(wishes: Wishes) -> Executor:
    from aorta.executors.local import LocalExecutor

    return LocalExecutor(
        wishes.jobs or 1, gpus_per_trial=wishes.resources.gpus, devices=wishes.devices
    )


def visible_devices(found: Sequence[str]) -> list[str]:
    """The devices that may be used: what the caller was given, else all that were found."""
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        given = os.environ.get(variable)
        if given is not None:
            return [device.strip() for device in given.split(",") if device.strip()]
    return list(found)
