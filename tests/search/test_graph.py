"""Histories with merges: what a state holds, and the belief against the same sums written out
change by change.
"""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.search.belief import Counts
from aorta.search.bisecting import USUAL_RATES
from aorta.search.graph import (
    GraphBelief,
    GraphHistory,
    GraphTimeline,
    changes_of,
    first_of,
    ranks_of,
)
from aorta.search.timeline import Change, Vector
from support.beliefs import WrittenOut

counts = st.tuples(st.integers(0, 3), st.integers(0, 3))
CHANGES = 6
held = st.integers(0, 2**CHANGES - 1)
told_of = st.dictionaries(st.integers(0, 4), counts, max_size=4)


def graph_of(holds: list[int]) -> GraphHistory:
    names = tuple(f"c{n}" for n in range(len(holds)))
    return GraphHistory("package", names, tuple(holds), (0,) * CHANGES, (1,) * CHANGES)


def both(holds: list[int], trials: dict[int, Counts]) -> tuple[GraphBelief, WrittenOut]:
    every = (1 << CHANGES) - 1
    told: dict[Vector, Counts] = {(state,): seen for state, seen in trials.items()}
    return (
        GraphBelief.after(USUAL_RATES, graph_of(holds), told, every),
        WrittenOut.after(
            USUAL_RATES, [1.0] * CHANGES, lambda state, c: bool(holds[state] >> c & 1), trials
        ),
    )


histories = st.lists(held, min_size=5, max_size=5)


@settings(max_examples=40, deadline=None)
@given(histories, told_of, held)
def test_each_change_weighs_what_the_trials_say(
    holds: list[int], trials: dict[int, Counts], some: int
) -> None:
    belief, written = both(holds, trials)
    weights = written.weights()
    assert [belief.mass(1 << c) for c in range(CHANGES)] == pytest.approx(weights)
    among = math.fsum(weights[c] for c in range(CHANGES) if some >> c & 1)
    assert belief.mass(some) == pytest.approx(among)
    runs = list(belief.runs(CHANGES))
    assert [w for start, stop, w in runs for _ in range(start, stop)] == pytest.approx(
        weights, abs=1e-6
    )
    assert all(one[1] == other[0] for one, other in pairwise(runs))
    likeliest = [weight for _, weight in belief.weighted()]
    assert likeliest == sorted(likeliest, reverse=True)
    assert belief.entropy() == pytest.approx(written.entropy(), abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(histories, told_of, st.integers(0, 4), st.lists(st.integers(0, 4), max_size=2))
def test_what_a_trial_is_expected_to_tell_is_what_it_leaves_less_open(
    holds: list[int], trials: dict[int, Counts], state: int, running: list[int]
) -> None:
    belief, written = both(holds, trials)
    supposed = belief
    for other in running:
        supposed = supposed.supposing(holds[other])
    expected = written.gain_beside(state, running)
    assert supposed.gain(holds[state]) == pytest.approx(expected, abs=1e-9)
    assert [supposed.mass(1 << c) for c in range(CHANGES)] == pytest.approx(written.weights())


def test_both_rates_are_those_of_a_state_without_any_change_and_of_one_with_all() -> None:
    belief, written = both([0, 0b000111, 2**CHANGES - 1], {0: (0, 3), 1: (1, 1), 2: (2, 1)})
    good, bad = belief.expected_rates()
    assert good == pytest.approx(written.failing(0))
    assert bad == pytest.approx(written.failing(2))


def test_a_timeline_of_a_graph_tells_what_each_state_holds() -> None:
    graph = GraphHistory("p", ("a", "b", "c", "d"), (0, 0b01, 0b10, 0b11), (0, 0), (1, 2))
    timeline = GraphTimeline(graph)
    assert (timeline.good_end, timeline.bad_end) == ((0,), (3,))
    assert timeline.every_state() == [(0,), (1,), (2,), (3,)]
    assert [timeline.position(state) for state in timeline.every_state()] == [0, 1, 2, 3]
    held = [[timeline.contains((s,), Change(0, c)) for c in range(2)] for s in range(4)]
    assert held == [[False, False], [True, False], [False, True], [True, True]]
    assert timeline.changes == graph.changes == 2
    assert timeline.to_json() == {
        "histories": [{"package": "p", "versions": ["a", "b", "c", "d"]}],
        "order": [0, 0],
        "holds": ["0", "1", "2", "3"],
    }


@pytest.mark.parametrize(("changes", "drawn"), [(2000, True), (2001, False)])
def test_what_every_state_holds_is_kept_for_a_picture_up_to_two_thousand_changes(
    changes: int, drawn: bool
) -> None:
    line = GraphHistory("p", ("a", "b"), (0, 1), (0,) * changes, (1,) * changes)
    assert ("holds" in GraphTimeline(line).to_json()) is drawn


@given(st.sets(st.integers(0, 70), min_size=1))
def test_a_set_of_changes_is_read_back_in_order(ranks: set[int]) -> None:
    bits = sum(1 << rank for rank in ranks)
    assert list(ranks_of(bits)) == sorted(ranks)
    assert changes_of(bits) == tuple(Change(0, rank) for rank in sorted(ranks))
    assert first_of(bits) == min(ranks)
