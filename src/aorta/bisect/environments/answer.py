"""What a bisection between two environments found: culprits with their kind, both environments as
files, how to show them.

And, before anything is made, what it would look at.
"""

import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.bisect.environments.build import EnvironmentRecipe, Environments
from aorta.bisect.environments.ends import (
    ABSENT,
    PYTHON,
    Asked,
    EnvironmentEnd,
    EnvironmentEnds,
)
from aorta.bisect.findings import Findings, findings_of, skipped_states
from aorta.bisect.investigation import Investigation
from aorta.bisect.package import Package, Versions, clone_lines
from aorta.bisect.report import shown_of, write_answer
from aorta.bisect.run import BisectRun
from aorta.bisect.spec import EnvironmentsSpec
from aorta.core.errors import UsageError
from aorta.engine.rundir import write_atomically
from aorta.runtimes.git import without_secrets
from aorta.runtimes.package_index import PackageIndex
from aorta.runtimes.pythons import find_uv, this_python
from aorta.runtimes.venv_job import index_options, installer

COMMITS = "commits"  # the stage between two releases
_SIDES = (("good", "last-known-good", "passes"), ("bad", "first-known-bad", "fails"))
_NOT_SAID: Mapping[str, Any] = dict.fromkeys(("title", "author", "date", "url"))


@dataclass(frozen=True)
class EnvironmentAnswer:
    """`steps` are all that differed; `moves_with` says what must be new where a name is."""

    run: BisectRun
    recipe: EnvironmentRecipe
    steps: Sequence[Package]
    moves_with: Mapping[str, Collection[str]]
    command: Sequence[str]
    warnings: Sequence[str]

    def write(self, outcome: Investigation, version_sets: Environments) -> Findings:
        found = findings_of(outcome, list(self.run.answers.values()))
        culprits = self._culprits(outcome, found)
        together = len(outcome.needed) > 1 and found.status in {"found", "pair"}
        partner = found.partner
        if partner is None and together and len(culprits) > 1:
            second = culprits[1]
            partner = {"package": second["package"], "commit": second["bad"], **_NOT_SAID}
        had = {side: version_sets.installed(getattr(found, side)) for side in ("good", "bad")}
        found = replace(
            found,
            culprits=culprits,
            status="pair" if together else found.status,
            partner=partner,
            range=() if together else found.range,
            skipped=[
                said for one in (*outcome.searched, *outcome.beside) for said in skipped_states(one)
            ],
            warnings=(*self.recipe.ends.warnings, *self.warnings, *found.warnings),
            good=self._as_it_was(found.good, had["good"]),
            bad=self._as_it_was(found.bad, had["bad"]),
        )
        packages = outcome.last.packages
        reproduce: dict[str, str] = {}
        texts: dict[str, str] = {}
        for side, _, what in _SIDES:
            versions, file = getattr(found, side), self.run.path / f"{side}.txt"
            title = f"the environment that {what}"
            texts[side] = _requirements_text(self.recipe, packages, versions, had[side], title)
            write_atomically(file, texts[side])
            reproduce[side] = self._reproduce(packages, versions, file)
        written = write_answer(self.run, replace(found, reproduce=reproduce), shown_of(outcome))
        for side, link, _ in _SIDES:
            place = self.run.path / link
            if place.is_dir():
                write_atomically(place / f"{side}.txt", texts[side])
                write_atomically(place / "reproduce.sh", f"{reproduce[side]}\n")
        return written

    def _as_it_was(self, versions: Versions, had: Mapping[str, str]) -> dict[str, str]:
        """A package that does not matter may be another version, where the culprit needs it."""
        lines = self.recipe.requirements(versions)
        return {
            name: had[name] if name in had and "==" in lines.get(name, "") else version
            for name, version in versions.items()
        }

    def _culprits(self, outcome: Investigation, found: Findings) -> list[dict[str, Any]]:
        """Each with what kind of thing it is; those that a failure takes together, all of them."""
        kind_of = self.recipe.ends.kind_of
        said = [{**one, "kind": kind_of(one["package"])} for one in found.culprits]
        if outcome.last.stage == COMMITS and (single := outcome.searched[-2].single):
            step, rank = single
            between = {"good": step.versions[rank], "bad": step.versions[rank + 1]}
            said = [{**one, "release": between} for one in said]
        if outcome.partner and outcome.partner.single and found.partner:
            package, rank = outcome.partner.single
            said.append(_step(package.name, package.versions[rank : rank + 2], "package"))
        named = {one["package"] for one in said}
        said += [
            _step(step.name, step.versions, kind_of(step.name))
            for step in self.steps
            if step.name in outcome.needed and step.name not in named
        ]
        named = {one["package"] for one in said}
        for one in said:
            one["moves_with"] = sorted(set(self.moves_with[one["package"]]) - named)
        return said

    def _reproduce(self, packages: Sequence[Package], versions: Versions, listed: Path) -> str:
        """Shell lines that show one side: the environment from its file, then the test."""
        recipe, uv = self.recipe, find_uv()
        python = shlex.quote(recipe.interpreter(versions))
        install = shlex.join(installer("PYTHON")).replace("PYTHON", '"$place"/env/bin/python')
        where = index_options(recipe.sources.indexes, recipe.sources.find_links, uv=bool(uv))
        options = without_secrets(shlex.join(where))
        lines = [
            "set -e",
            "place=$(mktemp -d)",
            f'{shlex.quote(uv)} venv --quiet --no-project --python {python} "$place"/env'
            if uv
            else f'{python} -m venv --without-pip "$place"/env',
            f"{install} --no-deps -r {shlex.quote(str(listed))} {options}".rstrip(),
            'export VIRTUAL_ENV="$place"/env PATH="$place"/env/bin:"$PATH" PYTHONNOUSERSITE=1',
        ]
        for package in packages:
            if package.spec.is_git:
                tree = f'"$place"/{shlex.quote(package.name)}'
                build = package.spec.build or f"{install} --no-deps . {options}".rstrip()
                lines += clone_lines(package, versions[package.name], tree)
                lines.append(f"(cd {tree} && {build})")
        lines += [
            f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
            for name, value in recipe.variables(versions).items()
            if value is not None or name in recipe.ends.variables
        ]
        lines.append(f"cd {shlex.quote(str(self.run.request.directory))}")
        return "\n".join([*lines, shlex.join(self.command)])


