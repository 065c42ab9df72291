"""What installed distributions add through entry points: one entry point an item, its name is the item's name."""

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from aorta.core.errors import RegistryError
from aorta.registry.catalogue import Definition, check_name

Item = TypeVar("Item")
Build = Callable[[str, object, str, str], Item]  # name, the loaded object, source, where it stands


def plugin_definitions(group: str, noun: str, build: Build[Item]) -> Iterator[Definition[Item]]:
    """Definitions of one entry-point group; the plugin's code runs when its name is used, not before."""
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        source = entry.dist.name if entry.dist else "unknown distribution"
        where = f"{source}: entry point {group}:{entry.name}"
        yield Definition(
            name=check_name(entry.name, noun, where=where),
            source=source,
            load=_loader(entry, source, where, build),
        )


def _loader(entry: EntryPoint, source: str, where: str, build: Build[Item]) -> Callable[[], Item]:
    def load() -> Item:
        try:
            loaded = entry.load()
        except Exception as broken:  # a plugin's import runs its author's code: anything may come
            raise RegistryError(
                f"could not be imported from {entry.value} ({type(broken).__name__}); "
                "repair or uninstall the distribution",
                where=where,
            ) from broken
        return build(entry.name, loaded, source, where)

    return load
