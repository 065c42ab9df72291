"""The merged timeline: every change once, in its package's order, neighbours one change apart."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aorta.search.timeline import History, Timeline

times = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=8)


@st.composite
def histories(draw: st.DrawFn) -> list[History]:
    """Dates in any order, equal ones included; some packages without dates, some that stand still."""
    found = []
    for index in range(draw(st.integers(1, 4))):
        dates = draw(times)
        versions = tuple(f"{index}.{i}" for i in range(len(dates)))
        dated = tuple(dates) if draw(st.booleans()) else None
        found.append(History(f"p{index}", versions, dated))
    return found


@given(histories())
def test_neighbouring_states_differ_by_one_change_of_one_package(found: list[History]) -> None:
    timeline = Timeline(found)
    states = [timeline.state(i) for i in range(timeline.changes + 1)]
    assert states[0] == (0,) * len(found)
    assert states[-1] == tuple(history.changes for history in found)
    for before, after in pairwise(states):
        assert sorted(b - a for a, b in zip(before, after, strict=True)) == [0] * (
            len(found) - 1
        ) + [1]


@given(histories(), st.data())
def test_reordering_keeps_every_change_and_the_states_outside(
    found: list[History], data: st.DataObject
) -> None:
    timeline = Timeline(found)
    start = data.draw(st.integers(0, timeline.changes))
    stop = data.draw(st.integers(start, timeline.changes))
    other = timeline.reordered(start, stop, list(range(len(found)))[::-1])
    assert sorted(other.order) == sorted(timeline.order)
    outside = [*range(start + 1), *range(stop, timeline.changes + 1)]
    assert all(other.state(i) == timeline.state(i) for i in outside)


@given(histories(), st.data())
def test_a_state_is_found_again_by_its_point_and_its_place(
    found: list[History], data: st.DataObject
) -> None:
    from aorta.core.axis import Purpose

    timeline = Timeline(found)
    position = data.draw(st.integers(0, timeline.changes))
    vector = timeline.state(position)
    assert timeline.position(vector) == position
    assert timeline.vector(timeline.point(vector, Purpose.PROBE, 3)) == vector
    assert timeline.first_with(vector) <= position <= timeline.last_within(vector)


def test_dates_that_go_back_never_break_the_order_of_a_package() -> None:
    timeline = Timeline(
        [
            History("a", ("0", "1", "2", "3"), (0.0, 9.0, 1.0, 2.0)),
            History("b", ("0", "1"), (0.0, 5.0)),
        ]
    )
    assert timeline.order == (1, 0, 0, 0)


def test_changes_of_one_moment_are_dealt_out_between_the_packages() -> None:
    same = (1.0,) * 5
    timeline = Timeline([History(name, tuple("01234"), same) for name in "ab"])
    assert timeline.order == (0, 1, 0, 1, 0, 1, 0, 1)
