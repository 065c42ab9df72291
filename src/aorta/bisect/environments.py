"""A bisection between two environments: which of the changed packages matter, then which release, then which commit.

First every changed package takes one step, from its good version to its bad one, in an order that can be installed; what
is found is asked about again over the oldest of everything else, until nothing else is needed. Then the releases between
are searched for those packages alone, on one timeline; then the commits between two releases, where a repository is at hand.
"""

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from aorta.bisect.environment_build import (
    Environments,
    Recipe,
    reproduce_in_environment,
    requirements_text,
)
from aorta.bisect.environment_ends import (
    ABSENT,
    BAD_END,
    GOOD_END,
    Asked,
    make_ends,
    pythons_between,
    write_private,
)
from aorta.bisect.environment_files import this_python
from aorta.bisect.findings import Findings, findings_of, skipped_states
from aorta.bisect.git import Repository
from aorta.bisect.installable import PYTHON, in_order, is_installable, must_move_with
from aorta.bisect.investigation import (
    Found,
    Outcome,
    Setting,
    partner_of,
    search_versions,
    with_merges,
)
from aorta.bisect.package import Package, Versions, git_package
from aorta.bisect.package_index import PackageIndex
from aorta.bisect.run import Request, Run, shown_of
from aorta.bisect.spec import EnvironmentsSpec, PackageSpec
from aorta.bisect.stages import MAIN
from aorta.core.errors import UsageError
from aorta.engine.rundir import PRIVATE, write_atomically
from aorta.search.belief import Counts
from aorta.search.ends import EndsVerdict
from aorta.search.timeline import Vector

_RELEASES, _COMMITS = "releases", "commits"


def bisect_environments(request: Request) -> Findings:
    spec = _spec_of(request)
    asked = Asked.of(spec, request.directory)
    with Run(request) as run:
        root = run.stages.path / PRIVATE / "environments"
        ends = make_ends(asked, root, run.say, request.executor, request.spec.build_timeout)
        if not ends.names:
            raise UsageError(
                "nothing differs between the two environments", where=f"{spec.good}, {spec.bad}"
            )
        recipe = Recipe(ends, asked.sources)
        search = _EnvironmentSearch(run, recipe, root, _own_command(request, asked))
        try:
            outcome = search.investigate()
        finally:
            search.workshop(search.steps).remove()
        return search.written(outcome)


def _spec_of(request: Request) -> EnvironmentsSpec:
    spec = request.spec.environments
    assert spec is not None
    return spec


def _own_command(request: Request, asked: Asked) -> tuple[str, ...]:
    """Programs of one of the two virtual environments are those of every state."""
    command = list(request.spec.command)
    for side in (asked.good, asked.bad):
        if side.interpreter is None:
            continue
        home = Path(side.interpreter).parent
        for place, word in enumerate(command):
            path = Path(os.path.normpath(request.directory / word))
            if path.parent == home:
                command[place] = path.name
    return tuple(command)


