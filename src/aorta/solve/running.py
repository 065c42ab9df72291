"""`solve`: the stages one after the other, and what each may spend of a budget."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from aorta.core.errors import AnotherQuestionError, AortaError, Terminated
from aorta.engine.events import Listener, Reason
from aorta.engine.rundir import RunDir, RunLock, claim_run_dir
from aorta.engine.session import Resume, begun_with, keep_request, taken_up
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
from aorta.solve.state import Stage, StageResult, State, Status, Stopped
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
        if not state.is_over(name) and not other.why_not(state)
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
    request = taken_up(request, request.output.absolute(), VERB, is_whole=True, say=say)
    if request.resume is None or request.resume.run is None:
        run, begun = _begun(request)
    else:
        run = RunDir(request.resume.run.absolute())
        # The original request, with where trials run now.
        begun = replace(begun_with(run, SolveRequest), executor=request.executor)
    lock = RunLock(run.lock).take()
    try:
        if request.resume is None:
            keep_request(run, begun)  # where it can be read, the run is under way
        state = State(run, begun, listeners, say, subject_of(begun).reduction)
        if request.resume is not None:
            state.go_on(request.budget, request.max_trials)
        return _solved(state, lambda: written(run.path))
    finally:
        lock.release()
        written(run.path)  # nothing runs there any more


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
    def write_so_far() -> None:
        write_summary(Solution(state, Reason.RUNNING))
        written()

    state.best_so_far = write_so_far
    try:
        ended = _stages(state)
        if ended is not Reason.DONE:
            _ship_so_far(state)
    finally:
        state.close()
    if ended is Reason.DONE and state.is_cut_short:
        ended = Reason.BUDGET
    solution = Solution(state, ended)
    write_summary(solution)
    state.run.ends(ended, status=solution.status)
    return solution


def _stages(state: State) -> Reason:
    """Every stage that is not over. Why it ended: done, or somebody stopped it."""
    try:
        for name in _EVERY:
            if _is_over(state):
                break
            if state.is_over(name):
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
        return stopped.reason
    except KeyboardInterrupt:
        return Reason.INTERRUPTED
    except Terminated:
        return Reason.TERMINATED
    return Reason.DONE


def _is_last_resort(name: str, state: State) -> bool:
    """Whether the program itself is all that can be made smaller: without it nothing would ship."""
    request = state.request
    if name != "source" or request.stages != WANTED or state.known("reduce"):
        return False
    if state.results["reduce"].status == "budget":  # it may find something yet
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
    state.again.add("reduce")  # while it goes on, its directory says what is known
    state.add(_one(_EVERY["reduce"], state))


def _ship_so_far(state: State) -> None:
    """The best so far of a stopped run, packed untried. Resuming packs it again."""
    wanted = "bundle" in state.request.stages and not state.is_over("bundle")
    if state.known("reduce") and wanted:
        with suppress(AortaError, KeyboardInterrupt, Terminated):  # asked twice, it goes at once
            state.add(replace(Bundle(check=False)(state), is_draft=True))


def _one(stage: Stage, state: State) -> StageResult:
    broken = state.known("isolate").get("broken")
    why = f"it is the hardware: {broken}" if broken and stage.name != "bundle" else ""
    if why := why or stage.why_not(state):
        return StageResult(stage.name, "skipped", why)
    searches = stage.name not in {"reproduce", "bundle"}
    others = sum(result.seconds for name, result in state.results.items() if name != stage.name)
    try:
        if searches and state.is_spent:
            result = _as_it_was(state, stage.name, "budget", state.is_spent)
        else:
            _give_share(stage, state)
            state.say(f"{stage.name} ...")
            result = _asked(stage, state)
    except AortaError as wrong:
        if stage.name == "reproduce":
            raise
        result = _as_it_was(state, stage.name, "failed", str(wrong))
    if result.status in {"failed", "budget"} and state.is_spent:
        said = result.why if result.status == "budget" else ""  # where it stood, perhaps
        result = replace(result, status="budget", why=said or state.is_spent)
    counts = state.shared.counts  # `triage`, and `triage-original`
    spent = sum(n for name, n in counts.items() if name.partition("-")[0] == stage.name)
    seconds = max(0.0, state.shared.elapsed - others)
    return replace(result, trials=result.trials + spent, seconds=seconds)


def _asked(stage: Stage, state: State) -> StageResult:
    """Of a smaller reproducer than an ended process had it is another question, asked anew."""
    while True:
        try:
            return stage(state)
        except AnotherQuestionError as wrong:
            run_dir = RunDir.of_journal(Path(str(wrong.where))).path
            if stage.name in {"reproduce", "reduce"} or not run_dir.is_relative_to(state.path):
                raise
            shutil.rmtree(run_dir)


def _as_it_was(state: State, name: str, status: Status, why: str) -> StageResult:
    """A stage that could do nothing more: what it found before is still known."""
    before = state.results.get(name)
    run_dir = before.run_dir if before is not None else None
    return StageResult(name, status, why, run_dir, answer=state.known(name))


def _is_over(state: State) -> bool:
    """Whether nothing is left worth a trial: it does not fail, or its user can mend it at once."""
    first = state.results["reproduce"] if state.is_over("reproduce") else None
    return first is not None and (first.status != "done" or bool(first.answer.get("mistake")))
