"""The two ends as they are once installed: what is in each, what its packages ask for, and what differs.

Both are made before anything is tested, from whatever people have of them; what is written down then is what a resumed run
goes on with, also where the index has moved on since.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from aorta.bisect.environments.files import (
    marker_environment,
    read_side,
    same_minor,
    this_python,
)
from aorta.bisect.environments.installable import PYTHON, Installed
from aorta.bisect.environments.job import EnvironmentJob, distributions, find_uv, resolved
from aorta.bisect.environments.locks import EnvironmentSide, version_in
from aorta.bisect.environments.package_index import PackageIndex, Sources, sources_of
from aorta.bisect.spec import EnvironmentsSpec
from aorta.bisect.watching import Say
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.executors import Executor
from aorta.runtimes.git import without_secrets

ABSENT = (
    "absent"  # the version of a package that is not installed, and of a variable that is not set
)
GOOD_END, BAD_END = "good-end", "bad-end"
_KEPT = "environments.json"


@dataclass(frozen=True)
class EnvironmentEnd:
    """`lines` install exactly what is there, by canonical name; `versions` tell two of them apart."""

    name: str
    python: str
    interpreter: str
    lines: Mapping[str, str]
    versions: Mapping[str, str]
    asks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requires_python: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def installed(self) -> Installed:
        around = marker_environment(self.python)
        return Installed(self.versions, self.asks, self.requires_python, self.python, around)

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
        """Those that differ. Installers come with a Python and are no part of what was asked about."""
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
            [*(_whole(place, directory) for place in spec.find_links), *said.get("find_links", ())],
            no_index=spec.no_index or "no_index" in said,
            pre=spec.pre or "pre" in said,
            yanked=spec.yanked,
        )
        return cls(good, bad, sources)


def _whole(place: str, directory: Path) -> str:
    return place if "://" in place else os.path.normpath(directory / place)


# -- making them ------------------------------------------------------------------------------------------------------


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
    pythons = [_interpreter(side, warnings) for side in asked.sides]
    say(f"making both environments with {'uv' if find_uv() else 'pip'}")
    builds = [
        _build_trial(side, program, place, asked.sources, timeout)
        for side, (_, program), place in zip(asked.sides, pythons, _places(root), strict=True)
    ]
    ended = _run_both(executor, builds)
    for side, build in zip(asked.sides, builds, strict=True):
        _check(side, ended[build.id])
    good, bad = (
        _read_end(side, place, python, asked.variables_of(side))
        for side, place, python in zip(asked.sides, _places(root), pythons, strict=True)
    )
    both = EnvironmentEnds(good, bad, tuple(warnings))
    write_private(kept, asdict(both))
    return both


def _places(root: Path) -> tuple[Path, Path]:
    return root / GOOD_END, root / BAD_END


def _notes(asked: Asked) -> Iterator[str]:
    if not asked.with_variables and (asked.good.variables or asked.bad.variables):
        yield "only one side says how variables were set: none of them is a candidate"
    for side in asked.sides:
        if side.left_out:
            names = ", ".join(side.left_out)
            yield f"{side.name}: {names} is the project itself, and is not installed"
        if not side.complete:
            yield (
                f"{side.name} names only the packages that matter most: what else they need is as it is in the index now"
            )


def write_private(place: Path, content: object) -> None:
    """Values of variables may be anything; nobody else reads them."""
    fresh = place.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(content), encoding="utf-8")
    fresh.replace(place)


def _build_trial(
    side: EnvironmentSide, interpreter: str, place: Path, sources: Sources, timeout: float | None
) -> TrialSpec:
    requirements = list(side.requirements.values())
    job = EnvironmentJob(str(place), interpreter, requirements, no_deps=side.is_pinned).of(sources)
    return job.trial(place.parent / f"{place.name}.d", timeout, name=place.name)


def _run_both(executor: Callable[[], Executor], builds: Sequence[TrialSpec]) -> dict[str, TrialEnd]:
    place, waiting, ended = executor(), list(builds), dict[str, TrialEnd]()
    try:
        while len(ended) < len(builds):
            while waiting and len(builds) - len(waiting) - len(ended) < max(1, place.slots):
                place.start(waiting.pop(0))
            ended |= {end.trial_id: end for end in place.wait(None)}
    finally:
        place.close()
    return ended


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
    for name, version, asked, runs_with in distributions(place):
        given = side.requirements.get(name, "")
        direct = given.startswith("-e ") or " @ " in given
        lines[name] = given if direct else f"{name}=={version}"
        versions[name] = version_in(given) if direct else version
        asks[name] = asked
        if runs_with:
            requires[name] = runs_with
    return EnvironmentEnd(side.name, *python, lines, versions, asks, requires, variables)


# -- interpreters -----------------------------------------------------------------------------------------------------


def _interpreter(side: EnvironmentSide, warnings: list[str]) -> tuple[str, str]:
    """The version and the program of the Python a side was made with, or of the one that is at hand."""
    if side.interpreter and (version := version_of(side.interpreter)):
        return version, side.interpreter
    if side.python:
        if found := find_python(side.python):
            if found[0] != side.python:
                warnings.append(f"{side.name} had Python {side.python}: {found[0]} stands for it")
            return found
        warnings.append(
            f"{side.name} had Python {side.python}, which is not on this machine: "
            "whether it matters is not found out"
        )
    for program in (shutil.which("python"), shutil.which("python3"), sys.executable):
        if program and (version := version_of(program)):
            return version, program
    raise InfrastructureError("there is no Python to make environments with")


def version_of(program: str) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        ask = "import platform; print(platform.python_version())"
        done = subprocess.run(
            (program, "-I", "-c", ask), capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def pythons_between(good: str, bad: str) -> list[str]:
    """Both, and one of each minor version between that is on this machine."""
    ends = [tuple(int(part) for part in re.findall(r"\d+", one)[:2]) for one in (good, bad)]
    low, high = sorted(ends)
    minors = range(low[1] + 1, high[1]) if low[0] == high[0] else range(0)
    found = [one[0] for minor in minors if (one := find_python(f"{low[0]}.{minor}"))]
    return [good, *(found if ends[0] == low else reversed(found)), bad]


@cache
def find_python(version: str) -> tuple[str, str] | None:
    """That very release, or another of the same minor version."""
    found = [(v, p) for p in _programs(version) if (v := version_of(p)) and same_minor(v, version)]
    return next((one for one in found if one[0] == version), found[0] if found else None)


def _programs(version: str) -> Iterator[str]:
    minor = ".".join(re.findall(r"\d+", version)[:2])
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(p) for p in sorted(pyenv.glob(f"versions/{version}/bin/python")))
    if uv := find_uv():
        for wanted in (version, minor):
            asking = (uv, "python", "find", "--no-project", "--no-python-downloads", wanted)
            done = subprocess.run(asking, capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.strip():
                yield done.stdout.strip()
    if program := shutil.which(f"python{minor}"):
        yield program
    yield from (str(p) for p in sorted(pyenv.glob(f"versions/{minor}.*/bin/python"), reverse=True))


# -- the plan ---------------------------------------------------------------------------------------------------------


def plan_of_environments(spec: EnvironmentsSpec, directory: Path) -> dict[str, Any]:
    """What differs as far as the two files say it, and what it would cost. Nothing is installed."""
    asked = Asked.of(spec, directory)
    index = PackageIndex(asked.sources)
    good, bad = (_would_have(side, asked.sources) for side in asked.sides)
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


def _would_have(side: EnvironmentSide, sources: Sources) -> dict[str, str]:
    """Versions by name, with what the packages of a file need and the file does not name."""
    if side.interpreter is not None:  # a virtual environment has what it has
        return side.versions
    requirements = list(side.requirements.values())
    job = EnvironmentJob("", _interpreter(side, [])[1], requirements).of(sources)
    with tempfile.TemporaryDirectory() as beside:
        lines = resolved(job, Path(beside))
    named = {canonicalize_name(re.split(r"[\s=<>~!;@\[]", line)[0]): line for line in lines}
    return {**side.versions, **{name: version_in(line) for name, line in named.items()}}


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
