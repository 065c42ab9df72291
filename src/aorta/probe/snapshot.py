"""The snapshot itself: what env.json holds, one field a key. Every key is always there; null is unknown or absent."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aorta.probe.finding import JsonObject
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

    def to_dict(self) -> JsonObject:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EnvSnapshot":
        """From any snapshot of this schema: unknown keys are passed over, missing ones take their defaults."""
        known = {entry.name for entry in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})

    def summary(self, *, verbose: bool = False) -> str:
        """What a person wants to know first; `verbose` adds what else is set and installed."""
        lines = [f"{label:<10} {text}" for label, text in self._headlines() if text]
        if verbose:
            lines += [
                f"{'package':<10} {name} {version}" for name, version in self.packages.items()
            ]
        lines += [f"{'variable':<10} {name}={value}" for name, value in self._set_variables()]
        lines += [f"{'unknown':<10} {reason}" for reason in self.partial_reasons]
        return "\n".join(lines)

    def _headlines(self) -> list[tuple[str, str]]:
        host, cpu, memory = self.host or {}, self.cpu or {}, self.memory or {}
        return [
            ("platform", self.platform),
            ("host", _joined(host, "hostname", "distribution", "kernel_release", "libc")),
            (
                "cpu",
                _joined(
                    {**cpu, "n": f"{cpu.get('usable')} of {cpu.get('logical')} cores"}, "model", "n"
                ),
            ),
            ("memory", _mebibytes(memory, "total_mib") or ""),
            *(("gpu", text) for text in self._gpu_lines()),
            (
                "rocm",
                _joined(
                    {**(self.rocm or {}), "hip": (self.hip or {}).get("version")}, "version", "hip"
                ),
            ),
            ("cuda", _joined(self.cuda or {}, "driver_version", "toolkit_version")),
            ("container", _joined(self.runtime_context or {}, "type")),
            (
                "python",
                _joined(
                    {"v": self.python_version, **(self.runtime_context or {})}, "v", "python_env"
                ),
            ),
            ("torch", self.pytorch_version or ""),
        ]

    def _gpu_lines(self) -> list[str]:
        """Equal GPUs on one line, with their number."""
        texts = [_joined({**gpu, "size": _mebibytes(gpu)}, *_GPU_LINE) for gpu in self.gpus]
        return [f"{texts.count(text)} x {text}" for text in dict.fromkeys(texts)]

    def _set_variables(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.env_vars.items() if value is not None]


_GPU_LINE = ("vendor", "name", "arch", "size")


def _mebibytes(section: Mapping[str, object], key: str = "memory_mib") -> str | None:
    return None if section.get(key) is None else f"{section[key]} MiB"


def _joined(section: Mapping[str, object], *keys: str) -> str:
    return ", ".join(str(section[key]) for key in keys if section.get(key) is not None)
