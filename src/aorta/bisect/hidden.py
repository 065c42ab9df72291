"""What no listed version explains: the difference of the two environments themselves."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.bisect.findings import Findings
from aorta.bisect.inside import Inside
from aorta.bisect.verb import Run
from aorta.core.trial import Environment
from aorta.engine.snapshots import is_captured, snapshot_of
from aorta.probe.difference import differences
from aorta.scrub.secrets import safe_value


@dataclass(frozen=True)
class Sides:
    """The containers on both sides of the break; one may be unknown where versions are given instead."""

    passing: str | None
    failing: str | None
    confidence: float | None = None
    names: tuple[str, str] | None = None
    cached: int = 0  # outcomes of other runs that were used to find them


def with_hidden_variable(
    run: Run, findings: Findings, environment: Environment, sides: Sides, root: Path
) -> Findings:
    if not sides.passing or not sides.failing:
        return findings
    found = differences_of(run, environment, sides, root)
    words = (
        "a hidden variable: no listed version explains the difference of the two containers; "
        f"their environments differ in {len(found)} places"
    )
    return replace(findings, differences=found, warnings=(*findings.warnings, words), culprits=())


def differences_of(
    run: Run, environment: Environment, sides: Sides, root: Path
) -> list[dict[str, Any]]:
    """As `aorta env probe --diff` of snapshots inside both; without a Python in there, of their variables."""
    snapshots: dict[str, dict[str, Any]] = {}
    for side, image in (("good", sides.passing), ("bad", sides.failing)):
        place = replace(environment, image=image)
        scratch = root / f"snapshot-{side}"
        scratch.mkdir(parents=True, exist_ok=True)
        executor = run.request.executor()
        try:
            taken = snapshot_of(place, {}, executor, scratch, scratch)
        finally:
            executor.close()
        snapshots[side] = taken if is_captured(taken) else _variables_in(Inside(place, scratch))
    return [
        {"field": difference.path, "good": difference.before, "bad": difference.after}
        for difference in differences(snapshots["good"], snapshots["bad"])
    ]


def _variables_in(inside: Inside) -> dict[str, Any]:
    lines = inside.run("env").stdout.splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: safe_value(name, value) for name, _, value in pairs if "AORTA_" not in name}
