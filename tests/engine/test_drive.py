"""The engine: what it runs, what it never runs twice, and how it ends."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point, Purpose, number, subset
from aorta.core.errors import InfrastructureError, Terminated
from aorta.core.trial import Environment, RuntimeKind, Tally, TrialEnd, TrialSpec, Verdict
from aorta.engine import events
from aorta.engine.drive import Engine
from aorta.engine.events import Ending, Event, Reason, TrialRecord, failed_differently
from aorta.engine.journal import Journal, read_records
from aorta.engine.judge import EveryTrial, Judge, Judges, KOfN, SameJudge, SequentialJudges
from aorta.engine.question import Answer as EngineAnswer
from aorta.engine.question import Budget, Question
from aorta.engine.snapshots import snapshot_of
from aorta.search import Search
from aorta.search.descent import Descent
from aorta.search.reduction import Status
from aorta.search.repeated import EveryPoint, RankedSearch
from support.searched import SmallestNumber
from support.simulated import LOST, Answer, SimulatedExecutor, ValueExperiment, end_of

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
    asked = question(search, SameJudge(judge or KOfN(1, 1)), budget)
    return drive_question(asked, executor, where, seen).ending, seen


def question(search: Search, judges: Judges, budget: Budget | None = None) -> Question:
    return Question(
        search, judges, ValueExperiment(), PARTS, budget=budget or Budget(), guard_signature=False
    )


def drive_question(
    asked: Question, executor: SimulatedExecutor, where: Path, seen: list[Event] | None = None
) -> EngineAnswer:
    journal = open_journal(where / "journal.jsonl")
    listeners = [] if seen is None else [seen.append]
    return Engine(asked, executor, journal, where, listeners).run()


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


@settings(max_examples=30, deadline=None)
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
        return LOST if tries[trial.argv[0]] == 1 else fails_from(5)(trial)

    search = SmallestNumber(16)
    drive(search, SimulatedExecutor(answer), tmp_path)
    assert search.best == Point.of({"N": 5})


def test_a_point_that_only_errs_ends_as_could_not_tell(tmp_path: Path) -> None:
    point = Point.of({"N": 1})
    search = EveryPoint([point])
    ending, _ = drive(search, SimulatedExecutor(lambda _: LOST), tmp_path, budget=Budget(retries=2))
    verdict = search.verdicts[point]
    assert verdict.reproduces is None
    assert verdict.tally.error == ending.trials == 3
    assert "its node is gone" in verdict.why


def test_trials_that_one_loss_takes_together_are_tried_again_and_count_as_one_error(
    tmp_path: Path,
) -> None:
    point, executor = Point.of({"N": 1}), SimulatedExecutor(lambda _: LOST, slots=4)
    executor.answer = lambda trial: LOST if trial.id in executor.started[:4] else 1
    search = EveryPoint([point])
    drive(search, executor, tmp_path, EveryTrial(4))
    assert search.verdicts[point].tally == Tally(reproduced=4, error=1)
    assert len(executor.started) == 8


def test_a_point_whose_trials_are_always_lost_is_given_up_side_by_side_too(tmp_path: Path) -> None:
    point, executor = Point.of({"N": 1}), SimulatedExecutor(lambda _: LOST, slots=4)
    search = EveryPoint([point])
    drive(search, executor, tmp_path, EveryTrial(4), Budget(retries=2))
    assert search.verdicts[point].reproduces is None
    assert search.verdicts[point].tally.error == 3


def test_the_trial_budget_is_never_exceeded(tmp_path: Path) -> None:
    executor = SimulatedExecutor(lambda _: 0, slots=4)
    points = [Point.of({"N": n}) for n in range(10)]
    ending, _ = drive(EveryPoint(points), executor, tmp_path, EveryTrial(3), Budget(max_trials=7))
    assert ending.reason is Reason.BUDGET
    assert ending.trials == len(executor.started) == 7
    assert (executor._running, executor.closed) == ({}, 0)


class Speechless(EveryPoint):
    """It is not done, and has no question."""

    done = False


def test_a_search_without_a_question_is_over(tmp_path: Path) -> None:
    ending, _ = drive(Speechless([Point.of({"N": 1})]), SimulatedExecutor(fails_from(1)), tmp_path)
    assert (ending.reason, ending.detail) == (Reason.DONE, "the search has no further question")
    assert ending.trials == 1


@dataclass
class Ticking:
    """A clock that goes on by a second whenever somebody looks."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@dataclass
