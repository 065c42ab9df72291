"""Workloads by name: classes that are imported when used."""

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from aorta.core.errors import RegistryError
from aorta.registry.catalogue import Catalogue, Definition, plugin_definitions

GROUP = "aorta.workloads"
_NOUN = "workload"

# Strings, because the package that holds these classes lies below this one.
BUILTIN_WORKLOADS: Mapping[str, str] = {
    "command": "aorta.workloads.trial:CommandWorkload",
    "half_nan": "aorta.workloads.half_nan:HalfNan",
    "fsdp": "aorta.workloads.fsdp:Fsdp",
}


def workload_catalogue() -> Catalogue[type]:
    ours = [
        Definition(name, "aorta", partial(imported, place))
        for name, place in BUILTIN_WORKLOADS.items()
    ]
    return Catalogue(_NOUN, [*ours, *plugin_definitions(GROUP, _NOUN, _class_from)])


def get_workload(name: str) -> Any:
    """The class. A built-in one without a look at plugins: every trial loads it."""
    if name in BUILTIN_WORKLOADS:
        return imported(BUILTIN_WORKLOADS[name])
    return workload_catalogue().get(name)


def check_workload(name: str) -> None:
    """Refuse a name that nobody registered, without importing anything."""
    if ":" not in name:
        workload_catalogue().check(name)


def imported(place: str) -> Any:
    """What stands at `package.module:Class`; None where the module has nothing of that name."""
    module, _, attribute = place.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found


def _class_from(_name: str, loaded: object, _source: str, where: str) -> type:
    if not isinstance(loaded, type):
        raise RegistryError(
            f"is a {type(loaded).__name__}, expected a class that is a Workload", where=where
        )
    return loaded
