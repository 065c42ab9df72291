"""Version sets as environments: one virtual environment for each set of packages, made once and
shared by its trials.

Environments are named by what is in them, so states that differ in a variable share one, and a
killed run finds what it made. They lie in the run's own directory and go with it; the cache they
are linked from stays.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from aorta.bisect.environments.ends import ABSENT, PYTHON, EnvironmentEnds, unmet
from aorta.bisect.package import Package, Versions
from aorta.bisect.trials import PreparedTest, VersionSets
from aorta.core.trial import Environment, RuntimeKind, TrialSpec
from aorta.runtimes.package_index import Sources
from aorta.runtimes.venvs import EnvironmentJob, other_versions

_NOWHERE = "sys_platform == 'nowhere'"


@dataclass(frozen=True)
class EnvironmentRecipe:
    """How a state becomes an environment: what both ends share, and each name's version."""

    ends: EnvironmentEnds
    sources: Sources

    def requirements(self, versions: Versions) -> dict[str, str]:
        """A line for each package that a state has; unchanged ones first."""
        changed = self.ends.packages
        found = {n: line for n, line in self.ends.good.lines.items() if n not in changed}
        for name in changed:
            version = versions[name]
            ends = (e for e in (self.ends.good, self.ends.bad) if e.versions.get(name) == version)
            if version != ABSENT:
                end = next(ends, None)
                found[name] = end.lines[name] if end else f"{name}=={version}"
        return found

    def loose(self, versions: Versions, free: Sequence[str]) -> dict[str, str]:
        """The same with packages anywhere between their two ends, where they need not stay."""
        found = self.requirements(versions)
        for name in free:
            ends = [end.versions.get(name) for end in (self.ends.good, self.ends.bad)]
            try:
                low, high = sorted(Version(str(version)) for version in ends)
            except InvalidVersion:
                if versions[name] == ABSENT:
                    found.pop(name, None)
                continue
            found[name] = f"{name}>={low},<={high}"
        return found

    def overrides(self, versions: Versions) -> list[str]:
        """What the two ends themselves violate of their packages' wishes is no conflict."""
        present = self.requirements(versions)
        return [
            present.get(name, f"{name}; {_NOWHERE}")
            for name in sorted(unmet(self.ends.good) | unmet(self.ends.bad))
            if not present.get(name, "").startswith("-e ")
        ]

    def interpreter(self, versions: Versions) -> str:
        good, bad = self.ends.good, self.ends.bad
        return bad.interpreter if versions.get(PYTHON) == bad.python else good.interpreter

    def variables(self, versions: Versions) -> dict[str, str | None]:
        """None: not set."""
        found = dict(self.ends.good.variables)
        for name in self.ends.variables:
            found[name] = None if versions[name] == ABSENT else versions[name]
        return found


class Environments(VersionSets):
    """Version sets as virtual environments. The command runs in `directory`."""

    def __init__(
        self,
        root: Path,
        recipe: EnvironmentRecipe,
        packages: Sequence[Package],
        directory: Path,
        build_timeout: float | None = None,
    ) -> None:
        super().__init__(root, packages, build_timeout)
        self._recipe, self._directory = recipe, directory

    def prepare(self, trial: TrialSpec) -> PreparedTest:
        versions = self._versions[str(trial.trial_dir)]
        key = self._key(versions)
        mark = self._root / f"{key}.made"
        place = self._root / (mark.read_text(encoding="utf-8") if mark.exists() else key)
        build = None if mark.exists() else self._build(self._job(versions, key, mark), key)
        return PreparedTest(key, build, self._at(trial, place, versions))

    def adopt(self, versions: Versions, place: Path) -> None:
        """An environment that was made before the search began."""
        if place.is_dir():
            mark = self._root / f"{self._key(versions)}.made"
            mark.write_text(place.name, encoding="utf-8")

    def _job(self, versions: Versions, key: str, mark: Path | None) -> EnvironmentJob:
        recipe = self._recipe
        free = [p.name for p in self._packages if not p.firm and p.name in recipe.ends.packages]
        requirements = recipe.requirements(versions)
        # The versions that make the state. What comes from no index has none to be told by.
        named = (p.name for p in self._packages if p.firm)
        firm = {name: versions[name] for name in named if "==" in requirements.get(name, "")}
        return EnvironmentJob(
            str(self._root / key),
            recipe.interpreter(versions),
            list(requirements.values()),
            loose=list(recipe.loose(versions, free).values()) if free else (),
            overrides=recipe.overrides(versions),
            mark=str(mark) if mark else None,
            firm=firm,
            listed=str(self._listed(key)),
        ).of(recipe.sources)

    def _listed(self, key: str) -> Path:
        """Outside of what is removed: the answer is told by it."""
        return self._root.parent / "installed" / f"{key}.json"

    def installed(self, versions: Versions) -> dict[str, str]:
        """What the environment of a state really had, where it was made: names and versions."""
        return {canonicalize_name(n): v for n, v in self._had(self._key(versions)).items()}

    def _had(self, key: str) -> dict[str, str]:
        place = self._listed(key)
        found: dict[str, str] = json.loads(place.read_text("utf-8")) if place.exists() else {}
        return found

    def _key(self, versions: Versions) -> str:
        """By what is installed: neither place nor variables make another environment."""
        job = self._job(versions, "", None)
        content = [sorted(job.requirements), sorted(job.overrides), job.python]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        # One that was made where another version would do is no environment of this state.
        return f"{key}-firm" if other_versions(job.firm, self._had(key) or job.firm) else key

    def _at(self, trial: TrialSpec, place: Path, versions: Versions) -> TrialSpec:
        variables = self._recipe.variables(versions)
        unset = [name for name, value in variables.items() if value is None and name in os.environ]
        told = {p.spec.variable: versions[p.name] for p in self._packages}
        given = {name: value for name, value in variables.items() if value is not None}
        argv = trial.argv
        if unset:
            argv = ("env", *(word for name in unset for word in ("-u", name)), *argv)
        return replace(
            trial,
            argv=argv,
            cwd=self._directory,
            env={"PYTHONNOUSERSITE": "1", **told, **given, **trial.env},
            environment=Environment("environment", RuntimeKind.VENV, venv=str(place.absolute())),
        )
