"""Answers as groups of neighbours: against every other group there is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.search.belief import Belief, Counts
from aorta.search.bisection import USUAL_RATES
from aorta.search.interval import (
    Candidates,
    Interval,
    Rotation,
    likeliest_group,
    shortest_interval,
)
from aorta.search.timeline import Change, History, Timeline, Vector
from support.timelines import one_package

STATES = 11
TIMELINE = one_package(STATES)
counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
told_of = st.dictionaries(st.integers(0, STATES - 1), counts, max_size=5)


def belief_of(trials: dict[int, Counts], floor: int) -> Belief:
    told: dict[Vector, Counts] = {(position,): seen for position, seen in trials.items()}
    return Belief.after(USUAL_RATES, TIMELINE, told, floor)


@settings(max_examples=60)
@given(told_of, st.integers(0, 5), st.sampled_from([0.3, 0.5, 0.95, 1.0]))
def test_no_shorter_stretch_holds_the_confidence(
    trials: dict[int, Counts], floor: int, confidence: float
) -> None:
    belief = belief_of(trials, floor)
    found = shortest_interval(TIMELINE, belief, confidence)
    wide_enough = [
        (stop - start, start)
        for start in range(floor, STATES)
        for stop in range(start, STATES)
        if belief.mass(start, stop) >= confidence - 1e-9
    ]
    assert (found.stop - found.start, found.start) == min(wide_enough)
    assert found.mass == pytest.approx(belief.mass(found.start, found.stop))


@settings(max_examples=60)
@given(told_of, st.integers(0, 5), st.sets(st.integers(0, STATES)))
def test_the_likeliest_group_is_one_change_or_a_run_that_nothing_tells_apart(
    trials: dict[int, Counts], floor: int, testable: set[int]
) -> None:
    belief = belief_of(trials, floor)
    alone = likeliest_group(TIMELINE, belief, None)
    assert alone.stop == alone.start + 1
    heaviest = max(belief.mass(c, c + 1) for c in range(STATES - 1))
    assert alone.mass == pytest.approx(heaviest)
    within = belief.plausible_positions()
    marks = [p for p in within if p in {within[0], within[-1]} or p in testable]
    groups = [
        (low, high)
        for low, high in zip(marks, marks[1:], strict=False)  # noqa: RUF007 - pairs of marks
        if high - low > 1
    ]
    found = likeliest_group(TIMELINE, belief, testable.__contains__)
    masses = [belief.mass(low, high) for low, high in groups]
    assert found.mass == pytest.approx(max([heaviest, *masses]))
    assert (found.start, found.stop) in [*groups, (alone.start, alone.stop)]
    assert found.mass == pytest.approx(belief.mass(found.start, found.stop))


def test_an_interval_names_its_changes_its_packages_and_its_two_sides() -> None:
    timeline = Timeline([History("a", ("0", "1", "2")), History("b", ("0", "1"))], order=(0, 1, 0))
    found = Interval(timeline, 1, 3, 0.9)
    assert found.changes == (Change(1, 0), Change(0, 1))
    assert found.packages == [0, 1]
    assert (found.good, found.bad) == ((1, 0), (2, 1))
    assert Candidates(found.changes, found.good, found.bad, 0.9).packages == [0, 1]


def test_each_package_of_a_stuck_group_goes_first_once_and_again_when_it_shrank() -> None:
    timeline = Timeline([History(name, ("0", "1")) for name in "abc"], order=(0, 1, 2))
    rotation, group = Rotation(), Interval(timeline, 0, 3, 1.0)
    orders = [rotation.next_order(group) for _ in range(4)]
    assert orders == [[0, 1, 2], [1, 2, 0], [2, 0, 1], None]
    smaller = Interval(timeline, 1, 3, 1.0)
    assert [rotation.next_order(smaller) for _ in range(3)] == [[1, 2], [2, 1], None]
