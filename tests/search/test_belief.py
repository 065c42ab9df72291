"""The belief against the same sums written out candidate by candidate."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.search.belief import Belief, Counts, Prior, Rates
from aorta.search.bisection import USUAL_RATES
from aorta.search.contradiction import fixed_in_between
from aorta.search.timeline import Vector
from support.timelines import one_package

counts = st.tuples(st.integers(0, 4), st.integers(0, 4))
STATES = 14


@st.composite
def priors(draw: st.DrawFn) -> Prior:
    later = draw(st.sets(st.integers(1, STATES + 3), max_size=4))
    weights = st.floats(0.01, 5.0)
    return tuple((start, draw(weights)) for start in (0, *sorted(later)))


def told(trials: dict[int, Counts]) -> dict[Vector, Counts]:
    return {(position,): seen for position, seen in trials.items()}


def sides_of(trials: dict[int, Counts], candidate: int) -> tuple[Counts, Counts]:
    """Candidate `i` is the change from state i to state i + 1."""
    sides = [[0, 0], [0, 0]]
    for position, (hits, misses) in trials.items():
        side = sides[position > candidate]
        side[0], side[1] = side[0] + hits, side[1] + misses
    good, bad = sides
    return (good[0], good[1]), (bad[0], bad[1])


def independent(rates: Rates, good: Counts, bad: Counts) -> float:
    return math.exp(rates.good.log_marginal(*good) + rates.bad.log_marginal(*bad))


def weight(trials: dict[int, Counts], prior: Prior, candidate: int) -> float:
    splits = [sides_of(trials, one) for one in range(STATES - 1)]
    good, bad = splits[candidate]
    if any(not without[0] and not having[1] for without, having in splits):
        nothing_lies = not good[0] and not bad[1]
        flaky = independent(USUAL_RATES, good, bad)
        likelihood = (1 - USUAL_RATES.steady) * flaky + USUAL_RATES.steady * nothing_lies
    else:
        assert USUAL_RATES.once_flaky
        kinds = USUAL_RATES.once_flaky.kinds
        likelihood = math.fsum(share * independent(rates, good, bad) for share, rates in kinds)
    stepped = [step for start, step in prior if start <= candidate][-1]
    return stepped * likelihood


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.integers(0, STATES - 1), counts, max_size=6), priors())
def test_each_change_weighs_its_prior_times_what_the_trials_say(
    trials: dict[int, Counts], prior: Prior
) -> None:
    belief = Belief.after(USUAL_RATES, one_package(STATES), told(trials), prior=prior)
    weights = [weight(trials, prior, candidate) for candidate in range(STATES - 1)]
    for candidate, expected in enumerate(weights):
        share = expected / sum(weights)
        assert math.isclose(belief.mass(candidate, candidate + 1), share, rel_tol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.integers(0, STATES - 1), counts, max_size=5),
    priors(),
    st.lists(st.integers(1, STATES - 1), min_size=1, max_size=3),
)
def test_a_trial_whose_end_is_not_known_changes_no_probability(
    trials: dict[int, Counts], prior: Prior, running: list[int]
) -> None:
    now = Belief.after(USUAL_RATES, one_package(STATES), told(trials), prior=prior)
    supposed = now
    for position in running:
        supposed = supposed.supposing(position)
    for candidate in range(STATES - 1):
        before, after = (b.mass(candidate, candidate + 1) for b in (now, supposed))
        assert math.isclose(before, after, abs_tol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.integers(0, STATES - 1), counts, max_size=6), priors())
def test_the_state_chosen_says_as_much_as_any_other_worth_asking(
    trials: dict[int, Counts], prior: Prior
) -> None:
    belief = Belief.after(USUAL_RATES, one_package(STATES), told(trials), prior=prior)
    best = belief.gain(belief.best_position())
    inside = belief.plausible_positions()
    assert best >= max(belief.gain(position) for position in inside[1:]) - 1e-9


@given(st.lists(counts, min_size=1, max_size=3))
def test_three_states_are_too_few_to_tell_of_a_repair(seen: list[Counts]) -> None:
    trials = told(dict(enumerate(seen)))
    assert fixed_in_between(one_package(STATES), trials, 0, USUAL_RATES) is None
