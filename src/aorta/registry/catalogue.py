"""One lookup for every kind of name, entry points included: no doubles, help with misspelt ones."""

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar

from aorta.core.errors import RegistryError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Item = TypeVar("Item")
Build = Callable[[str, object, str, str], Item]  # name, the loaded object, source, where it stands


@dataclass(frozen=True)
class Definition(Generic[Item]):
    """A name, who defines it, and how to load it: a plugin's code runs when it is used."""

    name: str
    source: str
    load: Callable[[], Item]

    @classmethod
    def of(cls, name: str, source: str, item: Item) -> "Definition[Item]":
        """A thing that is already at hand."""
        return cls(name, source, lambda: item)


class Catalogue(Generic[Item]):
    def __init__(self, noun: str, definitions: Iterable[Definition[Item]]) -> None:
        self._noun = noun
        self._definitions: dict[str, Definition[Item]] = {}
        for definition in definitions:
            first = self._definitions.setdefault(definition.name, definition)
            if first is not definition:
                raise RegistryError(
                    f"{noun} {definition.name!r} is defined twice, by {first.source} and by "
                    f"{definition.source}; rename one of them",
                    where=definition.source,
                )

    def sources(self) -> Mapping[str, str]:
        """Every name, sorted, and who defines it."""
        return {name: self._definitions[name].source for name in sorted(self._definitions)}

    def check(self, name: str) -> None:
        """Refuse an unknown name, without running the code behind a known one."""
        if name not in self._definitions:
            names = sorted(self._definitions)
            close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
            one_of = f"expected one of: {', '.join(names)}"
            meant = f"did you mean {' or '.join(close)}?" if close else one_of
            raise RegistryError(f"unknown {self._noun} {name!r}; {meant}")

    def get(self, name: str) -> Item:
        self.check(name)
        return self._definitions[name].load()

    def everything(self) -> dict[str, Item]:
        """By name, without what cannot be loaded: nobody asked for that."""
        found = {}
        for name in sorted(self._definitions):
            try:
                found[name] = self._definitions[name].load()
            except RegistryError as broken:
                _warn(f"left out: {broken}")
        return found


def check_name(name: object, noun: str, *, where: str) -> str:
    """A name that can stand in a comma-separated list and on one line."""
    if (
        not isinstance(name, str)
        or not name
        or not name.isprintable()
        or any(character in " ," for character in name)
    ):
        raise RegistryError(
            f"{name!r} cannot name {noun}; expected visible characters without spaces and commas",
            where=where,
        )
    return name


@cache
def _warn(words: str) -> None:
    """Once a process."""
    logging.getLogger(__name__).warning("aorta: %s", words)


def plugin_definitions(group: str, noun: str, build: Build[Item]) -> Iterator[Definition[Item]]:
    """Definitions of one entry-point group; a plugin's code runs when its name is used."""
    from importlib.metadata import entry_points  # every trial of a workload imports this module

    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        source = entry.dist.name if entry.dist else "unknown distribution"
        where = f"{source}: entry point {group}:{entry.name}"
        try:
            name = check_name(entry.name, noun, where=where)
        except RegistryError as wrong:
            _warn(f"left out: {wrong}")
        else:
            yield Definition(name, source, _loader(entry, source, where, build))


def _loader(entry: "EntryPoint", source: str, where: str, build: Build[Item]) -> Callable[[], Item]:
    def load() -> Item:
        try:
            loaded = entry.load()
        # A plugin's import runs its author's code: anything may come.
        except (Exception, SystemExit) as broken:
            raise RegistryError(
                f"could not be imported from {entry.value} ({type(broken).__name__}); "
                "repair or uninstall the distribution",
                where=where,
            ) from broken
        return build(entry.name, loaded, source, where)

    return load
