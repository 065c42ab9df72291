"""The way in through containers: the two days between which it broke, then the versions inside them."""

import math
from collections.abc import Sequence
from typing import Any

from aorta.bisect.days import between_days, family_in
from aorta.bisect.findings import Findings, counted_records
from aorta.bisect.hidden import Sides
from aorta.bisect.place import environment_of
from aorta.bisect.presets import JAX_PACKAGES
from aorta.bisect.spec import BisectSpec, PackageSpec
from aorta.bisect.verb import Request, Run
from aorta.bisect.within import Between
from aorta.core.errors import InfrastructureError, Terminated
from aorta.runtimes import sweep


def bisect_in_containers(request: Request) -> Findings:
    containers = request.spec.containers
    assert containers is not None
    family = family_in(containers) if containers.family else None
    environment = environment_of(containers)
    with Run(request) as run:
        sweep(environments=(environment,))
        if family is None:
            sides: Sides | Findings = Sides(containers.passing, containers.failing)
        else:
            sides = between_days(run, environment, containers, family)
        if isinstance(sides, Findings):
            return run.write(sides, {})
        between = Between(run, environment, sides, package_specs(request.spec))
        try:
            findings, shown = between.search()
        except (KeyboardInterrupt, Terminated, InfrastructureError):
            run.write(_known_so_far(run, sides), {})
            raise
        return run.write(findings, shown)


def _known_so_far(run: Run, sides: Sides) -> Findings:
    """Stopped outside any search: the containers are known, the versions in them are not."""
    return Findings(
        status="partial",
        containers={"last_good": sides.passing, "first_bad": sides.failing},
        counted=counted_records(list(run.stages.answers.values()), sides.cached),
        warnings=["stopped before the versions inside the two containers were searched"],
    )


def plan_of_containers(spec: BisectSpec) -> dict[str, Any]:
    containers = spec.containers
    assert containers is not None
    lines: list[str] = []
    days: list[str] = []
    if containers.family:
        family = family_in(containers)
        days = family.days
        lines.append(f"containers {len(days)} of {containers.family}: {days[0]} .. {days[-1]}")
        lines.append(f"           {family.images[days[-1]]} first, then back in growing steps")
    else:
        lines.append(f"containers passing {containers.passing}, failing {containers.failing}")
    lines += [f"package    {p.name} at {p.path or p.env}" for p in package_specs(spec)]
    if len(days) > 1:
        most = 2 * math.ceil(math.log2(len(days))) + 1
        lines.append(f"probes     at most {most} containers, then the versions between two of them")
    return {"days": days, "lines": lines}


def package_specs(spec: BisectSpec) -> Sequence[PackageSpec]:
    """Those of the spec, or the preset: with ends given for its packages on the command line."""
    containers = spec.containers
    preset = containers is not None and not (containers.url_template or containers.passing)
    if spec.packages and not (preset and all(p.path == f"/opt/{p.name}" for p in spec.packages)):
        return spec.packages
    given = {package.name: package for package in spec.packages}
    return [
        package.model_copy(
            update={"good": given[package.name].good, "bad": given[package.name].bad}
        )
        if package.name in given
        else package
        for package in JAX_PACKAGES
    ]
