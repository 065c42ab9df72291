"""The belief against the same sums written out change by change."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.search.belief import Belief, Counts
from aorta.search.bisection import USUAL_RATES
from aorta.search.timeline import GraphHistory, GraphTimeline, History, Timeline, Vector
from support.beliefs import WrittenOut

CHANGES = 6
EVERY = (1 << CHANGES) - 1
masks = st.integers(0, EVERY)
prefixes = st.integers(0, CHANGES).map(lambda first: (1 << first) - 1)  # as on a line
histories = st.lists(masks, min_size=5, max_size=5) | st.lists(prefixes, min_size=5, max_size=5)
trials_of = st.dictionaries(
    st.integers(0, 4), st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4
)
priors = st.one_of(
    st.lists(st.sampled_from([0.05, 1.0, 4.0]), min_size=CHANGES, max_size=CHANGES),
    st.just([1.0] * CHANGES),
)


def timeline_of(holds: list[int]) -> GraphTimeline:
    names = tuple(f"c{n}" for n in range(len(holds)))
    none = (0,) * CHANGES
    return GraphTimeline(GraphHistory("package", names, tuple(holds), none, none))


def both(
    holds: list[int], trials: dict[int, Counts], prior: list[float]
) -> tuple[Belief, WrittenOut]:
    classes = [
        (sum(1 << bit for bit, own in enumerate(prior) if own == weight), weight)
        for weight in dict.fromkeys(prior)
    ]
    seen: dict[Vector, Counts] = {(state,): counts for state, counts in trials.items()}
    return (
        Belief.after(USUAL_RATES, timeline_of(holds), seen, prior=classes),
        WrittenOut.after(USUAL_RATES, prior, lambda s, c: bool(holds[s] >> c & 1), trials),
    )


@settings(max_examples=60, deadline=None)
@given(histories, trials_of, priors, masks)
def test_each_change_weighs_its_prior_times_what_the_trials_say(
    holds: list[int], trials: dict[int, Counts], prior: list[float], some: int
) -> None:
    belief, written = both(holds, trials, prior)
    weights = written.weights()
    assert [belief.mass(1 << c) for c in range(CHANGES)] == pytest.approx(weights)
    among = math.fsum(weights[c] for c in range(CHANGES) if some >> c & 1)
    assert belief.mass(some) == pytest.approx(among)
    assert belief.entropy() == pytest.approx(written.entropy(), abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(histories, trials_of, priors, st.integers(0, 4), st.lists(st.integers(0, 4), max_size=3))
def test_what_a_trial_is_expected_to_tell_is_what_it_leaves_less_open(
    holds: list[int],
    trials: dict[int, Counts],
    prior: list[float],
    state: int,
    running: list[int],
) -> None:
    """Also beside trials whose ends are not known yet: they count as both."""
    belief, written = both(holds, trials, prior)
    assert belief.gain(holds[state]) == pytest.approx(written.gain(state), abs=1e-9)
    supposed = belief
    for other in running:
        supposed = supposed.supposing(holds[other])
    for change in range(CHANGES):
        assert supposed.mass(1 << change) == pytest.approx(belief.mass(1 << change), abs=1e-9)
    expected = written.gain_beside(state, running)
    assert supposed.gain(holds[state]) == pytest.approx(expected, abs=1e-9)


def test_hundreds_of_trials_leave_a_distribution() -> None:
    line = Timeline([History("p", tuple(map(str, range(14))))])
    belief = Belief.after(USUAL_RATES, line, {(3,): (30, 370), (10,): (300, 100), (13,): (700, 20)})
    assert belief.mass((1 << 13) - 1) == pytest.approx(1.0)
    assert belief.mass((1 << 13) - (1 << 3)) > 0.99


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 4)),
        st.tuples(st.integers(0, 4), st.integers(0, 4)),
        max_size=6,
    ),
    st.integers(1, 127),
)
def test_states_of_any_order_of_the_changes_count_for_what_they_hold(
    trials: dict[Vector, Counts], among: int
) -> None:
    timeline = Timeline([History("a", tuple("0123")), History("b", tuple("01234"))])
    belief = Belief.after(USUAL_RATES, timeline, trials, among)
    states = list(trials)
    kept = [bit for bit in range(7) if among >> bit & 1]
    written = WrittenOut.after(
        USUAL_RATES,
        [1.0] * len(kept),
        lambda state, place: bool(timeline.mask(states[state]) >> kept[place] & 1),
        {states.index(vector): seen for vector, seen in trials.items()},
    )
    assert [belief.mass(1 << bit) for bit in kept] == pytest.approx(written.weights())
    assert belief.mass(127 & ~among) == 0.0
