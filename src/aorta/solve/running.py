"""`solve`: the stages one after the other, each written down before the next begins."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aorta.core.errors import AortaError, Exit, Terminated
from aorta.engine.rundir import RunDir, RunLock, claim_run_dir, find_resumable
from aorta.solve.good_end import check_good
from aorta.solve.plan import SolvePlan, plan_of
from aorta.solve.request import STAGES, SolveRequest, Views, keep_request, kept_request
from aorta.solve.solution import Solution
from aorta.solve.stages.bisect import CHECK, Bisect
from aorta.solve.stages.bundle import Bundle
from aorta.solve.stages.diverge import Diverge
from aorta.solve.stages.reduce import Reduce
from aorta.solve.stages.reproduce import LOOK, Reproduce
from aorta.solve.stages.triage import VERIFY, Triage
from aorta.solve.state import Stage, StageResult, State, Stopped
from aorta.solve.summary import write_summary

VERB = "solve"
_ASKED_BY = {
    "reproduce": (LOOK, "reproduce"),
    "reduce": ("reduce",),
    "triage": ("triage", VERIFY),
    "bisect": ("bisect", CHECK),
    "diverge": ("diverge",),
    "bundle": (),
}
"""Under which names a stage's trials are counted, over every resume."""


def all_stages() -> Sequence[Stage]:
    return (Reproduce(), Reduce(), Triage(), Bisect(), Diverge(), Bundle())


def begin(request: SolveRequest, views: Views) -> Solution:
    """In a new directory below the output."""
    request = request.checked()
    _check(request)
    run = claim_run_dir(request.output, VERB, ticket=request.ticket)
    return _solve(run, request, views)


def dry_run(request: SolveRequest) -> SolvePlan:
    """What would be done, and what it should cost as far as that can be told before anything has run."""
    request = request.checked()
    _check(request)
    with tempfile.TemporaryDirectory(prefix="aorta-solve-") as scratch:
        (Path(scratch) / ".aorta").mkdir()
        return plan_of(State(RunDir(Path(scratch)), request, Views()))


def _check(request: SolveRequest) -> None:
    """Whatever is wrong with what is to be solved is said before anything is written."""
    check_good(request)


def go_on(request: SolveRequest, views: Views) -> Solution:
    """Take up a solve that was stopped; the newest unfinished one where none is named."""
    named = request.resume.run if request.resume is not None else None
    given = named.absolute() if named is not None else None
    run = find_resumable(request.output.absolute(), VERB, given)
    return _solve(run, kept_request(run, request.executor), views)


def _solve(run: RunDir, request: SolveRequest, views: Views) -> Solution:
    lock = RunLock(run.lock).take()
    try:
        keep_request(run, request)  # where it can be read, the run is under way
        state = State(run, request, views)
        code = _stages(state)
        solution = Solution(state, code)
        write_summary(solution)
        run.describe(state="done" if code is None else _word(code), status=solution.status)
        return solution
    finally:
        lock.release()


def _stages(state: State) -> Exit | None:
    """Every stage that is not written down yet. The exit code of whoever stopped it; None where it came to its end."""
    stages = {stage.name: stage for stage in all_stages()}
    try:
        for name in STAGES:
            if _is_over(state):
                break
            if name in state.results:
                continue
            if name not in state.request.stages:
                state.add(StageResult(name, "skipped", "left out by --stages or --skip"))
                continue
            state.add(_one(stages[name], state))
    except Stopped as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Terminated:
        return Exit.TERMINATED
    return None


def _one(stage: Stage, state: State) -> StageResult:
    why = stage.why_not(state)
    if why:
        return StageResult(stage.name, "skipped", why)
    if stage.name != "reproduce" and stage.name != "bundle":
        why = state.is_spent or plan_of(state).left_out.get(stage.name, "")
        if why:
            return StageResult(stage.name, "budget", why)
    state.views.say(f"{stage.name} ...")
    before = sum(result.seconds for result in state.results.values())
    try:
        result = stage(state)
    except AortaError as wrong:
        if stage.name == "reproduce":
            raise
        result = StageResult(stage.name, "failed", str(wrong))
    if result.status == "failed" and state.is_spent:
        result = replace(result, status="budget", why=state.is_spent)
    spent = sum(state.shared.counts.get(name, 0) for name in _ASKED_BY[stage.name])
    seconds = max(0.0, state.shared.elapsed - before)
    return replace(result, trials=result.trials + spent, seconds=seconds)


def _is_over(state: State) -> bool:
    """Whether nothing is left worth a trial: it does not fail, or its user can mend it at once."""
    first = state.results.get("reproduce")
    if first is None:
        return False
    if first.status != "done":
        return True
    return bool(first.answer.get("mistake")) and state.request.good is None


def _word(code: Exit) -> str:
    return {Exit.INTERRUPTED: "interrupted", Exit.TERMINATED: "terminated"}.get(code, "stopped")
