"""Intervals and tests against exact values and enumeration."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.stats import (
    binomial_tail,
    clopper_pearson_high,
    clopper_pearson_low,
    fisher_exact,
    fisher_fewer,
    holm,
    inverse_interval,
    percent_range,
    wilson,
)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(0, 3, 0.0, 0.5615), (0, 10, 0.0, 0.2775), (3, 3, 0.4385, 1.0), (5, 10, 0.2366, 0.7634)],
)
def test_wilson_gives_the_published_values(hits: int, trials: int, low: float, high: float) -> None:
    assert wilson(hits, trials) == pytest.approx((low, high), abs=1e-4)


def test_nothing_tried_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert clopper_pearson_high(0, 0, 0.05) == 1.0


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        ((3, 3), (0, 3), 0.10),
        ((4, 4), (0, 4), 0.0286),
        ((5, 5), (0, 5), 0.0079),
        ((1, 2), (1, 2), 1.0),
    ],
)
def test_fisher_gives_the_published_values(
    a: tuple[int, int], b: tuple[int, int], p: float
) -> None:
    assert fisher_exact(*a, *b) == pytest.approx(p, abs=1e-4)


@given(st.integers(0, 30), st.integers(1, 30), st.floats(0.001, 0.3))
def test_the_exact_bound_is_where_the_tail_has_its_chance(
    hits: int, more: int, alpha: float
) -> None:
    trials = hits + more
    low = clopper_pearson_low(hits, trials, alpha)
    if hits:
        assert binomial_tail(hits, trials, low) == pytest.approx(alpha, rel=1e-6)
    else:
        assert low == 0.0
    assert low <= hits / trials <= clopper_pearson_high(hits, trials, alpha)


def test_the_binomial_tail_agrees_with_enumeration() -> None:
    rate = 0.3
    for hits in range(6):
        enumerated = math.fsum(
            rate ** sum(draw) * (1 - rate) ** (5 - sum(draw))
            for draw in itertools.product((0, 1), repeat=5)
            if sum(draw) >= hits
        )
        assert binomial_tail(hits, 5, rate) == pytest.approx(enumerated)


def test_holm_adjusts_stepwise_and_keeps_the_order_given() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_p_value(p_values: list[float]) -> None:
    assert all(after >= before for before, after in zip(p_values, holm(p_values), strict=True))


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        ((0, 3), (3, 3), 0.05),
        ((0, 4), (4, 4), 1 / 70),
        ((3, 3), (0, 3), 1.0),
        ((2, 10), (8, 10), 0.0115),
    ],
)
def test_one_sided_fisher_gives_the_published_values(
    a: tuple[int, int], b: tuple[int, int], p: float
) -> None:
    assert fisher_fewer(*a, *b) == pytest.approx(p, abs=1e-4)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_the_two_sides_of_fisher_share_the_outcome_seen(
    a: int, more_a: int, b: int, more_b: int
) -> None:
    fewer = fisher_fewer(a, a + more_a, b, b + more_b)
    more = fisher_fewer(b, b + more_b, a, a + more_a)
    assert fewer + more >= 1 - 1e-12
    assert min(fewer, more) <= fisher_exact(a, a + more_a, b, b + more_b) + 1e-12


@pytest.mark.parametrize("events", [1, 2, 5])
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.7])
def test_the_interval_of_trials_that_went_on_until_so_many_hits_covers_what_it_says(
    events: int, rate: float
) -> None:
    """Over every number of trials that this could have taken, weighted by its chance."""
    covered, left, trials = 0.0, 1.0, events
    while left > 1e-7:
        chance = math.comb(trials - 1, events - 1) * rate**events * (1 - rate) ** (trials - events)
        low, high = inverse_interval(events, trials)
        covered += chance * (low <= rate <= high)
        left, trials = left - chance, trials + 1
    assert covered >= 0.95 - 1e-6


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 0.0038, "0-0.4 %"),
        (0.9962, 1.0, "99.6-100 %"),
        (0.12, 0.34, "12-34 %"),
        (0.0, 1.0, "0-100 %"),
        (0.0, 0.0, "0-0 %"),
    ],
)
def test_what_is_possible_does_not_read_as_impossible(low: float, high: float, said: str) -> None:
    assert percent_range(low, high) == said
