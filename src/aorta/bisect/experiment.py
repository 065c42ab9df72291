"""How a point becomes a trial: a version set in the bisection container, or a dated container as it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from aorta.bisect.package import Package, Versions, whole
from aorta.core.oracle import Deciding
from aorta.core.point import Point
from aorta.core.trial import Environment, TrialSpec

OUTPUT_MOUNT = "/triage-tool-output"


@dataclass(frozen=True)
class ProbedCommand:
    """The user's command and what it runs in."""

    command: tuple[str, ...]
    oracle: Deciding
    environment: Environment
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None

    def trial(self, trial_dir: Path, environment: Environment) -> TrialSpec:
        """Every probe has an output directory of its own, at the same place in every container."""
        place = environment
        if environment.image is not None:
            output = f"{trial_dir.absolute()}:{OUTPUT_MOUNT}"
            place = replace(environment, mounts=(*environment.mounts, output))
        return TrialSpec(
            argv=self.command,
            trial_dir=trial_dir,
            cwd=self.cwd,
            env=dict(self.env),
            environment=place,
            watch=self.oracle.watch(),
            timeout=self.timeout,
        )


class Assigns(Protocol):
    def assign(self, trial_dir: Path, versions: Versions) -> None: ...


class VersionsExperiment:
    def __init__(self, test: ProbedCommand, packages: Sequence[Package], workshop: Assigns) -> None:
        self._test, self._packages, self._workshop = test, packages, workshop

    @property
    def oracle(self) -> Deciding:
        return self._test.oracle

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        versions = whole(self._packages, {name: str(value) for name, value in point.values})
        self._workshop.assign(trial_dir, versions)
        return self._test.trial(trial_dir, self._test.environment)


class ContainersExperiment:
    def __init__(self, test: ProbedCommand, image_of: Callable[[str], str], axis: str) -> None:
        self._test, self._image_of, self._axis = test, image_of, axis

    @property
    def oracle(self) -> Deciding:
        return self._test.oracle

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        image = self._image_of(str(point[self._axis]))
        return self._test.trial(trial_dir, replace(self._test.environment, image=image))
