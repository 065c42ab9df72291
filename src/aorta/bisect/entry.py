"""The verb as a library: a request in, findings and a directory of artifacts out."""

import errno
import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from aorta.bisect.findings import Findings
from aorta.bisect.host import bisect_on_host, host_packages
from aorta.bisect.metric import check_samples, is_measured
from aorta.bisect.package import moving
from aorta.bisect.run import Request
from aorta.bisect.spec import BisectSpec
from aorta.core.errors import InfrastructureError, UsageError
from aorta.runtimes.git import no_repository_named
from aorta.search.timeline import Timeline

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def bisect(request: Request) -> Findings:
    """Run it to its end. Checkouts, containers and images of the run are gone afterwards, however it ended."""
    _check(request.spec)
    with no_repository_named():
        return _bisect(request)


def _bisect(request: Request) -> Findings:
    try:
        if request.spec.containers is not None:
            from aorta.bisect.containers.versions import bisect_in_containers

            return bisect_in_containers(request)
        if request.spec.environments is not None:
            from aorta.bisect.environments.search import bisect_environments

            return bisect_environments(request)
        return bisect_on_host(request)
    except OSError as wrong:
        if wrong.errno not in _DISK:
            raise
        place = str(wrong.filename or request.prefix)
        raise InfrastructureError(f"{wrong.strerror}; mend that and resume", where=place) from None


def _check(spec: BisectSpec) -> None:
    if not spec.command:
        raise UsageError("there is no command to test with; write it after --")
    if not spec.packages and spec.containers is None and spec.environments is None:
        raise UsageError(
            "there is nothing to bisect; give --good and --bad, --good-env and --bad-env, --container or --spec"
        )
    if spec.environments is not None and spec.containers is not None:
        raise UsageError("give either two environments or containers")
    dated = spec.containers is not None and spec.containers.family is not None
    if is_measured(spec.oracle) and (dated or spec.skip_precondition_checks):
        check_samples(spec.oracle)


def plan_of(request: Request) -> dict[str, Any]:
    spec = request.spec
    plan: dict[str, Any] = {"command": list(spec.command), "packages": [], "containers": None}
    if spec.containers is not None:
        from aorta.bisect.containers.versions import plan_of_containers

        plan["containers"] = plan_of_containers(spec)
        plan["expected_builds"] = None
        return plan
    if spec.environments is not None:
        from aorta.bisect.environments.ends import plan_of_environments

        return {**plan, **plan_of_environments(spec.environments, request.directory)}
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
    if any("kind" in package for package in plan["packages"]):
        from aorta.bisect.environments.ends import plan_lines_of_environments

        yield from plan_lines_of_environments(plan)
        yield "nothing was run"
        return
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
