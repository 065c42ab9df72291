"""Environments by name, or an image named on the spot; and the layers around a workload, weakest
first: environment, mitigations, recipe, cell or command line.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.core.errors import RegistryError, UsageError
from aorta.core.trial import LOCAL, Environment, RuntimeKind
from aorta.registry.catalogue import Catalogue
from aorta.registry.mitigations import get_mitigation
from aorta.registry.sidecars import environment_from, gathered

INLINE_IMAGE = "image:"  # `image:REF` is the container image REF, without any definition
_BUILTIN = (LOCAL, Environment("default"))


def environment_catalogue(sidecars: Sequence[Path] = ()) -> Catalogue[Environment]:
    catalogue = gathered("environment", _BUILTIN, environment_from, sidecars)
    for name, source in catalogue.sources().items():
        if name.startswith(INLINE_IMAGE):
            raise RegistryError(
                f"environment {name!r} of {source} begins with {INLINE_IMAGE!r}, which names an "
                "image; rename it"
            )
    return catalogue


def load_environments(sidecars: Sequence[Path] = ()) -> dict[str, Environment]:
    """Every environment by name, sorted."""
    return environment_catalogue(sidecars).everything()


def get_environment(name: str, sidecars: Sequence[Path] = ()) -> Environment:
    if not name.startswith(INLINE_IMAGE):
        return environment_catalogue(sidecars).get(name)
    image = name.removeprefix(INLINE_IMAGE)
    if not image or any(character.isspace() for character in image):
        raise RegistryError(f"{name!r} names no image; expected image:REPOSITORY[:TAG|@DIGEST]")
    return Environment(name, kind=RuntimeKind.DOCKER, image=image, source="inline")


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


def layered(*layers: Mapping[str, str]) -> dict[str, str]:
    """Later layers win."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def stack_mitigations(
    stack: Sequence[tuple[str, Mapping[str, str]]],
    *,
    decided: Collection[str] = (),
    where: str | None = None,
) -> dict[str, str]:
    """The union of a stack of mitigations, which must agree on what they share."""
    merged: dict[str, str] = {}
    owner: dict[str, str] = {}
    for name, env in stack:
        for variable, value in env.items():
            if merged.get(variable, value) != value and variable not in decided:
                raise UsageError(
                    f"mitigations {owner[variable]!r} and {name!r} set {variable} to different "
                    "values; "
                    f"drop one, or decide it with extra_env: {{{variable}: VALUE}}",
                    where=where,
                )
            merged[variable] = value
            owner[variable] = name
    return merged


NO_MITIGATION = "none"


@dataclass(frozen=True)
class EnvironmentLayers:
    """Weakest first. None leaves what a spec says; else the host without mitigations."""

    environment: str | None = None
    mitigations: tuple[str, ...] | None = None
    mitigations_files: tuple[Path, ...] = ()  # sidecar files that define more of both
    extra_env: Mapping[str, str] = field(default_factory=dict)

    def absolute(self) -> "EnvironmentLayers":
        """The same from any directory."""
        return replace(self, mitigations_files=tuple(f.absolute() for f in self.mitigations_files))

    def resolved_environment(self, spec: str | None = None) -> Environment:
        name = spec or "local" if self.environment is None else self.environment
        return get_environment(name, self.mitigations_files)

    def resolved_mitigations(
        self, spec: tuple[str, ...] = (NO_MITIGATION,)
    ) -> list[tuple[str, Mapping[str, str]]]:
        names = spec if self.mitigations is None else self.mitigations
        return [(name, get_mitigation(name, self.mitigations_files).env) for name in names]
