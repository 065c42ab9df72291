"""Environments by name: built-in, from entry points, from sidecar files, or an image named on the spot."""

from collections.abc import Sequence
from pathlib import Path

from aorta.core.errors import RegistryError
from aorta.core.trial import LOCAL, Environment, RuntimeKind
from aorta.registry.catalogue import Catalogue, Definition, plugin_definitions
from aorta.registry.sidecars import environment_from, read_sidecars, sidecar_definitions

GROUP = "aorta.environments"
INLINE_IMAGE = "image:"  # `image:REF` is the container image REF, without any definition
_NOUN = "environment"
_BUILTIN = (LOCAL, Environment("default"))


def environment_catalogue(sidecars: Sequence[Path] = ()) -> Catalogue[Environment]:
    catalogue = Catalogue(
        _NOUN,
        (
            *(Definition.of(entry.name, entry.source, entry) for entry in _BUILTIN),
            *plugin_definitions(GROUP, _NOUN, environment_from),
            *sidecar_definitions(read_sidecars(sidecars), "environments", _NOUN, environment_from),
        ),
    )
    for name, source in catalogue.sources().items():
        if name.startswith(INLINE_IMAGE):
            raise RegistryError(
                f"environment {name!r} of {source} begins with {INLINE_IMAGE!r}, which names an image; rename it"
            )
    return catalogue


def load_environments(sidecars: Sequence[Path] = ()) -> dict[str, Environment]:
    """Every environment by name, sorted."""
    return environment_catalogue(sidecars).everything()


def get_environment(name: str, sidecars: Sequence[Path] = ()) -> Environment:
    if name.startswith(INLINE_IMAGE):
        return _inline(name)
    return environment_catalogue(sidecars).get(name)


def environment_rows(sidecars: Sequence[Path] = ()) -> list[dict[str, str]]:
    """What a listing shows, sorted by name."""
    return [
        {
            "NAME": entry.name,
            "SOURCE": entry.source,
            "KIND": entry.kind.value,
            "IMAGE": entry.image or "",
            "VENV": entry.venv or "",
        }
        for entry in load_environments(sidecars).values()
    ]


def _inline(name: str) -> Environment:
    image = name.removeprefix(INLINE_IMAGE)
    if not image or any(character.isspace() for character in image):
        raise RegistryError(f"{name!r} names no image; expected image:REPOSITORY[:TAG|@DIGEST]")
    return Environment(name, kind=RuntimeKind.DOCKER, image=image, source="inline")
