"""The belief against the same sums written out candidate by candidate."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.search.belief import Belief, Counts, Prior
from aorta.search.bisection import USUAL_RATES
from aorta.search.timeline import History, Timeline, Vector
from support.beliefs import WrittenOut
from support.timelines import one_package

counts = st.tuples(st.integers(0, 4), st.integers(0, 4))
STATES = 14
told_of = st.dictionaries(st.integers(0, STATES - 1), counts, max_size=6)
places = st.integers(0, STATES - 1)


@st.composite
def priors(draw: st.DrawFn) -> Prior:
    later = draw(st.sets(st.integers(1, STATES + 3), max_size=4))
    weights = st.floats(0.01, 5.0)
    return tuple((start, draw(weights)) for start in (0, *sorted(later)))


def both(trials: dict[int, Counts], prior: Prior) -> tuple[Belief, WrittenOut]:
    """Candidate `i` is the change from state i to state i + 1."""
    told: dict[Vector, Counts] = {(position,): seen for position, seen in trials.items()}
    each = [
        [weight for start, weight in prior if start <= candidate][-1]
        for candidate in range(STATES - 1)
    ]
    return (
        Belief.after(USUAL_RATES, one_package(STATES), told, prior=prior),
        WrittenOut.after(USUAL_RATES, each, lambda state, change: state > change, trials),
    )


@settings(max_examples=60, deadline=None)
@given(told_of, priors())
def test_each_change_weighs_its_prior_times_what_the_trials_say(
    trials: dict[int, Counts], prior: Prior
) -> None:
    belief, written = both(trials, prior)
    weights = written.weights()
    masses = [belief.mass(candidate, candidate + 1) for candidate in range(STATES - 1)]
    assert masses == pytest.approx(weights, rel=1e-9)
    assert belief.mass(3, 9) == pytest.approx(math.fsum(weights[3:9]))
    atoms = list(belief.atoms())
    assert [w for start, stop, w in atoms for _ in range(start, stop)] == pytest.approx(weights)
    assert belief.entropy() == pytest.approx(written.entropy(), abs=1e-9)


def test_hundreds_of_trials_leave_a_distribution() -> None:
    belief, _ = both({3: (30, 370), 10: (300, 100), 13: (700, 20)}, ((0, 1.0),))
    assert belief.mass(0, STATES - 1) == pytest.approx(1.0)
    assert belief.mass(3, 13) > 0.99


@settings(max_examples=40, deadline=None)
@given(told_of, priors(), places)
def test_what_a_trial_is_expected_to_tell_is_what_it_leaves_less_open(
    trials: dict[int, Counts], prior: Prior, position: int
) -> None:
    belief, written = both(trials, prior)
    assert belief.gain(position) == pytest.approx(written.gain(position), abs=1e-9)
    good, bad = belief.expected_rates()
    weights = list(enumerate(written.weights()))
    assert good == pytest.approx(math.fsum(w * written.fails(0, c) for c, w in weights))
    assert bad == pytest.approx(math.fsum(w * written.fails(STATES, c) for c, w in weights))


@settings(max_examples=30, deadline=None)
@given(told_of, priors(), st.lists(st.integers(1, STATES - 1), min_size=1, max_size=3), places)
def test_a_trial_whose_end_is_not_known_counts_as_both(
    trials: dict[int, Counts], prior: Prior, running: list[int], position: int
) -> None:
    now, written = both(trials, prior)
    supposed = now
    for place in running:
        supposed = supposed.supposing(place)
    for candidate in range(STATES - 1):
        before, after = (b.mass(candidate, candidate + 1) for b in (now, supposed))
        assert before == pytest.approx(after, abs=1e-9)
    expected = written.gain_beside(position, running)
    assert supposed.gain(position) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(told_of, priors())
def test_the_state_chosen_says_as_much_as_any_other_worth_asking(
    trials: dict[int, Counts], prior: Prior
) -> None:
    belief, written = both(trials, prior)
    best = belief.gain(belief.best_position)
    inside = belief.plausible_positions()
    assert best >= max(belief.gain(position) for position in inside[1:]) - 1e-9
    weights = written.weights()
    for outside in (weights[: inside.start], weights[inside.stop - 1 :]):
        assert math.fsum(outside) <= 0.004 + 1e-9


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 4)), counts, max_size=6),
    st.integers(0, 6),
)
def test_states_of_another_order_of_the_changes_count_for_what_they_hold(
    trials: dict[Vector, Counts], floor: int
) -> None:
    """No change before the floor is a candidate."""
    timeline = Timeline([History("a", tuple("0123")), History("b", tuple("01234"))])
    belief = Belief.after(USUAL_RATES, timeline, trials, floor)
    states, path = list(trials), timeline.path
    written = WrittenOut.after(
        USUAL_RATES,
        [1.0] * (len(path) - floor),
        lambda state, change: timeline.contains(states[state], path[floor + change]),
        {states.index(vector): seen for vector, seen in trials.items()},
    )
    masses = [belief.mass(candidate, candidate + 1) for candidate in range(len(path))]
    assert masses == pytest.approx([0.0] * floor + written.weights())
