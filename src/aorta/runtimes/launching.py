"""The one door: which runtime makes the launch of a trial."""

from collections.abc import Callable

from aorta.core.trial import RuntimeKind, TrialSpec
from aorta.runtimes.containers import container_launch
from aorta.runtimes.host import host_launch
from aorta.runtimes.launch import Launch
from aorta.runtimes.pyxis import pyxis_launch
from aorta.runtimes.venv import venv_launch

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
