"""From a name to a workload's class: a registered name, or `package.module:Class` for one that is
not registered.

Checking a name imports nothing of the workload; loading it does. Standard library only: it also
runs in containers.
"""

import importlib

from aorta.core.errors import RegistryError
from aorta.registry.workloads import check_workload_name, get_workload, workload_place
from aorta.workloads.base import Workload

COMMAND = "command"
"""The one workload that is no class: the user's own command, run as it is."""


def check_workload(name: str) -> None:
    """Refuse a name that nobody registered, without running anybody's code."""
    if ":" not in name:
        check_workload_name(name)


def place_of(name: str) -> str:
    """`package.module:Class`, whether it was given so or is registered under a name."""
    return name if ":" in name else workload_place(name)


def load_workload(name: str) -> type[Workload]:
    """The class itself. An import that fails keeps its own exception."""
    found = _named(name) if ":" in name else get_workload(name)
    if not (isinstance(found, type) and issubclass(found, Workload)):
        raise RegistryError(
            f"workload {name!r} is no subclass of aorta.workloads.base.Workload that a child "
            "could run"
        )
    return found


def _named(name: str) -> object:
    module, _, attribute = name.partition(":")
    found: object = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found
