"""When a run is over: not before its results are written."""

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aorta.core.axis import Point
from aorta.core.errors import ResumeError
from aorta.engine.events import Reason
from aorta.engine.judge import KOfN, SameJudge
from aorta.engine.question import Budget, Question
from aorta.engine.rundir import RunLock, claim_run_dir, find_resumable
from aorta.engine.session import Resume, Session, keep_request, kept_request
from aorta.search.repeated import EveryPoint
from support.simulated import SimulatedExecutor, ValueExperiment


def question() -> Question:
    points = [Point.of({"N": 1}), Point.of({"N": 2})]
    return Question(EveryPoint(points), SameJudge(KOfN(1, 1)), ValueExperiment(), {"spec": 1})


def test_a_run_that_fails_while_its_results_are_written_can_be_taken_up_again(
    tmp_path: Path,
) -> None:
    def answer_and_fail() -> None:
        with Session.fresh(tmp_path, "run") as session:
            session.answer(question(), SimulatedExecutor(lambda _: 1))
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        answer_and_fail()
    assert find_resumable(tmp_path, "run").about()["verb"] == "run"
    again = SimulatedExecutor(lambda _: 1)
    with Session.resuming(tmp_path, "run") as resumed:
        answer = resumed.answer(question(), again)
    assert again.started == []
    assert answer.ending.resumed_trials == 2


def test_a_finished_run_is_not_offered_for_resuming(tmp_path: Path) -> None:
    with Session.fresh(tmp_path, "run") as session:
        session.answer(question(), SimulatedExecutor(lambda _: 0))
    assert session.run.about()["state"] == "done"
    with pytest.raises(ResumeError, match="no unfinished run"):
        find_resumable(tmp_path, "run")


def test_the_lock_is_free_however_a_session_ends(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Session.fresh(tmp_path, "run") as session:
        raise KeyboardInterrupt
    RunLock(session.run.lock).take().release()


def test_a_run_that_was_killed_before_its_first_line_begins_when_it_is_gone_on_with(
    tmp_path: Path,
) -> None:
    begun = claim_run_dir(tmp_path, "run")
    assert find_resumable(tmp_path, "run").path == begun.path
    with Session.resuming(tmp_path, "run", Resume(begun.path)) as session:
        answer = session.answer(question(), SimulatedExecutor(lambda _: 1))
    assert (answer.ending.trials, answer.ending.resumed_trials) == (2, 0)


def test_killed_at_any_moment_of_its_creation_a_run_leaves_no_draft(tmp_path: Path) -> None:
    moment, status = 0, -1
    while status != 0:
        moment += 1
        parent = tmp_path / str(moment)
        parent.mkdir()
        pid = os.fork()
        if pid == 0:
            _begin_and_die(parent, moment)
        status = os.waitpid(pid, 0)[1]
        assert not list(parent.rglob("*.draft"))
    assert moment > 4


def _begin_and_die(parent: Path, moment: int) -> None:
    """Killed right before the so manieth time that something is made in the private directory."""
    left = [moment]

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in {"open", "os.rename", "os.mkdir"} and ".aorta" in str(arguments[0]):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(note)
    try:
        keep_request(Session.fresh(parent, "run", name="a").run, Resume())
        os._exit(0)
    finally:
        os._exit(1)


def test_private_state_lies_inside_and_trials_in_the_open_unless_it_is_said_otherwise(
    tmp_path: Path,
) -> None:
    with Session.fresh(tmp_path, "run", name="a") as plain:
        plain.answer(question(), SimulatedExecutor(lambda _: 1))
    assert (plain.resumed, plain.run.private_beside) == (False, None)
    assert (plain.path / "trials").is_dir()
    assert not (plain.run.private / "trials").exists()
    with Session.fresh(tmp_path, "run", name="b", private_beside=True) as apart:
        asked = replace(question(), private_trials=True)
        apart.answer(asked, SimulatedExecutor(lambda _: 1))
    assert apart.run.private_beside == "../.aorta/b"
    assert not (apart.path / "trials").exists()
    assert (apart.run.private / "trials").is_dir()


def test_a_run_that_ran_out_of_its_budget_says_so_and_can_be_gone_on_with(tmp_path: Path) -> None:
    with Session.fresh(tmp_path, "run") as session:
        session.answer(
            replace(question(), budget=Budget(max_trials=1)), SimulatedExecutor(lambda _: 1)
        )
    about = session.run.about()
    assert (about["state"], about["trials"]) == ("budget", 1)
    with Session.resuming(tmp_path, "run") as resumed:
        answer = resumed.answer(question(), SimulatedExecutor(lambda _: 1))
    assert resumed.resumed
    assert (answer.ending.trials, answer.ending.resumed_trials) == (2, 1)
    assert session.run.about()["state"] == "done"


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    with Session.fresh(tmp_path, "run") as session:
        session.answer(question(), SimulatedExecutor(lambda _: 1))
    path = session.path
    lines = session.run.journal.read_bytes().splitlines(keepends=True)
    session.run.journal.write_bytes(b"".join([lines[0], b"?\n", *lines[2:]]))
    with (
        Session.resuming(tmp_path, "run", Resume(path)) as refused,
        pytest.raises(ResumeError, match="line 2 of 7 is damaged"),
    ):
        refused.open_journal(question().fingerprint)


def test_the_time_of_a_budget_begins_when_a_run_is_gone_on_with(tmp_path: Path) -> None:
    def slowly(_trial: object) -> int:
        time.sleep(2.0)
        return 1

    with Session.fresh(tmp_path, "run") as session:
        one = replace(question(), budget=Budget(max_trials=1))
        session.answer(one, SimulatedExecutor(slowly))
    with Session.resuming(tmp_path, "run") as again:
        limited = replace(question(), budget=Budget(max_seconds=1.9))
        answer = again.answer(limited, SimulatedExecutor(lambda _: 1))
    assert answer.ending.seconds >= 2.0, "what the run took is said of the whole"
    assert answer.ending.reason is Reason.DONE


@dataclass(frozen=True)
class Asked:
    command: tuple[str, ...] = ()
    max_trials: int | None = None
    max_wall_clock: float | None = None


def test_what_may_be_spent_is_not_kept_for_a_resume(tmp_path: Path) -> None:
    begun = Asked(("true",), 7, 60.0)
    run = claim_run_dir(tmp_path, "run")
    keep_request(run, begun)
    assert kept_request(run, Asked()) == Asked(("true",))
    assert kept_request(run, Asked(max_wall_clock=5.0)) == Asked(("true",), None, 5.0)