def _requirements_text(
    recipe: EnvironmentRecipe,
    packages: Sequence[Package],
    versions: Versions,
    had: Mapping[str, str],
    title: str,
) -> str:
    """The environment as a file that every installer reads, dependencies included."""
    built = {p.name: p for p in packages if p.spec.is_git}
    lines = recipe.requirements(versions)
    pinned = {name: f"{name}=={version}" for name, version in had.items()}
    direct = {name: line for name, line in lines.items() if "==" not in line}
    listed = {**(pinned or lines), **direct}
    return "\n".join(
        [
            f"# {title}",
            f"# Python {versions.get(PYTHON, recipe.ends.good.python)}",
            *(
                f"# variable {name}" + ("=" + value if value is not None else " not set")
                for name, value in recipe.variables(versions).items()
                if name in recipe.ends.variables
            ),
            *(f"# {n} is built from {p.spec.path} at {versions[n]}" for n, p in built.items()),
            *sorted(line for name, line in listed.items() if name not in built),
            "",
        ]
    )


def _step(name: str, versions: Sequence[str], kind: str) -> dict[str, Any]:
    return {"package": name, "good": versions[0], "bad": versions[-1], **_NOT_SAID, "kind": kind}


# -- the plan


def plan_of_environments(spec: EnvironmentsSpec, directory: Path) -> dict[str, Any]:
    """What differs as far as the two files say it, and what it would cost. Nothing is installed."""
    asked = Asked.of(spec, directory)
    index = PackageIndex(asked.sources)
    python = asked.good.python or asked.bad.python or this_python()
    good, bad = (
        EnvironmentEnd(
            side.name,
            side.python or python,
            "",
            side.requirements,
            side.versions,
            variables=asked.variables_of(side),
        )
        for side in asked.sides
    )
    ends = EnvironmentEnds(good, bad)
    packages: list[dict[str, Any]] = []
    for name in ends.names:
        versions, kind = (good.version(name), bad.version(name)), ends.kind_of(name)
        steps = 1
        if kind == "package" and ABSENT not in versions:
            steps = len(index.between(name, *versions, python)) - 1
        said = {"package": name, "good": versions[0], "bad": versions[1]}
        packages.append({**said, "kind": kind, "commits": steps})
    if not packages:
        raise UsageError("nothing differs between the two environments")
    most = max(package["commits"] for package in packages)
    expected = math.ceil(math.log2(len(packages))) + 2 + math.ceil(math.log2(most))
    return {"packages": packages, "changes": len(packages), "expected_builds": expected}


def plan_lines_of_environments(plan: Mapping[str, Any]) -> Iterator[str]:
    for package in plan["packages"]:
        between = f", {package['commits'] - 1} releases between" if package["commits"] > 1 else ""
        yield (
            f"{package['kind']:<10} {package['package']} {package['good']} → "
            f"{package['bad']}{between}"
        )
    yield (
        f"probes     {plan['changes']} differ: about {plan['expected_builds']} environments and "
        "as many trials for one culprit, more trials if it is flaky"
    )
