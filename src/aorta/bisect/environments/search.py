"""A bisection between two environments: which of the changed packages matter, then which release,
then which commit.

First every changed package takes one step, from its good version to its bad one, in an order that
can be installed; what is found is asked about again over the oldest of everything else, until
nothing else is needed. Then the releases between are searched for those packages alone, on one
timeline; then the commits between two releases, where a repository is at hand.
"""

import json
import os
import shutil
import tomllib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from aorta.bisect.environments.answer import COMMITS, EnvironmentAnswer
from aorta.bisect.environments.build import EnvironmentRecipe, Environments, command_in_states
from aorta.bisect.environments.ends import (
    ABSENT,
    BAD_END,
    GOOD_END,
    PYTHON,
    Asked,
    EnvironmentEnds,
    in_order,
    is_installable,
    make_ends,
    must_move_with,
    write_private,
)
from aorta.bisect.findings import Findings
from aorta.bisect.investigation import (
    FinishedSearch,
    Investigation,
    SearchSetup,
    partner_of,
    search_versions,
    with_merges,
)
from aorta.bisect.package import Package, Versions, git_package, revision_of
from aorta.bisect.run import MAIN, BisectRun, ResolvedRequest
from aorta.bisect.spec import PackageSpec
from aorta.core.errors import UsageError
from aorta.engine.rundir import PRIVATE
from aorta.runtimes.checkout import forget_trees
from aorta.runtimes.git import Repository
from aorta.runtimes.package_index import PackageIndex
from aorta.runtimes.pythons import pythons_between
from aorta.search.belief import Counts
from aorta.search.ends import EndsVerdict
from aorta.search.timeline import Vector
from aorta.workloads.startable import check_startable, did_you_mean

_RELEASES = "releases"
_INSTALLED = "installed"


def bisect_environments(request: ResolvedRequest) -> Findings:
    assert request.spec.environments is not None
    asked = Asked.of(request.spec.environments, request.directory)
    for package in request.spec.packages:
        if package.is_git:  # said before anything runs, where it is no repository
            Repository.on_host(request.directory / str(package.path))
    run, nothing_ran = None, request.resume is None
    try:
        with BisectRun(request) as run:
            root = run.path / PRIVATE / "environments"
            ends = _ends_of(run, asked, root)
            nothing_ran = False
            recipe = EnvironmentRecipe(ends, asked.sources)
            return _between(run, recipe, root, command_in_states(request, asked))
    except UsageError:
        # The same command again, once it is mended, is a new run.
        if run is not None and nothing_ran:
            shutil.rmtree(run.path, ignore_errors=True)
        raise


def _ends_of(run: BisectRun, asked: Asked, root: Path) -> EnvironmentEnds:
    request = run.request
    where = f"{asked.good.name}, {asked.bad.name}"
    if asked.are_alike:
        raise UsageError("nothing differs between the two environments", where=where)
    ends = make_ends(asked, root, run.say, request.executor, request.spec.build_timeout)
    if not ends.names:
        raise UsageError("nothing differs between the two environments", where=where)
    _check_named(request, ends)
    if request.resume is None:
        _check_startable(request, root)
    return ends


def _check_named(request: ResolvedRequest, ends: EnvironmentEnds) -> None:
    """Refuses the repository of a package that neither environment has."""
    known = {*ends.good.versions, *ends.bad.versions}
    for package in request.spec.packages:
        if canonicalize_name(package.name) not in known:
            near = did_you_mean(canonicalize_name(package.name), known)
            raise UsageError(
                f"neither environment has this package{near}", where=f"--repository {package.name}"
            )


def _check_startable(request: ResolvedRequest, root: Path) -> None:
    """Refuses a program that neither this machine nor one of the two environments has."""
    path = request.spec.env.get("PATH", os.environ.get("PATH", os.defpath))
    own = (str(root / end / "bin") for end in (GOOD_END, BAD_END))
    check_startable(request.spec.command, request.directory, os.pathsep.join((*own, path)))


