"""`solve`: the stages one after the other, and what each may spend of a budget."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aorta.core.errors import AortaError, Exit, Terminated
from aorta.engine.events import Listener
from aorta.engine.rundir import RunDir, RunLock, claim_run_dir, find_resumable
from aorta.engine.session import Resume, begun_with, keep_request
from aorta.reduce.launcher import python_of
from aorta.solve.request import WANTED, SolveRequest
from aorta.solve.solution import Solution, write_summary
from aorta.solve.stages.bisect import Bisect, good_end
from aorta.solve.stages.bundle import Bundle
from aorta.solve.stages.diverge import Diverge
from aorta.solve.stages.isolate import Isolate
from aorta.solve.stages.reduce import Reduce, Source
from aorta.solve.stages.reproduce import Reproduce
from aorta.solve.stages.triage import Triage
from aorta.solve.state import Stage, StageResult, State, Stopped
from aorta.solve.subject import environment_of, subject_of
from aorta.workloads.startable import check_startable

_SHARE = {
    "isolate": 0.3,
    "reduce": 0.45,
    "triage": 0.2,
    "bisect": 0.25,
    "diverge": 0.1,
    "source": 0.3,
}
"""Of the time that is left, among the stages that have something to do. A reduction can say
something after each point: what the others leave is spent on it.
"""


def _give_share(stage: Stage, state: State) -> None:
    """What a stage may spend: its share of the time left, among stages with something to do."""
    left = state.seconds_left("plan")
    if left is None or stage.name not in _SHARE:
        return
    waiting = [
        name
        for name, other in _EVERY.items()
        if name in _SHARE and name in {stage.name, *state.request.stages}
        if name not in state.results and not other.why_not(state)
    ]
    share = left * _SHARE[stage.name] / sum(_SHARE[name] for name in waiting)
    state.allowed = {stage.name: share}


VERB = "solve"
_ORDER = (Reproduce(), Isolate(), Reduce(), Triage(), Bisect(), Diverge(), Source(), Bundle())
_EVERY: Mapping[str, Stage] = {stage.name: stage for stage in _ORDER}
"""In the order in which they run: what a broken node did is not worth reducing."""


def solve(
    request: SolveRequest,
    listeners: Callable[[str], Sequence[Listener]] = lambda _stage: (),
    say: Callable[[str], None] = lambda _text: None,
    written: Callable[[Path], None] = lambda _run_dir: None,
) -> Solution:
    """From a failing command to all that can be found out about it within the budget, in a new
    directory below the output, or in that of a solve that was stopped. `listeners` of a stage, by
    its name; `written` is called whenever the summary was written anew.

    Raises `UsageError` of a request that cannot be solved, before anything runs.
    """
    if request.source is not None and RunDir(request.source).about().get("verb") == VERB:
        request = replace(request, resume=Resume(request.source))
    if request.resume is None:
        run, begun = _begun(request)
    else:
        given = request.resume.run
        named = given.absolute() if given is not None else None
        run = find_resumable(request.output.absolute(), VERB, named)
        # The original request, with where trials run now and what may be spent from now on.
        begun = begun_with(run, SolveRequest)
        most = request.max_trials or begun.max_trials
        begun = replace(begun, executor=request.executor, max_trials=most)
    lock = RunLock(run.lock).take()
    try:
        if request.resume is None:
            keep_request(run, begun)  # where it can be read, the run is under way
        state = State(run, begun, listeners, say, subject_of(begun).reduction)
        if request.resume is not None:
            state.go_on(request.budget)
        return _solved(state, lambda: written(run.path))
    finally:
        lock.release()


def _begun(request: SolveRequest) -> tuple[RunDir, SolveRequest]:
    request = request.checked()
    good_end(request)  # one that is nowhere is said before anything runs
    subject = subject_of(request)
    if request.executor.name == "local" and not environment_of(request).isolated:
        check_startable(subject.command, subject.cwd)
    return claim_run_dir(request.output, VERB, ticket=request.ticket), request


def dry_run(request: SolveRequest) -> list[dict[str, str | None]]:
    """The stages that would run, what is in the way of each, and what must be found out first."""
    request = request.checked()
    good_end(request)  # one that is nowhere is said before anything runs
    return [
        {
            "name": name,
            "left_out": stage.why_never(request) or None,
            "only_if": stage.only_if or None,
        }
        for name, stage in _EVERY.items()
        if name in request.stages and (name != "isolate" or request.on_several_nodes)
    ]


def _solved(state: State, written: Callable[[], None]) -> Solution:
    state.best_so_far = lambda: _write(Solution(state, is_under_way=True), written)
    try:
        code = _stages(state)
        if code is not None:
            _ship_so_far(state)
    finally:
        state.close()
    solution = Solution(state, code)
    _write(solution, written)
    word = {Exit.INTERRUPTED: "interrupted", Exit.TERMINATED: "terminated"}
    ended = "done" if code is None else word.get(code, "stopped")
    state.run.describe(state=ended, status=solution.status)
    return solution


def _write(solution: Solution, written: Callable[[], None]) -> None:
    write_summary(solution)
    written()


def _stages(state: State) -> Exit | None:
    """Every stage not yet recorded. The exit code of a stop; None at its end."""
    try:
        for name in _EVERY:
            if _is_over(state):
                break
            if name in state.results:
                continue
            wanted = name in {"reproduce", *state.request.stages} or _is_last_resort(name, state)
            if not wanted:
                if name in WANTED:
                    state.add(StageResult(name, "skipped", "left out by --stages or --skip"))
                continue
            if name == "bundle":
                _reduce_with_the_rest(state)
            state.add(_one(_EVERY[name], state))
            state.best_so_far()
    except Stopped as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Terminated:
        return Exit.TERMINATED
    return None


def _is_last_resort(name: str, state: State) -> bool:
    """Whether the program itself is all that can be made smaller: without it nothing would ship."""
    request = state.request
    if name != "source" or request.stages != WANTED or state.known("reduce"):
        return False
    return python_of(subject_of(request).words) is not None


def _reduce_with_the_rest(state: State) -> None:
    """The other stages may have left some of the budget that ended the reduction."""
    stopped = state.results.get("reduce")
    state.allowed.clear()
    left = state.seconds_left("reduce")
    if stopped is None or stopped.status != "budget" or left is None:
        return
    if left < 1 + state.seconds_of_one:
        return
    del state.results["reduce"]  # while it goes on, its directory says what is known
    state.add(_one(_EVERY["reduce"], state))


def _ship_so_far(state: State) -> None:
    """The best so far of a stopped run, packed untried. Resuming packs it again."""
    if state.known("reduce") and "bundle" in state.request.stages:
        with suppress(AortaError, KeyboardInterrupt, Terminated):  # asked twice, it goes at once
            state.results["bundle"] = Bundle(check=False)(state)


def _one(stage: Stage, state: State) -> StageResult:
    broken = state.known("isolate").get("broken")
    why = f"it is the hardware: {broken}" if broken and stage.name != "bundle" else ""
    if why := why or stage.why_not(state):
        return StageResult(stage.name, "skipped", why)
    searches = stage.name not in {"reproduce", "bundle"}
    if searches and state.is_spent:
        return StageResult(stage.name, "budget", state.is_spent)
    _give_share(stage, state)
    state.say(f"{stage.name} ...")
    before = sum(result.seconds for result in state.results.values())
    try:
        result = stage(state)
    except AortaError as wrong:
        if stage.name == "reproduce":
            raise
        result = StageResult(stage.name, "failed", str(wrong))
    if result.status in {"failed", "budget"} and state.is_spent:
        said = result.why if result.status == "budget" else ""  # where it stood, perhaps
        result = replace(result, status="budget", why=said or state.is_spent)
    counts = state.shared.counts  # `triage`, and `triage-original`
    spent = sum(n for name, n in counts.items() if name.partition("-")[0] == stage.name)
    seconds = max(0.0, state.shared.elapsed - before)
    return replace(result, trials=result.trials + spent, seconds=seconds)


def _is_over(state: State) -> bool:
    """Whether nothing is left worth a trial: it does not fail, or its user can mend it at once."""
    first = state.results.get("reproduce")
    return first is not None and (first.status != "done" or bool(first.answer.get("mistake")))
