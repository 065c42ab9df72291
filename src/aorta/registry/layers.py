"""What a user puts around a workload by name: an environment, mitigations, variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.trial import Environment
from aorta.registry.environments import get_environment
from aorta.registry.mitigations import get_mitigation

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
