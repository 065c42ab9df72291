"""A bisection on this host: packages of repositories, the command as states see it, checkouts.

Checkouts are worktrees beside the user's own, which is never touched. With a declared build every
version set has its trees; without, the test may build in place, so each running trial has a slot of
trees to itself, cleaned before it runs.
"""

import hashlib
import os
import platform
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.bisect.findings import Findings, findings_of
from aorta.bisect.investigation import SearchSetup, investigate
from aorta.bisect.package import (
    Package,
    Versions,
    checkout_lines,
    export_lines,
    git_package,
    in_place_variables,
    library,
    set_key,
    version_script,
    version_variables,
    version_words,
)
from aorta.bisect.report import shown_of, write_answer
from aorta.bisect.run import BisectRun, ResolvedRequest
from aorta.bisect.spec import BisectSpec
from aorta.bisect.trials import PreparedTest, VersionSets, exports, on_this_machine
from aorta.core.errors import UsageError
from aorta.core.trial import TrialSpec
from aorta.engine.rundir import PRIVATE
from aorta.runtimes.checkout import TreeJob, TreesJob, forget_trees
from aorta.runtimes.git import Repository
from aorta.workloads.startable import check_startable


def bisect_on_host(request: ResolvedRequest) -> Findings:
    spec = request.spec
    packages = host_packages(spec, request.directory)
    _check_startable(spec, packages, request.directory)
    with BisectRun(request) as run:
        root = trees_root(run.path, packages)
        own = OwnCommand(spec.command) if spec.in_place else _own_command(run, packages)
        command = replace(run.command(), command=own.words)

        # What a killed run left there may have been moved since.
        (root / HERE).unlink(missing_ok=True)

        def version_sets(those: Sequence[Package]) -> HostTrees | InPlace:
            if spec.in_place:
                return InPlace(root, those, command, spec.build_timeout, request.directory)
            return HostTrees(root, those, command, spec.build_timeout, own)

        try:
            outcome = investigate(SearchSetup(run, version_sets), packages)
        finally:
            shutil.rmtree(root, ignore_errors=True)
            for package in packages:  # every worktree of this run, also from git's own list
                if package.spec.is_git:
                    forget_trees(str(package.spec.path))
        findings = findings_of(outcome, list(run.answers.values()))
        shown = version_sets(outcome.last.packages).shown
        reproduce = {"good": shown(findings.good), "bad": shown(findings.bad)}
        return write_answer(run, replace(findings, reproduce=reproduce), shown_of(outcome))


def _check_startable(spec: BisectSpec, packages: Sequence[Package], directory: Path) -> None:
    """Refuses a program that is not here, unless a build or a commit of an end may bring it."""
    if any(package.spec.build for package in packages):
        return

    def is_in_an_end(file: str) -> bool:
        """Named from where the user is, or from the top, where the command runs."""
        path = os.path.normpath(directory / file)
        return any(
            p.repository.has_file(end, name)
            for p in packages
            if p.repository
            for end in (p.versions[0], p.versions[-1])
            for name in (os.path.relpath(path, p.repository.where), os.path.normpath(file))
        )

    check_startable(spec.command, directory, spec.env.get("PATH"), is_in_an_end)


@dataclass(frozen=True)
class OwnCommand:
    """The command, and the `files` that go into checkouts of commits that do not have them."""

    words: tuple[str, ...]
    package: str = ""  # whose checkouts get the files
    files: Mapping[str, str] = field(default_factory=dict)


def _own_command(run: BisectRun, packages: Sequence[Package]) -> OwnCommand:
    given, directory = run.request.spec.command, run.request.directory
    package = next((p for p in packages if p.repository), None)
    if package is None or package.repository is None:
        return OwnCommand(given)
    words: list[str] = []
    files: dict[str, str] = {}
    for word in given:
        found, own = _as_every_state_finds_it(word, package, directory)
        words.append(found)
        if own is not None:
            files[own] = str(Path(package.repository.where, own))
            run.say(f"{own} is not in every commit: yours is put into every checkout")
        elif found != word:
            run.say(f"the command runs at the top of each checkout: {word} is {found} there")
    return OwnCommand(tuple(words), package.name, files)