@dataclass
class _EnvironmentSearch:
    """One run's searches. `steps` are the changed names, each from its good version to its bad one."""

    run: Run
    recipe: Recipe
    root: Path
    command: tuple[str, ...]
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ends = self.recipe.ends
        named = [*ends.packages, *ends.python]
        self.needs = {
            **must_move_with(ends.good.installed, ends.bad.installed, named),
            **{name: frozenset({name}) for name in ends.variables},
        }
        self.steps = [
            _named(name, (ends.good.version(name), ends.bad.version(name)))
            for name in in_order(self.needs)
        ]
        self.index = PackageIndex(self.recipe.sources)
        self.searched: list[Found] = []  # those that lead to the answer
        self.beside: list[Found] = []  # those that asked whether something else is needed

    def workshop(self, packages: Sequence[Package]) -> Environments:
        request = self.run.request
        return Environments(
            self.root,
            self.recipe,
            packages,
            request.directory,
            build_timeout=request.spec.build_timeout,
        )

    def setting(self) -> Setting:
        command = replace(self.run.command(), command=self.command)
        return self.run.setting(self.workshop, command=command, image=self.recipe.digest)

    # -- which packages, which releases, which commit ----------------------------------------------------------------

    def investigate(self) -> Outcome:
        setting = self.setting()
        self._adopt_ends()
        setting.say(f"{len(self.steps)} differ: {', '.join(_step_words(p) for p in self.steps)}")
        main = search_versions(
            setting, MAIN, self.steps, more_follows=True, cannot_be=self._why_impossible
        )
        self.searched.append(main)
        needed = self._needed(setting, main)
        partner = None
        if needed and (releases := self._releases(setting, main, needed)):
            self.searched.append(releases)
            if self.run.request.checks and not self._is_cut_short:
                partner = partner_of(setting, releases)
        if needed and (commits := self._commits(setting, self.searched[-1])):
            self.searched.append(commits)
        return Outcome(self.searched, partner, tuple(self.beside), tuple(sorted(needed)))

    @property
    def _is_cut_short(self) -> bool:
        return self.run.stages.interrupted is not None

    def _adopt_ends(self) -> None:
        """The two that were made to see what is in them are the two ends of the search."""
        workshop, ends = self.workshop(self.steps), self.recipe.ends
        for end, place in ((ends.good, GOOD_END), (ends.bad, BAD_END)):
            workshop.adopt({p.name: end.version(p.name) for p in self.steps}, self.root / place)

    def _why_impossible(self, versions: Versions) -> str | None:
        new = [p.name for p in self.steps if versions[p.name] == p.versions[-1]]
        return None if is_installable(new, self.needs) else "its packages ask for other versions"

    def _needed(self, setting: Setting, main: Found) -> set[str]:
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
            found = self._partner(setting, last, needed, moved, others)
            last = found if found.search.ends is EndsVerdict.DIFFER else last
            if found.fails_alone or found.interval is None:
                break
            if found.search.ends is not EndsVerdict.DIFFER:
                break
            if not found.is_sure:
                self.warnings.append(
                    f"{_listed(needed)} does no harm over the oldest of the rest; what else it takes is not known"
                )
                break
            needed |= {others[change.package].name for change in found.interval.changes}
            reached = {p.name for p, rank in zip(others, found.interval.bad, strict=True) if rank}
        return set() if self._is_cut_short else needed

    def _companions(self, names: Collection[str]) -> set[str]:
        """What must be new where these are."""
        return {other for name in names for other in self.needs[name]} - set(names)

    def _partner(
        self,
        setting: Setting,
        before: Found,
        needed: Collection[str],
        moved: set[str],
        others: Sequence[Package],
    ) -> Found:
        free = {p.name for p in others}
        packages = [
            p if p.name in free else p.fixed_at(p.versions[-1 if p.name in moved else 0])
            for p in self.steps
        ]
        setting.say(f"is {_listed(needed)} enough, over the oldest of the rest?")
        found = search_versions(
            setting,
            f"partner-of-{len(needed)}",
            packages,
            assume=self._known(packages),
            cannot_be=self._why_impossible,
            partner_of=before,
        )
        self.beside.append(found)
        return found

    def _releases(self, setting: Setting, main: Found, needed: Collection[str]) -> Found | None:
        """None where no release lies between, or where those packages alone do not show it."""
        companions = self._companions(needed)
        packages = [
            self._with_releases(p)
            if p.name in needed
            else p.fixed_at(p.versions[-1 if p.name in companions else 0])
            for p in self.steps
        ]
        if all(len(p.versions) <= 2 for p in packages):
            return None
        setting.say(f"which release? {', '.join(_step_words(p) for p in packages if p.moves)}")
        found = search_versions(
            setting,
            _RELEASES,
            packages,
            assume=self._known(packages),
            before=main.mass,
            more_follows=self._repository(needed) is not None,
        )
        if found.search.ends is EndsVerdict.DIFFER or self._is_cut_short:
            return found
        self.beside.append(found)
        self.warnings.append(
            f"which release of {_listed(needed)} it is was not found: without the other packages it does not show"
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
            known[step.name] = [(release.version, release.time) for release in found]
            write_private(place, known)
        return [(version, time) for version, time in known[step.name]]

    def _known(self, packages: Sequence[Package]) -> dict[Vector, Counts]:
        """What earlier searches saw of the two ends of these."""
        moved = [p for p in packages if p.moves]
        seen = self._seen()
        found: dict[Vector, Counts] = {}
        for side, vector in (
            (0, tuple(0 for _ in moved)),
            (-1, tuple(len(p.versions) - 1 for p in moved)),
        ):
            counts = seen.get(frozenset((p.name, p.versions[side]) for p in packages))
            if counts is not None:
                found[vector] = counts
        return found

    def _seen(self) -> dict[frozenset[tuple[str, str]], Counts]:
        seen: dict[frozenset[tuple[str, str]], Counts] = {}
        for found in (*self.searched, *self.beside):
            for vector, counts in found.search.trials.items():
                key = frozenset(found.versions(vector).items())
                seen[key] = max(
                    seen.get(key, (0, 0)), counts, key=sum
                )  # a later search was told of earlier trials
        return seen

    # -- commits ------------------------------------------------------------------------------------------------------

    def _repository(self, names: Collection[str]) -> PackageSpec | None:
        return _repository_of(self.run.request, names) if len(names) == 1 else None

    def _commits(self, setting: Setting, found: Found) -> Found | None:
        """Between two releases, where their package's repository is at hand and has both."""
        interval, single = found.interval, found.single
        if interval is None or single is None or self._is_cut_short:
            return None
        step, rank = single
        spec = self._repository([step.name])
        if spec is None:
            return None
        repository = Repository.on_host(self.run.request.directory / str(spec.path))
        ends = [revision_of(repository, step.name, v) for v in step.versions[rank : rank + 2]]
        if ends[0] is None or ends[1] is None:
            missing = step.versions[rank if ends[0] is None else rank + 1]
            self.warnings.append(
                f"{repository.where} has no tag for {step.name} {missing}: its commits were not searched"
            )
            return None
        package = git_package(
            spec,
            repository,
            ends[0],
            ends[1],
            find_fix=True,
            first_parent=self.run.request.spec.first_parent,
        )
        others = found.versions(interval.bad)
        packages = [
            package if p.name == step.name else p.fixed_at(others[p.name]) for p in self.steps
        ]
        setting.say(
            f"which commit of {step.name} between {step.versions[rank]} and {step.versions[rank + 1]}?"
        )
        commits = search_versions(setting, _COMMITS, with_merges(packages), before=found.mass)
        if commits.interval is not None:
            return commits
        self.beside.append(commits)
        self.warnings.append(
            f"built from its repository {step.name} does not show the difference: its commits were not searched"
        )
        return None

    # -- what is written ----------------------------------------------------------------------------------------------

    def written(self, outcome: Outcome) -> Findings:
        answers = list(self.run.stages.answers.values())
        findings = findings_of(outcome, answers)
        culprits = self._culprits(outcome, findings)
        together = len(outcome.needed) > 1 and findings.status in {"found", "pair"}
        findings = replace(
            findings,
            culprits=culprits,
            status="pair" if together else findings.status,
            partner=findings.partner or _partner_among(culprits, together=together),
            range=() if together else findings.range,
            skipped=[
                s for found in (*outcome.searched, *outcome.beside) for s in skipped_states(found)
            ],
            warnings=(*self.recipe.ends.warnings, *self.warnings, *findings.warnings),
        )
        shown = shown_of(outcome)
        files = self._keep_files(outcome, findings)
        packages = outcome.last.packages
        directory = self.run.request.directory
        reproduce = {
            side: reproduce_in_environment(
                self.recipe, packages, versions, files[side], self.command, directory
            )
            for side, versions in (("good", findings.good), ("bad", findings.bad))
        }
        findings = self.run.write(replace(findings, reproduce=reproduce), shown)
        for side, name in (("good", "last-known-good"), ("bad", "first-known-bad")):
            place = self.run.stages.path / name
            if place.is_dir():
                write_atomically(place / f"{side}.txt", files[side].read_text(encoding="utf-8"))
                write_atomically(place / "reproduce.sh", f"{reproduce[side]}\n")
        return findings

    def _keep_files(self, outcome: Outcome, findings: Findings) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for side, versions, what in (
            ("good", findings.good, "passes"),
            ("bad", findings.bad, "fails"),
        ):
            files[side] = self.run.stages.path / f"{side}.txt"
            text = requirements_text(
                self.recipe, outcome.last.packages, versions, f"the environment that {what}"
            )
            write_atomically(files[side], text)
        return files

    def _culprits(self, outcome: Outcome, findings: Findings) -> list[Mapping[str, Any]]:
        """Each with what kind of thing it is; those that a failure takes together, all of them."""
        ends = self.recipe.ends
        said = [{**one, "kind": ends.kind_of(one["package"])} for one in findings.culprits]
        if outcome.last.stage == _COMMITS and (single := outcome.searched[-2].single):
            step, rank = single
            between = {"good": step.versions[rank], "bad": step.versions[rank + 1]}
            said = [{**one, "release": between} for one in said]
        if outcome.partner and outcome.partner.single and findings.partner:
            package, rank = outcome.partner.single
            said.append(_step(package.name, package.versions[rank : rank + 2], "package"))
        named = {one["package"] for one in said}
        said += [
            _step(step.name, step.versions, ends.kind_of(step.name))
            for step in self.steps
            if step.name in outcome.needed and step.name not in named
        ]
        for one in said:
            one["moves_with"] = sorted(self._companions([one["package"]]) - named)
        return list(said)


def _partner_among(
    culprits: Sequence[Mapping[str, Any]], *, together: bool
) -> dict[str, Any] | None:
    """The second of two that a failure takes."""
    if not together or len(culprits) < 2:
        return None
    second = culprits[1]
    return {"package": second["package"], "commit": second["bad"], **_NOT_SAID}


_NOT_SAID: Mapping[str, Any] = dict.fromkeys(("title", "author", "date", "url"))


def _step(name: str, versions: Sequence[str], kind: str) -> dict[str, Any]:
    return {"package": name, "good": versions[0], "bad": versions[-1], **_NOT_SAID, "kind": kind}


def _named(name: str, versions: tuple[str, ...]) -> Package:
    return Package(PackageSpec.model_construct(name=name, versions=versions), versions)


def _step_words(package: Package) -> str:
    between = len(package.versions) - 2
    more = f" ({between} between)" if between > 0 else ""
    return f"{package.name} {package.versions[0][:40]} → {package.versions[-1][:40]}{more}"


def _listed(names: Collection[str]) -> str:
    return " and ".join(sorted(names))


# -- repositories -----------------------------------------------------------------------------------------------------


def _repository_of(request: Request, names: Collection[str]) -> PackageSpec | None:
    """The one that the spec names; else the one we are in, if it is the package's own."""
    for spec in request.spec.packages:
        if canonicalize_name(spec.name) in names and spec.is_git:
            return spec.model_copy(update={"name": canonicalize_name(spec.name)})
    return None


def revision_of(repository: Repository, name: str, version: str) -> str | None:
    """The commit of a release, by its tag; of a package installed from git, the commit itself."""
    if version.startswith("git+"):
        commit = version.rpartition("@")[2].partition("#")[0]
        return commit if repository.has(commit) else None
    spellings = (
        f"v{version}",
        version,
        f"{name}-{version}",
        f"{name}-v{version}",
        f"{name}/{version}",
    )
    more = (f"release-{version}", f"release/{version}", f"rel_{version.replace('.', '_')}")
    return next((tag for tag in (*spellings, *more) if repository.has(f"refs/tags/{tag}")), None)


# -- the plan ---------------------------------------------------------------------------------------------------------


def plan_of_environments(request: Request) -> dict[str, Any]:
    """What differs as far as the two files say it, and what it would cost. Nothing is installed."""
    asked = Asked.of(_spec_of(request), request.directory)
    index = PackageIndex(asked.sources)
    good, bad = asked.good.versions, asked.bad.versions
    python = asked.good.python or this_python()
    packages: list[dict[str, Any]] = []
    for name in dict.fromkeys((*good, *bad)):
        ends = good.get(name, ABSENT), bad.get(name, ABSENT)
        if ends[0] != ends[1]:
            releases = 2 if ABSENT in ends else len(index.between(name, *ends, python))
            packages.append(_planned(name, ends, "package", releases - 1))
    if asked.good.python and asked.bad.python and asked.good.python != asked.bad.python:
        packages.append(_planned("python", (asked.good.python, asked.bad.python), "python", 1))
    before, after = asked.good.variables, asked.bad.variables
    if before is not None and after is not None:
        for name in dict.fromkeys((*before, *after)):
            ends = before.get(name) or ABSENT, after.get(name) or ABSENT
            if ends[0] != ends[1]:
                packages.append(_planned(name, ends, "variable", 1))
    if not packages:
        raise UsageError("nothing differs between the two environments")
    most = max(package["commits"] for package in packages)
    expected = math.ceil(math.log2(len(packages))) + 2 + math.ceil(math.log2(most))
    return {"packages": packages, "changes": len(packages), "expected_builds": expected}


def _planned(name: str, ends: Sequence[str], kind: str, steps: int) -> dict[str, Any]:
    return {"package": name, "good": ends[0], "bad": ends[1], "kind": kind, "commits": steps}


def plan_lines_of_environments(plan: Mapping[str, Any]) -> Iterator[str]:
    for package in plan["packages"]:
        between = f", {package['commits'] - 1} releases between" if package["commits"] > 1 else ""
        yield f"{package['kind']:<10} {package['package']} {package['good']} → {package['bad']}{between}"
    yield (
        f"probes     {plan['changes']} differ: about {plan['expected_builds']} environments and as many trials "
        "for one culprit, more trials if it is flaky"
    )
