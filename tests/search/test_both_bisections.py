"""What holds for the bisection of a line, whether it is told as a timeline or as a graph without
merges.
"""

from collections.abc import Callable

import pytest

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search.belief import Counts
from aorta.search.bisecting import Bisection, BisectionSettings
from aorta.search.bisection import TimelineBisection
from aorta.search.ends import EndsVerdict
from aorta.search.graph import GraphHistory
from aorta.search.graph_bisection import GraphBisection
from aorta.search.timeline import History, Timeline, Vector
from support.timelines import one_package

Make = Callable[[int, BisectionSettings], Bisection]
PLAIN, UNCONFIRMED = BisectionSettings(), BisectionSettings(confirm=False)


def of_timeline(changes: int, settings: BisectionSettings) -> Bisection:
    return TimelineBisection(one_package(changes + 1), settings)


def of_graph(changes: int, settings: BisectionSettings) -> Bisection:
    names = tuple(str(state) for state in range(changes + 1))
    holds = tuple((1 << state) - 1 for state in range(changes + 1))
    line = GraphHistory(
        "package", names, holds, tuple(range(changes)), tuple(range(1, changes + 1))
    )
    return GraphBisection(line, settings)


def run(
    search: Bisection, culprit: int, workers: int = 1, broken: frozenset[int] = frozenset()
) -> list[Point]:
    """States after the culprit fail, every time."""
    asked: list[Point] = []
    while not search.done:
        assert search.expected_questions() >= 1
        points = search.ask(workers)
        assert all(search.wants(point) for point in points)
        for point in points:
            [state] = search.timeline.vector(point)
            search.tell(point, Verdict(None if state in broken else state > culprit))
        asked += points
    return asked


def told_of(asked: list[Point]) -> list[tuple[object, Purpose]]:
    return [(point["package"], point.purpose) for point in asked]


both = pytest.mark.parametrize("make", [of_timeline, of_graph])


@pytest.mark.parametrize("settings", [PLAIN, UNCONFIRMED])
@pytest.mark.parametrize("changes", [2, 5, 12])
def test_a_graph_without_merges_is_asked_about_as_a_timeline_is(
    changes: int, settings: BisectionSettings
) -> None:
    for culprit in range(changes):
        one, other = of_timeline(changes, settings), of_graph(changes, settings)
        assert told_of(run(one, culprit)) == told_of(run(other, culprit))
        assert one.sides() == other.sides()
        assert one.answer is not None
        assert other.answer is not None
        assert one.answer.mass == pytest.approx(other.answer.mass)
        assert one.rates == pytest.approx(other.rates)
        assert one.expected_questions() == other.expected_questions() == 0


@both
@pytest.mark.parametrize("culprit", [0, 5, 15])
def test_both_ends_then_halving_then_both_sides_of_the_answer(make: Make, culprit: int) -> None:
    search = make(16, PLAIN)
    known = (search.answer, search.is_sure, search.best)
    assert known == (None, False, None)
    asked = run(search, culprit)
    assert told_of(asked[:3]) == [
        ("16", Purpose.CALIBRATE),
        ("0", Purpose.CALIBRATE),
        ("8", Purpose.PROBE),
    ]
    assert sum(point.purpose is Purpose.PROBE for point in asked) == 4
    answer = search.answer
    assert answer is not None
    assert [change.rank for change in answer.changes] == [culprit]
    assert (answer.good, answer.bad) == ((culprit,), (culprit + 1,))
    assert answer.mass >= 0.95
    assert search.is_sure
    assert search.best == Point.of({"package": str(culprit + 1)})
    assert not any(search.wants(point) for point in asked)
    assert min(sum(search.trials[answer.good]), sum(search.trials[answer.bad])) >= 2
    states = [search.timeline.vector(point)[0] for point in asked]
    passed, failed = (sum((s > culprit) is side for s in states) for side in (False, True))
    assert search.sides() == ((0, passed), (failed, 0))
    assert search.states_tried == len(set(states))


@both
def test_what_is_expected_is_one_question_for_each_halving_and_two_for_the_sides(
    make: Make,
) -> None:
    search, expected = make(16, PLAIN), []
    while not search.done:
        expected.append(search.expected_questions())
        [point] = search.ask(1)
        search.tell(point, Verdict(search.timeline.vector(point)[0] > 5))
    assert expected == [6, 6, 6, 5, 4, 3, 2, 2]


def test_near_enough_is_near_enough() -> None:
    settings = BisectionSettings(close_enough=lambda found: found.stop - found.start <= 4)
    search = TimelineBisection(one_package(33), settings)
    assert len(run(search, 21)) == 5
    answer = search.answer
    assert answer is not None
    assert (answer.start, answer.stop) == (20, 24)
    assert 0.5 < answer.mass < 0.95


