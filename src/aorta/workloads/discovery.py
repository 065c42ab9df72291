"""Names to workload classes: the built-in ones, and those of installed packages (`aorta.workloads` entry points).

Finding a name imports nothing; loading imports one class. Standard library only: it also runs inside containers.
"""

import importlib
import logging
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from aorta.core.errors import RegistryError
from aorta.workloads.base import Workload

ENTRY_POINT_GROUP = "aorta.workloads"
COMMAND = "command"
"""The one workload that is no class: the user's own command, run as it is."""


@dataclass(frozen=True)
class WorkloadRef:
    """A name, where its class is (`package.module:Class`), and the distribution that brings it."""

    name: str
    target: str
    source: str = "aorta"


_BUILT_IN = (
    WorkloadRef("half_nan", "aorta.workloads.half_nan:HalfNan"),
    WorkloadRef("bad_shard", "aorta.workloads.bad_shard:BadShard"),
)


def known_workloads() -> dict[str, WorkloadRef]:
    """Every registered workload but `command`; a name that two packages claim is refused."""
    known = {ref.name: ref for ref in _BUILT_IN}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        ref = WorkloadRef(point.name, point.value, _source(point))
        if ref.name == COMMAND or (ref.name in known and known[ref.name] != ref):
            other = known[ref.name].source if ref.name in known else "aorta"
            raise RegistryError(
                f"workload {ref.name!r} is defined by both {other!r} and {ref.source!r}; "
                "uninstall one, or rename its entry point"
            )
        known[ref.name] = ref
    return known


def find_workload(name: str) -> WorkloadRef:
    """The workload of this name; `package.module:Class` names an unregistered one."""
    if ":" in name:
        return WorkloadRef(name, name, source=name.split(":", 1)[0])
    known = known_workloads()
    if name not in known:
        raise RegistryError(
            f"unknown workload {name!r}; known are {', '.join(sorted([COMMAND, *known]))}, "
            "or name a class as package.module:Class"
        )
    return known[name]


def load_workload(ref: WorkloadRef) -> type[Workload]:
    """The class itself. An import that fails keeps its own exception: it tells more than we could."""
    module, _, attribute = ref.target.partition(":")
    found: object = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, Workload)):
        raise RegistryError(
            f"workload {ref.name!r}: {ref.target} is no subclass of aorta.workloads.base.Workload"
        )
    return found


def loadable_workloads() -> dict[str, type[Workload]]:
    """Every registered workload that can be imported here; the others are logged with their traceback."""
    loaded = {}
    for name, ref in sorted(known_workloads().items()):
        try:
            loaded[name] = load_workload(ref)
        except Exception:
            logging.getLogger(__name__).exception("workload %r of %r is left out", name, ref.source)
    return loaded


def _source(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown"
