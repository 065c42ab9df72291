"""The merged timeline: every change once, in its package's order, neighbours one change apart."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from aorta.core.axis import Purpose
from aorta.search.timeline import History, Timeline, bits_of

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
    states = list(timeline.every_state())
    assert states[0] == (0,) * len(found)
    assert states[-1] == tuple(history.changes for history in found)
    for before, after in pairwise(states):
        assert sorted(b - a for a, b in zip(before, after, strict=True)) == [0] * (
            len(found) - 1
        ) + [1]


@given(histories(), st.data())
def test_a_state_is_found_again_by_its_point_and_its_place(
    found: list[History], data: st.DataObject
) -> None:
    timeline = Timeline(found)
    position = data.draw(st.integers(0, timeline.changes))
    vector = timeline.every_state()[position]
    assert timeline.position(vector) == position
    assert timeline.vector(timeline.point(vector, Purpose.PROBE, 3)) == vector
    assert timeline.mask(vector) == (1 << position) - 1


vectors = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4))


@given(st.permutations([0] * 3 + [1] * 2 + [2] * 4), vectors, st.integers(1, 511))
def test_a_mask_is_what_a_state_holds_on_the_path_or_off_it(
    order: list[int], vector: tuple[int, int, int], part: int
) -> None:
    sizes = {"a": 3, "b": 2, "c": 4}
    found = [History(name, tuple(map(str, range(size + 1)))) for name, size in sizes.items()]
    timeline = Timeline(found, order)
    states = timeline.every_state()
    held = [bit for bit, change in enumerate(timeline.path) if vector[change.package] > change.rank]
    assert list(bits_of(timeline.mask(vector))) == held
    assert timeline.position(vector) == (states.index(vector) if vector in states else None)
    for bit in range(timeline.changes):
        before, after = timeline.around(bit)
        assert timeline.mask(before) ^ timeline.mask(after) == 1 << bit
    cutting = {state for state in states if timeline.mask(state) & part not in (0, part)}
    assert cutting <= set(timeline.cutting(part))


def test_between_two_states_one_may_go_package_by_package() -> None:
    timeline = Timeline([History(name, tuple("01234")) for name in "ab"])
    ways = list(timeline.in_order((1, 1), (3, 2), (1, 0)))
    assert ways == [(1, 2), (2, 2), (3, 2)]


def test_a_change_is_as_likely_as_the_commits_it_brings() -> None:
    a = History("a", tuple("0123"), weights=(1, 5, 5))
    timeline = Timeline([a, History("b", tuple("01"))], (0, 0, 1, 0))
    assert dict(timeline.classes) == {0b0101: 1, 0b1010: 5}


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
