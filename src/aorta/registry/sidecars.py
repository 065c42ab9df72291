"""Sidecar files: mitigations and environments that a user brings along without installing anything.

`{"version": 1, "mitigations": {NAME: {VARIABLE: "value"}}, "environments": {NAME: {"docker":
"image"}}}` Plugins give theirs in the same shapes. Errors name keys, never values.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta.core.errors import RegistryError, SpecError, UsageError
from aorta.core.names import check_variable
from aorta.core.trial import LOCAL, Environment, RuntimeKind
from aorta.registry.catalogue import (
    Build,
    Catalogue,
    Definition,
    Item,
    check_name,
    plugin_definitions,
)
from aorta.registry.documents import load_document
from aorta.registry.mitigation import BUILTIN_MITIGATIONS, Mitigation

_PLACES = {kind.value: kind for kind in RuntimeKind if kind is not RuntimeKind.HOST}
_ENVIRONMENT_KEYS = (*_PLACES, "env", "mounts", "options")


def mitigation_from(name: str, shape: object, source: str, where: str) -> Mitigation:
    """`{VARIABLE: "value", ...}`"""
    return Mitigation(name=name, env=variables_from(shape, where), source=source)


def environment_from(name: str, shape: object, source: str, where: str) -> Environment:
    """`{docker|podman|pyxis|venv: "...", env: {}, mounts: [], options: []}`; null is absent."""
    given = {key: value for key, value in mapping_from(shape, where).items() if value is not None}
    for key in given:
        if key not in _ENVIRONMENT_KEYS:
            raise RegistryError(
                f"unknown key {key!r}; expected some of: {', '.join(_ENVIRONMENT_KEYS)}",
                where=where,
            )
    places = [key for key in _PLACES if key in given]
    if len(places) > 1:
        raise RegistryError(
            f"names {' and '.join(places)}; an environment is one place: keep one of them",
            where=where,
        )
    place = places[0] if places else None
    reference = _text_from(given[place], f"{where}.{place}") if place else None
    return Environment(
        name=name,
        kind=_PLACES[place] if place else RuntimeKind.HOST,
        image=reference if place != "venv" else None,
        venv=reference if place == "venv" else None,
        env=variables_from(given.get("env", {}), f"{where}.env"),
        mounts=_texts_from(given.get("mounts", []), f"{where}.mounts"),
        options=_texts_from(given.get("options", []), f"{where}.options"),
        source=source,
    )


def mapping_from(shape: object, where: str) -> Mapping[str, object]:
    if not isinstance(shape, Mapping):
        raise RegistryError(
            f"found a {type(shape).__name__}, expected a mapping of keys to values", where=where
        )
    for key in shape:
        if not isinstance(key, str):
            raise RegistryError(
                f"found a {type(key).__name__} as a key, expected a string", where=where
            )
    return shape


def variables_from(shape: object, where: str) -> dict[str, str]:
    checked: dict[str, str] = {}
    for variable, value in mapping_from(shape, where).items():
        try:
            checked[variable] = check_variable(variable, value, where=where)
        except UsageError as wrong:
            raise RegistryError(wrong.message, where=wrong.where) from None
    return checked


def _text_from(shape: object, where: str) -> str:
    if not isinstance(shape, str):
        raise RegistryError(f"found a {type(shape).__name__}, expected a string", where=where)
    if not shape.strip() or "\0" in shape:
        raise RegistryError("found no usable text, expected a non-empty string", where=where)
    return shape


def _texts_from(shape: object, where: str) -> tuple[str, ...]:
    if not isinstance(shape, (list, tuple)):
        raise RegistryError(
            f"found a {type(shape).__name__}, expected a list of strings", where=where
        )
    return tuple(_text_from(item, f"{where}[{index}]") for index, item in enumerate(shape))


VERSION = 1
# What a run was resolved from, in its directory: the recipe, and the files that define its names.
RESOLVED_RECIPE, SIDECARS = "recipe.resolved.yaml", "sidecars"
_SECTIONS = ("mitigations", "environments")


def _each_once(paths: Sequence[Path]) -> list[Path]:
    """Every file once. Two files of one name are refused: sources must be told apart."""
    unique = {path.resolve(): path for path in reversed(paths)}
    chosen = [path for path in paths if unique[path.resolve()] is path]
    by_name: dict[str, Path] = {}
    for path in chosen:
        first = by_name.setdefault(path.name, path)
        if first is not path:
            raise RegistryError(
                f"has the same file name as {first}; rename one of them", where=str(path)
            )
    return chosen


def sidecars_beside(file: Path) -> tuple[Path, ...]:
    """The sidecars that a run left beside this recipe or spec of its own; none beside another."""
    if not (file.parent / RESOLVED_RECIPE).is_file():
        return ()
    return tuple(sorted((file.parent / SIDECARS).glob("*")))


def definitions_of(
    mitigations: Iterable[tuple[str, Mapping[str, str]]], environment: Environment
) -> dict[str, Any]:
    """A sidecar of those that aorta alone does not have; empty where it has all of them."""
    ours = {entry.name for entry in BUILTIN_MITIGATIONS}
    more = {name: dict(env) for name, env in mitigations if name not in ours}
    found: dict[str, Any] = {"mitigations": more} if more else {}
    if environment.source not in {LOCAL.source, "inline"}:
        shape = {key: v for key in ("env", "mounts", "options") if (v := getattr(environment, key))}
        if environment.isolated:
            shape[environment.kind.value] = environment.image or environment.venv
        found["environments"] = {environment.name: shape}
    return {"version": VERSION, **found} if found else {}


def gathered(
    noun: str, builtin: Iterable[Item], build: Build[Item], sidecars: Sequence[Path]
) -> Catalogue[Item]:
    """Every mitigation or every environment: built-in, of entry points, of these files. A user's
    own file is either right or refused, and wins over a plugin, whose code runs when its name is
    used: what shipped means what it meant, also where the plugin is installed."""
    section, ours = f"{noun}s", "aorta"
    named = [Definition.of(str(vars(item)["name"]), ours, item) for item in builtin]
    brought: list[Definition[Item]] = []
    for path in _each_once(sidecars):
        where, source = f"{path}: {section}", f"sidecar:{path.name}"
        for name, shape in _read(path).get(section, {}).items():
            check_name(name, noun, where=where)
            item = build(name, shape, source, f"{where}.{name}")
            brought.append(Definition.of(name, source, item))
    given = {definition.name for definition in brought}
    plugins = plugin_definitions(f"aorta.{section}", noun, build)
    return Catalogue(noun, [*named, *(p for p in plugins if p.name not in given), *brought])


def _read(path: Path) -> dict[str, dict[str, object]]:
    """The definitions in a file, by section."""
    try:
        document = load_document(path)
    except SpecError as wrong:
        raise RegistryError(wrong.message, where=wrong.where) from None
    top = mapping_from(document, str(path))
    version = top.get("version")
    if type(version) is not int or version != VERSION:  # True == 1, but is no version
        kind = "nothing" if version is None else f"a {type(version).__name__}"
        found = str(version) if type(version) is int else kind
        raise RegistryError(f"found {found}, expected {VERSION}", where=f"{path}: version")
    for key in top:
        if key != "version" and key not in _SECTIONS:
            raise RegistryError(
                f"unknown key {key!r}; expected version, {' and '.join(_SECTIONS)}", where=str(path)
            )
    there = (section for section in _SECTIONS if section in top)
    return {section: dict(mapping_from(top[section], f"{path}: {section}")) for section in there}
