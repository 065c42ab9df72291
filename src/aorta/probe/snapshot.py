"""The snapshot (env.json): every key is there, null if unknown; no probe can stop the others."""

import copy
import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from aorta.probe import gpus, host
from aorta.probe.machine import JsonObject, Machine, Probed
from aorta.scrub.secrets import without_secrets
from aorta.scrub.vocabulary import words
from aorta.version import __version__

SCHEMA = "aorta.env/1"
SCHEMA_VERSION = "1.0"  # keys may be added under it; renaming or removing one raises it


@dataclass(frozen=True)
class EnvSnapshot:
    schema: str = SCHEMA
    aorta_version: str = __version__
    schema_version: str = SCHEMA_VERSION
    captured_at: str = ""  # ISO 8601, UTC, seconds
    partial: bool = False
    partial_reasons: list[str] = field(default_factory=list)  # "<field>: <cause>"
    platform: str = "cpu"  # rocm | cuda | cpu
    system_health: JsonObject | None = None
    rocm: JsonObject | None = None
    hip: JsonObject | None = None
    hipblaslt: JsonObject | None = None
    cuda: JsonObject | None = None
    gpus: list[JsonObject] = field(default_factory=list)
    host: JsonObject | None = None
    cpu: JsonObject | None = None
    memory: JsonObject | None = None
    runtime_context: JsonObject | None = None
    docker: JsonObject | None = None
    env_vars: dict[str, str | None] = field(default_factory=dict)
    python_version: str | None = None
    python: JsonObject | None = None
    pytorch_version: str | None = None
    pytorch_build: JsonObject | None = None
    packages: dict[str, str] = field(default_factory=dict)
    other_packages: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> JsonObject:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EnvSnapshot":
        """From any snapshot of this schema: unknown keys are ignored, missing ones defaulted."""
        known = {entry.name for entry in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})

    def summary(self, *, verbose: bool = False) -> str:
        """What a person wants to know first; `verbose` adds the packages."""
        packages = self.packages if verbose else {}
        known = {name: value for name, value in self.env_vars.items() if value is not None}
        rows = [
            *_machine(self),
            *_software(self),
            *(("package", f"{name} {version}") for name, version in packages.items()),
            *(("variable", f"{name}={value}") for name, value in known.items()),
            *(("unknown", reason) for reason in self.partial_reasons),
        ]
        return "\n".join(f"{label:<9} {text}" for label, text in rows if text)


# -- the snapshot of another environment, from its inside: what to mount there, and what to run

# The package `aorta`, and nothing that is installed beside it.
_HERE = str(Path(__file__).resolve().parent.parent)
_MOUNTED_AT = "/opt/aorta-probe/aorta"


def probe_mount() -> str:
    """SOURCE:DESTINATION:ro for a container."""
    return f"{_HERE}:{_MOUNTED_AT}:ro"


def probe_argv(*, mounted: bool = True) -> tuple[str, ...]:
    """Prints env.json, by the environment's own python3; `mounted` with `probe_mount`."""
    place = _MOUNTED_AT if mounted else _HERE
    return ("python3", "-B", f"{place}/workloads/bootstrap.py", "--probe")


_Row = tuple[str, str]


def _machine(snapshot: EnvSnapshot) -> Iterator[_Row]:
    host, cpu, memory = snapshot.host or {}, snapshot.cpu or {}, snapshot.memory or {}
    yield "platform", snapshot.platform
    yield "host", _listed(*map(host.get, ("hostname", "distribution", "kernel_release")))
    yield "cpu", _listed(cpu.get("model"), _counted(cpu.get("usable"), "cores"))
    yield "memory", _listed(_counted(memory.get("total_mib"), "MiB"))
    texts = [
        _listed(*map(gpu.get, ("vendor", "name", "arch")), _counted(gpu.get("memory_mib"), "MiB"))
        for gpu in snapshot.gpus
    ]
    for text in dict.fromkeys(texts):  # equal GPUs on one line
        yield "gpu", f"{texts.count(text)} x {text}"


