"""Sidecar files: mitigations and environments that a user brings along without installing anything.

`{"version": 1, "mitigations": {NAME: {VARIABLE: "value"}}, "environments": {NAME: {"docker": "image"}}}`
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aorta.core.errors import RegistryError, SpecError
from aorta.registry.catalogue import Definition, check_name
from aorta.registry.documents import load_document
from aorta.registry.shapes import mapping_from

VERSION = 1
_SECTIONS = ("mitigations", "environments")

Item = TypeVar("Item")
Build = Callable[[str, object, str, str], Item]


@dataclass(frozen=True)
class Sidecar:
    path: Path
    sections: dict[str, dict[str, object]]

    @property
    def source(self) -> str:
        return f"sidecar:{self.path.name}"


def read_sidecars(paths: Sequence[Path]) -> tuple[Sidecar, ...]:
    """Every file once, however often it is named. Two files of one name are refused: sources must be told apart."""
    unique = {path.resolve(): path for path in reversed(paths)}
    chosen = [path for path in paths if unique[path.resolve()] is path]
    by_name: dict[str, Path] = {}
    for path in chosen:
        first = by_name.setdefault(path.name, path)
        if first is not path:
            raise RegistryError(
                f"has the same file name as {first}; rename one of them", where=str(path)
            )
    return tuple(_read(path) for path in chosen)


def sidecar_definitions(
    sidecars: Sequence[Sidecar], section: str, noun: str, build: Build[Item]
) -> Iterator[Definition[Item]]:
    """The definitions of one section, checked now: a user's own file is either right or refused."""
    for sidecar in sidecars:
        for name, shape in sidecar.sections.get(section, {}).items():
            where = f"{sidecar.path}: {section}.{name}"
            check_name(name, noun, where=f"{sidecar.path}: {section}")
            item = build(name, shape, sidecar.source, where)
            yield Definition.of(name, sidecar.source, item)


def _read(path: Path) -> Sidecar:
    try:
        document = load_document(path)
    except SpecError as wrong:
        raise RegistryError(wrong.message, where=wrong.where) from None
    top = mapping_from(document, str(path))
    _check_version(top.get("version"), path)
    for key in top:
        if key != "version" and key not in _SECTIONS:
            raise RegistryError(
                f"unknown key {key!r}; expected version, {' and '.join(_SECTIONS)}", where=str(path)
            )
    sections = {
        section: dict(mapping_from(top[section], f"{path}: {section}"))
        for section in _SECTIONS
        if section in top
    }
    return Sidecar(path, sections)


def _check_version(version: object, path: Path) -> None:
    if type(version) is not int or version != VERSION:  # True == 1, but is no version
        found = "nothing" if version is None else f"a {type(version).__name__}"
        found = str(version) if type(version) is int else found
        raise RegistryError(f"found {found}, expected {VERSION}", where=f"{path}: version")