def _as_every_state_finds_it(
    word: str, package: Package, directory: Path
) -> tuple[str, str | None]:
    """The word as named from the top, and the file to put there if not every commit has it. What is
    outside of the repository is used where it is. Links are not followed.
    """
    assert package.repository is not None
    name, mark, part = word.partition("::")  # as pytest names a test of a file
    if not name or name.startswith(("/", "-")):
        return word, None
    path, top = Path(os.path.normpath(directory / name)), Path(package.repository.where)
    with suppress(OSError, ValueError):
        if not path.is_relative_to(top):
            return (f"{path}{mark}{part}" if path.exists() else word), None
        if not path.is_file():
            return word, None
        inside = str(path.relative_to(top))
        from_the_top = word if directory.samefile(top) else f"{inside}{mark}{part}"
        ends = (package.versions[0], package.versions[-1])
        if all(package.repository.has_file(end, inside) for end in ends):
            return from_the_top, None
        # What is of a virtual environment, or of something that was built here, stays there.
        between = [folder for folder in path.parents if folder.is_relative_to(top)]
        in_environment = any((folder / "pyvenv.cfg").exists() for folder in between)
        if path.is_symlink() or in_environment or package.repository.ignores(str(path)):
            return f"{path}{mark}{part}", None
        return from_the_top, inside
    return word, None


def host_packages(spec: BisectSpec, directory: Path) -> list[Package]:
    """The packages of a spec; refuses ends between which nothing differs."""
    packages = [
        git_package(p, Repository.on_host(directory / p.path), p.good, p.bad, spec)
        if p.path is not None
        else library(p, p.good, p.bad)
        for p in spec.packages
    ]
    if not any(package.moves for package in packages):
        raise UsageError(
            "nothing differs between the good and the bad end; give --good and --bad, or versions "
            "in the spec"
        )
    return packages


