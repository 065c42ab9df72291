"""Packages whose repositories are on this host: from revisions to lines of commits."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from aorta.bisect.git import Repository
from aorta.bisect.histories import span_between
from aorta.bisect.package import Package
from aorta.bisect.spec import PackageSpec
from aorta.core.errors import UsageError


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


def git_package(
    spec: PackageSpec,
    repository: Repository,
    good: str | None,
    bad: str | None,
    *,
    find_fix: bool = False,
    first_parent: bool = False,
) -> Package:
    """A package with one end given stands still there; with none, where its repository stands."""
    ends = [_commit(repository, revision, spec) for revision in (good, bad) if revision]
    here = spec.model_copy(update={"path": repository.where})
    if len(ends) < 2 or ends[0] == ends[1]:
        return Package(here, ((ends or [repository.resolve("HEAD")])[0],), repository)
    span = span_between(
        repository,
        ends[0],
        ends[1],
        find_fix=find_fix,
        main_branch=spec.main_branch,
        paths=spec.paths,
        first_parent=first_parent,
    )
    skipped = repository.listed(spec.skip)
    shas = tuple(commit.sha for commit in span.line.states)
    return Package(here, shas, repository, span, skipped=skipped)


def library(spec: PackageSpec, good: str | None, bad: str | None) -> Package:
    """Every listed version between the two ends, in the order of the list; backwards if the good end is newer."""
    versions = spec.versions or tuple(dict.fromkeys(v for v in (good, bad) if v))
    if not versions:
        raise UsageError(f"package {spec.name} has neither versions nor a good and a bad one")
    first, last = good or versions[0], bad or versions[-1]
    for version in (first, last):
        if version not in versions:
            raise UsageError(
                f"package {spec.name}: version {version!r} is not in its list of versions"
            )
    start, stop = versions.index(first), versions.index(last)
    chosen = versions[start : stop + 1] if start <= stop else versions[stop : start + 1][::-1]
    return Package(spec, chosen, skipped=frozenset(spec.skip))


def check_something_moves(packages: list[Package]) -> list[Package]:
    if not any(package.moves for package in packages):
        raise UsageError(
            "nothing differs between the good and the bad end; give --good and --bad, or versions in the spec"
        )
    return packages


def with_own_files(command: Sequence[str], repository: Repository, directory: Path) -> list[str]:
    """The command with files that no commit has by their whole path: a script beside the repository's own files, as
    people have it who bisect by hand, is not in any other checkout.
    """
    return [
        str(directory / word) if _is_own_file(word, repository, directory) else word
        for word in command
    ]


def _is_own_file(word: str, repository: Repository, directory: Path) -> bool:
    path = directory / word
    with suppress(OSError, ValueError):
        inside = path.resolve().is_relative_to(Path(repository.where).resolve())
        return path.is_file() and inside and not repository.tracks(path)
    return False


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
            lines.append(f"git -C {repository} worktree add --detach {tree} {version}")
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


def _commit(repository: Repository, revision: str, spec: PackageSpec) -> str:
    if spec.remote and not repository.has(revision):
        repository.fetch(spec.remote, [revision])
    return repository.resolve(revision)
