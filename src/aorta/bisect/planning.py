"""`--dry-run`: what would be looked at, and about how many probes it would take."""

import math
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aorta.bisect.host import host_packages
from aorta.bisect.package import moving
from aorta.search.timeline import Timeline

if TYPE_CHECKING:
    from aorta.bisect.verb import Request


def plan_of(request: "Request") -> dict[str, Any]:
    spec = request.spec
    plan: dict[str, Any] = {"command": list(spec.command), "packages": [], "containers": None}
    if spec.containers is not None:
        from aorta.bisect.containers import plan_of_containers

        plan["containers"] = plan_of_containers(spec)
        plan["expected_builds"] = None
        return plan
    packages = host_packages(
        spec.packages,
        request.directory,
        find_fix=spec.find_fix,
        first_parent=spec.first_parent,
    )
    timeline = Timeline([package.history for package in moving(packages)])
    plan["packages"] = [
        {
            "package": package.name,
            "good": package.versions[0],
            "bad": package.versions[-1],
            "commits": package.span.size if package.span else len(package.versions) - 1,
        }
        for package in packages
    ]
    plan["changes"] = changes = timeline.weight_before[-1]
    plan["expected_builds"] = math.ceil(math.log2(changes)) + 2 if changes else 0
    return plan


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    yield f"command    {shlex.join(plan['command'])}"
    for package in plan["packages"]:
        yield (
            f"package    {package['package']}: {package['commits']} changes, "
            f"{package['good'][:12]} .. {package['bad'][:12]}"
        )
    if plan["containers"]:
        yield from plan["containers"]["lines"]
    if plan.get("changes"):
        yield (
            f"probes     {plan['changes']} changes in one timeline: at most "
            f"{plan['expected_builds']} builds, more trials of them if it is flaky"
        )
    yield "nothing was run"
