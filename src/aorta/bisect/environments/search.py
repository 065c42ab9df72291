"""A bisection between two environments: which of the changed packages matter, then which release.

Changed packages go from good to bad in an order that can be installed; what is found is tried over
the oldest of everything else, until nothing else is needed.
"""

import json
import os
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from aorta.bisect.environments.given import GivenEnvironments
from aorta.bisect.environments.states import (
    ABSENT,
    BAD_END,
    GOOD_END,
    PYTHON,
    EnvironmentEnds,
    Environments,
    in_order,
    is_installable,
    make_ends,
    must_move_with,
    write_private,
)
from aorta.bisect.findings import Findings, findings_of, skipped_states
from aorta.bisect.investigation import (
    FinishedSearch,
    Investigation,
    SearchSetup,
    partner_of,
    partner_search,
    search_versions,
)
from aorta.bisect.package import Package, Versions, moving
from aorta.bisect.report import shown_of, write_answer
from aorta.bisect.run import MAIN, BisectRun, ResolvedRequest
from aorta.bisect.spec import PackageSpec
from aorta.bisect.trials import exports, on_this_machine
from aorta.core.errors import UsageError
from aorta.engine.rundir import PRIVATE, write_atomically
from aorta.runtimes.git import without_secrets
from aorta.runtimes.package_index import PackageIndex, Sources
from aorta.runtimes.venvs import installer, uv_program
from aorta.search.belief import Counts
from aorta.search.ends import EndsVerdict
from aorta.search.timeline import Vector
from aorta.workloads.startable import check_startable

_RELEASES = "releases"
_INSTALLED = "installed"
_GOOD_AND_BAD = {"good": "passes", "bad": "fails"}
_NOT_SAID: Mapping[str, Any] = dict.fromkeys(("title", "author", "date", "url"))


def bisect_environments(request: ResolvedRequest) -> Findings:
    assert request.spec.environments is not None
    uv_program()
    given = GivenEnvironments.of(request.spec.environments, request.directory)
    if given.are_alike:
        raise _nothing_differs(given)
    with BisectRun(request) as run:
        root = run.path / PRIVATE / "environments"
        try:
            ends = _ends_of(run, given, root)
            command = _command_in_states(request, given)
            search = _EnvironmentSearch(run, ends, given.sources, root, command)
            outcome = search.investigate()
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return _Answer(search, outcome).write()


def _nothing_differs(given: GivenEnvironments) -> UsageError:
    where = f"{given.good.name}, {given.bad.name}"
    return UsageError("nothing differs between the two environments", where=where)


def _ends_of(run: BisectRun, given: GivenEnvironments, root: Path) -> EnvironmentEnds:
    request = run.request
    ends = make_ends(given, root, run)
    if not ends.names:
        raise _nothing_differs(given)
    if request.resume is None:
        # Refuses a program that neither this machine nor one of the two environments has.
        path = request.spec.env.get("PATH", os.environ.get("PATH", os.defpath))
        own = (str(root / end / "bin") for end in (GOOD_END, BAD_END))
        check_startable(request.spec.command, request.directory, os.pathsep.join((*own, path)))
    return ends


def _command_in_states(request: ResolvedRequest, given: GivenEnvironments) -> tuple[str, ...]:
    """Programs of one of the two virtual environments are those of every state."""
    command = list(request.spec.command)
    homes = {Path(one.interpreter).parent for one in given.both if one.interpreter}
    for place, word in enumerate(command):
        path = Path(os.path.normpath(request.directory / word))
        if path.parent in homes:
            command[place] = path.name
    return tuple(command)


