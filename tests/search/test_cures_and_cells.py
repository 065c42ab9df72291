"""The two searches behind triage, driven by a simulated oracle: which trials they ask for, and how
many.
"""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.engine.drive import Engine
from aorta.engine.journal import Journal, read_records
from aorta.engine.question import Question
from aorta.search.cure import AXIS, CureSearch
from aorta.search.repeated import Interleaved, cell_of
from aorta.triage.optimize import GoneJudges
from support.simulated import SimulatedExecutor, ValueExperiment


def one(outcome: Outcome) -> Verdict:
    evidence = {Outcome.REPRODUCED: True, Outcome.CLEAN: False}.get(outcome)
    return Verdict(evidence, Tally.of([outcome]))


def interleaved(caps: Mapping[str, int]) -> Interleaved:
    return Interleaved(
        list(caps),
        place=lambda cell, number: (number, list(caps).index(cell)),
        is_open=lambda cell, tallies: tallies[cell].evidence < caps[cell],
    )


def test_each_cell_has_its_first_trial_before_any_has_its_second() -> None:
    search = interleaved({"a": 2, "b": 2})
    asked = [(cell_of(p), p.replica) for p in search.ask(9)]
    assert asked == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_an_error_is_another_trial_and_not_a_lost_one() -> None:
    search = interleaved({"a": 1})
    (point,) = search.ask(1)
    search.tell(point, one(Outcome.ERROR))
    assert [p.replica for p in search.ask(5)] == [1]


def test_trials_under_way_count_against_the_cap() -> None:
    search = interleaved({"a": 2})
    pending = search.ask(1)
    assert len(search.ask(5, pending)) == 1


def test_a_settled_cell_is_no_longer_wanted() -> None:
    search = interleaved({"a": 1, "b": 1})
    first, second = search.ask(2)
    search.tell(first, one(Outcome.CLEAN))
    assert not search.wants(first)
    assert search.wants(second)
    search.tell(second, one(Outcome.CLEAN))
    assert search.done


def on(point: Point) -> set[int]:
    value = point[AXIS]
    assert isinstance(value, tuple)
    return set(value)


def on_of(search: CureSearch) -> set[int]:
    """What the cure has on; nothing where none was found."""
    return set(search.cure.items) if search.cure else set()


def find(
    names: list[str],
    cures: list[set[int]],
    *,
    rate: float = 1.0,
    seed: int = 0,
    harmful: int | None = None,
) -> tuple[CureSearch, int]:
    """Drive the search and its judges to the end; the failure is gone where one of `cures` is
    on.
    """
    search, judges, draw = CureSearch(names), GoneJudges(40), random.Random(seed)
    trials = 0
    while not search.done:
        (point,) = search.ask(1)
        judge, tally = judges.judge_for(point), Tally()
        gone = any(cure <= on(point) for cure in cures)
        while (verdict := judge.verdict(tally)) is None:
            assert judge.needs(tally) >= 1
            if harmful is not None and harmful in on(point):
                tally += Outcome.OTHER
            else:
                fails = not gone and draw.random() < rate
                tally += Outcome.REPRODUCED if fails else Outcome.CLEAN
            trials += 1
        judges.learn(point, verdict)
        search.tell(point, verdict)
    return search, trials


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 14), st.data())
def test_the_smallest_set_is_found_whatever_it_is(size: int, data: st.DataObject) -> None:
    names = [f"m{n}" for n in range(size)]
    cure = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=min(3, size)))
    search, _ = find(names, [cure])
    assert on_of(search) == cure


def test_nothing_that_helps_is_said_after_one_stack() -> None:
    search, trials = find([f"m{n}" for n in range(16)], [])
    assert search.cure is None
    assert trials <= 7


def test_a_failure_that_is_not_there_is_not_searched() -> None:
    search, _ = find(["a"], [set()])
    assert search.fails_at_all is False
    assert search.cure is None


def test_a_harmful_mitigation_does_not_hide_the_cure() -> None:
    search, _ = find([f"m{n}" for n in range(6)], [{4}], harmful=2)
    assert on_of(search) == {4}


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.8, 0.9])
def test_a_flaky_failure_gets_the_trials_it_needs_and_the_right_answer(rate: float) -> None:
    names = [f"m{n}" for n in range(12)]
    right = sum(
        on_of(find(names, [{2, 7}], rate=rate, seed=seed)[0]) == {2, 7} for seed in range(60)
    )
    assert right >= 57


def test_group_testing_beats_one_at_a_time_on_a_certain_failure() -> None:
    names = [f"m{n}" for n in range(40)]
    _, trials = find(names, [{17}])
    assert trials < 5 + 40 + 6, "calibration, each alone, confirmation"


def test_the_search_for_a_cure_replays_from_its_journal(tmp_path: Path) -> None:
    def answer(argv: tuple[str, ...]) -> int:
        return 0 if "3" in argv[0] and "5" in argv[0] else 1

    def engine(
        folder: Path, die_after: int | None, journal: Journal
    ) -> tuple[CureSearch, list[str]]:
        search = CureSearch([f"m{n}" for n in range(8)])
        executor = SimulatedExecutor(
            lambda trial: answer(trial.argv), slots=2, seed=1, die_after=die_after
        )
        question = Question(search, GoneJudges(40), ValueExperiment(), {})
        Engine(question, executor, journal, folder).run()
        return search, executor.started

    path = tmp_path / "journal"
    first, _ = engine(tmp_path, 9, Journal.create(path, {}))
    assert first.cure is None
    written = {f"{record.point.key}.{record.index}" for record in read_records(path)}
    assert written
    again, more = engine(tmp_path, None, Journal.resume(path, {}))
    assert on_of(again) == {3, 5}
    whole, all_of_them = engine(tmp_path / "w", None, Journal.create(tmp_path / "other", {}))
    assert on_of(whole) == {3, 5}
    assert not written & {*more}
    assert len(all_of_them) == len({*all_of_them})


def test_points_are_asked_for_once() -> None:
    search, asked = CureSearch(["a", "b", "c"]), set[Point]()
    while not search.done:
        (point,) = search.ask(1)
        assert point not in asked
        asked.add(point)
        fails = point.purpose is Purpose.CALIBRATE
        gone = bool(on(point) & {0, 2})
        search.tell(point, Verdict(fails or gone, Tally(clean=1)))
    assert on_of(search) in ({0}, {2})
