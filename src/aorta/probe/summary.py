"""A snapshot in a few lines, for people. What is null is left out."""

from collections.abc import Iterator

from aorta.probe.machine import JsonObject
from aorta.probe.snapshot import EnvSnapshot

_Row = tuple[str, str]


def summary_of(snapshot: EnvSnapshot, *, verbose: bool) -> str:
    packages = snapshot.packages if verbose else {}
    rows = [
        *_machine(snapshot),
        *_software(snapshot),
        *(("package", f"{name} {version}") for name, version in packages.items()),
        *(("variable", f"{name}={value}") for name, value in _set_variables(snapshot)),
        *(("unknown", reason) for reason in snapshot.partial_reasons),
    ]
    return "\n".join(f"{label:<9} {text}" for label, text in rows if text)


def _machine(snapshot: EnvSnapshot) -> Iterator[_Row]:
    host, cpu, memory = snapshot.host or {}, snapshot.cpu or {}, snapshot.memory or {}
    yield "platform", snapshot.platform
    yield (
        "host",
        _listed(host.get("hostname"), host.get("distribution"), host.get("kernel_release")),
    )
    yield "cpu", _listed(cpu.get("model"), _counted(cpu.get("usable"), "cores"))
    yield "memory", _listed(_counted(memory.get("total_mib"), "MiB"))
    texts = [_gpu(gpu) for gpu in snapshot.gpus]
    for text in dict.fromkeys(texts):  # equal GPUs on one line
        yield "gpu", f"{texts.count(text)} x {text}"


def _gpu(gpu: JsonObject) -> str:
    size = _counted(gpu.get("memory_mib"), "MiB")
    return _listed(gpu.get("vendor"), gpu.get("name"), gpu.get("arch"), size)


def _software(snapshot: EnvSnapshot) -> Iterator[_Row]:
    rocm, hip, cuda = snapshot.rocm or {}, snapshot.hip or {}, snapshot.cuda or {}
    context = snapshot.runtime_context or {}
    yield "rocm", _listed(rocm.get("version"), _named("driver", rocm.get("kmd_version")))
    yield "hip", _listed(hip.get("version"))
    yield (
        "cuda",
        _listed(
            _named("driver", cuda.get("driver_version")),
            _named("toolkit", cuda.get("toolkit_version")),
        ),
    )
    yield "runs on", _listed(context.get("type"))
    yield "python", _listed(snapshot.python_version, context.get("python_env"))
    yield "torch", _listed(snapshot.pytorch_version)


def _set_variables(snapshot: EnvSnapshot) -> Iterator[_Row]:
    yield from ((name, value) for name, value in snapshot.env_vars.items() if value is not None)


def _counted(number: object, unit: str) -> str | None:
    return None if number is None else f"{number} {unit}"


def _named(name: str, value: object) -> str | None:
    return None if value is None else f"{name} {value}"


def _listed(*values: object) -> str:
    return ", ".join(str(value) for value in values if value is not None)
