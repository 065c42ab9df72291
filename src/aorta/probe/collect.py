"""collect_env(): every probe asked once, none able to stop the others."""

import functools
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from aorta.probe.amd import amd_gpus
from aorta.probe.cuda import nvidia_gpus, probe_cuda
from aorta.probe.host import (
    probe_cpu,
    probe_docker,
    probe_env_vars,
    probe_host,
    probe_memory,
    probe_runtime_context,
)
from aorta.probe.machine import JsonObject, Machine, Probed
from aorta.probe.packages import (
    probe_other_packages,
    probe_packages,
    probe_python,
    probe_pytorch_build,
    probe_pytorch_version,
)
from aorta.probe.platform import platform_here
from aorta.probe.rocm import probe_hip, probe_hipblaslt, probe_rocm, probe_system_health
from aorta.probe.snapshot import EnvSnapshot
from aorta.scrub.secrets import without_secrets

Probe = Callable[[Machine], Probed]


def _platform(machine: Machine) -> Probed:
    return Probed(platform_here(machine))


def _gpus(machine: Machine) -> Probed:
    nvidia, amd = nvidia_gpus(machine), amd_gpus(machine)
    return Probed([*nvidia.value, *amd.value], nvidia.missing + amd.missing)


def _python_version(machine: Machine) -> Probed:
    return Probed(probe_python(machine).value["version"])


# What cannot change while a process lives is asked once in a process; a hung tool then costs its time-out once.
STATIC_PROBES: Mapping[str, Probe] = {
    "platform": _platform,
    "system_health": probe_system_health,
    "rocm": probe_rocm,
    "hip": probe_hip,
    "hipblaslt": probe_hipblaslt,
    "cuda": probe_cuda,
    "gpus": _gpus,
    "host": probe_host,
    "cpu": probe_cpu,
    "memory": probe_memory,
    "python_version": _python_version,
    "python": probe_python,
    "pytorch_version": probe_pytorch_version,
    "pytorch_build": probe_pytorch_build,
    "packages": probe_packages,
    "other_packages": probe_other_packages,
}
# What a trial's environment changes is asked every time.
LIVE_PROBES: Mapping[str, Probe] = {
    "runtime_context": probe_runtime_context,
    "docker": probe_docker,
    "env_vars": probe_env_vars,
}


# All that the static probes, and the tools they ask, see of the environment: where to look.
_STEERING = (
    "PATH",
    "ROCM_PATH",
    "ROCM_HOME",
    "HIP_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "LD_LIBRARY_PATH",
)


def collect_env(machine: Machine | None = None) -> EnvSnapshot:
    """The snapshot of this machine. Never raises: what could not be found out is a line in `partial_reasons`."""
    seen = machine or Machine.here()
    where_to_look = tuple((name, seen.environ.get(name)) for name in _STEERING)
    findings = {
        **_static_findings(seen.root, where_to_look),
        **{name: _answer(name, probe, seen) for name, probe in LIVE_PROBES.items()},
    }
    reasons = [str(_cleaned(line)) for found in findings.values() for line in found.missing]
    known: JsonObject = {
        name: _cleaned(found.value) for name, found in findings.items() if found.value is not None
    }
    return EnvSnapshot(
        captured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        partial=bool(reasons),
        partial_reasons=reasons,
        **known,
    )


@functools.cache
def _static_findings(
    root: Path, where_to_look: tuple[tuple[str, str | None], ...]
) -> Mapping[str, Probed]:
    machine = Machine(root, {name: value for name, value in where_to_look if value is not None})
    return {name: _answer(name, probe, machine) for name, probe in STATIC_PROBES.items()}


def _answer(name: str, probe: Probe, machine: Machine) -> Probed:
    try:
        return probe(machine)
    except Exception as broken:  # noqa: BLE001 - a snapshot never fails; the cause is kept in it
        return Probed(None, (f"{name}: the probe failed with {type(broken).__name__}: {broken}",))


def _cleaned(value: object) -> object:
    """The value as JSON can carry it and anybody may read it: an image reference may hold a password, a path may
    hold bytes that are no text, and a tool may report NaN."""
    if isinstance(value, str):
        return without_secrets(value.encode("utf-8", "backslashreplace").decode("utf-8"))
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