def _software(snapshot: EnvSnapshot) -> Iterator[_Row]:
    rocm, hip, cuda = snapshot.rocm or {}, snapshot.hip or {}, snapshot.cuda or {}
    context = snapshot.runtime_context or {}
    yield "rocm", _listed(rocm.get("version"), _named("driver", rocm.get("kmd_version")))
    yield "hip", _listed(hip.get("version"))
    driver, toolkit = cuda.get("driver_version"), cuda.get("toolkit_version")
    yield "cuda", _listed(_named("driver", driver), _named("toolkit", toolkit))
    yield "runs on", _listed(context.get("type"))
    yield "python", _listed(snapshot.python_version, context.get("python_env"))
    yield "torch", _listed(snapshot.pytorch_version)


def _counted(number: object, unit: str) -> str | None:
    return None if number is None else f"{number} {unit}"


def _named(name: str, value: object) -> str | None:
    return None if value is None else f"{name} {value}"


def _listed(*values: object) -> str:
    return ", ".join(str(value) for value in values if value is not None)


Probe = Callable[[Machine], Probed]


def _gpus(machine: Machine) -> Probed:
    nvidia, amd = gpus.nvidia_gpus(machine), gpus.amd_gpus(machine)
    return Probed([*nvidia.value, *amd.value], nvidia.missing + amd.missing)


# What cannot change is asked once in a process; a hung tool costs its time-out once.
STATIC_PROBES: Mapping[str, Probe] = {
    "platform": lambda machine: Probed(gpus.platform_here(machine)),
    "system_health": gpus.probe_system_health,
    "rocm": gpus.probe_rocm,
    "hip": gpus.probe_hip,
    "hipblaslt": gpus.probe_hipblaslt,
    "cuda": gpus.probe_cuda,
    "gpus": _gpus,
    "host": host.probe_host,
    "cpu": host.probe_cpu,
    "memory": host.probe_memory,
    "python_version": lambda machine: Probed(host.probe_python(machine).value["version"]),
    "python": host.probe_python,
    "pytorch_version": host.probe_pytorch_version,
    "pytorch_build": host.probe_pytorch_build,
    "packages": host.probe_packages,
    "other_packages": host.probe_other_packages,
}
# What a trial's environment changes is asked every time.
LIVE_PROBES: Mapping[str, Probe] = {
    "runtime_context": host.probe_runtime_context,
    "docker": host.probe_docker,
    "env_vars": host.probe_env_vars,
}


# All that the static probes, and the tools they ask, see of the environment: where to look.
_STEERING = words("PATH ROCM_PATH ROCM_HOME HIP_PATH CUDA_HOME CUDA_PATH LD_LIBRARY_PATH")


def collect_env(machine: Machine | None = None) -> EnvSnapshot:
    """The snapshot of this machine. Never raises: what is missing is in `partial_reasons`."""
    seen = machine or Machine.here()
    where_to_look = tuple((name, seen.environ.get(name)) for name in _STEERING)
    findings = {
        **copy.deepcopy(_static_findings(seen.root, where_to_look)),
        **{name: _answer(name, probe, seen) for name, probe in LIVE_PROBES.items()},
    }
    reasons = [line for found in findings.values() for line in found.missing]
    known: JsonObject = {
        name: found.value for name, found in findings.items() if found.value is not None
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
) -> dict[str, Probed]:
    machine = Machine(root, {name: value for name, value in where_to_look if value is not None})
    return {name: _answer(name, probe, machine) for name, probe in STATIC_PROBES.items()}


def _answer(name: str, probe: Probe, machine: Machine) -> Probed:
    try:
        found = probe(machine)
    except Exception as broken:  # noqa: BLE001 - a snapshot never fails; the cause is kept in it
        found = Probed(None, (f"{name}: the probe failed with {type(broken).__name__}: {broken}",))
    return Probed(_cleaned(found.value), tuple(str(_cleaned(line)) for line in found.missing))


def _cleaned(value: object) -> object:
    """The value as JSON can carry it and anybody may read it: an image reference may hold a
    password, a path may hold bytes that are no text, and a tool may report NaN."""
    if isinstance(value, str):
        return without_secrets(value.encode("utf-8", "backslashreplace").decode("utf-8"))
    if isinstance(value, Mapping):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
