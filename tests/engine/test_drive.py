"""The engine: what it runs, what it never runs twice, and how it ends."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.errors import InfrastructureError
from aorta.core.point import Point
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.engine import events
from aorta.engine.drive import Engine
from aorta.engine.events import Ending, Event, Reason
from aorta.engine.journal import Journal
from aorta.engine.judge import EveryTrial, Judge, KOfN, SameJudge
from aorta.engine.question import Budget
from aorta.search.ranked import RankedSearch
from aorta.search.repeated import EveryPoint
from support.searched import SmallestNumber
from support.simulated import Answer, SimulatedExecutor, ValueExperiment

PARTS = {"spec": 1}


def fails_from(threshold: int) -> Answer:
    return lambda trial: int(int(trial.argv[0].removeprefix("N=")) >= threshold)


def open_journal(path: Path) -> Journal:
    if path.exists():
        return Journal.resume(path, PARTS)
    return Journal.create(path, PARTS)


def drive(
    search: RankedSearch,
    executor: SimulatedExecutor,
    where: Path,
    judge: Judge | None = None,
    budget: Budget | None = None,
) -> tuple[Ending, list[Event]]:
    seen: list[Event] = []
    journal = open_journal(where / "journal.jsonl")
    engine = Engine(
        search,
        SameJudge(judge or KOfN(1, 1)),
        ValueExperiment(),
        executor,
        journal,
        where,
        budget=budget,
        listeners=[seen.append],
        guard_signature=False,
    )
    return engine.run(), seen


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_any_number_of_slots_finds_the_same_answer(slots: int, tmp_path: Path) -> None:
    for threshold in (0, 1, 37, 99):
        where = tmp_path / str(threshold)
        where.mkdir()
        search = SmallestNumber(100)
        ending, _ = drive(
            search, SimulatedExecutor(fails_from(threshold), slots, seed=slots), where
        )
        assert ending.reason is Reason.DONE
        assert search.best == Point.of({"N": threshold})


def test_one_slot_runs_only_what_a_plain_bisection_needs(tmp_path: Path) -> None:
    executor = SimulatedExecutor(fails_from(37))
    drive(SmallestNumber(128), executor, tmp_path)
    assert len(executor.started) == 7


def test_speculation_whose_answer_no_longer_matters_is_cancelled(tmp_path: Path) -> None:
    executor = SimulatedExecutor(fails_from(37), slots=3)
    drive(SmallestNumber(128), executor, tmp_path)
    assert executor.cancelled
    assert not set(executor.cancelled) - set(executor.started)


def test_spare_slots_race_the_trials_of_one_point_and_stop_at_the_answer(tmp_path: Path) -> None:
    executor = SimulatedExecutor(lambda _: 1, slots=4)
    _, seen = drive(EveryPoint([Point.of({"N": 1})]), executor, tmp_path, KOfN(2, 5))
    ended = [e for e in seen if isinstance(e, events.TrialEnded)]
    assert len(ended) == 2
    assert len(executor.cancelled) == len(executor.started) - 2 == 3


@settings(max_examples=60, deadline=None)
@given(
    threshold=st.integers(0, 64),
    slots=st.integers(1, 4),
    kills=st.lists(st.integers(0, 6), max_size=6),
    judge=st.sampled_from([KOfN(1, 1), KOfN(2, 3), EveryTrial(2)]),
)
def test_killed_anywhere_and_resumed_it_runs_no_trial_twice_and_answers_the_same(
    threshold: int,
    slots: int,
    kills: list[int],
    judge: Judge,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    where = tmp_path_factory.mktemp("run")
    finished: Counter[str] = Counter()

    def answer(trial: TrialSpec) -> int:
        finished[trial.id] += 1
        return fails_from(threshold)(trial)

    for attempt, kill in enumerate([*kills, None]):
        search = SmallestNumber(65)
        executor = SimulatedExecutor(answer, slots, seed=attempt, die_after=kill)
        ending, _ = drive(search, executor, where, judge)
    assert ending.reason is Reason.DONE
    assert search.best == Point.of({"N": min(threshold, 65)})
    assert max(finished.values()) == 1


def test_a_finished_run_resumed_executes_nothing_and_says_so(tmp_path: Path) -> None:
    drive(SmallestNumber(64), SimulatedExecutor(fails_from(9)), tmp_path)
    again = SimulatedExecutor(fails_from(9))
    ending, _ = drive(SmallestNumber(64), again, tmp_path)
    assert again.started == []
    assert ending.resumed_trials == ending.trials == 6


def test_an_error_is_tried_again_and_is_no_evidence(tmp_path: Path) -> None:
    tries: Counter[str] = Counter()

    def answer(trial: TrialSpec) -> int:
        tries[trial.argv[0]] += 1
        return 127 if tries[trial.argv[0]] == 1 else fails_from(5)(trial)

    search = SmallestNumber(16)
    drive(search, SimulatedExecutor(answer), tmp_path)
    assert search.best == Point.of({"N": 5})


def test_a_point_that_only_errs_ends_as_could_not_tell(tmp_path: Path) -> None:
    point = Point.of({"N": 1})
    search = EveryPoint([point])
    ending, _ = drive(search, SimulatedExecutor(lambda _: 127), tmp_path, budget=Budget(retries=2))
    verdict = search.verdicts[point]
    assert verdict.reproduces is None
    assert verdict.tally.error == ending.trials == 3
    assert "not found" in verdict.why


def test_the_trial_budget_is_never_exceeded(tmp_path: Path) -> None:
    executor = SimulatedExecutor(lambda _: 0, slots=4)
    points = [Point.of({"N": n}) for n in range(10)]
    ending, _ = drive(EveryPoint(points), executor, tmp_path, EveryTrial(3), Budget(max_trials=7))
    assert ending.reason is Reason.BUDGET
    assert ending.trials == len(executor.started) == 7
    assert executor.closed == 1


def test_an_interrupt_ends_in_partial_results_and_a_closed_executor(tmp_path: Path) -> None:
    executor = SimulatedExecutor(fails_from(3), die_after=2)
    ending, seen = drive(SmallestNumber(64), executor, tmp_path)
    assert (ending.reason, ending.trials) == (Reason.INTERRUPTED, 2)
    assert executor.closed == 1
    assert isinstance(seen[-1], events.RunEnded)


def test_trouble_under_the_executor_ends_the_run_with_its_words(tmp_path: Path) -> None:
    class NoEngine(SimulatedExecutor):
        def wait(self, timeout: float | None = None) -> list[TrialEnd]:
            raise InfrastructureError("no docker engine")

    ending, _ = drive(SmallestNumber(64), NoEngine(fails_from(3)), tmp_path)
    assert (ending.reason, ending.detail) == (Reason.INFRASTRUCTURE, "no docker engine")


@settings(max_examples=200, deadline=None)
@given(
    threshold=st.integers(0, 64),
    slots=st.integers(1, 6),
    kills=st.lists(st.integers(0, 6), max_size=6),
    judge=st.sampled_from([KOfN(1, 1), KOfN(2, 3), KOfN(3, 5), EveryTrial(2)]),
)
def test_a_finished_run_resumed_with_as_many_slots_executes_nothing_however_often_it_was_killed(
    threshold: int,
    slots: int,
    kills: list[int],
    judge: Judge,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    where = tmp_path_factory.mktemp("run")
    for attempt, kill in enumerate([*kills, None]):
        executor = SimulatedExecutor(fails_from(threshold), slots, attempt, die_after=kill)
        first, _ = drive(SmallestNumber(65), executor, where, judge)
    again = SimulatedExecutor(fails_from(threshold), slots, len(kills) + 1)
    second, _ = drive(SmallestNumber(65), again, where, judge)
    assert again.started == []
    assert second.resumed_trials == second.trials == first.trials
