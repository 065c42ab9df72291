"""Numbers and windows: the true minimum within the tolerance, and no trust in monotonicity that was
not earned.
"""

import random
from collections.abc import Callable
from statistics import mean

import pytest
from benchmarks.reduction import NUMERIC_CALLS, numeric_calls
from benchmarks.simulate import drive
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.axis import (
    Axis,
    NumberAxis,
    Point,
    Strategy,
    Window,
    as_window,
    choice,
    number,
    subset,
    window,
)
from aorta.core.errors import UsageError
from aorta.core.trial import Verdict
from aorta.search.axes import NumericSearch, search_along


def value(point: Point) -> float:
    found = point["n"]
    assert isinstance(found, (int, float))
    return found


def searching(axis: NumberAxis) -> NumericSearch:
    return NumericSearch(Point.of({"n": axis.initial}), axis, axis.initial)


@given(st.integers(-50, 50), st.integers(0, 3000), st.integers(1, 40), st.data())
def test_without_tolerance_the_exact_minimum_is_found(
    floor: int, span: int, step: int, data: st.DataObject
) -> None:
    axis = number("n", floor + span, floor, step=step)
    threshold = data.draw(st.integers(floor, floor + span))
    slots = data.draw(st.integers(1, 8))
    search = searching(axis)
    drive(search, lambda p: float(value(p) >= threshold), slots=slots)
    grid = [*range(floor, floor + span, step), floor + span]
    assert value(search.best) == min(v for v in grid if v >= threshold)
    assert search.monotone is True


@given(st.floats(0.001, 10), st.floats(0, 1), st.sampled_from([0.01, 0.1, 0.3]), st.integers(1, 8))
def test_with_tolerance_it_ends_that_close(
    floor: float, where: float, tolerance: float, slots: int
) -> None:
    initial = floor * 1000
    threshold = floor * 1000**where
    search = searching(number("n", initial, floor, tolerance=tolerance))
    drive(search, lambda p: float(value(p) >= threshold), slots=slots)
    assert threshold <= value(search.best) <= threshold * (1 + tolerance) * 1.0001


@given(st.frozensets(st.integers(0, 63)), st.integers(1, 8))
def test_without_any_monotonicity_the_answer_still_reproduces(
    good: frozenset[int], slots: int
) -> None:
    search = searching(number("n", 64, 0))
    drive(search, lambda p: float(value(p) in good or value(p) == 64), slots=slots)
    assert value(search.best) in good | {64}


def test_a_second_island_far_below_is_found_and_reported() -> None:
    search = searching(number("n", 10_000, 1, tolerance=0.05))
    drive(search, lambda p: float(value(p) >= 3000 or 5 <= value(p) <= 20))
    assert value(search.best) <= 5.25
    assert search.monotone is False


def test_a_promise_of_monotonicity_is_believed() -> None:
    search = searching(number("n", 10_000, 1, tolerance=0.05, monotone=True))
    drive(search, lambda p: float(value(p) >= 3000 or 5 <= value(p) <= 20))
    assert 3000 <= value(search.best) <= 3150


def test_what_cannot_be_told_is_not_accepted() -> None:
    search = searching(number("n", 100, 1))
    while points := search.ask(1):
        said = None if value(points[0]) < 30 else value(points[0]) >= 10
        search.tell(points[0], Verdict(said))
    assert value(search.best) == 30
    assert search.unresolved > 0
    assert search.monotone is None


@given(st.integers(50, 5000), st.integers(1, 8))
def test_told_the_same_it_asks_the_same(threshold: int, slots: int) -> None:
    axis = number("n", 5000, 50)
    one, two = searching(axis), searching(axis)
    while points := one.ask(slots):
        assert points == one.ask(slots) == two.ask(slots)
        assert not set(one.ask(slots, points)) & set(points)
        for point in points:
            for search in (one, two):
                search.tell(point, Verdict(value(point) >= threshold))
    assert one.best == two.best


def test_calls_stay_within_the_figure() -> None:
    draws = [50 * 100 ** random.Random(seed).random() for seed in range(100)]
    assert mean(numeric_calls(t) for t in draws) <= NUMERIC_CALLS
    assert numeric_calls(50) == 1


def test_a_linear_search_finds_the_minimum_of_anything() -> None:
    axis = number("n", 50, 0, step=5, strategy=Strategy.LINEAR)
    search = search_along(axis, Point.of({"n": 50}))
    drive(search, lambda p: float(value(p) in {15, 40, 50}))
    assert value(search.best) == 15


@given(st.integers(0, 300), st.integers(0, 20), st.integers(1, 6))
def test_a_window_shrinks_to_the_steps_that_matter(last: int, before: int, slots: int) -> None:
    first = max(0, last - before)
    axis = window("w", 0, 301)
    search = search_along(axis, Point.of({"w": axis.initial}))

    def covers(point: Point) -> float:
        found = as_window(point["w"])
        return float(found.start <= first and last < found.start + found.length)

    drive(search, covers, slots=slots)
    assert search.best is not None
    assert search.best["w"] == Window(first, last - first + 1)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: number("n", 5, 10),
        lambda: number("n", 10, 1, step=0),
        lambda: number("n", 10, 1, tolerance=1.5),
        lambda: number("n", 1.0, 0.1, tolerance=0.0),
        lambda: number("n", 10, 1, strategy=Strategy.DD_MIN),
        lambda: number("n", float("inf"), 1),
        lambda: choice("n", ("only",)),
        lambda: choice("n", ("a", "b", "a")),
        lambda: subset("n", ()),
        lambda: subset("n", ("a",), floor=2),
        lambda: window("n", -1, 5),
        lambda: window("n", 0, 5, floor=6),
    ],
)
def test_an_axis_that_cannot_work_is_refused_by_name(declare: Callable[[], Axis]) -> None:
    with pytest.raises(UsageError, match="axis n"):
        declare()
