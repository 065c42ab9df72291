"""One lookup for every kind of name: who defines it, no doubles, and a helpful answer to a misspelt one."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from aorta.core.errors import RegistryError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Definition(Generic[Item]):
    """A name, who defines it, and how to get at the thing: a plugin's code is not run until its name is used."""

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
            self._add(definition)

    def _add(self, definition: Definition[Item]) -> None:
        first = self._definitions.setdefault(definition.name, definition)
        if first is not definition:
            raise RegistryError(
                f"{self._noun} {definition.name!r} is defined twice, by {first.source} and by "
                f"{definition.source}; rename one of them"
            )

    def sources(self) -> Mapping[str, str]:
        """Every name, sorted, and who defines it."""
        return {name: self._definitions[name].source for name in sorted(self._definitions)}

    def check(self, name: str) -> None:
        """Refuse an unknown name, without running the code behind a known one."""
        if name not in self._definitions:
            raise RegistryError(f"unknown {self._noun} {name!r}; {self._suggestion(name)}")

    def get(self, name: str) -> Item:
        self.check(name)
        return self._definitions[name].load()

    def everything(self) -> dict[str, Item]:
        return {name: self._definitions[name].load() for name in sorted(self._definitions)}

    def _suggestion(self, name: str) -> str:
        names = sorted(self._definitions)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if close:
            return f"did you mean {' or '.join(close)}?"
        return f"expected one of: {', '.join(names)}"


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
