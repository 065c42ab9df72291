"""The public API of bisect: all that may be asked of a bisection, and the functions that
answer it.

What is said here lies on top of a spec file; a run that is gone on with knows what it was asked.
"""

import errno
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta.bisect.findings import Findings
from aorta.bisect.host import bisect_on_host, host_packages
from aorta.bisect.investigation import with_merges
from aorta.bisect.metric import check_samples, is_measured, metric_named
from aorta.bisect.run import ResolvedRequest, kept_request
from aorta.bisect.spec import (
    BisectSpec,
    ContainersSpec,
    EnvironmentsSpec,
    PackageSpec,
    Runtime,
    load_spec,
)
from aorta.core.documents import validated
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.names import slug
from aorta.core.oracle import Oracle
from aorta.engine.events import Listener
from aorta.engine.question import Budget
from aorta.engine.rundir import find_resumable
from aorta.engine.session import Resume
from aorta.executors.choosing import ExecutorChoice
from aorta.runtimes.git import Repository, no_repository_named

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_FILE = "command line"
_FLAGS = ("find_fix", "first_parent", "same_failure", "any_failure", "skip_precondition_checks")
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def _given(options: "DataclassInstance") -> dict[str, Any]:
    named = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: value for name, value in named.items() if value}


@dataclass(frozen=True, kw_only=True)
class ContainerOptions:
    """Keys of `containers:` in a spec; None, or no mount, is what was not said."""

    family: str | None = None
    runtime: Runtime | None = None
    url_template: str | None = None
    start_date: str | None = None
    end_date: str | None = None
    threshold_days: int | None = None
    passing: str | None = None
    failing: str | None = None
    bazel_cache: str | None = None
    shm_size: str | None = None
    mounts: tuple[str, ...] = ()

    def over(self, spec: ContainersSpec | None) -> ContainersSpec | None:
        told = _given(self)
        if told == {"runtime": "host"}:
            return None
        if not told:
            return spec
        before = vars(spec) if spec else {}
        return validated(ContainersSpec, {**before, **told}, file=_FILE)


@dataclass(frozen=True, kw_only=True)
class EnvironmentOptions:
    """Keys of `environments:` in a spec: two ends, and where releases come from. Without a bad end
    it is the environment that `python` belongs to. `repositories`: whose commits to name.
    """

    good: str | None = None
    bad: str | None = None
    index_url: str | None = None
    extra_index_url: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    pre: bool = False
    yanked: bool = False
    repositories: Mapping[str, str] = field(default_factory=dict)  # name -> directory

    def over(self, spec: EnvironmentsSpec | None) -> EnvironmentsSpec | None:
        told = _given(self)
        repositories = told.pop("repositories", None)
        if not (self.good or self.bad or spec):
            if told or repositories:
                raise UsageError("the options of a package index go with --good-env and --bad-env")
            return None
        whole = {**(vars(spec) if spec else {}), **told}
        if "good" not in whole:
            raise UsageError("--bad-env goes with --good-env")
        if "bad" not in whole:
            from aorta.runtimes.pythons import active_environment

            whole["bad"] = active_environment()
        return validated(EnvironmentsSpec, whole, file=_FILE)


@dataclass(frozen=True, kw_only=True)
class BisectRequest:
    """What may have changed, what tells good from bad, the budget; None is what was not said."""

    command: tuple[str, ...] = ()
    spec: Path | None = None
    good: str | None = None  # a revision of the repository here
    bad: str | None = None  # None: HEAD
    find_fix: bool = False
    first_parent: bool = False
    paths: tuple[str, ...] = ()  # only commits that touch these
    skip: tuple[str, ...] = ()  # revisions, or ranges A..B
    environments: EnvironmentOptions = field(default_factory=EnvironmentOptions)
    containers: ContainerOptions = field(default_factory=ContainerOptions)
    passing_versions: Mapping[str, str] = field(default_factory=dict)
    failing_versions: Mapping[str, str] = field(default_factory=dict)
    oracle: Oracle | None = None  # None: any failing exit
    metric_name: str | None = None
    passing_metric: tuple[float, ...] = ()
    failing_metric: tuple[float, ...] = ()
    same_failure: bool = False
    any_failure: bool = False  # between environments too every failing exit is bad
    skip_precondition_checks: bool = False
    confidence: float | None = None
    checks: bool = True  # trials that check the answer itself
    extra_env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None  # of one trial, in seconds
    build_timeout: float | None = None
    max_trials: int | None = None
    max_time: float | None = None  # in seconds
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    output_prefix: Path | None = None  # None: ./bisect-<now>
    resume: Resume | None = None

    @property
    def asks_something(self) -> bool:
        """Without any of these, a run that is gone on with is asked what it was asked before."""
        containers = self.containers
        named = containers.family or containers.passing or containers.failing
        ends = self.good or self.bad or self.environments.good
        return bool(self.command or self.spec or _base_of(self) or ends or named)


@dataclass(frozen=True, kw_only=True)
class ToolboxRequest(BisectRequest):
    """As JAX-Toolbox' tool is asked: by a whole spec that stands in no file. Its summary.json is
    written too.
    """

    base: BisectSpec


def _base_of(request: BisectRequest) -> BisectSpec | None:
    return request.base if isinstance(request, ToolboxRequest) else None


def bisect(
    request: BisectRequest,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _words: None,
) -> Findings:
    """Which change broke it? `listeners` makes fresh ones a search."""
    resolved = _resolved(request, listeners, say)
    with request.executor.opened() as executor:
        return run_bisection(replace(resolved, executor=executor))


