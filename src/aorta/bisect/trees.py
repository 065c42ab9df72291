"""Checkouts on this host: worktrees beside the user's own, which is never touched.

Where a package declares a build, every version set has trees of its own, built once and shared by its trials. Where none
does, the test command itself may build in place, so each running trial has a lane of trees to itself, moved to its
commits and cleaned before it runs.
"""

import hashlib
import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aorta.bisect.building import Order
from aorta.bisect.package import Package, Versions, version_variables
from aorta.bisect.prepare import Job, TreeJob, forget_trees
from aorta.core.trial import LOCAL, TrialSpec


class HostTrees:
    """The workshop of the host. `root` is this run's own directory."""

    def __init__(
        self, root: Path, packages: Sequence[Package], *, build_timeout: float | None = None
    ) -> None:
        self._root, self._packages = root, packages
        self._build_timeout = build_timeout
        self._versions: dict[str, Versions] = {}
        self._lanes: dict[str, int] = {}

    @property
    def _builds(self) -> bool:
        return any(package.spec.build for package in self._packages)

    def assign(self, trial_dir: Path, versions: Versions) -> None:
        """Which version set the trial of this directory is of."""
        self._versions[str(trial_dir)] = versions

    def order(self, trial: TrialSpec) -> Order:
        versions = self._versions[str(trial.trial_dir)]
        if not self._builds:
            lane = next(n for n in range(10_000) if n not in self._lanes.values())
            self._lanes[trial.id] = lane
            places = {p.name: self._root / f"lane-{lane}" / p.name for p in self._git()}
            key = f"lane-{lane}"
            job: Job | None = self._job(versions, places, None)
        else:
            places = {p.name: self._tree(p, versions) for p in self._git()}
            key = set_key(self._packages, versions)
            mark = self._root / f"{key}.made"
            job = None if mark.exists() else self._job(versions, places, mark)
        build = self._build_trial(job, key, versions) if job else None
        return Order(key, build, self._at(trial, places, versions))

    def built(self, key: str) -> None:
        """The mark says so."""

    def finished(self, trial_id: str) -> None:
        self._lanes.pop(trial_id, None)

    def remove(self) -> None:
        """Every worktree of this run, from the disk and from git's own list."""
        shutil.rmtree(self._root, ignore_errors=True)
        for package in self._git():
            forget_trees(str(package.spec.path))

    def _git(self) -> list[Package]:
        return [package for package in self._packages if package.spec.is_git]

    def _tree(self, package: Package, versions: Versions) -> Path:
        """A package that is rebuilt only when it changed has a tree for each version of itself and its needs."""
        if package.spec.rebuild == "always":
            return self._root / set_key(self._packages, versions) / package.name
        own = [p for p in self._packages if p.name in {package.name, *package.spec.needs}]
        return self._root / set_key(own, versions) / package.name

    def _job(self, versions: Versions, places: Mapping[str, Path], mark: Path | None) -> Job:
        jobs = [self._tree_job(p, versions, places.get(p.name)) for p in self._packages]
        return Job(
            [job for job in jobs if job], self.variables(versions, places), str(mark or "") or None
        )

    def _tree_job(self, package: Package, versions: Versions, tree: Path | None) -> TreeJob | None:
        spec = package.spec
        if tree is not None and spec.rebuild == "changed" and _mark_of(tree).exists():
            return None
        build = spec.build
        if build and tree is not None and spec.rebuild == "changed":
            build = f"{{ {build}\n}} && touch {shlex.quote(str(_mark_of(tree)))}"
        return TreeJob(
            package.name,
            tree=str(tree) if tree else None,
            repository=spec.path,
            sha=versions[package.name] if tree else None,
            cherry_pick=spec.cherry_pick,
            build=build,
        )

    def variables(self, versions: Versions, places: Mapping[str, Path]) -> dict[str, str]:
        trees = {p.spec.variable: str(places[p.name]) for p in self._git()}
        return {**version_variables(self._packages, versions), **trees}

    def _build_trial(self, job: Job, key: str, versions: Versions) -> TrialSpec:
        directory = self._root / "builds" / f"{key}-{set_key(self._packages, versions)}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "job.json"
        path.write_text(job.to_json(), encoding="utf-8")
        return TrialSpec(
            argv=(sys.executable, "-m", "aorta.bisect.prepare", str(path)),
            trial_dir=directory,
            cwd=directory,
            environment=LOCAL,
            timeout=self._build_timeout,
        )

    def _at(self, trial: TrialSpec, places: Mapping[str, Path], versions: Versions) -> TrialSpec:
        first = next((places[p.name] for p in self._packages if p.name in places), trial.cwd)
        env = {**self.variables(versions, places), **trial.env}
        others = tuple(f"{path}:{path}" for path in places.values() if path != first)
        environment = replace(trial.environment, mounts=(*trial.environment.mounts, *others))
        return replace(trial, cwd=first, env=env, environment=environment)


def set_key(packages: Sequence[Package], versions: Versions) -> str:
    """Names a version set by whole versions: two that only share their first characters never meet."""
    content = [(p.name, versions[p.name], p.spec.build, p.spec.cherry_pick) for p in packages]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _mark_of(tree: Path) -> Path:
    return tree.parent / f"{tree.name}.made"
