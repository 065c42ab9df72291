"""A package with its line of versions: what all of bisect talks about."""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from aorta.bisect.histories import CommitChange, CommitSpan, Graph, span_between
from aorta.bisect.spec import BisectSpec, PackageSpec
from aorta.core.errors import UsageError
from aorta.runtimes.git import Repository
from aorta.search.timeline import History

Versions = Mapping[str, str]
"""Package name -> commit or version: one state of the timeline."""


_MOST_STATES = 20_000  # of a graph: beyond, what every state contains takes too much memory


@dataclass(frozen=True)
class Package:
    """Versions from good to bad. `changes`: of a git package, by rank; `graph`: with merges."""

    spec: PackageSpec
    versions: tuple[str, ...]
    repository: Repository | None = None
    span: CommitSpan | None = None
    changes: Sequence[CommitChange] | None = None
    graph: Graph | None = None
    firm: bool = True  # it stands at this very version; without, near it where that cannot be
    times: tuple[float, ...] | None = None  # of each version of a line, where they are known

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def moves(self) -> bool:
        return len(self.versions) > 1

    @property
    def history(self) -> History:
        weights = tuple(len(change.brought) for change in self.changes) if self.changes else None
        return History(self.name, self.versions, self.times, weights)

    @property
    def candidates(self) -> int:
        """How many commits, or steps between listed versions, may be the one."""
        if self.changes is None:
            return len(self.versions) - 1
        return sum(len(change.brought) for change in self.changes)

    @property
    def as_graph(self) -> "Package | None":
        """The same with every commit of its merges; None where there are none to look into."""
        span = self.span
        if span is None or not span.has_merges or len(span.back) + len(span.forward) > _MOST_STATES:
            return None
        graph = span.graph(self.name)
        versions, changes = graph.history.states, graph.changes
        return replace(self, versions=versions, changes=changes, graph=graph, times=None)

    @cached_property
    def remote_address(self) -> str | None:
        return self.repository.remote_address() if self.repository else None

    def until(self, rank: int) -> "Package":
        """The same, as far as one state of its line."""
        times = self.times[: rank + 1] if self.times else None
        changes = self.changes[:rank] if self.changes else None
        return replace(self, versions=self.versions[: rank + 1], changes=changes, times=times)

    def fixed_at(self, version: str, *, firm: bool = True) -> "Package":
        """The same package, standing still."""
        return Package(self.spec, (version,), self.repository, firm=firm)


def moving(packages: Sequence[Package]) -> list[Package]:
    return [package for package in packages if package.moves]


def whole(packages: Sequence[Package], versions: Versions) -> dict[str, str]:
    """The version of every package: those that move as given, the others where they stand."""
    return {package.name: versions.get(package.name, package.versions[0]) for package in packages}


def version_variables(packages: Sequence[Package], versions: Versions) -> dict[str, str]:
    """The variables that carry versions of libraries to builds and tests."""
    named = {p.spec.env: versions[p.name] for p in packages if p.spec.env}
    return named | {p.spec.variable: versions[p.name] for p in packages if not p.spec.is_git}


def in_place_variables(packages: Sequence[Package], versions: Versions) -> dict[str, str]:
    """The same, and where repositories lie that are moved where they are."""
    paths = {p.spec.variable: str(p.spec.path) for p in packages if p.spec.is_git}
    return {**version_variables(packages, versions), **paths}


def set_key(packages: Sequence[Package], versions: Versions) -> str:
    """Names a version set by whole versions, so that no two sets share a name."""
    content = [(p.name, versions[p.name], p.spec.build, p.spec.cherry_pick) for p in packages]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def version_script(
    packages: Sequence[Package],
    versions: Versions,
    seen: Sequence[Package] | None = None,
    builds: Callable[[Package], bool] = lambda _: True,
) -> str:
    """Shell that checks out and builds these versions; a build is told those of `seen`."""
    lines = export_lines(version_variables(seen or packages, versions))
    for package in packages:
        if package.spec.is_git:
            git = f"git -c safe.directory='*' -C {shlex.quote(str(package.spec.path))}"
            lines += checkout_lines(git, versions[package.name], package.spec.cherry_pick)
    for package in packages:
        if package.spec.build and builds(package):
            place = f"cd {shlex.quote(str(package.spec.path))} && " if package.spec.is_git else ""
            lines.append(f"({place}{package.spec.build}\n)")
    return "\n".join(["set -e", *lines])


def export_lines(variables: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def checkout_lines(git: str, version: str, cherry_pick: Sequence[str]) -> list[str]:
    """Build fixes that do not apply are left out. `git`: the words that begin a command in it."""
    picks = [
        f"{git} -c user.name=aorta -c user.email=aorta@localhost cherry-pick {shlex.quote(pick)} "
        f"|| {git} cherry-pick --abort"
        for pick in cherry_pick
    ]
    return [f"{git} checkout --quiet --force --detach {version}", *picks]


def version_words(packages: Sequence[Package], versions: Versions) -> str:
    """`jax@cd04d0f xla@662eb45`: which of the states between the two ends this is."""
    moved = sorted(package.name for package in moving(packages))
    return " ".join(f"{name}@{versions[name][:10]}" for name in moved)


def git_package(
    spec: PackageSpec,
    repository: Repository,
    good: str | None,
    bad: str | None,
    whole_spec: BisectSpec | None = None,
) -> Package:
    """A package with one end given stands still there; with none, where its repository stands."""
    whole_spec = whole_spec or BisectSpec()
    given = [revision for revision in (good, bad) if revision]
    for revision in given if spec.remote else ():
        if not repository.has(revision):
            repository.fetch(str(spec.remote), [revision])
    ends = [repository.resolve(revision) for revision in given]
    if spec.good_parent and good:
        ends[0] = repository.resolve(f"{ends[0]}^")
    here = spec.model_copy(update={"path": repository.where})
    if len(ends) == 2 and spec.main_branch and not whole_spec.find_fix:
        ends, picks = _on_the_main_line(repository, ends[0], ends[1], spec.main_branch)
        here = here.model_copy(update={"cherry_pick": (*spec.cherry_pick, *picks)})
    if len(ends) < 2 or ends[0] == ends[1]:
        return Package(here, ((ends or [repository.resolve("HEAD")])[0],), repository)
    span = span_between(
        repository,
        ends[0],
        ends[1],
        find_fix=whole_spec.find_fix,
        first_parent=whole_spec.first_parent,
    )
    line = span.line
    shas = tuple(commit.sha for commit in line.states)
    return Package(here, shas, repository, span, line.changes, times=line.times)


def _on_the_main_line(
    repository: Repository, good: str, bad: str, branch: str
) -> tuple[list[str], list[str]]:
    """Ends that stand beside the main line, as after a rebase, are those of the main line that they
    were begun from; what only the ends have is cherry-picked onto every state between.
    """
    main = next((one for one in (branch, f"origin/{branch}") if repository.has(one)), None)
    if main is None or repository.is_ancestor(good, bad):
        return [good, bad], []
    older, newer = repository.merge_base(good, bad), repository.merge_base(bad, main)
    if older == newer or not repository.is_ancestor(older, newer):
        return [good, bad], []
    own = [*repository.only_in(bad, newer), *repository.only_in(good, older)]
    return [older, newer], [commit.sha for commit in own if len(commit.parents) < 2]


def library(spec: PackageSpec, good: str | None, bad: str | None) -> Package:
    """Every listed version between the two ends; backwards if the good end is newer."""
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
    return Package(spec, chosen)
