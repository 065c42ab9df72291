"""Packages whose repositories are on this host: from revisions to lines of commits."""

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
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


def with_own_files(command: Sequence[str], package: Package, directory: Path) -> list[str]:
    """The command with files that not every commit has by their whole path: a script or an environment beside the
    repository's own files, or outside of it, as people have it who bisect by hand, is not in any other checkout.
    """
    return [
        os.path.normpath(directory / word) if _is_own_file(word, package, directory) else word
        for word in command
    ]


def _is_own_file(word: str, package: Package, directory: Path) -> bool:
    """Links are not followed: what counts is where a file is named."""
    assert package.repository is not None
    if not word or word.startswith(("/", "-")):
        return False
    path = Path(os.path.normpath(directory / word))
    top = Path(package.repository.where)
    with suppress(OSError, ValueError):
        if not path.is_relative_to(top):
            return path.exists()
        inside = str(path.relative_to(top))
        ends = (package.versions[0], package.versions[-1])
        return path.is_file() and not all(package.repository.has_file(end, inside) for end in ends)
    return False


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


def _commit(repository: Repository, revision: str, spec: PackageSpec) -> str:
    if spec.remote and not repository.has(revision):
        repository.fetch(spec.remote, [revision])
    return repository.resolve(revision)
