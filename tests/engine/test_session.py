"""When a run is over: not before its results are written."""

from pathlib import Path

import pytest

from aorta.core.axis import Point
from aorta.core.errors import ResumeError
from aorta.engine.judge import KOfN, SameJudge
from aorta.engine.question import Question
from aorta.engine.rundir import RunLock, claim_run_dir, find_resumable
from aorta.engine.session import Resume, Session
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


def test_two_questions_of_one_run_need_two_names(tmp_path: Path) -> None:
    with Session.fresh(tmp_path, "run") as session:
        session.answer(question(), SimulatedExecutor(lambda _: 1))
        with pytest.raises(ValueError, match="name of its own"):
            session.answer(question(), SimulatedExecutor(lambda _: 1))


def test_a_run_that_was_killed_before_its_first_line_begins_when_it_is_gone_on_with(
    tmp_path: Path,
) -> None:
    begun = claim_run_dir(tmp_path, "run")
    assert find_resumable(tmp_path, "run").path == begun.path
    with Session.resuming(tmp_path, "run", Resume(begun.path)) as session:
        answer = session.answer(question(), SimulatedExecutor(lambda _: 1))
    assert (answer.ending.trials, answer.ending.resumed_trials) == (2, 0)