@dataclass
class _EnvironmentSearch:
    """One run's searches. `steps` are the changed names, each from good to bad version."""

    run: BisectRun
    ends: EnvironmentEnds
    sources: Sources
    root: Path
    command: tuple[str, ...]
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ends = self.ends
        named = [*ends.packages, *ends.python]
        self.needs = {
            **must_move_with(ends.good, ends.bad, named),
            **{name: frozenset({name}) for name in ends.variables},
        }
        self.steps = [
            _named(name, (ends.good.version(name), ends.bad.version(name)))
            for name in in_order(self.needs)
        ]
        self.setting = SearchSetup(self.run, self.version_sets)
        self.index = PackageIndex(self.sources)
        self.searched: list[FinishedSearch] = []  # those that lead to the answer
        self.beside: list[FinishedSearch] = []  # those that asked whether something else is needed

    def version_sets(self, packages: Sequence[Package]) -> Environments:
        request, command = self.run.request, replace(self.run.command(), command=self.command)
        more = (request.spec.build_timeout, self.ends, self.sources, request.directory)
        return Environments(self.root, packages, command, *more)

    def investigate(self) -> Investigation:
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
        return Investigation(self.searched, partner, tuple(self.beside), tuple(sorted(needed)))

    @property
    def _is_cut_short(self) -> bool:
        return self.run.interrupted is not None

    def _why_impossible(self, versions: Versions) -> str | None:
        new = [p.name for p in self.steps if versions[p.name] == p.versions[-1]]
        return None if is_installable(new, self.needs) else "its packages ask for other versions"

    # -- which packages

    def _needed(self, main: FinishedSearch) -> set[str]:
        """The changed names without which it does not fail; empty while the answer is not sure."""
        if main.interval is None or not main.is_sure or main.search.ends is not EndsVerdict.DIFFER:
            return set()
        needed = _changed(main)
        last = main
        while self.run.request.checks and not self._is_cut_short:
            moved = needed | self.companions(needed)
            question, stage = f"is {_listed(needed)} enough", f"partner-of-{len(needed)}"
            found = partner_search(self.setting, stage, last, moved, question, self._why_impossible)
            if found is None:
                break
            self.beside.append(found)
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
            needed |= _changed(found)
        return set() if self._is_cut_short else needed

    def _without_followers(self, needed: set[str]) -> set[str]:
        """Those that another one pins exactly follow it: each of its releases brings its own."""
        pinned = {
            canonicalize_name(wanted.name)
            for name in needed
            for end in (self.ends.good, self.ends.bad)
            for wanted in end.requirements(name)
            if any(one.operator in {"==", "==="} for one in wanted.specifier)
        }
        return needed - pinned or needed

    def companions(self, names: Collection[str]) -> set[str]:
        """What must be new where these are."""
        return {other for name in names for other in self.needs[name]} - set(names)

    # -- which releases

    def _releases(self, main: FinishedSearch, needed: Collection[str]) -> FinishedSearch | None:
        """None where no release lies between, or where those packages alone do not show it."""
        companions = self.companions(needed)
        packages = [
            self._with_releases(p)
            if p.name in needed
            else p.fixed_at(p.versions[-1 if p.name in companions else 0], firm=False)
            for p in self.steps
        ]
        if all(len(p.versions) <= 2 for p in packages):
            return None
        self.run.say(f"which release? {', '.join(_step_words(p) for p in packages if p.moves)}")
        known = self._known(packages)
        found = search_versions(self.setting, _RELEASES, packages, assume=known, before=main.mass)
        if found.search.ends is EndsVerdict.DIFFER or self._is_cut_short:
            return found
        self.beside.append(found)
        self.warnings.append(
            f"which release of {_listed(needed)} it is was not found: without the other packages "
            "it does not show"
        )
        return None

    def _with_releases(self, step: Package) -> Package:
        if self.ends.kind_of(step.name) != "package" or ABSENT in step.versions:
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
            python = self.ends.good.python
            found = self.index.between(step.name, step.versions[0], step.versions[-1], python)
            if not self.index.files(step.name):
                self.warnings.append(f"no index lists {step.name}: what lies between is not known")
            known[step.name] = [(release.version, release.time) for release in found]
            write_private(place, known)
        return [(version, time) for version, time in known[step.name]]

    def _known(self, packages: Sequence[Package]) -> dict[Vector, Counts]:
        """What earlier searches saw of the two ends of these."""
        moved = [p for p in packages if p.moves]
        seen: dict[frozenset[tuple[str, str]], Counts] = {}
        for found in (*self.searched, *self.beside):
            for vector, counts in found.search.trials.items():
                key = frozenset(found.versions(vector).items())
                # A later search knows of earlier trials.
                seen[key] = max(seen.get(key, (0, 0)), counts, key=sum)
        ends = tuple(0 for _ in moved), tuple(len(p.versions) - 1 for p in moved)
        states = (frozenset((p.name, p.versions[side]) for p in packages) for side in (0, -1))
        pairs = zip(ends, states, strict=True)
        return {vector: seen[state] for vector, state in pairs if state in seen}


def _named(name: str, versions: tuple[str, ...]) -> Package:
    """A name without a repository; its states must be built, so none is built as a check."""
    spec = PackageSpec.model_construct(name=name, versions=versions, build=_INSTALLED)
    return Package(spec, versions)


def _changed(found: FinishedSearch) -> set[str]:
    """The names of what a search found."""
    changes = found.interval.changes if found.interval else ()
    return {moving(found.packages)[change.package].name for change in changes}


def _step_words(package: Package) -> str:
    between = len(package.versions) - 2
    more = f" ({between} between)" if between > 0 else ""
    return f"{package.name} {package.versions[0][:40]} → {package.versions[-1][:40]}{more}"


def _listed(names: Collection[str]) -> str:
    return " and ".join(sorted(names))


