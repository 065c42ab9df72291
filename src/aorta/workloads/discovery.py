"""From a name to a workload's class: a registered name, or `package.module:Class` for one that is
not registered.

Checking a name imports nothing of the workload; loading it does. Standard library only: it also
runs in containers.
"""

from aorta.core.errors import RegistryError
from aorta.registry.workloads import get_workload, imported
from aorta.workloads.base import Workload

COMMAND = "command"
"""The one workload that is no class: the user's own command, run as it is."""


def load_workload(name: str) -> type[Workload]:
    """The class itself. An import that fails keeps its own exception."""
    found = imported(name) if ":" in name else get_workload(name)
    if not (isinstance(found, type) and issubclass(found, Workload)):
        raise RegistryError(
            f"workload {name!r} is no subclass of aorta.workloads.base.Workload that a child "
            "could run"
        )
    return found
