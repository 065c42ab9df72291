"""The snapshot itself: what env.json holds, one field a key. Every key is always there; null is unknown or absent."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from aorta.probe.machine import JsonObject
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
        """From any snapshot of this schema: unknown keys are passed over, missing ones take their defaults."""
        known = {entry.name for entry in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})

    def summary(self, *, verbose: bool = False) -> str:
        """What a person wants to know first; `verbose` adds the packages."""
        from aorta.probe.summary import summary_of

        return summary_of(self, verbose=verbose)


# -- the snapshot of another environment, from its inside: what to mount there, and what to run ------------------------

_HERE = str(
    Path(__file__).resolve().parent.parent
)  # the package `aorta`, and nothing that is installed beside it
_MOUNTED_AT = "/opt/aorta-probe/aorta"

# The package is loaded from its directory. Put on the path, that directory's neighbours would look as if they were
# installed in the environment that is asked about.
_PROGRAM = """
import importlib.util, runpy, sys
spec = importlib.util.spec_from_file_location(
    "aorta", {place!r} + "/__init__.py", submodule_search_locations=[{place!r}]
)
sys.modules["aorta"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["aorta"])
runpy.run_module("aorta.probe", run_name="__main__")
"""


def probe_mount() -> str:
    """SOURCE:DESTINATION:ro for a container."""
    return f"{_HERE}:{_MOUNTED_AT}:ro"


def probe_argv(*, mounted: bool = True) -> tuple[str, ...]:
    """Prints env.json on stdout, by the environment's own python3; `mounted` where `probe_mount` is in effect."""
    return ("python3", "-B", "-c", _PROGRAM.format(place=_MOUNTED_AT if mounted else _HERE))
