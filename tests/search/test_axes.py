"""The search along one axis: which values it goes through, and what its answer rests on."""

import pytest

from aorta.core.axis import Axis, Point, Strategy, Value, Window, as_window, choice, number, window
from aorta.core.trial import Verdict
from aorta.search.axes import AxisSearch, WindowSearch, search_along

DTYPES = choice("x", ("float16", "bfloat16", "float32", "float64"))


def values(points: list[Point]) -> list[Value]:
    return [point["x"] for point in points]


def asked(axis: Axis, current: Value) -> list[Value]:
    return values(list(search_along(axis, Point.of({"x": current})).ask(99)))


@pytest.mark.parametrize(
    ("axis", "current", "expected"),
    [
        (DTYPES, "float16", ["float64", "float32", "bfloat16"]),
        (DTYPES, "bfloat16", ["float64", "float32"]),
        (DTYPES, "float64", []),
        (number("x", 9, 2, step=3, strategy=Strategy.LINEAR), 9, [2, 5, 8]),
        (number("x", 9, 2, step=3, strategy=Strategy.LINEAR), 8, [2, 5]),
        (number("x", 4, 1, strategy=Strategy.LINEAR), 4, [1, 2, 3]),
        (number("x", 1.0, 0.0, step=0.25, strategy=Strategy.LINEAR), 0.75, [0.0, 0.25, 0.5]),
    ],
)
def test_values_in_order_go_from_the_most_wanted_to_just_before_the_current_one(
    axis: Axis, current: Value, expected: list[Value]
) -> None:
    assert asked(axis, current) == expected


def told(search: AxisSearch, value: Value, reproduces: bool | None) -> None:
    search.tell(Point.of({"x": value}), Verdict(reproduces))


def test_the_answer_in_an_order_rests_on_every_value_that_is_wanted_more() -> None:
    base = Point.of({"x": "float16"})
    search = search_along(DTYPES, base)
    assert search.best == base
    told(search, "float64", None)
    told(search, "float32", False)
    assert (search.unresolved, search.done) == (1, False)
    told(search, "bfloat16", True)
    assert (search.unresolved, search.done, search.best["x"]) == (1, True, "bfloat16")
    assert values(list(search.minimality_checks())) == ["float64", "float32"]
    assert search.monotone is None


def windowed(search: WindowSearch, first: int, last: int) -> list[Window]:
    """It fails where these steps are in it."""
    seen = []
    while points := search.ask(1):
        span = as_window(points[0]["x"])
        seen.append(span)
        assert search.wants(points[0])
        inside = span.start <= first and last < span.start + span.length
        search.tell(points[0], Verdict(inside))
    return seen


STEPS = window("x", 0, 40)


def test_a_range_gives_up_its_end_first_and_then_its_start() -> None:
    search = WindowSearch(Point.of({"x": Window(0, 40)}), STEPS)
    seen = windowed(search, 10, 29)
    assert search.done
    assert search.best["x"] == Window(10, 20)
    assert search.largest_rejected == (29, 19)
    assert search.minimality_checks() == [Point.of({"x": Window(11, 19)})]
    assert (search.monotone, search.unresolved) == (True, 0)
    turned = next(i for i, span in enumerate(seen) if span.start)
    assert all(span.start == 0 for span in seen[:turned])
    assert all(span.start + span.length == 30 for span in seen[turned:])


def test_while_the_end_is_open_nothing_is_known_of_the_start() -> None:
    search = WindowSearch(Point.of({"x": Window(0, 40)}), STEPS)
    [first] = search.ask(1)
    search.tell(first, Verdict(False))
    assert search.largest_rejected == (1, None)
    assert not search.done
    assert search.monotone is None
    assert not search.wants(Point.of({"x": Window(5, 35)}))


def test_what_was_rejected_before_is_asked_first_when_the_axis_is_searched_again() -> None:
    earlier = WindowSearch(Point.of({"x": Window(0, 40)}), STEPS)
    windowed(earlier, 0, 29)
    again = search_along(STEPS, Point.of({"x": Window(0, 30)}), earlier)
    assert values(list(again.ask(1))) == [Window(0, 29)]
    numbers = number("x", 40, 1)
    first = search_along(numbers, Point.of({"x": 40}))
    while points := first.ask(1):
        first.tell(points[0], Verdict(int(str(points[0]["x"])) >= 17))
    assert first.best["x"] == 17
    assert values(list(search_along(numbers, first.best, first).ask(1))) == [16]


def test_a_range_that_could_not_be_told_is_counted() -> None:
    search = WindowSearch(Point.of({"x": Window(0, 4)}), window("x", 0, 4))
    while points := search.ask(1):
        search.tell(points[0], Verdict(None))
    assert search.best["x"] == Window(0, 4)
    assert search.unresolved > 1
    assert search.monotone is None