@pytest.mark.parametrize(
    ("weights", "first"),
    [
        ((1, 1, 1, 1, 12), 4),
        ((6, 1, 1, 1, 1, 6), 3),
        ((10, 1, 1, 1, 1, 1, 1), 1),
        ((1, 1, 1, 1, 1, 1, 10), 6),
        ((2, 2, 2, 2), 2),
    ],
)
def test_a_change_counts_as_the_commits_it_brings(weights: tuple[int, ...], first: int) -> None:
    versions = tuple(str(n) for n in range(len(weights) + 1))
    search = TimelineBisection(Timeline([History("package", versions, weights=weights)]))
    for fails in (True, False):
        [point] = search.ask(1)
        search.tell(point, Verdict(fails))
    assert told_of(search.ask(1)) == [(str(first), Purpose.PROBE)]


@both
def test_unconfirmed_it_ends_with_the_halving(make: Make) -> None:
    search = make(16, UNCONFIRMED)
    assert len(run(search, 9)) == 6
    assert search.is_sure
    assert search.answer is not None
    assert [change.rank for change in search.answer.changes] == [9]


@both
@pytest.mark.parametrize("workers", [3, 8])
def test_side_by_side_no_state_is_tried_more_often_than_it_is_wanted(
    make: Make, workers: int
) -> None:
    search = make(32, PLAIN)
    asked = run(search, 20, workers)
    assert len(set(asked)) == len(asked)
    most = max(sum(counts) for counts in search.trials.values())
    assert most <= 4
    first = make(32, PLAIN)
    for _ in range(2):
        for point in first.ask(1):
            first.tell(point, Verdict(first.timeline.vector(point)[0] > 20))
    spread = [first.timeline.vector(point)[0] for point in first.ask(workers)]
    assert spread[:3] == [16, 8, 24]
    assert len(set(spread)) == workers


@both
def test_what_states_that_cannot_be_tested_hide_is_one_answer(make: Make) -> None:
    search = make(12, PLAIN)
    run(search, 5, broken=frozenset({5, 6, 7}))
    answer = search.answer
    assert answer is not None
    assert [change.rank for change in answer.changes] == [4, 5, 6, 7]
    assert (answer.good, answer.bad) == ((4,), (8,))
    assert search.is_sure
    assert search.untestable == {(5,), (6,), (7,)}


@both
def test_an_older_break_that_was_repaired_is_told_and_the_last_one_is_sought(make: Make) -> None:
    search = make(24, PLAIN)
    seen: dict[Vector, Counts] = {
        (0,): (0, 6), (4,): (6, 0), (8,): (6, 0), (12,): (0, 6), (14,): (0, 6), (24,): (6, 0)
    }  # fmt: skip
    search.assume(seen)
    assert search.fixed_before == [((4,), (14,))]
    run(search, 18)
    assert search.answer is not None
    assert [change.rank for change in search.answer.changes] == [18]
    assert search.fixed_before == [((4,), (14,))]


@both
def test_ends_that_are_no_question_end_it(make: Make) -> None:
    silent = make(4, PLAIN)
    run(silent, 99)
    assert (silent.ends, silent.answer) == (EndsVerdict.BAD_DOES_NOT_FAIL, None)
    assert sum(silent.trials[(4,)]) == 16
    alike = make(4, PLAIN)
    run(alike, -1)
    assert (alike.ends, alike.is_sure) == (EndsVerdict.GOOD_FAILS_TOO, False)


@both
@pytest.mark.parametrize("end", [0, 12])
def test_one_end_that_cannot_be_tested_is_taken_as_it_was_said(make: Make, end: int) -> None:
    search = make(12, PLAIN)
    run(search, 6, broken=frozenset({end}))
    assert search.taken_on_trust == {(end,)}
    assert search.answer is not None
    assert [change.rank for change in search.answer.changes] == [6]
    assert sum(map(sum, search.sides())) == sum(
        sum(counts) for vector, counts in search.trials.items() if vector != (end,)
    )
    doubting = make(12, BisectionSettings(trust_ends=False))
    run(doubting, 6, broken=frozenset({end}))
    assert doubting.answer is None
    neither = make(12, PLAIN)
    run(neither, 6, broken=frozenset({0, 12}))
    assert neither.answer is None


@both
def test_a_state_whose_trials_go_astray_is_not_asked_for_ever(make: Make) -> None:
    search = make(8, PLAIN)
    search.assume({(4,): (1, 0), (0,): (0, 1), (8,): (1, 0)})
    point = search.timeline.point((4,), Purpose.PROBE, 7)
    assert not search.is_exhausted((4,))
    for replica in range(3):
        search.tell(point.asked_for(Purpose.PROBE, 7 + replica), Verdict(None))
        assert search.is_exhausted((4,)) is (replica == 2)
    search.tell(point.asked_for(Purpose.PROBE, 7), Verdict(None))
    assert search.trials[(4,)] == (1, 0)


@both
def test_a_verdict_counts_once_and_what_is_remembered_is_not_asked_again(make: Make) -> None:
    search = make(8, PLAIN)
    [first] = search.ask(1)
    search.tell(first, Verdict(True))
    search.tell(first, Verdict(False))
    assert search.trials == {(8,): (1, 0)}
    fresh = make(8, PLAIN)
    middle = fresh.timeline.point((4,), Purpose.PROBE, 0)
    fresh.remember(middle, Verdict(None))
    fresh.remember(first, Verdict(True))
    assert fresh.untestable == {(4,)}
    assert fresh.trials == {}
    assert first not in fresh.ask(4)