def _between(
    run: BisectRun, recipe: EnvironmentRecipe, root: Path, command: tuple[str, ...]
) -> Findings:
    search = _EnvironmentSearch(run, recipe, root, command)
    try:
        outcome = search.investigate()
    finally:
        search.remove()
    answer = EnvironmentAnswer(
        run, recipe, search.steps, search.companions, command, search.warnings
    )
    return answer.write(outcome, search.version_sets(outcome.last.packages))


@dataclass
class _EnvironmentSearch:
    """One run's searches. `steps` are the changed names, each from good to bad version."""

    run: BisectRun
    recipe: EnvironmentRecipe
    root: Path
    command: tuple[str, ...]
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ends = self.recipe.ends
        named = [*ends.packages, *ends.python]
        self.needs = {
            **must_move_with(ends.good, ends.bad, named),
            **{name: frozenset({name}) for name in ends.variables},
        }
        self.steps = [
            _named(name, (ends.good.version(name), ends.bad.version(name)))
            for name in in_order(self.needs)
        ]
        command = replace(self.run.command(), command=self.command)
        self.setting = SearchSetup(self.run, command, self.version_sets)
        self.index = PackageIndex(self.recipe.sources)
        self.searched: list[FinishedSearch] = []  # those that lead to the answer
        self.beside: list[FinishedSearch] = []  # those that asked whether something else is needed
        self.repositories: set[str] = set()  # that have checkouts of this run

    def version_sets(self, packages: Sequence[Package]) -> Environments:
        request = self.run.request
        timeout = request.spec.build_timeout
        return Environments(self.root, self.recipe, packages, request.directory, timeout)

    def remove(self) -> None:
        """Every environment and checkout of this run, from the disk and from git's own list."""
        shutil.rmtree(self.root, ignore_errors=True)
        for repository in self.repositories:
            forget_trees(repository)

    # -- which packages, which releases, which commit

    def investigate(self) -> Investigation:
        self._adopt_ends()
        self.run.say(f"{len(self.steps)} differ: {', '.join(_step_words(p) for p in self.steps)}")
        main = search_versions(
            self.setting, MAIN, self.steps, more_follows=True, cannot_be=self._why_impossible
        )
        self.searched.append(main)
        needed = self._without_followers(self._needed(main))
        partner = None
        if needed and (releases := self._releases(main, needed)):
            self.searched.append(releases)
            if self.run.request.checks and not self._is_cut_short:
                partner = partner_of(self.setting, releases)
        if needed and (commits := self._commits(self.searched[-1])):
            self.searched.append(commits)
        return Investigation(self.searched, partner, tuple(self.beside), tuple(sorted(needed)))

    @property
    def _is_cut_short(self) -> bool:
        return self.run.interrupted is not None

    def _adopt_ends(self) -> None:
        """The two that were made to see what is in them are the two ends of the search."""
        version_sets, ends = self.version_sets(self.steps), self.recipe.ends
        for end, place in ((ends.good, GOOD_END), (ends.bad, BAD_END)):
            version_sets.adopt({p.name: end.version(p.name) for p in self.steps}, self.root / place)

    def _why_impossible(self, versions: Versions) -> str | None:
        new = [p.name for p in self.steps if versions[p.name] == p.versions[-1]]
        return None if is_installable(new, self.needs) else "its packages ask for other versions"

    def _needed(self, main: FinishedSearch) -> set[str]:
        """The changed names without which it does not fail; empty while the answer is not sure."""
        if main.interval is None or not main.is_sure or main.search.ends is not EndsVerdict.DIFFER:
            return set()
        needed = {self.steps[change.package].name for change in main.interval.changes}
        reached = {p.name for p, rank in zip(self.steps, main.interval.bad, strict=True) if rank}
        last = main
        while self.run.request.checks and not self._is_cut_short:
            moved = needed | self._companions(needed)
            others = [p for p in self.steps if p.name in reached - moved]
            if not others:
                break
            found = self._partner(last, needed, moved, others)
            differ = found.search.ends is EndsVerdict.DIFFER
            if found.fails_alone or found.interval is None or not differ:
                break
            last = found
            if not found.is_sure:
                self.warnings.append(
                    f"{_listed(needed)} does no harm over the oldest of the rest; what else it "
                    "takes is not known"
                )
                break
            needed |= {others[change.package].name for change in found.interval.changes}
            reached = {p.name for p, rank in zip(others, found.interval.bad, strict=True) if rank}
        return set() if self._is_cut_short else needed

    def _without_followers(self, needed: set[str]) -> set[str]:
        """Of packages that go together, those that another one pins exactly follow it: each of its
        releases brings its own, so theirs are not searched.
        """
        pinned = {
            canonicalize_name(wanted.name)
            for name in needed
            for end in (self.recipe.ends.good, self.recipe.ends.bad)
            for wanted in end.requirements(name)
            if any(one.operator in {"==", "==="} for one in wanted.specifier)
        }
        return needed - pinned or needed

    @property
    def companions(self) -> dict[str, set[str]]:
        return {step.name: self._companions([step.name]) for step in self.steps}

    def _companions(self, names: Collection[str]) -> set[str]:
        """What must be new where these are."""
        return {other for name in names for other in self.needs[name]} - set(names)

    def _partner(
        self,
        before: FinishedSearch,
        needed: Collection[str],
        moved: set[str],
        others: Sequence[Package],
    ) -> FinishedSearch:
        free = {p.name for p in others}
        packages = [
            p
            if p.name in free
            else p.fixed_at(p.versions[-1 if p.name in moved else 0], firm=p.name in moved)
            for p in self.steps
        ]
        self.run.say(f"is {_listed(needed)} enough, over the oldest of the rest?")
        found = search_versions(
            self.setting,
            f"partner-of-{len(needed)}",
            packages,
            assume=self._known(packages),
            cannot_be=self._why_impossible,
            partner_of=before,
        )
        self.beside.append(found)
        return found

    def _releases(self, main: FinishedSearch, needed: Collection[str]) -> FinishedSearch | None:
        """None where no release lies between, or where those packages alone do not show it."""
        companions = self._companions(needed)
        packages = [
            self._with_releases(p)
            if p.name in needed
            else p.fixed_at(p.versions[-1 if p.name in companions else 0], firm=False)
            for p in self.steps
        ]
        if all(len(p.versions) <= 2 for p in packages):
            return None
        self.run.say(f"which release? {', '.join(_step_words(p) for p in packages if p.moves)}")
        found = search_versions(
            self.setting,
            _RELEASES,
            packages,
            assume=self._known(packages),
            before=main.mass,
            more_follows=_repository_of(self.run.request, needed) is not None,
        )
        if found.search.ends is EndsVerdict.DIFFER or self._is_cut_short:
            return found
        self.beside.append(found)
        self.warnings.append(
            f"which release of {_listed(needed)} it is was not found: without the other packages "
            "it does not show"
        )
        return None

    def _with_releases(self, step: Package) -> Package:
        ends = self.recipe.ends
        if step.name == PYTHON:
            return _named(PYTHON, tuple(pythons_between(step.versions[0], step.versions[-1])))
        if ends.kind_of(step.name) != "package" or ABSENT in step.versions:
            return step
        releases = self._listed_releases(step)
        times = tuple(time for _, time in releases if time is not None)
        package = _named(step.name, tuple(version for version, _ in releases))
        return replace(package, times=times if len(times) == len(releases) else None)

    def _listed_releases(self, step: Package) -> list[tuple[str, float | None]]:
        """As the index had them when this run first asked: a resumed run goes on with the same."""
        place = self.root.parent / "releases.json"
        known = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
        if step.name not in known:
            python = self.recipe.ends.good.python
            found = self.index.between(step.name, step.versions[0], step.versions[-1], python)
            if not self.index.files(step.name):
                self.warnings.append(f"no index lists {step.name}: what lies between is not known")
            known[step.name] = [(release.version, release.time) for release in found]
            write_private(place, known)
        return [(version, time) for version, time in known[step.name]]

    def _known(self, packages: Sequence[Package]) -> dict[Vector, Counts]:
        """What earlier searches saw of the two ends of these."""
        moved = [p for p in packages if p.moves]
        seen = self._seen()
        found: dict[Vector, Counts] = {}
        ends = tuple(0 for _ in moved), tuple(len(p.versions) - 1 for p in moved)
        for side, vector in zip((0, -1), ends, strict=True):
            counts = seen.get(frozenset((p.name, p.versions[side]) for p in packages))
            if counts is not None:
                found[vector] = counts
        return found

    def _seen(self) -> dict[frozenset[tuple[str, str]], Counts]:
        seen: dict[frozenset[tuple[str, str]], Counts] = {}
        for found in (*self.searched, *self.beside):
            for vector, counts in found.search.trials.items():
                key = frozenset(found.versions(vector).items())
                # A later search knows of earlier trials.
                seen[key] = max(seen.get(key, (0, 0)), counts, key=sum)
        return seen

    # -- commits

    def _commits(self, found: FinishedSearch) -> FinishedSearch | None:
        """Between two releases, where their package's repository is at hand and has both."""
        interval, single = found.interval, found.single
        if interval is None or single is None or self._is_cut_short:
            return None
        step, rank = single
        spec = _repository_of(self.run.request, [step.name])
        if spec is None:
            return None
        repository = Repository.on_host(self.run.request.directory / str(spec.path))
        ends = [revision_of(repository, step.name, v) for v in step.versions[rank : rank + 2]]
        if ends[0] is None or ends[1] is None:
            missing = step.versions[rank if ends[0] is None else rank + 1]
            self.warnings.append(
                f"{repository.where} has no tag for {step.name} {missing}: its commits were not "
                "searched"
            )
            return None
        whole = self.run.request.spec.model_copy(update={"find_fix": True})
        package = git_package(spec, repository, ends[0], ends[1], whole)
        self.repositories.add(repository.where)
        others = found.versions(interval.bad)
        packages = [
            package if p.name == step.name else p.fixed_at(others[p.name], firm=False)
            for p in self.steps
        ]
        self.run.say(
            f"which commit of {step.name} between {step.versions[rank]} and "
            f"{step.versions[rank + 1]}?"
        )
        commits = search_versions(self.setting, COMMITS, with_merges(packages), before=found.mass)
        if commits.interval is not None:
            return commits
        self.beside.append(commits)
        self.warnings.append(
            f"built from its repository {step.name} does not show the difference: its commits "
            "were not searched"
        )
        return None


def _named(name: str, versions: tuple[str, ...]) -> Package:
    """A name without a repository; its states must be built, so none is built as a check."""
    spec = PackageSpec.model_construct(name=name, versions=versions, build=_INSTALLED)
    return Package(spec, versions)


def _step_words(package: Package) -> str:
    between = len(package.versions) - 2
    more = f" ({between} between)" if between > 0 else ""
    return f"{package.name} {package.versions[0][:40]} → {package.versions[-1][:40]}{more}"


def _listed(names: Collection[str]) -> str:
    return " and ".join(sorted(names))


# -- repositories


def _repository_of(request: ResolvedRequest, names: Collection[str]) -> PackageSpec | None:
    """The one that the spec names, else the one we are in, if it is the package's own."""
    if len(names) != 1:
        return None
    for spec in request.spec.packages:
        if canonicalize_name(spec.name) in names and spec.is_git:
            return spec.model_copy(update={"name": canonicalize_name(spec.name)})
    with suppress(OSError, tomllib.TOMLDecodeError, UsageError):
        top = Path(Repository.on_host(request.directory).where)
        project = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))
        name = canonicalize_name(str(project.get("project", {}).get("name", "")))
        return PackageSpec(name=name, path=str(top)) if name in names else None
    return None