class Patient(SimulatedExecutor):
    waits: list[float | None] = field(default_factory=list)

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        self.waits.append(timeout)
        return super().wait(timeout)


def test_time_that_was_spent_before_a_resume_counts(tmp_path: Path) -> None:
    asked = question(EveryPoint([Point.of({"N": n}) for n in range(6)]), SameJudge(KOfN(1, 1)))
    first = SimulatedExecutor(fails_from(3), die_after=3)
    path = tmp_path / "journal.jsonl"
    before = Engine(asked, first, open_journal(path), tmp_path, clock=Ticking()).run()
    again = question(EveryPoint([Point.of({"N": n}) for n in range(6)]), SameJudge(KOfN(1, 1)))
    later = SimulatedExecutor(fails_from(3))
    after = Engine(again, later, open_journal(path), tmp_path, clock=Ticking(500.0)).run()
    elapsed = [record.elapsed for record in after.records]
    assert elapsed == sorted(elapsed)
    assert before.records[-1].elapsed <= elapsed[3] <= after.ending.seconds < 100
    assert (before.ending.trials, before.ending.resumed_trials) == (3, 0)
    assert (after.ending.trials, after.ending.resumed_trials) == (6, 3)


def test_a_budget_of_time_ends_the_run_and_no_wait_outlasts_it(tmp_path: Path) -> None:
    budget = Budget(max_seconds=9.25)
    asked = question(SmallestNumber(10**6), SameJudge(KOfN(1, 1)), budget)
    executor = Patient(fails_from(3))
    journal = open_journal(tmp_path / "journal.jsonl")
    ending = Engine(asked, executor, journal, tmp_path, clock=Ticking()).run().ending
    assert (ending.reason, ending.detail) == (Reason.BUDGET, "9.2s are spent")
    assert ending.seconds >= 9.25
    assert {0.5} <= set(executor.waits) <= {0.5, 0.25, 0.0}


def test_a_verdict_says_how_long_its_trials_took_and_errors_took_nothing(tmp_path: Path) -> None:
    points = [Point.of({"N": n}) for n in (1, 2)]
    search = EveryPoint(points)
    executor = SimulatedExecutor(lambda trial: 1 if trial.argv[0] == "N=1" else LOST)
    ending, seen = drive(search, executor, tmp_path, KOfN(2, 2))
    assert [search.verdicts[point].seconds for point in points] == [1.0, None]
    assert [search.verdicts[point].tally.trials for point in points] == [2, 3]
    decided = [e for e in seen if isinstance(e, events.PointDecided)]
    assert [e.best for e in decided] == [points[0], points[0]]
    assert isinstance(seen[0], events.RunStarted)
    assert seen[-1] == events.RunEnded(ending)


def test_an_interrupt_ends_in_partial_results_and_an_idle_executor_that_is_still_open(
    tmp_path: Path,
) -> None:
    executor = SimulatedExecutor(fails_from(3), die_after=2)
    ending, seen = drive(SmallestNumber(64), executor, tmp_path)
    assert (ending.reason, ending.trials) == (Reason.INTERRUPTED, 2)
    assert (executor._running, executor.closed) == ({}, 0)
    assert isinstance(seen[-1], events.RunEnded)


