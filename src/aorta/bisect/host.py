"""A bisection on this host: the packages of its repositories, the command as every state sees it, and the checkouts.

Checkouts are worktrees beside the user's own, which is never touched. Where a package declares a build, every version set
has trees of its own, built once and shared by its trials. Where none does, the test command itself may build in place, so
each running trial has a lane of trees to itself, moved to its commits and cleaned before it runs.
"""

import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from aorta.bisect.checkout import Job, TreeJob, forget_trees, with_commit
from aorta.bisect.findings import Findings, findings_of
from aorta.bisect.investigation import investigate
from aorta.bisect.package import (
    Package,
    Versions,
    git_package,
    library,
    version_variables,
    version_words,
)
from aorta.bisect.run import BisectRun, Request, shown_of
from aorta.bisect.spec import PackageSpec
from aorta.bisect.trials import BuildAndTest
from aorta.core.errors import UsageError
from aorta.core.trial import LOCAL, TrialSpec
from aorta.engine.rundir import PRIVATE
from aorta.runtimes.git import Commit, Repository


def bisect_on_host(request: Request) -> Findings:
    spec = request.spec
    packages = host_packages(
        spec.packages,
        request.directory,
        find_fix=spec.find_fix,
        first_parent=spec.first_parent,
    )
    with BisectRun(request) as run:
        root = run.stages.path / PRIVATE / "trees"
        trees = HostTrees(root, packages, build_timeout=spec.build_timeout)
        command = replace(run.command(), command=_own_command(run, packages))
        setting = replace(
            run.setting(
                lambda those: HostTrees(root, those, build_timeout=spec.build_timeout),
                command=command,
            ),
            carry=partial(carried, root / "carried"),
        )
        try:
            outcome = investigate(setting, packages)
        finally:
            trees.remove()
        findings = findings_of(outcome, list(run.stages.answers.values()))
        reproduce = {
            side: reproduce_on_host(outcome.last.packages, command.command, versions)
            for side, versions in (("good", findings.good), ("bad", findings.bad))
        }
        return run.write(replace(findings, reproduce=reproduce), shown_of(outcome))


def _own_command(run: BisectRun, packages: Sequence[Package]) -> tuple[str, ...]:
    request = run.request
    given = request.spec.command
    package = next((p for p in packages if p.repository), None)
    if package is None or package.repository is None:
        return given
    command = with_own_files(given, package, request.directory)
    for word, named in zip(given, command, strict=True):
        if word != named and Path(named).is_absolute():
            run.say(f"{word} is not in every commit: every state is tested with {named}")
        elif word != named:
            run.say(f"the command runs at the top of each checkout: {word} is {named} there")
    if name := imported_from_the_checkout(command, package.repository):
        run.say(
            f"!!! {name} is installed in place from {package.repository.where}: every state may import "
            "your own checkout instead of its own. Put the state's sources first, as with PYTHONPATH=src."
        )
    return tuple(command)


def host_packages(
    specs: Sequence[PackageSpec],
    directory: Path,
    *,
    find_fix: bool = False,
    first_parent: bool = False,
) -> list[Package]:
    packages = [
        git_package(
            spec,
            Repository.on_host(directory / str(spec.path)),
            spec.good,
            spec.bad,
            find_fix=find_fix,
            first_parent=first_parent,
        )
        if spec.is_git
        else library(spec, spec.good, spec.bad)
        for spec in specs
    ]
    return check_something_moves(packages)


def check_something_moves(packages: list[Package]) -> list[Package]:
    if not any(package.moves for package in packages):
        raise UsageError(
            "nothing differs between the good and the bad end; give --good and --bad, or versions in the spec"
        )
    return packages


def with_own_files(command: Sequence[str], package: Package, directory: Path) -> list[str]:
    """The command with files that not every commit has by their whole path: a script or an environment beside the
    repository's own files, or outside of it, as people have it who bisect by hand, is not in any other checkout. One that
    every commit has is named from the top, where the command runs.
    """
    return [_as_every_state_finds_it(word, package, directory) for word in command]


