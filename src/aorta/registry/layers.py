"""What a user puts around a workload by name: an environment, mitigations, variables. Layers, weakest first:
environment, mitigations, recipe, cell or command line.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.trial import Environment
from aorta.registry.environments import get_environment
from aorta.registry.mitigations import get_mitigation


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
    """The union of a stack of mitigations, which must agree on every variable they share and no later layer decides."""
    merged: dict[str, str] = {}
    owner: dict[str, str] = {}
    for name, env in stack:
        for variable, value in env.items():
            if merged.get(variable, value) != value and variable not in decided:
                raise UsageError(
                    f"mitigations {owner[variable]!r} and {name!r} set {variable} to different values; "
                    f"drop one, or decide it with extra_env: {{{variable}: VALUE}}",
                    where=where,
                )
            merged[variable] = value
            owner[variable] = name
    return merged


NO_MITIGATION = "none"


@dataclass(frozen=True)
class EnvironmentLayers:
    """Weakest first. None leaves what a spec says; where there is none, the host without mitigations."""

    environment: str | None = None
    mitigations: tuple[str, ...] | None = None
    mitigations_files: tuple[Path, ...] = ()  # sidecar files that define more of both
    extra_env: Mapping[str, str] = field(default_factory=dict)

    def resolved_environment(self, spec: str | None = None) -> Environment:
        name = spec or "local" if self.environment is None else self.environment
        return get_environment(name, self.mitigations_files)

    def resolved_mitigations(
        self, spec: tuple[str, ...] = (NO_MITIGATION,)
    ) -> list[tuple[str, Mapping[str, str]]]:
        names = spec if self.mitigations is None else self.mitigations
        return [(name, get_mitigation(name, self.mitigations_files).env) for name in names]