@pytest.mark.parametrize("at", ["start", "end"])
def test_an_interrupt_around_a_trial_does_not_wait_for_what_does_not_run(
    at: str, tmp_path: Path
) -> None:
    """Before the executor has it, or after the executor gave it back."""

    class Interrupted(SimulatedExecutor):
        waits = 0

        def start(self, trial: TrialSpec) -> None:
            if at == "start":
                raise KeyboardInterrupt
            super().start(trial)

        def wait(self, timeout: float | None = None) -> list[TrialEnd]:
            self.waits += 1
            assert self.waits < 4, "nothing runs"
            if super().wait(timeout):
                raise KeyboardInterrupt
            return []

    ending, _ = drive(SmallestNumber(64), Interrupted(fails_from(3)), tmp_path)
    assert ending.reason is Reason.INTERRUPTED


def test_an_interrupt_while_a_listener_writes_the_end_is_an_ending_like_any_other(
    tmp_path: Path,
) -> None:
    endings: list[Reason] = []

    def interrupted_once(event: Event) -> None:
        if isinstance(event, events.RunEnded):
            endings.append(event.ending.reason)
            if len(endings) == 1:
                raise KeyboardInterrupt

    asked = question(SmallestNumber(8), SameJudge(KOfN(1, 1)))
    journal = open_journal(tmp_path / "journal.jsonl")
    executor = SimulatedExecutor(fails_from(3))
    answer = Engine(asked, executor, journal, tmp_path, [interrupted_once]).run()
    assert answer.ending.reason is Reason.INTERRUPTED
    assert endings == [Reason.DONE, Reason.INTERRUPTED]


def test_trouble_under_the_executor_ends_the_run_with_its_words(tmp_path: Path) -> None:
    class NoEngine(SimulatedExecutor):
        def wait(self, timeout: float | None = None) -> list[TrialEnd]:
            raise InfrastructureError("no docker engine")

    ending, _ = drive(SmallestNumber(64), NoEngine(fails_from(3)), tmp_path)
    assert (ending.reason, ending.detail) == (Reason.INFRASTRUCTURE, "no docker engine")


@pytest.mark.parametrize("where", ["experiment", "listener"])
def test_a_trial_that_could_not_be_begun_is_not_waited_for(where: str, tmp_path: Path) -> None:
    """On a full disk neither its directory nor what a listener writes can be made."""

    def no_place(*_: object) -> TrialSpec:
        raise InfrastructureError("No space left on device")

    def listen(event: Event) -> None:
        if where == "listener" and isinstance(event, events.TrialStarted):
            no_place()

    class NoPlace(ValueExperiment):
        def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
            return no_place() if where == "experiment" else super().trial(point, index, trial_dir)

    class NeverAsked(SimulatedExecutor):
        def wait(self, timeout: float | None = None) -> list[TrialEnd]:
            raise AssertionError("there is no end to wait for")

    search = EveryPoint([Point.of({"N": 1})])
    asked = replace(question(search, SameJudge(KOfN(1, 1))), experiment=NoPlace())
    journal = open_journal(tmp_path / "journal.jsonl")
    ran = Engine(asked, NeverAsked(fails_from(1)), journal, tmp_path, [listen]).run()
    assert ran.ending.reason is Reason.INFRASTRUCTURE


class Told(Descent):
    """Remembers what it was told, in order."""

    def __init__(self) -> None:
        super().__init__([number("N", 60, 1, tolerance=0.1), subset("lines", tuple("abcdef"))])
        self.told: list[tuple[str, Verdict]] = []

    def tell(self, point: Point, verdict: Verdict) -> None:
        self.told.append((point.key, verdict))
        super().tell(point, verdict)