def run_bisection(request: ResolvedRequest) -> Findings:
    """Run it to its end. Checkouts, containers and images of the run are removed after it."""
    _check(request.spec)
    bisect_there = bisect_on_host
    if request.spec.containers is not None:
        from aorta.bisect.containers.versions import bisect_in_containers as bisect_there
    elif request.spec.environments is not None:
        from aorta.bisect.environments.search import bisect_environments as bisect_there
    try:
        with no_repository_named():
            return bisect_there(request)
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
            "there is nothing to bisect; give --good and --bad, --good-env and --bad-env, "
            "--container or --spec"
        )
    if spec.environments is not None and spec.containers is not None:
        raise UsageError("give either two environments or containers")
    dated = spec.containers is not None and spec.containers.family is not None
    if is_measured(spec.oracle) and (dated or spec.skip_precondition_checks):
        check_samples(spec.oracle)


def plan(request: BisectRequest) -> dict[str, Any]:
    """What would be tried; nothing is run or written."""
    resolved = _resolved(request)
    spec, directory = resolved.spec, resolved.directory
    plan: dict[str, Any] = {"command": list(spec.command), "packages": [], "containers": None}
    if spec.containers is not None:
        from aorta.bisect.containers.versions import plan_of_containers

        plan["containers"] = plan_of_containers(spec)
        plan["expected_builds"] = None
        return plan
    if spec.environments is not None:
        from aorta.bisect.environments.answer import plan_of_environments

        return {**plan, **plan_of_environments(spec.environments, directory)}
    packages = with_merges(host_packages(spec, directory))
    plan["packages"] = [
        {"package": p.name, "good": p.versions[0], "bad": p.versions[-1], "commits": p.candidates}
        for p in packages
    ]
    plan["changes"] = changes = sum(package.candidates for package in packages)
    plan["expected_builds"] = math.ceil(math.log2(changes)) + 2 if changes else 0
    return plan


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    yield f"command    {shlex.join(plan['command'])}"
    if any("kind" in package for package in plan["packages"]):
        from aorta.bisect.environments.answer import plan_lines_of_environments

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


# -- from what was asked to a run


def _resolved(
    request: BisectRequest,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _words: None,
) -> ResolvedRequest:
    prefix = _prefix(request, say)
    if request.resume is not None and not request.asks_something:
        asked = kept_request(prefix)
    else:
        # Paths in a spec are relative to the spec.
        directory = request.spec.resolve().parent if request.spec else Path.cwd()
        asked = {"spec": _spec(request), "directory": directory, "checks": request.checks}
    return ResolvedRequest(
        **asked,
        prefix=prefix,
        executor=request.executor.open,
        listeners=listeners,
        say=say,
        resume=request.resume,
        is_named=request.output_prefix is not None,
        budget=Budget(request.max_trials, request.max_time),
        summary=isinstance(request, ToolboxRequest),
    )


def _prefix(request: BisectRequest, say: Callable[[str], None]) -> Path:
    prefix = request.output_prefix
    if request.resume is None:
        stamp = datetime.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S")
        return (prefix or Path(f"bisect-{stamp}")).absolute()
    found = request.resume.run or prefix
    if found is None:
        found = find_resumable(Path.cwd(), "bisect").path
        say(f"going on with {found}")
    return found.absolute()


def _spec(request: BisectRequest) -> BisectSpec:
    """The spec file, with what the request says on top of it."""
    spec = _base_of(request) or (load_spec(request.spec) if request.spec else BisectSpec())
    oracle: object = request.oracle
    if request.metric_name:
        oracle = metric_named(request.metric_name, request.passing_metric, request.failing_metric)
    told = {
        **{name: getattr(request, name) or None for name in ("command", *_FLAGS)},
        **{name: getattr(request, name) for name in ("confidence", "timeout", "build_timeout")},
        "oracle": oracle,
        "packages": _packages(spec, request) or None,
        "containers": request.containers.over(spec.containers),
        "environments": request.environments.over(spec.environments),
    }
    if told["environments"] is not None and (request.good or request.bad):
        raise UsageError("give either --good and --bad or --good-env and --bad-env")
    content = {name: value for name, value in vars(spec).items() if name != "env"}
    content |= {name: value for name, value in told.items() if value is not None}
    content["env"] = {**spec.env, **request.extra_env}
    return validated(BisectSpec, content, file=_FILE)


def _packages(spec: BisectSpec, request: BisectRequest) -> tuple[PackageSpec, ...]:
    repositories = [
        validated(PackageSpec, {"name": name, "path": path}, file=_FILE)
        for name, path in request.environments.repositories.items()
    ]
    packages = [*spec.packages, *repositories]
    if request.good or request.bad:
        if packages or not request.good:
            raise UsageError("--good and --bad go together, for one repository and without a spec")
        name = slug(Path(Repository.on_host(Path.cwd()).where).name).lstrip(".-")
        packages = [
            PackageSpec(
                name=name or "repository",
                path=".",
                good=request.good,
                bad=request.bad or "HEAD",
                paths=request.paths,
                skip=request.skip,
            )
        ]
    elif request.paths or request.skip:
        raise UsageError("--path and --skip go with --good; in a spec they are keys of a package")
    sides = {"good": request.passing_versions, "bad": request.failing_versions}
    for side, versions in sides.items():
        known = {package.name for package in packages}
        for name in versions.keys() - known:
            packages.append(PackageSpec(name=name, path=f"/opt/{name}"))
        packages = [
            package.model_copy(update={side: versions.get(package.name, getattr(package, side))})
            for package in packages
        ]
    return tuple(packages)
