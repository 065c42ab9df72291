"""The environments of a search: both ends as installed, what differs, and the states between them.

A resumed run goes on with the ends as written down, also where the index has moved on since.
Environments are named by what is in them, so a killed run finds what it made.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from aorta.bisect.environments.given import GivenEnvironment, GivenEnvironments, version_in
from aorta.bisect.package import Versions
from aorta.bisect.run import BisectRun
from aorta.bisect.trials import PreparedTest, VersionSets, build_step, run_step
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Environment, RuntimeKind, TrialEnd, TrialSpec
from aorta.runtimes.git import without_secrets
from aorta.runtimes.package_index import Sources, allows
from aorta.runtimes.venvs import EnvironmentJob, distributions, other_versions, search_path

# The version of a package that is not installed, and of a variable that is not set.
ABSENT = "absent"
PYTHON = "python"
GOOD_END, BAD_END = "good-end", "bad-end"
_KEPT = "environments.json"
_NOWHERE = "sys_platform == 'nowhere'"


@dataclass(frozen=True)
class EnvironmentEnd:
    """`lines` install exactly what is there, by canonical name; `versions` tell two apart."""

    name: str
    python: str
    interpreter: str
    lines: Mapping[str, str]
    versions: Mapping[str, str]
    asks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requires_python: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str | None] = field(default_factory=dict)

    def requirements(self, name: str) -> Iterable[Requirement]:
        """What a package asks for here, extras aside."""
        for line in self.asks.get(name, ()):
            try:
                found = Requirement(line)
                if found.marker is None or found.marker.evaluate(self._around):
                    yield found
            except (InvalidRequirement, UndefinedEnvironmentName):
                continue

    @cached_property
    def _around(self) -> dict[str, str]:
        """What markers are judged by, for another Python on this machine."""
        around = {name: str(value) for name, value in default_environment().items()}
        parts = self.python.split(".")
        python = {"python_version": ".".join(parts[:2]), "python_full_version": self.python}
        return {**around, **python, "extra": ""}

    def satisfies(self, wanted: Requirement) -> bool:
        version = self.versions.get(canonicalize_name(wanted.name))
        return version is not None and wanted.specifier.contains(version, prereleases=True)

    def version(self, name: str) -> str:
        if name == PYTHON:
            return self.python
        if name in self.variables:
            value = self.variables[name]
            return ABSENT if value is None else value
        return self.versions.get(name, ABSENT)


@dataclass(frozen=True)
class EnvironmentEnds:
    good: EnvironmentEnd
    bad: EnvironmentEnd
    warnings: tuple[str, ...] = ()

    @property
    def packages(self) -> list[str]:
        """Those that differ; installers come with a Python and are left out."""
        names = dict.fromkeys((*self.good.versions, *self.bad.versions))
        return [n for n in names if self.good.versions.get(n) != self.bad.versions.get(n)]

    @property
    def variables(self) -> list[str]:
        names = dict.fromkeys((*self.good.variables, *self.bad.variables))
        return [n for n in names if self.good.variables.get(n) != self.bad.variables.get(n)]

    @property
    def python(self) -> list[str]:
        return [PYTHON] if self.good.python != self.bad.python else []

    @property
    def names(self) -> list[str]:
        return [*self.packages, *self.python, *self.variables]

    def kind_of(self, name: str) -> str:
        if name in self.variables:
            return "variable"
        return "python" if name == PYTHON else "package"

    # -- how a state between them becomes an environment

    def requirements(self, versions: Versions) -> dict[str, str]:
        """A line for each package that a state has; unchanged ones first."""
        changed = self.packages
        found = {n: line for n, line in self.good.lines.items() if n not in changed}
        for name in changed:
            version = versions[name]
            ends = (end for end in (self.good, self.bad) if end.versions.get(name) == version)
            if version != ABSENT:
                end = next(ends, None)
                found[name] = end.lines[name] if end else f"{name}=={version}"
        return found

    def loose(self, versions: Versions, free: Sequence[str]) -> dict[str, str]:
        """The same with packages anywhere between their two ends, where they need not stay."""
        found = self.requirements(versions)
        for name in free:
            ends = [end.versions.get(name) for end in (self.good, self.bad)]
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
            for name in sorted(unmet(self.good) | unmet(self.bad))
            if not present.get(name, "").startswith("-e ")
        ]

    def interpreter(self, versions: Versions) -> str:
        end = self.bad if versions.get(PYTHON) == self.bad.python else self.good
        return end.interpreter

    def settings(self, versions: Versions) -> dict[str, str | None]:
        """The variables of a state; None: not set."""
        found = dict(self.good.variables)
        for name in self.variables:
            found[name] = None if versions[name] == ABSENT else versions[name]
        return found


# -- making them


def make_ends(given: GivenEnvironments, root: Path, run: BisectRun) -> EnvironmentEnds:
    """Both of them; or what an earlier start of this run wrote down about them."""
    kept = root.parent / _KEPT
    if kept.exists():
        content = json.loads(kept.read_text(encoding="utf-8"))
        good, bad = (EnvironmentEnd(**content[side]) for side in ("good", "bad"))
        return EnvironmentEnds(good, bad, tuple(content["warnings"]))
    warnings: list[str] = []
    if not given.with_variables and (given.good.variables or given.bad.variables):
        warnings.append("only one side says how variables were set: none of them is a candidate")
    run.say("making both environments")
    good = _made(given, given.good, root / GOOD_END, run, warnings)
    bad = _made(given, given.bad, root / BAD_END, run, warnings)
    both = EnvironmentEnds(good, bad, tuple(warnings))
    write_private(kept, asdict(both))
    return both


def _made(
    given: GivenEnvironments,
    one: GivenEnvironment,
    place: Path,
    run: BisectRun,
    warnings: list[str],
) -> EnvironmentEnd:
    python, program = one.interpreter_at_hand(warnings)
    job = EnvironmentJob(
        str(place),
        program,
        () if one.file else one.requirements,
        (str(one.file),) if one.file else (),
        no_deps=one.is_pinned,
    ).of(given.sources)
    timeout = run.request.spec.build_timeout
    step = build_step(job, place.with_name(f"{place.name}.d"), timeout, place.name)
    _check(one, run_step(run.request.executor(), step))
    found = {canonicalize_name(each.name): each for each in distributions(search_path(place))}
    return EnvironmentEnd(
        one.name,
        python,
        program,
        lines={name: each.line for name, each in found.items()},
        versions={name: version_in(each.line, each.version) for name, each in found.items()},
        asks={name: each.asks for name, each in found.items()},
        requires_python={n: e.requires_python for n, e in found.items() if e.requires_python},
        variables=given.variables_of(one),
    )


def write_private(place: Path, content: object) -> None:
    """Values of variables may be anything; nobody else reads them."""
    fresh = place.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(place)


def _check(given: GivenEnvironment, end: TrialEnd) -> None:
    if end.timed_out:
        raise InfrastructureError(
            "the environment was not made in time; see --build-timeout", where=given.name
        )
    if end.exit_code == 0:
        return
    lines = [line.strip() for line in end.stderr.tail.splitlines() if line.strip()]
    words = without_secrets((lines or [end.lost or "it said nothing"])[-1])
    kind = UsageError if end.exit_code == 1 else InfrastructureError
    hint = "; what no index has is found with --find-links DIR" if kind is UsageError else ""
    raise kind(f"the environment cannot be installed: {words}{hint}", where=given.name)


# -- what can be new while the rest is old
#
# Both ends were installed, so every rule has one form: if this one is new, that one is new as well.
# An order in which everything comes after what it needs has only prefixes that can be installed.


def unmet(end: EnvironmentEnd) -> set[str]:
    """Packages installed against somebody's wish: a resolver must not refuse them."""
    return {
        canonicalize_name(wanted.name)
        for name in end.versions
        for wanted in end.requirements(name)
        if not end.satisfies(wanted)
    }


