"""The public API of reduce: its request and the function that answers it."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.core.errors import ResumeError, UsageError
from aorta.engine.events import Listener
from aorta.engine.rundir import find_resumable
from aorta.engine.session import Resume, Session, keep_request, kept_request
from aorta.executors.choosing import ExecutorChoice
from aorta.reduce.plan import Overrides, ReducePlan, make_plan
from aorta.reduce.report import ReduceReport
from aorta.reduce.running import ReductionRun, reduce_workload
from aorta.reduce.source.running import check_source
from aorta.reduce.spec import SpecFile, load_spec, read_spec, with_source
from aorta.workloads.base import COMMAND
from aorta.workloads.trial import check_command

VERB = "reduce"
_DEFAULT_OUTPUT = Path(VERB)


@dataclass(frozen=True, kw_only=True)
class ReduceRequest(Overrides):
    """A spec, or a workload that declares its axes; a resumed run needs neither."""

    spec: Path | None = None
    workload: str | None = None
    command: tuple[str, ...] = ()  # instead of either: a command whose source is reduced
    source: bool = False  # also the program itself
    fixed_by: Path | None = None  # a patch with which the program is known to end well
    output: Path | None = None  # where the run directory is made; None: ./reduce
    run_dir: Path | None = None  # exactly there, and not in a new one below output
    executor: ExecutorChoice = field(default_factory=ExecutorChoice)
    resume: Resume | None = None
    dry_run: bool = False  # search, and leave nothing on disk


def reduce(
    request: ReduceRequest,
    listeners: Callable[[], Sequence[Listener]] = tuple,
    say: Callable[[str], None] = lambda _words: None,
    written: Callable[[], None] = lambda: None,
) -> ReduceReport:
    """Shrink it while it fails the same way. `say` is told which run is resumed; `written` is
    called whenever something smaller that fails was written.
    """
    if request.resume is not None:
        request = _taken_up(request, request.resume, say)
    plan = make_plan(_spec(request), replace(request, ticket=_ticket(request)))
    check_command(plan.base, request.executor.name)
    if plan.has_source:
        check_source(plan)
    if plan.spec.content.warm:
        request = replace(request, executor=replace(request.executor, warm=True))
    with ExitStack() as stack:
        executor = stack.enter_context(request.executor.opened())
        if request.dry_run:
            scratch = tempfile.TemporaryDirectory(prefix="aorta-reduce-")
            place = Path(stack.enter_context(scratch))
            session = stack.enter_context(Session.fresh(place, VERB))
            report = ReductionRun(plan, session, executor, listeners()).search()
            return replace(report, is_kept=False)
        session = stack.enter_context(_session(plan, request))
        return reduce_workload(plan, session, executor, listeners(), written)


def _session(plan: ReducePlan, request: ReduceRequest) -> Session:
    """In its run directory, which says what a later resume needs."""
    output = request.run_dir.parent if request.run_dir else _output(request)
    if request.resume is not None:
        return Session.resuming(output, VERB, request.resume)
    file = Path(plan.spec.file)  # of a workload that declares its axes there is none
    session = Session.fresh(
        output,
        VERB,
        name=request.run_dir.name if request.run_dir else None,
        private_beside=True,
        ticket=plan.ticket,
        scrub=plan.scrub,
        spec=str(file.absolute()) if file.is_file() else plan.spec.file,
    )
    kept = replace(
        request,
        layers=request.layers.absolute(),
        spec=request.spec and request.spec.absolute(),
        fixed_by=request.fixed_by and request.fixed_by.absolute(),
    )
    keep_request(session.run, kept)
    return session


def _taken_up(request: ReduceRequest, resume: Resume, say: Callable[[str], None]) -> ReduceRequest:
    """The request of the resumed run, overridden by this one."""
    if request.dry_run:
        raise UsageError("--dry-run leaves nothing to resume; give one of them")
    run = find_resumable(_output(request), VERB, resume.run)
    if resume.run is None:
        say(f"resuming {run.path}")
    begun = request
    try:
        begun = kept_request(run, request)
    except ResumeError:  # killed before that was written
        if request.spec is None and request.workload is None and not request.command:
            raise
    return replace(begun, resume=replace(resume, run=run.path))


def _output(request: ReduceRequest) -> Path:
    return request.output or _DEFAULT_OUTPUT


def _spec(request: ReduceRequest) -> SpecFile:
    """The spec that is meant, with the program itself as one more axis under `--source`."""
    if not request.source:
        if request.fixed_by is not None:
            raise UsageError("--fixed-by is for --source")
        if request.command:
            raise UsageError("a command behind -- needs --source; else write a spec for it")
        return _given_spec(request)
    if not request.command:
        given = _given_spec(request)
        if given.content.workload.command is None:
            raise UsageError("--source is for a command; a registered workload keeps its code")
        document = with_source(given.document, request.fixed_by)
        return read_spec(document, file=given.file, base=given.base)
    if request.spec is not None or request.workload is not None:
        raise UsageError("give either a command behind --, or --spec FILE, and not both")
    document = with_source({"workload": {"command": list(request.command)}}, request.fixed_by)
    return read_spec(document, file="command line", base=Path.cwd())


def _given_spec(request: ReduceRequest) -> SpecFile:
    if (request.spec is None) == (request.workload is None):
        raise UsageError("give either --spec FILE or --workload NAME")
    if request.spec is not None:
        return load_spec(request.spec)
    if request.workload == COMMAND:
        raise UsageError("a command declares no axes; write a spec: aorta reduce init -- COMMAND")
    document = {"workload": {"name": request.workload}}
    return read_spec(document, file=f"workload {request.workload}", base=Path.cwd())


def _ticket(request: ReduceRequest) -> str | None:
    """Of `--output reduce/MY-TICKET` the last part."""
    if request.ticket is not None or request.run_dir is not None:
        return request.ticket
    output = request.output
    if request.resume is not None and request.resume.run is not None:
        output = request.resume.run.absolute().parent
    return output.name or None if output else None
