"""The two ends as they are once installed: what is in each, what its packages ask for, what
differs, and what goes together.

Both are made before anything is tested, from whatever people have of them; what is written down
then is what a resumed run goes on with, also where the index has moved on since.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from aorta.bisect.environments.locks import EnvironmentSide, version_in
from aorta.bisect.environments.sides import interpreter_of, read_side
from aorta.bisect.spec import EnvironmentsSpec
from aorta.bisect.trials import build_step
from aorta.bisect.watching import Say
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import TrialEnd
from aorta.executors import Executor
from aorta.runtimes.git import without_secrets
from aorta.runtimes.package_index import Sources, sources_of
from aorta.runtimes.pythons import find_uv, marker_environment
from aorta.runtimes.venv_job import EnvironmentJob, distributions

# The version of a package that is not installed, and of a variable that is not set.
ABSENT = "absent"
PYTHON = "python"
GOOD_END, BAD_END = "good-end", "bad-end"
_KEPT = "environments.json"


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
        return {**marker_environment(self.python), "extra": ""}

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


@dataclass(frozen=True)
class Asked:
    """Both sides as they were given, and where packages come from."""

    good: EnvironmentSide
    bad: EnvironmentSide
    sources: Sources

    @property
    def sides(self) -> tuple[EnvironmentSide, EnvironmentSide]:
        return self.good, self.bad

    @property
    def are_alike(self) -> bool:
        """Whether both sides say the same: then nothing has to be installed to know it."""
        good, bad = self.good, self.bad
        same = good.requirements == bad.requirements and good.python == bad.python
        return same and (not self.with_variables or good.variables == bad.variables)

    @property
    def with_variables(self) -> bool:
        """Variables are candidates where both sides say how they were set."""
        return self.good.variables is not None and self.bad.variables is not None

    def variables_of(self, side: EnvironmentSide) -> dict[str, str | None]:
        return dict(side.variables or {}) if self.with_variables else {}

    @classmethod
    def of(cls, spec: EnvironmentsSpec, directory: Path) -> "Asked":
        good = read_side(spec.good, directory, "--good-env")
        bad = read_side(spec.bad, directory, "--bad-env")
        said: dict[str, list[str]] = {}
        for option, value in (*good.options, *bad.options):
            said.setdefault(option, []).append(value)
        if spec.index_url:  # what is said now is said instead of what the files say
            said.pop("extra_index_url", None)
        sources = sources_of(
            spec.index_url or next(iter(said.get("index_url", ())), None),
            [*spec.extra_index_url, *said.get("extra_index_url", ())],
            [
                *(p if "://" in p else os.path.normpath(directory / p) for p in spec.find_links),
                *said.get("find_links", ()),
            ],
            no_index=spec.no_index or "no_index" in said,
            pre=spec.pre or "pre" in said,
            yanked=spec.yanked,
        )
        return cls(good, bad, sources)


# -- making them


def make_ends(
    asked: Asked, root: Path, say: Say, executor: Callable[[], Executor], timeout: float | None
) -> EnvironmentEnds:
    """Both, side by side; or what an earlier start of this run wrote down about them."""
    kept = root.parent / _KEPT
    if kept.exists():
        content = json.loads(kept.read_text(encoding="utf-8"))
        good, bad = (EnvironmentEnd(**content[side]) for side in ("good", "bad"))
        return EnvironmentEnds(good, bad, tuple(content["warnings"]))
    warnings = list(_notes(asked))
    pythons = [interpreter_of(side, warnings) for side in asked.sides]
    say(f"making both environments with {'uv' if find_uv() else 'pip'}")
    places = (root / GOOD_END, root / BAD_END)
    builds = []
    for side, (_, program), end in zip(asked.sides, pythons, places, strict=True):
        lines = list(side.requirements.values())
        job = EnvironmentJob(str(end), program, lines, no_deps=side.is_pinned).of(asked.sources)
        builds.append(build_step(job, root / f"{end.name}.d", timeout, end.name))
    place, waiting, ended = executor(), list(builds), dict[str, TrialEnd]()
    while len(ended) < len(builds):
        while waiting and len(builds) - len(waiting) - len(ended) < max(1, place.slots):
            place.start(waiting.pop(0))
        ended |= {end.trial_id: end for end in place.wait(None)}
    for side, build in zip(asked.sides, builds, strict=True):
        _check(side, ended[build.id])
    good, bad = (
        _read_end(side, place, python, asked.variables_of(side))
        for side, place, python in zip(asked.sides, places, pythons, strict=True)
    )
    both = EnvironmentEnds(good, bad, tuple(warnings))
    write_private(kept, asdict(both))
    return both


def _notes(asked: Asked) -> Iterator[str]:
    if not asked.with_variables and (asked.good.variables or asked.bad.variables):
        yield "only one side says how variables were set: none of them is a candidate"
    for side in asked.sides:
        if side.left_out:
            names = ", ".join(side.left_out)
            yield f"{side.name}: {names} is the project itself, and is not installed"
        if not side.complete:
            yield (
                f"{side.name} names only the packages that matter most: what else they need is as "
                "it is in the index now"
            )


def write_private(place: Path, content: object) -> None:
    """Values of variables may be anything; nobody else reads them."""
    fresh = place.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(place)


def _check(side: EnvironmentSide, end: TrialEnd) -> None:
    if end.timed_out:
        raise InfrastructureError(
            "the environment was not made in time; see --build-timeout", where=side.name
        )
    if end.exit_code == 0:
        return
    said = [line.strip() for line in end.stderr.tail.splitlines() if line.strip()]
    words = without_secrets((said or [end.lost or "it said nothing"])[-1])
    kind = UsageError if end.exit_code == 1 else InfrastructureError
    hint = "; what no index has is found with --find-links DIR" if kind is UsageError else ""
    raise kind(f"the environment cannot be installed: {words}{hint}", where=side.name)


def _read_end(
    side: EnvironmentSide, place: Path, python: tuple[str, str], variables: Mapping[str, str | None]
) -> EnvironmentEnd:
    lines: dict[str, str] = {}
    versions: dict[str, str] = {}
    asks: dict[str, list[str]] = {}
    requires: dict[str, str] = {}
    for own_name, version, asked, runs_with in distributions(place):
        name = canonicalize_name(own_name)
        given = side.requirements.get(name, "")
        direct = given.startswith("-e ") or " @ " in given
        lines[name] = given if direct else f"{name}=={version}"
        versions[name] = version_in(given) if direct else version
        asks[name] = asked
        if runs_with:
            requires[name] = runs_with
    return EnvironmentEnd(side.name, *python, lines, versions, asks, requires, variables)


# -- what can be new while the rest is old
#
# What a package asks for is about two packages at a time, and both ends were installed, so every
# such rule has one form: if this one is new, that one is new as well. The sets that can be
# installed are then those that hold all that their members need, and an order in which everything
# comes after what it needs has no other prefixes.


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
            if not _runs_with(bad, name, good.python):
                needs[name].add(PYTHON)
            if not _runs_with(good, name, bad.python):
                needs[PYTHON].add(name)
    return _closed(needs)


def _runs_with(end: EnvironmentEnd, name: str, python: str) -> bool:
    try:
        wanted = end.requires_python.get(name)
        return not wanted or SpecifierSet(wanted).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True


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
    """Everything after what it needs; those that need each other stand together. Python goes as
    late as it may: new packages run on an old one more often than old packages on a new one.
    """
    late = frozenset({PYTHON})

    def place(name: str) -> tuple[bool, int, list[str], str]:
        return bool(needs[name] & late), len(needs[name]), sorted(needs[name]), name

    return sorted(needs, key=place)


def is_installable(new: Collection[str], needs: Mapping[str, frozenset[str]]) -> bool:
    held = set(new)
    return all(needs[name] <= held for name in held)
