"""Runtimes: in what a trial runs.

A runtime turns a trial into a `Launch`: the process an executor starts, the environment it starts it with, and what must
run afterwards however the trial ends. It asks the container engine questions; it never starts the trial itself.
"""

from collections.abc import Callable

from aorta.core.trial import RuntimeKind, TrialSpec
from aorta.runtimes.containers import container_launch, sweep
from aorta.runtimes.launch import Launch, host_launch, metric_file_of, venv_launch
from aorta.runtimes.owner import Owner
from aorta.runtimes.pyxis import pyxis_launch, srun_options

_RUNTIMES: dict[RuntimeKind, Callable[[TrialSpec], Launch]] = {
    RuntimeKind.HOST: host_launch,
    RuntimeKind.VENV: venv_launch,
    RuntimeKind.DOCKER: container_launch,
    RuntimeKind.PODMAN: container_launch,
    RuntimeKind.PYXIS: pyxis_launch,
}


def launch_for(trial: TrialSpec) -> Launch:
    """How to start `trial`. Its `env` must already hold every layer, the devices of its slot among them."""
    return _RUNTIMES[trial.environment.kind](trial)


__all__ = ["Launch", "Owner", "launch_for", "metric_file_of", "srun_options", "sweep"]
