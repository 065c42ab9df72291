"""The shapes that plugins and sidecar files give mitigations and environments in. Errors name keys, never values."""

from collections.abc import Mapping

from aorta.core.errors import RegistryError, UsageError
from aorta.core.names import check_variable
from aorta.core.trial import Environment, RuntimeKind
from aorta.registry.mitigation import Mitigation

_PLACES = {
    "docker": RuntimeKind.DOCKER,
    "podman": RuntimeKind.PODMAN,
    "pyxis": RuntimeKind.PYXIS,
    "venv": RuntimeKind.VENV,
}
_ENVIRONMENT_KEYS = (*_PLACES, "env", "mounts", "options")


def mitigation_from(name: str, shape: object, source: str, where: str) -> Mitigation:
    """`{VARIABLE: "value", ...}`"""
    return Mitigation(name=name, env=variables_from(shape, where), source=source)


def environment_from(name: str, shape: object, source: str, where: str) -> Environment:
    """`{docker|podman|pyxis|venv: "...", env: {...}, mounts: [...], options: [...]}`; null is the same as absent."""
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