def trees_root(run: Path, packages: Sequence[Package]) -> Path:
    """In the run's directory, unless that is in a repository: pytest, which looks for settings in
    the directories above, would test the user's own sources.
    """
    tops = [Path(p.repository.where).resolve() for p in packages if p.repository]
    if not any(run.resolve().is_relative_to(top) for top in tops):
        return run / PRIVATE / "trees"
    of_run = f"{platform.node()}\n{run.resolve()}"
    named = os.environ.get("AORTA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    cache = Path(named) if named else Path.home() / ".cache"
    return cache / "aorta" / "trees" / hashlib.sha256(of_run.encode()).hexdigest()[:16]


@dataclass(eq=False)
class HostTrees(VersionSets):
    """Version sets on this host."""

    own: OwnCommand
    _slots: dict[str, int] = field(default_factory=dict, init=False)  # by trial

    def _prepared(self, trial: TrialSpec, versions: Versions) -> PreparedTest:
        builds = any(package.spec.build for package in self.packages)
        if not builds:
            slot = next(n for n in range(10_000) if n not in self._slots.values())
            self._slots[trial.id] = slot
            places = {p.name: self.root / f"slot-{slot}" / p.name for p in self._git()}
            key = f"slot-{slot}"
            job: TreesJob | None = self._job(versions, places, None)
        else:
            key = set_key(self.packages, versions)
            places = {p.name: self.root / key / p.name for p in self._git()}
            mark = self.root / f"{key}.made"
            job = None if mark.exists() else self._job(versions, places, mark)
        name = f"{key}-{set_key(self.packages, versions)}"
        build = self._build(job, name) if job else None
        what = version_words(self.packages, versions) if builds else ""
        return PreparedTest(key, build, self._at(trial, places, versions), what)

    def finished(self, trial_id: str) -> None:
        self._slots.pop(trial_id, None)

    def _job(self, versions: Versions, places: Mapping[str, Path], mark: Path | None) -> TreesJob:
        trees = [
            TreeJob(
                package.name,
                tree=str(places[package.name]) if package.spec.is_git else None,
                repository=package.spec.path,
                sha=versions[package.name] if package.spec.is_git else None,
                cherry_pick=package.spec.cherry_pick,
                files=self._files_of(package),
                build=package.spec.build,
            )
            for package in self.packages
        ]
        return TreesJob(trees, self.variables(versions, places), str(mark) if mark else None)

    def _files_of(self, package: Package) -> Mapping[str, str]:
        return self.own.files if package.name == self.own.package else {}

    def variables(self, versions: Versions, places: Mapping[str, Path]) -> dict[str, str]:
        trees = {p.spec.variable: str(places[p.name]) for p in self._git()}
        return {**version_variables(self.packages, versions), **trees}

    def _at(self, trial: TrialSpec, places: Mapping[str, Path], versions: Versions) -> TrialSpec:
        first = next((places[p.name] for p in self.packages if p.name in places), trial.cwd)
        env = {**self.variables(versions, places), **trial.env}
        others = tuple(f"{path}:{path}" for path in places.values() if path != first)
        environment = replace(trial.environment, mounts=(*trial.environment.mounts, *others))
        return replace(trial, cwd=first, env=env, environment=environment)

    def shown(self, versions: Versions) -> str:
        """Clones, builds, then the test in the first of them."""
        lines: list[str] = []
        told: list[str] = []
        builds: list[str] = []
        for package in self.packages:
            spec, version = package.spec, versions[package.name]
            tree = f'"$place"/{shlex.quote(package.name)}'
            if package.repository:
                git = f"git -C {tree}"
                source = shlex.quote(str(spec.path))
                lines += [
                    f"git clone --quiet --shared --no-checkout {source} {tree}",
                    *checkout_lines(git, version, spec.cherry_pick),
                ]
                if package.repository.has_file(version, ".gitmodules"):
                    allowed = "-c protocol.file.allow=always"
                    lines.append(f"{git} {allowed} submodule --quiet update --init --recursive")
                for place, source in self._files_of(package).items():
                    target = f"{tree}/{shlex.quote(place)}"
                    lines.append(f'mkdir -p "$(dirname {target})"')
                    lines.append(f"cp -p {shlex.quote(source)} {target}")
                told.append(f"export {spec.variable}={tree}")
            if spec.build:
                place = f"cd {tree} && " if spec.is_git else ""
                builds.append(f"({place}sh -c {shlex.quote(spec.build)})")
        told += export_lines(version_variables(self.packages, versions))
        first = next((shlex.quote(package.name) for package in self._git()), "")
        told_to_test = [*exports(self.command.env), f'cd "$place"/{first}']
        return on_this_machine([*lines, *told, *builds, *told_to_test], self.command)


HERE = "here"  # the file that says which version set the repositories are at


@dataclass(eq=False)
class InPlace(VersionSets):
    """Version sets in the repositories themselves, one at a time; a file says which one it is."""

    directory: Path

    def _prepared(self, trial: TrialSpec, versions: Versions) -> PreparedTest:
        key = set_key(self.packages, versions)
        env = {**in_place_variables(self.packages, versions), **trial.env}
        test = replace(trial, cwd=self.directory, env=env)
        here = self.root / HERE
        if here.exists() and here.read_text(encoding="utf-8") == key:
            return PreparedTest(key, None, test)
        here.unlink(missing_ok=True)
        mark = f"printf %s {key} > {shlex.quote(str(here))}"
        place = self.root / "builds" / key
        place.mkdir(parents=True, exist_ok=True)
        build = TrialSpec(
            ("sh", "-c", f"{version_script(self.packages, versions)}\n{mark}"),
            place,
            place,
            env=env,
            timeout=self.build_timeout,
            is_step=True,
        )
        return PreparedTest(key, build, test, version_words(self.packages, versions))

    def shown(self, versions: Versions) -> str:
        """The repositories themselves are moved, as the search moved them."""
        told = export_lines(in_place_variables(self.packages, versions))
        told += exports(self.command.env)
        moved = [version_script(self.packages, versions), f"cd {shlex.quote(str(self.directory))}"]
        return on_this_machine([*told, *moved], self.command)
