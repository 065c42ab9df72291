"""Slugs, variables, durations, layers and points: the small rules that everything calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.axis import Point, Purpose
from aorta.core.durations import parse_duration, show_duration
from aorta.core.errors import UsageError
from aorta.core.names import check_variable, is_path_safe, slug
from aorta.registry.environments import layered, stack_mitigations


@given(st.text())
def test_a_slug_is_always_one_harmless_path_component(text: str) -> None:
    safe = slug(text)
    assert safe not in {"", ".", ".."}
    assert not set(safe) & set("/\\ \0\n")
    assert slug(safe) == safe


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "-x", " x", "x y", "", ".hidden"])
def test_hostile_names_are_not_path_safe(name: str) -> None:
    assert not is_path_safe(name)
    assert is_path_safe("PROJ_1.fix-cell")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14400), ("1h30m", 5400), ("90", 90), (2.5, 2.5), ("250ms", 0.25), ("1d 2h", 93600)],
)
def test_durations_are_read_as_people_write_them(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3s", "0", "4x", "inf", "nan", True, "1h-2m"])
def test_what_is_no_duration_is_refused(text: str | float) -> None:
    with pytest.raises(UsageError, match="is not a duration"):
        parse_duration(text)


def test_durations_are_shown_short() -> None:
    shown = [show_duration(s) for s in (0.44, 38.2, 250, 7500)]
    assert shown == ["0.4s", "38s", "4m10s", "2h05m"]


def test_a_wrong_variable_never_shows_its_value() -> None:
    for name, value in [("A B", "hush"), ("OK", 5), ("OK", "hu\0sh")]:
        with pytest.raises(UsageError) as wrong:
            check_variable(name, value, where="here")
        assert "hu" not in str(wrong.value)


def test_later_layers_win_and_disagreeing_mitigations_are_refused() -> None:
    assert layered({"A": "1", "B": "1"}, {"B": "2"}) == {"A": "1", "B": "2"}
    assert stack_mitigations([("x", {"A": "1"}), ("y", {"A": "1", "B": "2"})]) == {
        "A": "1",
        "B": "2",
    }
    with pytest.raises(UsageError, match=r"'x' and 'y' set A to different values"):
        stack_mitigations([("x", {"A": "1"}), ("y", {"A": "2"})])


def test_a_point_is_its_values_and_a_question_is_more() -> None:
    point = Point.of({"B": 2, "A": (1, 5)})
    assert point == Point.of({"A": (1, 5), "B": 2})
    again = point.asked_for(Purpose.CONFIRM, 1)
    assert again.config_key == point.config_key
    assert again.key != point.key
    assert again.with_value("B", 3)["B"] == 3
    assert again.with_value("B", 3).purpose is Purpose.CONFIRM
