"""What may be made smaller: how small it can get, how much of it a value uses, and what is no
axis.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.axis import (
    Axis,
    Point,
    Purpose,
    Strategy,
    Value,
    Window,
    as_indexes,
    as_number,
    as_single,
    as_window,
    choice,
    number,
    show_value,
    size_at_floor,
    subset,
    value_from_json,
    value_to_json,
    window,
)
from aorta.core.errors import UsageError


@pytest.mark.parametrize(
    ("axis", "smallest", "least", "value", "size"),
    [
        (number("layers", 12, 2), 2, 2, 7, 7),
        (window("steps", 100, 40, floor=3), Window(100, 3), 3, Window(110, 8), 8),
        (choice("dtype", ("float16", "bfloat16", "float32")), "float32", 0, "float16", 2),
        (choice("dtype", ("float16", "bfloat16", "float32")), "float32", 0, "float32", 0),
        (subset("files", ("a", "b", "c"), floor=0), (), 0, (0, 2), 2),
        (subset("files", ("a", "b", "c"), floor=2), None, 2, (0, 1, 2), 3),
    ],
)
def test_an_axis_knows_its_end_and_how_much_a_value_uses(
    axis: Axis, smallest: Value | None, least: float, value: Value, size: float
) -> None:
    assert axis.smallest == smallest
    assert size_at_floor(axis) == least
    assert axis.size(value) == size
    assert axis.size(axis.initial) >= axis.size(value)


def test_a_choice_ends_at_what_is_wanted_most() -> None:
    axis = choice("dtype", ("float16", "bfloat16", "float32"))
    assert (axis.initial, axis.floor) == ("float16", "float32")


def test_whole_numbers_move_by_one_and_real_ones_within_a_tolerance() -> None:
    whole, real = number("layers", 12, 2), number("lr", 0.5, 0.0)
    assert (whole.step, whole.tolerance) == (1, 0.0)
    assert (real.step, real.tolerance) == (None, 0.01)
    assert (number("lr", 0.5, 0.0, step=0.25).step, number("n", 9, 1, step=2).step) == (0.25, 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: number("n", 1, 2), "axis n: floor 2 is above initial 1"),
        (lambda: number("n", 2, 1, step=0), "step 0 is not above 0"),
        (lambda: number("n", 2, 1, strategy=Strategy.DD_MIN), "dd-min is for subsets"),
        (lambda: number("x", 2.0, 1.0, strategy=Strategy.LINEAR), "a real number needs a step"),
        (lambda: number("n", 2, 1, tolerance=-0.1), "tolerance -0.1 is not in 0 to 1"),
        (lambda: subset("s", ("a",), floor=-1), "floor -1 is not in 0 to 1 items"),
        (lambda: window("w", 0, 5, tolerance=-0.1), "tolerance -0.1 is not in 0 to 1"),
        (lambda: number("n", 2, 1, tolerance=1.0), "tolerance 1.0 is not in 0 to 1"),
        (lambda: number("x", 2.0, 1.0, tolerance=0.0), "a real number needs a step here"),
        (lambda: number("x", float("inf"), 1.0), "must be finite"),
        (lambda: choice("c", ("a",)), "at least two values"),
        (lambda: choice("c", ("a", "b", "a")), "the same value twice"),
        (lambda: subset("s", ()), "no items to choose from"),
        (lambda: subset("s", ("a",), floor=2), "floor 2 is not in 0 to 1 items"),
        (lambda: window("w", -1, 5), "start -1 is below 0"),
        (lambda: window("w", 0, 5, floor=6), "floor 6 is not in 1 to length 5"),
        (lambda: window("w", 0, 5, floor=0), "floor 0 is not in 1 to length 5"),
        (lambda: window("w", 0, 5, tolerance=1.0), "tolerance 1.0 is not in 0 to 1"),
    ],
)
def test_what_is_no_axis_is_refused(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match="axis") as refused:
        make()
    assert said in str(refused.value)


@given(
    st.one_of(
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.lists(st.integers(0, 99)).map(tuple),
        st.builds(Window, st.integers(0, 99), st.integers(1, 99)),
    )
)
def test_a_value_comes_back_from_json_as_it_was(value: Value) -> None:
    assert value_from_json(json.loads(json.dumps(value_to_json(value)))) == value


@pytest.mark.parametrize("said", [None, {"start": 1}, {"start": 1, "length": "2"}])
def test_what_is_no_value_is_not_taken_for_one(said: object) -> None:
    with pytest.raises(TypeError, match="expected a number, a text, indexes or a range"):
        value_from_json(said)


def test_values_are_shown_as_people_read_them() -> None:
    values: list[Value] = [137, 0.5, "float16", (3, 4, 9), Window(7, 130)]
    assert [show_value(value) for value in values] == ["137", "0.5", "float16", "3 items", "7+130"]


def test_a_point_is_named_the_same_in_every_run_and_process() -> None:
    """Journals and directories of trials rest on it."""
    point = Point.of({"n": 3, "größe": "zwölf", "steps": Window(0, 5), "files": (1, 2)})
    assert point.key == "b94885712acc777d.probe.0"
    assert point.asked_for(Purpose.REPLAY).key == f"{point.config_key}.replay.0"
    assert point.asked_for(Purpose.CONFIRM, 4).key == f"{point.config_key}.confirm.4"
    assert point.with_value("n", 3) == point
    assert point.with_value("n", 4) != point
    assert point.with_value("n", 4)["n"] == 4
    assert point != "point"
    assert Point((("n", 3),)) == Point.of({"n": 3}, Purpose.PROBE, 0)


def test_a_value_of_another_kind_is_a_mistake_of_the_program() -> None:
    for read, wrong in ((as_number, "3"), (as_single, (3,)), (as_indexes, 3), (as_window, 3)):
        with pytest.raises(TypeError, match="expected"):
            read(wrong)
    assert (as_number(0.5), as_single("a"), as_single(3)) == (0.5, "a", 3)
    assert (as_indexes((1,)), as_window(Window(0, 1))) == ((1,), Window(0, 1))


def test_the_edges_of_what_is_allowed_are_allowed() -> None:
    assert number("n", 2, 2, tolerance=0.0).smallest == 2
    assert window("w", 0, 5, floor=5).smallest == Window(0, 5)
    assert subset("s", ("a",), floor=1).initial == (0,)
    assert subset("s", ("a", "b")).floor == window("w", 0, 2).floor == 1
    assert choice("c", ("a", "b")).initial == "a"
    assert (window("w", 0, 5).step, window("w", 0, 5).tolerance) == (1, 0.0)
    assert number("n", 2, 1, tolerance=0.9, step=0.5).tolerance == 0.9
