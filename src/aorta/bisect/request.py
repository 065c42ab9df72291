"""The public API of bisect. A request overrides a spec file; a resumed run keeps its request."""

import errno
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from aorta.bisect.findings import Findings
from aorta.bisect.host import bisect_on_host, host_packages
from aorta.bisect.investigation import most_states, with_merges
from aorta.bisect.metric import check_samples, is_measured, metric_named
from aorta.bisect.run import KeptQuestion, ResolvedRequest
from aorta.bisect.spec import BisectSpec, ContainersSpec, EnvironmentsSpec, PackageSpec
from aorta.core.documents import validated
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.names import slug
from aorta.core.oracle import Oracle
from aorta.engine.events import Listener
from aorta.engine.question import Budget
from aorta.engine.rundir import RunDir, find_resumable
from aorta.engine.session import Resume, begun_with
from aorta.executors.choosing import ExecutorChoice
from aorta.registry.documents import load_document
from aorta.runtimes.git import Repository, no_repository_named
from aorta.runtimes.venvs import active_environment

_FILE = "command line"
_FLAGS = ("find_fix", "first_parent", "same_failure", "any_failure", "skip_precondition_checks")
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


@dataclass(frozen=True, kw_only=True)
class BisectRequest:
    """What may have changed, what tells good from bad, the budget; None is what was not said."""

    command: tuple[str, ...] = ()
    spec: Path | BisectSpec | None = None  # a file, or what stands in one
    good: str | None = None  # a revision of the repository here
    bad: str | None = None  # None: HEAD
    find_fix: bool = False
    first_parent: bool = False
    # Keys of `environments:` and `containers:` in a spec, over those that it has.
    environments: Mapping[str, Any] = field(default_factory=dict)
    containers: Mapping[str, Any] = field(default_factory=dict)
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
    summary: bool = False  # summary.json of JAX-Toolbox' tool is written too


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
    if spec.environments is not None and (spec.containers or spec.packages):
        raise UsageError("give either two environments or containers and packages")
    dated = spec.containers is not None and spec.containers.family is not None
    if is_measured(spec.oracle) and (dated or spec.skip_precondition_checks):
        check_samples(spec.oracle)


def plan(request: BisectRequest) -> dict[str, Any]:
    """What would be tried, with `lines` for people; nothing is run or written."""
    resolved = _resolved(request)
    spec, directory = resolved.spec, resolved.directory
    found: dict[str, Any] = {"command": list(spec.command)}
    if spec.containers is not None:
        from aorta.bisect.containers.versions import plan_of_containers

        days, lines = plan_of_containers(spec)
        found["containers"] = {"days": days}
    elif spec.environments is not None:
        from aorta.bisect.environments.given import GivenEnvironments

        given = GivenEnvironments.of(spec.environments, directory).both
        found["environments"] = [{"name": o.name, "lines": o.requirements} for o in given]
        lines = [f"environment {o.name}: {len(o.requirements)} requirements" for o in given]
    else:
        packages = with_merges(host_packages(spec, directory))
        found["packages"] = [{"package": p.name, "commits": p.candidates} for p in packages]
        found["expected_builds"] = most = most_states(packages, checks=resolved.checks)
        lines = [f"package    {p.name}: {p.candidates} changes" for p in packages]
        lines.append(
            f"probes     at most {most} states, checks included, for one change that always fails; "
            "some are tried again"
        )
    return {**found, "lines": [f"command    {shlex.join(spec.command)}", *lines]}


# -- from what was asked to a run


def _resolved(
    request: BisectRequest,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _words: None,
) -> ResolvedRequest:
    prefix = _prefix(request, say)
    # Without any of these, a run that is gone on with is asked what it was asked before.
    named = {"family", "passing", "failing"} & request.containers.keys()
    ends = request.good or request.bad or request.environments.get("good")
    asks_something = request.command or request.spec or ends or named
    if request.resume is not None and not asks_something:
        question = begun_with(RunDir(prefix), KeptQuestion)
    else:
        # Paths in a spec are relative to the spec.
        file = request.spec if isinstance(request.spec, Path) else None
        directory = file.resolve().parent if file else Path.cwd()
        question = KeptQuestion(_spec(request), directory, request.checks)
    return ResolvedRequest(
        spec=question.spec,
        directory=question.directory,
        checks=question.checks,
        prefix=prefix,
        executor=request.executor.open,
        listeners=listeners,
        say=say,
        resume=request.resume,
        budget=Budget(request.max_trials, request.max_time),
        summary=request.summary,
    )


