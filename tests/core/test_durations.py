"""Times as people write them, and as they are shown."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.durations import parse_duration, show_duration
from aorta.core.errors import UsageError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30.0),
        ("4h", 14_400.0),
        ("1h30m", 5_400.0),
        ("1 h 30 m", 5_400.0),
        ("250ms", 0.25),
        ("2d", 172_800.0),
        ("1.5H", 5_400.0),
        ("90", 90.0),
        (0.5, 0.5),
        ("3650d", 3650 * 86_400.0),
    ],
)
def test_a_time_is_read_as_it_is_meant(written: str | float, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "soon", "5 minutes", "-3s", "0", 0, -1.0, math.inf, math.nan, "nan", True]
)
def test_what_is_no_time_is_refused_with_what_was_found(written: str | float) -> None:
    with pytest.raises(UsageError, match="is not a duration; expected a positive time") as refused:
        parse_duration(written, where="recipe.yaml: budget")
    assert repr(written) in str(refused.value)


def test_nobody_waits_for_more_than_ten_years() -> None:
    with pytest.raises(UsageError, match="longer than ten years"):
        parse_duration("3651d")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.44, "0.4s"),
        (9.94, "9.9s"),
        (10, "10s"),
        (99.4, "99s"),
        (100, "1m40s"),
        (250, "4m10s"),
        (5_999, "99m59s"),
        (6_000, "1h40m"),
        (7_500, "2h05m"),
    ],
)
def test_a_time_is_shown_with_two_units_at_most(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@given(st.floats(100, 1e6))
def test_what_is_shown_reads_as_the_same_time_to_within_a_minute(seconds: float) -> None:
    assert abs(parse_duration(show_duration(seconds)) - seconds) <= 60