def _as_every_state_finds_it(word: str, package: Package, directory: Path) -> str:
    """Links are not followed: what counts is where a file is named."""
    assert package.repository is not None
    if not word or word.startswith(("/", "-")):
        return word
    path = Path(os.path.normpath(directory / word))
    top = Path(package.repository.where)
    with suppress(OSError, ValueError):
        if not path.is_relative_to(top):
            return str(path) if path.exists() else word
        if not path.is_file():
            return word
        inside = str(path.relative_to(top))
        ends = (package.versions[0], package.versions[-1])
        if not all(package.repository.has_file(end, inside) for end in ends):
            return str(path)
        return word if (top / word).exists() else inside
    return word


def imported_from_the_checkout(command: Sequence[str], repository: Repository) -> str | None:
    """A package that the command's Python has installed in place from this repository: then every state would import the
    user's own checkout. None where there is none to be seen.
    """
    for site in _site_packages(command):
        for note in site.glob("*.dist-info/direct_url.json"):
            with suppress(OSError, ValueError):
                said = json.loads(note.read_text(encoding="utf-8"))
                source = str(said.get("url", "")).removeprefix("file://")
                in_place = (said.get("dir_info") or {}).get("editable") is True
                if in_place and Path(source).resolve() == Path(repository.where).resolve():
                    return note.parent.name.partition("-")[0]
    return None


def _site_packages(command: Sequence[str]) -> Iterator[Path]:
    """Of the Python that the command is, or that its first line names."""
    program = shutil.which(command[0]) if command else None
    if program is None:
        return
    path = Path(program)
    with suppress(OSError):
        with path.open("rb") as file:
            first = file.readline(200).decode("utf-8", "replace")
        if first.startswith("#!"):
            path = Path(first[2:].split()[0])
    yield from path.parent.parent.glob("lib/python*/site-packages")


def reproduce_on_host(
    packages: Sequence[Package], command: Sequence[str], versions: Mapping[str, str]
) -> str:
    """Shell lines that show one side: checkouts, builds, then the test where it was run."""
    lines = ["set -e", "trees=$(mktemp -d)"]
    exports: list[str] = []
    git = [package for package in packages if package.spec.is_git]
    for package in packages:
        spec, version = package.spec, versions[package.name]
        if spec.is_git:
            tree = f'"$trees"/{shlex.quote(package.name)}'
            repository = shlex.quote(str(spec.path))
            lines.append(f"git clone --quiet --shared --no-checkout {repository} {tree}")
            lines.append(f"git -C {tree} checkout --quiet --detach {version}")
            lines += [
                f"git -C {tree} cherry-pick {pick} || git -C {tree} cherry-pick --abort"
                for pick in spec.cherry_pick
            ]
            exports.append(f"export {spec.variable}={tree}")
        else:
            names = dict.fromkeys([spec.env or spec.variable, spec.variable])
            exports += [f"export {name}={shlex.quote(version)}" for name in names]
    lines += exports
    for package in packages:
        if package.spec.build:
            place = f'cd "$trees"/{shlex.quote(package.name)} && ' if package.spec.is_git else ""
            lines.append(f"({place}{package.spec.build})")
    if git:
        lines.append(f'cd "$trees"/{shlex.quote(git[0].name)}')
    return "\n".join([*lines, shlex.join(command)])


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

    def order(self, trial: TrialSpec) -> BuildAndTest:
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
        what = version_words(self._packages, versions) if self._builds else ""
        return BuildAndTest(key, build, self._at(trial, places, versions), what)

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
            argv=(sys.executable, "-m", "aorta.bisect.checkout", str(path)),
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


_MOST_CARRIED = 200


def carried(
    tree: Path, package: Package, commit: Commit, onto: Sequence[tuple[str, int]]
) -> Sequence[str | None] | None:
    """Each state with the commit cherry-picked onto it: a commit of its own, beside every branch."""
    if package.repository is None or len(onto) > _MOST_CARRIED:
        return None
    where, merges = package.repository.where, len(commit.parents) > 1
    return [
        with_commit(tree, where, state, commit.sha, number if merges else None)
        for state, number in onto
    ]


def set_key(packages: Sequence[Package], versions: Versions) -> str:
    """Names a version set by whole versions: two that only share their first characters never meet."""
    content = [(p.name, versions[p.name], p.spec.build, p.spec.cherry_pick) for p in packages]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _mark_of(tree: Path) -> Path:
    return tree.parent / f"{tree.name}.made"