def _prefix(request: BisectRequest, say: Callable[[str], None]) -> Path:
    prefix = request.output_prefix
    if request.resume is None:
        stamp = datetime.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S")
        unnamed = (
            Path(f"bisect-{stamp}{more}") for more in ("", *(f"-{n}" for n in range(2, 100)))
        )
        return (prefix or next(path for path in unnamed if not path.exists())).absolute()
    found = request.resume.run or prefix
    if found is None:
        found = find_resumable(Path.cwd(), "bisect").path
        say(f"going on with {found}")
    return found.absolute()


def _spec(request: BisectRequest) -> BisectSpec:
    """The spec file, with what the request says on top of it."""
    spec = request.spec or BisectSpec()
    if isinstance(spec, Path):
        content = load_document(spec)
        if isinstance(content, dict) and content.get("packages") == []:
            raise UsageError(
                "it is an empty list; name one, or leave it out", where=f"{spec}: packages"
            )
        spec = validated(BisectSpec, content, file=str(spec))
    oracle: object = request.oracle
    if request.metric_name:
        oracle = metric_named(request.metric_name, request.passing_metric, request.failing_metric)
    overrides = {
        **{name: getattr(request, name) or None for name in ("command", *_FLAGS)},
        **{name: getattr(request, name) for name in ("confidence", "timeout", "build_timeout")},
        "oracle": oracle,
        "packages": _packages(spec, request) or None,
        "containers": _containers(request.containers, spec.containers),
        "environments": _environments(request.environments, spec.environments),
    }
    if overrides["environments"] is not None and (request.good or request.bad):
        raise UsageError("give either --good and --bad or --good-env and --bad-env")
    merged = {name: value for name, value in vars(spec).items() if name != "env"}
    merged |= {name: value for name, value in overrides.items() if value is not None}
    merged["env"] = {**spec.env, **request.extra_env}
    return validated(BisectSpec, merged, file=_FILE)


def _containers(given: Mapping[str, Any], spec: ContainersSpec | None) -> ContainersSpec | None:
    if not given or given == {"runtime": "host"}:
        return None if given else spec
    return validated(ContainersSpec, {**(vars(spec) if spec else {}), **given}, file=_FILE)


def _environments(
    given: Mapping[str, Any], spec: EnvironmentsSpec | None
) -> EnvironmentsSpec | None:
    """Without a bad end it is the environment that `python` belongs to."""
    whole = {**(vars(spec) if spec else {}), **given}
    if not whole:
        return None
    if not whole.get("good"):
        needs = "--bad-env goes" if whole.get("bad") else "the options of a package index go"
        raise UsageError(f"{needs} with --good-env")
    return validated(
        EnvironmentsSpec, {**whole, "bad": whole.get("bad") or active_environment()}, file=_FILE
    )


def _packages(spec: BisectSpec, request: BisectRequest) -> tuple[PackageSpec, ...]:
    packages = [*spec.packages]
    if request.good or request.bad:
        if packages or not request.good:
            raise UsageError("--good and --bad go together, for one repository and without a spec")
        name = slug(Path(Repository.on_host(Path.cwd()).where).name).lstrip(".-")
        packages = [
            PackageSpec(
                name=name or "repository", path=".", good=request.good, bad=request.bad or "HEAD"
            )
        ]
    given = {"good": request.passing_versions, "bad": request.failing_versions}
    for side, versions in given.items():
        known = {package.name for package in packages}
        for name in versions.keys() - known:
            packages.append(PackageSpec(name=name, path=f"/opt/{name}"))
        packages = [
            package.model_copy(update={side: versions.get(package.name, getattr(package, side))})
            for package in packages
        ]
    return tuple(packages)