@dataclass(frozen=True)
class _Answer:
    """What was found: culprits with their kind, both environments as files, how to show them."""

    search: _EnvironmentSearch
    outcome: Investigation

    def write(self) -> Findings:
        search, outcome = self.search, self.outcome
        found = findings_of(outcome, list(search.run.answers.values()))
        culprits = self._culprits(found)
        together = len(outcome.needed) > 1 and found.status in {"found", "pair"}
        partner = found.partner
        if partner is None and together and len(culprits) > 1:
            second = culprits[1]
            partner = {"package": second["package"], "commit": second["bad"], **_NOT_SAID}
        sets = search.version_sets(outcome.last.packages)
        had = {side: sets.installed(getattr(found, side)) for side in ("good", "bad")}
        found = replace(
            found,
            culprits=culprits,
            status="pair" if together else found.status,
            partner=partner,
            range=() if together else found.range,
            skipped=[
                state
                for one in (*outcome.searched, *outcome.beside)
                for state in skipped_states(one)
            ],
            warnings=(*search.ends.warnings, *search.warnings, *found.warnings),
            good=self._as_it_was(found.good, had["good"]),
            bad=self._as_it_was(found.bad, had["bad"]),
        )
        path = search.run.path
        files = {side: path / f"{side}.txt" for side in ("good", "bad")}
        shown: dict[str, str] = {}
        for side, what in _GOOD_AND_BAD.items():
            versions = getattr(found, side)
            write_atomically(files[side], self._listing(versions, had[side], what))
            shown[side] = self._reproduce(versions, files[side])
        return write_answer(search.run, replace(found, reproduce=shown), shown_of(outcome))

    def _as_it_was(self, versions: Versions, had: Mapping[str, str]) -> dict[str, str]:
        """A package that does not matter may be another version, where the culprit needs it."""
        lines = self.search.ends.requirements(versions)
        return {
            name: had[name] if name in had and "==" in lines.get(name, "") else version
            for name, version in versions.items()
        }

    def _culprits(self, found: Findings) -> list[dict[str, Any]]:
        """Each with what kind of thing it is; those that a failure takes together, all of them."""
        search, outcome = self.search, self.outcome
        culprits = [dict(one) for one in found.culprits]
        if outcome.partner and outcome.partner.single and found.partner:
            package, rank = outcome.partner.single
            culprits.append(_step(package.name, package.versions[rank : rank + 2]))
        named = {one["package"] for one in culprits}
        culprits += [
            _step(step.name, step.versions)
            for step in search.steps
            if step.name in outcome.needed and step.name not in named
        ]
        named = {one["package"] for one in culprits}
        for one in culprits:
            one["kind"] = search.ends.kind_of(one["package"])
            one["moves_with"] = sorted(search.companions([one["package"]]) - named)
        return culprits

    def _listing(self, versions: Versions, had: Mapping[str, str], what: str) -> str:
        """The environment as a file that every installer reads, dependencies included."""
        ends = self.search.ends
        lines = ends.requirements(versions)
        pinned = {name: f"{name}=={version}" for name, version in had.items()}
        direct = {name: line for name, line in lines.items() if "==" not in line}
        variables = ends.settings(versions)
        return "\n".join(
            [
                f"# the environment that {what}",
                f"# Python {versions.get(PYTHON, ends.good.python)}",
                *(
                    f"# variable {name}" + (" not set" if value is None else f"={value}")
                    for name, value in variables.items()
                    if name in ends.variables
                ),
                *sorted({**(pinned or lines), **direct}.values()),
                "",
            ]
        )

    def _reproduce(self, versions: Versions, listed: Path) -> str:
        """The environment from its file, then the test."""
        search, ends, uv = self.search, self.search.ends, shlex.quote(uv_program())
        python = shlex.quote(ends.interpreter(versions))
        install = shlex.join(installer("PYTHON")).replace("PYTHON", '"$place"/env/bin/python')
        options = without_secrets(shlex.join(search.sources.options))
        settings = {
            name: value
            for name, value in ends.settings(versions).items()
            if value is not None or name in ends.variables
        }
        lines = [
            f'{uv} venv --quiet --no-project --python {python} "$place"/env',
            f"{install} --no-deps -r {shlex.quote(str(listed))} {options}".rstrip(),
            *exports({"PYTHONNOUSERSITE": "1", **settings, **search.run.request.spec.env}),
            'export VIRTUAL_ENV="$place"/env PATH="$place"/env/bin:"$PATH"',
            f"cd {shlex.quote(str(search.run.request.directory))}",
        ]
        return on_this_machine(lines, replace(search.run.command(), command=search.command))


def _step(name: str, versions: Sequence[str]) -> dict[str, Any]:
    return {"package": name, "good": versions[0], "bad": versions[-1], **_NOT_SAID}
