"""What may be made smaller: how small it can get, how much of it a value uses, and what is no axis."""

import pytest

from aorta.core.axis import Axis, Value, Window, choice, number, subset, window
from aorta.core.errors import UsageError


@pytest.mark.parametrize(
    ("axis", "smallest", "size_at_floor", "value", "size"),
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
    axis: Axis, smallest: Value | None, size_at_floor: float, value: Value, size: float
) -> None:
    assert axis.smallest == smallest
    assert axis.size_at_floor == size_at_floor
    assert axis.size(value) == size
    assert axis.size(axis.initial) >= axis.size(value)


def test_a_choice_ends_at_what_is_wanted_most() -> None:
    axis = choice("dtype", ("float16", "bfloat16", "float32"))
    assert (axis.initial, axis.floor) == ("float16", "float32")


def test_whole_numbers_move_by_one_and_real_ones_within_a_tolerance() -> None:
    whole, real = number("layers", 12, 2), number("lr", 0.5, 0.0)
    assert (whole.step, whole.tolerance) == (1, 0.0)
    assert (real.step, real.tolerance) == (None, 0.1)
    assert (number("lr", 0.5, 0.0, step=0.25).step, number("n", 9, 1, step=2).step) == (0.25, 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: number("n", 1, 2), "axis n: floor 2 is above initial 1"),
        (lambda: number("n", 2, 1, step=0), "step 0 is not above 0"),
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


def test_the_edges_of_what_is_allowed_are_allowed() -> None:
    assert number("n", 2, 2, tolerance=0.0).smallest == 2
    assert window("w", 0, 5, floor=5).smallest == Window(0, 5)
    assert subset("s", ("a",), floor=1).initial == (0,)
