"""Two levels of a noisy number: what values say, and how many trials a search by them takes."""

import math
import statistics
from collections import Counter

import pytest
from benchmarks.metric import simulated
from hypothesis import assume, example, given
from hypothesis import strategies as st

from aorta.core.stats import Levels

numbers = st.floats(-1e6, 1e6, allow_nan=False)
samples = st.lists(numbers, min_size=1, max_size=6).map(tuple)


@given(samples, samples, st.lists(numbers, min_size=1, max_size=8))
@example((0.0,), (2e-155,), [1.0])  # a gap whose square is nearly nothing
def test_swapping_the_sides_swaps_the_odds(
    good: tuple[float, ...], bad: tuple[float, ...], values: list[float]
) -> None:
    there = Levels(good, bad).log_odds(values)
    back = Levels(bad, good).log_odds(values)
    assert there == pytest.approx(-back, abs=1e-6)


@given(samples, samples, st.lists(numbers, min_size=1, max_size=8))
def test_odds_do_not_depend_on_the_unit(
    good: tuple[float, ...], bad: tuple[float, ...], values: list[float]
) -> None:
    levels = Levels(good, bad)
    assume(abs(levels.gap) > 1e-3)
    milli = Levels(tuple(1000 * v for v in good), tuple(1000 * v for v in bad))
    assert milli.log_odds([1000 * v for v in values]) == pytest.approx(
        levels.log_odds(values), rel=1e-6, abs=1e-6
    )


def test_a_value_at_a_level_counts_for_it_and_one_in_the_middle_for_neither() -> None:
    levels = Levels((10.0, 10.1, 9.9, 10.0), (14.0, 14.1, 13.9, 14.0))
    assert levels.log_odds([14.0]) > 5
    assert levels.log_odds([10.0]) < -5
    assert abs(levels.log_odds([12.0])) < 0.1


def test_one_wild_value_far_beyond_both_levels_settles_nothing() -> None:
    levels = Levels((10.0, 10.1, 9.9, 10.0), (14.0, 14.1, 13.9, 14.0))
    assert abs(levels.log_odds([90.0])) < 2


def test_values_between_the_levels_are_at_neither() -> None:
    levels = Levels((10.0, 10.1, 9.9, 10.0), (14.0, 14.1, 13.9, 14.0))
    assert levels.are_missed_by([12.0, 12.1, 11.9, 12.0])
    assert not levels.are_missed_by([12.0])
    assert not levels.are_missed_by([10.1, 9.9, 10.0, 10.2])
    assert not levels.are_missed_by([14.5, 15.0, 15.5, 16.0])


def test_numbers_that_never_vary_are_still_levels() -> None:
    levels = Levels((1.0,) * 4, (2.0,) * 4)
    assert levels.are_apart(1.0)
    assert levels.log_odds([2.0]) > 5


@pytest.mark.parametrize(
    ("noise", "right", "trials"),
    [(0.01, 0.99, 24), (0.2, 0.97, 26), (0.5, 0.9, 90)],
)
def test_a_noisy_number_leads_to_the_commit_in_few_trials(
    noise: float, right: float, trials: float
) -> None:
    found = simulated(noise, 50)
    counts = Counter(one.status for one in found)
    assert counts["right"] >= right * len(found), counts
    assert not counts["wrong"]
    assert statistics.fmean(one.trials for one in found) <= trials


def test_levels_that_are_the_same_are_said_to_be_so() -> None:
    found = simulated(1.0, 30, gap=0.0)
    assert sum(one.status == "cannot tell" for one in found) >= 29
    assert max(one.trials for one in found) <= 400


def _density(value: float, centre: float, square: float, freedom: float) -> float:
    """Student's, with this scale and place."""
    shape = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    shape -= math.log(freedom * math.pi * square) / 2
    return shape - (freedom + 1) / 2 * math.log1p((value - centre) ** 2 / (freedom * square))


@pytest.mark.parametrize("value", [-3.0, 2.0, 6.5, 12.5, 40.0])
@pytest.mark.parametrize("noise", [(0.0, 0), (3.0, 2)])
def test_one_value_weighs_as_much_as_students_distribution_says(
    value: float, noise: tuple[float, int]
) -> None:
    """Before any sample the noise is held to be a sixth of the gap, as firmly as two samples would
    tell.
    """
    good, bad = (1.0, 3.0), (11.0, 12.0, 13.0)
    freedom = 3 + noise[1] + 2
    square = (2.0 + 2.0 + noise[0] + 2 * (10 / 6) ** 2) / freedom
    expected = _density(value, 12.0, square * (1 + 1 / 3), freedom)
    expected -= _density(value, 2.0, square * (1 + 1 / 2), freedom)
    assert Levels(good, bad, noise).log_odds([value]) == pytest.approx(expected)


def test_levels_are_apart_once_twice_the_standard_error_is() -> None:
    levels = Levels((1.0, 3.0), (11.0, 13.0))
    separation = 10 / math.sqrt(2)
    error = math.sqrt(1 / 2 + 1 / 2 + separation**2 / 4)
    assert levels.separation == pytest.approx(separation)
    assert levels.sure_separation == pytest.approx(separation - 2 * error)
    assert levels.are_apart(separation - 2 * error - 0.01) is True
    assert levels.are_apart(separation - 2 * error + 0.01) is None
    assert levels.are_apart(separation + 2 * error - 0.01) is None
    assert levels.are_apart(separation + 2 * error + 0.01) is False
    assert (levels.gap, levels.centres) == (10.0, (2.0, 12.0))


def test_a_noise_of_nothing_is_a_hundredth_of_the_gap_and_no_gap_is_no_separation() -> None:
    assert Levels((1.0,), (3.0,)).spread == pytest.approx(0.02)
    assert Levels((1.0,), (3.0,)).separation == pytest.approx(100)
    assert Levels((1.0,), (3.0,), noise=(8.0, 2)).spread == pytest.approx(2.0)
    assert Levels((5.0, 7.0), (6.0,)).separation == 0.0


def test_values_just_inside_a_level_belong_to_it() -> None:
    """Four standard errors and more while the noise is hardly known: 5.2 of them after twenty
    samples.
    """
    levels = Levels((10.0, 10.1, 9.9, 10.0) * 5, (14.0, 14.1, 13.9, 14.0) * 5)
    freedom, square = 40, (40 * 0.005 + 2 * (4 / 6) ** 2) / 40
    outside = 4 * (1 + 6 / freedom) * math.sqrt(square * (1 / 4 + 1 / 20))
    assert not levels.are_missed_by([10 + 0.99 * outside] * 4)
    assert levels.are_missed_by([10 + 1.01 * outside] * 4)
    assert not levels.are_missed_by([14 - 0.99 * outside] * 4)
    assert levels.are_missed_by([14 - 1.01 * outside] * 4)
    assert not levels.are_missed_by([10 + 1.01 * outside] * 3)
    assert not Levels((5.0,), (5.0,)).are_missed_by([5.0] * 4)


def test_one_value_says_nothing_of_the_noise_and_two_say_all_they_differ_by() -> None:
    levels = Levels((1.0,), (2.0,), noise=(0.5, 1))
    assert levels.with_noise_of([7.0]) == levels
    assert levels.with_noise_of([7.0, 9.0]).noise == (2.5, 2)