def must_move_with(
    good: EnvironmentEnd, bad: EnvironmentEnd, changed: Collection[str]
) -> dict[str, frozenset[str]]:
    """By each changed package all that must be new where it is new, itself included."""
    tolerated = unmet(good) | unmet(bad)
    needs = {name: {name} for name in changed}
    for name in changed:
        for wanted in bad.requirements(name):
            other = canonicalize_name(wanted.name)
            if other in needs and other not in tolerated and not good.satisfies(wanted):
                needs[name].add(other)
        for wanted in good.requirements(name):
            other = canonicalize_name(wanted.name)
            if other in needs and other not in tolerated and not bad.satisfies(wanted):
                needs[other].add(name)
        if PYTHON in needs and name != PYTHON:
            if not allows(bad.requires_python.get(name), good.python):
                needs[name].add(PYTHON)
            if not allows(good.requires_python.get(name), bad.python):
                needs[PYTHON].add(name)
    return _closed(needs)


def _closed(needs: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    closed: dict[str, frozenset[str]] = {}
    for name in needs:
        found: set[str] = set()
        waiting = [name]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += needs[here]
        closed[name] = frozenset(found)
    return closed


def in_order(needs: Mapping[str, frozenset[str]]) -> list[str]:
    """Everything after what it needs, cycles together. Python goes last: new packages run on an old
    Python more often than old packages on a new one.
    """
    late = frozenset({PYTHON})

    def place(name: str) -> tuple[bool, int, list[str], str]:
        return bool(needs[name] & late), len(needs[name]), sorted(needs[name]), name

    return sorted(needs, key=place)


def is_installable(new: Collection[str], needs: Mapping[str, frozenset[str]]) -> bool:
    held = set(new)
    return all(needs[name] <= held for name in held)


# -- the states


@dataclass(eq=False)
class Environments(VersionSets):
    """Version sets as virtual environments. The command runs in `directory`."""

    ends: EnvironmentEnds
    sources: Sources
    directory: Path

    def _prepared(self, trial: TrialSpec, versions: Versions) -> PreparedTest:
        key = self._key(versions)
        mark = self.root / f"{key}.made"
        build = None if mark.exists() else self._build(self._job(versions, key, mark), key)
        return PreparedTest(key, build, self._at(trial, self.root / key, versions))

    def _job(self, versions: Versions, key: str, mark: Path | None) -> EnvironmentJob:
        ends = self.ends
        free = [p.name for p in self.packages if not p.firm and p.name in ends.packages]
        requirements = ends.requirements(versions)
        # The versions that make the state. What comes from no index has none to be told by.
        named = (p.name for p in self.packages if p.firm)
        firm = {name: versions[name] for name in named if "==" in requirements.get(name, "")}
        return EnvironmentJob(
            str(self.root / key),
            ends.interpreter(versions),
            list(requirements.values()),
            loose=list(ends.loose(versions, free).values()) if free else (),
            overrides=ends.overrides(versions),
            mark=str(mark) if mark else None,
            firm=firm,
            listed=str(self._listed(key)),
        ).of(self.sources)

    def _listed(self, key: str) -> Path:
        """Outside of what is removed: the answer is told by it."""
        return self.root.parent / "installed" / f"{key}.json"

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
        variables = self.ends.settings(versions)
        unset = [name for name, value in variables.items() if value is None and name in os.environ]
        named = {p.spec.variable: versions[p.name] for p in self.packages}
        given = {name: value for name, value in variables.items() if value is not None}
        argv = trial.argv
        if unset:
            argv = ("env", *(word for name in unset for word in ("-u", name)), *argv)
        return replace(
            trial,
            argv=argv,
            cwd=self.directory,
            env={"PYTHONNOUSERSITE": "1", **named, **given, **trial.env},
            environment=Environment("environment", RuntimeKind.VENV, venv=str(place.absolute())),
        )