def fails_at(rate: float, rng: random.Random) -> Answer:
    def answer(trial: TrialSpec) -> int:
        n, kept = trial.argv[0], trial.argv[1]
        there = int(n.removeprefix("N=")) >= 17 and all(item in kept for item in ("2", "5"))
        return int(there and rng.random() < rate)

    return answer


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rate=st.sampled_from([0.5, 0.8, 1.0]),
    kills=st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1), st.integers(1, 6)), max_size=5),
    slots=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    seed=st.integers(0, 10**6),
)
def test_whatever_slots_and_kills_a_resumed_run_tells_the_search_the_same_and_a_finished_one_runs_nothing(
    rate: float,
    kills: list[tuple[int, float, int]],
    slots: tuple[int, int],
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each attempt ends after so many trials, loses a part of its last lines, and the next one has
    other slots.
    """
    where, rng = tmp_path_factory.mktemp("run"), random.Random(seed)
    path, before = where / "journal.jsonl", list[tuple[str, Verdict]]()
    attempts = [*kills, (None, 0.0, slots[0]), (None, 0.0, slots[1])]
    for attempt, (die_after, lost, width) in enumerate(attempts):
        search = Told()
        executor = ChangingExecutor(fails_at(rate, rng), width, attempt, die_after=die_after)
        ran = drive_question(question(search, SequentialJudges()), executor, where)
        assert search.told[: len(before)] == before
        kept = len({(record.point.key, record.index) for record in ran.records})
        assert kept == len(ran.records), "no trial is counted twice"
        before = search.told
        if die_after is not None:
            content = path.read_bytes()
            first = content.index(b"\n") + 1
            keep = max(first, len(content) - int(lost * 4000))
            path.write_bytes(content[:keep])
            before = before[: content[:keep].count(b'"kind":"settled"')]
    assert ran.ending.reason is Reason.DONE
    assert executor.started == []
    assert search.told == before
    assert ran.ending.resumed_trials == ran.ending.trials


@dataclass
class ChangingExecutor(SimulatedExecutor):
    """A cluster that gains and loses nodes while trials run; what runs goes on."""

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        ended = super().wait(timeout)
        self.slots = max(len(self._running), self._random.randint(1, 6))
        return ended


def test_what_a_verb_keeps_of_a_trial_comes_back_and_every_trial_is_learned_in_order(
    tmp_path: Path,
) -> None:
    def once() -> tuple[list[str], list[str]]:
        learned: list[str] = []
        asked = replace(
            question(EveryPoint([Point.of({"N": n}) for n in range(3)]), SameJudge(KOfN(1, 1))),
            keep=lambda record, _end: {"said": f"kept {record.seq}"},
            learn=lambda record: learned.append(record.kept["said"]),
        )
        answer = drive_question(asked, SimulatedExecutor(fails_from(1)), tmp_path)
        return learned, [record.kept["said"] for record in answer.records]

    first, again = once(), once()
    assert first == again == (["kept 0", "kept 1", "kept 2"],) * 2


def test_a_cluster_without_a_node_for_a_while_is_waited_for(tmp_path: Path) -> None:
    class Returning(SimulatedExecutor):
        def wait(self, timeout: float | None = None) -> list[TrialEnd]:
            if self.slots == 0:
                self.slots = 1
                return []
            return super().wait(timeout)

    search = SmallestNumber(16)
    ending, _ = drive(search, Returning(fails_from(5), slots=0), tmp_path)
    assert (ending.reason, search.best) == (Reason.DONE, Point.of({"N": 5}))


class FailsInWords(SimulatedExecutor):
    """Every trial fails; `said` gives its last words by its number."""

    said: Callable[[int], str]

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        ended = super().wait(timeout)
        words = [self.said(self._ended) for _ in ended]
        return [
            replace(end, stderr=replace(end.stderr, tail=tail))
            for end, tail in zip(ended, words, strict=True)
        ]


def failing(said: Callable[[int], str], **more: Any) -> FailsInWords:
    executor = FailsInWords(lambda _: 1, **more)
    executor.said = said
    return executor


LETTERS = ("qpwoe", "zmxn", "asdkfj", "ghtyrb", "plokm", "wsxed")


def guarded(search: Search, judges: Judges) -> Question:
    return Question(search, judges, ValueExperiment(), PARTS)


def test_what_varies_between_repeats_of_the_original_is_not_another_failure(tmp_path: Path) -> None:
    """And a resumed run has learned it again."""
    point = Point.of({"N": 1}, Purpose.CALIBRATE)
    executor = failing(lambda n: f"KeyError: no shard {LETTERS[n]} in the queue", die_after=3)
    first = drive_question(
        guarded(EveryPoint([point]), SameJudge(EveryTrial(4))), executor, tmp_path
    )
    assert first.ending.reason is Reason.INTERRUPTED
    executor = failing(lambda n: f"KeyError: no shard {LETTERS[n + 3]} in the queue")
    search = EveryPoint([point])
    answer = drive_question(guarded(search, SameJudge(EveryTrial(4))), executor, tmp_path)
    assert search.verdicts[point].tally.reproduced == 4
    assert answer.expected is not None
    assert answer.expected.text == "exit 1 | KeyError: no shard <*> in the queue"


def test_what_varies_elsewhere_is_another_failure_and_is_counted_with_its_words(
    tmp_path: Path,
) -> None:
    points = [Point.of({"N": n}) for n in range(3)]
    executor = failing(lambda n: f"KeyError: no shard {LETTERS[n]} in the queue")
    answer = drive_question(
        guarded(EveryPoint(points), SameJudge(EveryTrial(1))), executor, tmp_path
    )
    assert [r.outcome for r in answer.records] == ["reproduced", "other", "other"]
    assert failed_differently(answer.records) == [
        "2 trials failed differently:",
        "  1 x exit 1 | KeyError: no shard asdkfj in the queue",
        "  1 x exit 1 | KeyError: no shard ghtyrb in the queue",
    ]


def test_where_every_failure_of_the_original_looks_different_the_user_is_asked(
    tmp_path: Path,
) -> None:
    words = ("KeyError: one", "ValueError: two", "OSError: three", "TypeError: four")
    search = Descent([number("N", 200, 1)])
    answer = drive_question(
        guarded(search, SequentialJudges()), failing(lambda n: words[n - 1]), tmp_path
    )
    assert answer.ending.trials == 4
    assert search.result.status is Status.DID_NOT_REPRODUCE
    assert "every one of its 4 failures looks different" in search.result.why
    assert "say which failure is meant" in search.result.why


def records_of(where: Path) -> list[tuple[int, str]]:
    return [(record.index, record.path) for record in read_records(where / "journal.jsonl")]


def test_the_trials_of_a_point_are_counted_from_nought_and_each_has_a_directory(
    tmp_path: Path,
) -> None:
    point = Point.of({"N": 1})
    executor = SimulatedExecutor(lambda _: 1)
    drive(EveryPoint([point]), executor, tmp_path, EveryTrial(3))
    assert executor.started == [f"{point.key}.{n}" for n in range(3)]
    paths = [f"trials/{point.config_key}/probe0-00{n}" for n in range(3)]
    assert records_of(tmp_path) == list(enumerate(paths))
    assert all((tmp_path / path).is_dir() for path in paths)


def test_a_resumed_run_says_which_of_its_trials_are_from_before(tmp_path: Path) -> None:
    points = [Point.of({"N": n}) for n in range(4)]
    drive(EveryPoint(points), SimulatedExecutor(lambda _: 1, die_after=2), tmp_path)
    _, seen = drive(EveryPoint(points), SimulatedExecutor(lambda _: 1), tmp_path)
    ended = [event for event in seen if isinstance(event, events.TrialEnded)]
    assert [event.replayed for event in ended] == [True, True, False, False]
    assert [event.record.seq for event in ended] == [0, 1, 2, 3]


def test_a_run_that_is_stopped_while_it_reads_what_was_before_has_resumed_nothing(
    tmp_path: Path,
) -> None:
    points = [Point.of({"N": n}) for n in range(2)]
    drive(EveryPoint(points), SimulatedExecutor(lambda _: 1), tmp_path)

    def refuse(_record: TrialRecord) -> None:
        raise InfrastructureError("the disk is gone")

    executor = SimulatedExecutor(lambda _: 1)
    asked = replace(question(EveryPoint(points), SameJudge(KOfN(1, 1))), learn=refuse)
    ending = drive_question(asked, executor, tmp_path).ending
    assert (ending.reason, ending.detail) == (Reason.INFRASTRUCTURE, "the disk is gone")
    assert ending.resumed_trials == 0
    assert (executor.started, executor.closed) == ([], 0)


def test_a_termination_is_told_from_an_interrupt(tmp_path: Path) -> None:
    class Stopped(SimulatedExecutor):
        def wait(self, timeout: float | None = None) -> list[TrialEnd]:
            if not self.cancelled:
                raise Terminated
            return super().wait(timeout)

    executor = Stopped(lambda _: 1)
    ending, _ = drive(EveryPoint([Point.of({"N": 1})]), executor, tmp_path)
    assert (ending.reason, ending.detail, ending.trials) == (Reason.TERMINATED, "terminated", 0)
    assert (executor._running, executor.closed) == ({}, 0)


@dataclass
class Endless(SimulatedExecutor):
    """No trial ends; each wait takes as long as it may."""

    now: float = 100.0
    waits: list[float | None] = field(default_factory=list)

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        self.waits.append(timeout)
        self.now += timeout or 0.0
        return []


def test_a_trial_that_never_ends_is_waited_for_until_the_last_of_the_time(tmp_path: Path) -> None:
    executor = Endless(lambda _: 1)
    asked = question(
        EveryPoint([Point.of({"N": 1})]), SameJudge(KOfN(1, 1)), Budget(max_seconds=1.25)
    )
    journal = open_journal(tmp_path / "journal.jsonl")
    ending = Engine(asked, executor, journal, tmp_path, clock=lambda: executor.now).run().ending
    assert executor.waits[:3] == [0.5, 0.5, 0.25]
    assert (ending.reason, ending.seconds, ending.trials) == (Reason.BUDGET, 1.25, 0)


def trial_lines(where: Path) -> list[str]:
    lines = (where / "journal.jsonl").read_text().splitlines()
    return [line for line in lines if json.loads(line)["kind"] == "trial"]


def test_what_happens_is_written_in_the_order_in_which_it_is_decided(tmp_path: Path) -> None:
    executor = SimulatedExecutor(fails_from(37), slots=3)
    drive(SmallestNumber(128), executor, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [line["n"] for line in lines] == list(range(len(lines)))
    last: dict[str, str] = {}
    for line in lines[1:]:
        before = last.get(line["key"])
        follows: dict[str, set[str | None]] = {
            "opened": {None, "dropped"},
            "trial": {"opened", "trial"},
            "settled": {"trial"},
            "dropped": {"opened", "trial"},
        }
        assert before in follows[line["kind"]]
        last[line["key"]] = line["kind"]
    assert set(last.values()) == {"settled", "dropped"}


@dataclass
class BusyQueue(SimulatedExecutor):
    """The snapshot waits in a queue for longer than anybody waits for it, and ends among the
    trials.
    """

    was_cancelled: bool = True
    _queued: TrialSpec | None = None

    def start(self, trial: TrialSpec) -> None:
        if not trial.is_step:
            super().start(trial)
        else:
            self._queued = trial

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        late, ends = self._queued, super().wait(timeout)
        if late is None or late.id not in self.cancelled:
            return ends
        self._queued = None
        return [end_of(late, 0, cancelled=self.was_cancelled), *ends]


@pytest.mark.parametrize("was_cancelled", [True, False])
def test_a_snapshot_that_ends_among_the_trials_is_none_of_them(
    tmp_path: Path, *, was_cancelled: bool
) -> None:
    executor = BusyQueue(fails_from(37), was_cancelled=was_cancelled)
    image = Environment("old", RuntimeKind.DOCKER, image="torch:1")
    taken = snapshot_of(image, {}, executor, tmp_path / "scratch", tmp_path)
    assert taken["skip_reason"] == "the snapshot did not end"
    search = SmallestNumber(128)
    ending, _ = drive(search, executor, tmp_path)
    assert (ending.reason, search.best) == (Reason.DONE, Point.of({"N": 37}))
    assert ending.trials == len(executor.started)
