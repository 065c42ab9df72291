"""The merged timeline: every change once, in its package's order, neighbours one change apart."""

from itertools import pairwise
from operator import ge, le

from hypothesis import given
from hypothesis import strategies as st

from aorta.search.timeline import History, Timeline

times = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=8)


@st.composite
def histories(draw: st.DrawFn) -> list[History]:
    """Dates in any order, equal ones included; some packages without dates, some that stand
    still.
    """
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


vectors = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4))


@given(st.permutations([0] * 3 + [1] * 2 + [2] * 4), vectors)
def test_a_state_of_another_order_stands_between_what_holds_it_and_what_it_holds(
    order: list[int], vector: tuple[int, int, int]
) -> None:
    sizes = {"a": 3, "b": 2, "c": 4}
    found = [History(name, tuple(map(str, range(size + 1)))) for name, size in sizes.items()]
    timeline = Timeline(found, order)
    states = timeline.every_state()
    holding = [i for i, s in enumerate(states) if all(map(ge, s, vector))]
    held = [i for i, s in enumerate(states) if all(map(le, s, vector))]
    assert timeline.first_with(vector) == min(holding)
    assert timeline.last_within(vector) == max(held)
    assert timeline.position(vector) == (states.index(vector) if vector in states else None)
    for position, change in enumerate(timeline.path):
        assert not timeline.contains(states[position], change)
        assert timeline.contains(states[position + 1], change)


def test_a_change_is_as_likely_as_the_commits_it_brings() -> None:
    a = History("a", tuple("0123"), weights=(1, 5, 5))
    b = History("b", tuple("01"))
    timeline = Timeline([a, b], (0, 0, 1, 0))
    assert timeline.weight_before == (0, 1, 6, 7, 12)
    assert timeline.prior == ((0, 1.0), (1, 5.0), (2, 1.0), (3, 5.0))
    assert Timeline([History("a", tuple("0123"), weights=(4, 4, 2))]).prior == ((0, 4.0), (2, 2.0))
    assert Timeline([b]).prior == Timeline([History("c", ("0",))]).prior == ((0, 1.0),)


def test_a_timeline_names_the_versions_of_a_state_and_draws_itself_again() -> None:
    timeline = Timeline([History("a", ("x", "y")), History("b", ("u", "v", "w"))], (1, 0, 1))
    assert timeline.versions((1, 2)) == {"a": "y", "b": "w"}
    assert (timeline.good_end, timeline.bad_end, timeline.changes) == ((0, 0), (1, 2), 3)
    assert timeline.to_json() == {
        "histories": [
            {"package": "a", "versions": ["x", "y"]},
            {"package": "b", "versions": ["u", "v", "w"]},
        ],
        "order": [1, 0, 1],
    }


def test_changes_without_a_date_are_spread_over_the_time_of_the_others() -> None:
    dated = History("a", tuple("0123"), (0.0, 2.0, 5.0, 10.0))
    assert Timeline([dated, History("b", tuple("012"))]).order == (0, 1, 0, 1, 0)
    late = History("a", tuple("0123"), (20.0, 22.0, 25.0, 30.0))
    assert Timeline([late, History("b", tuple("012"))]).order == (0, 1, 0, 1, 0)


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
