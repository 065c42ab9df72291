"""Intervals and tests against exact values and enumeration."""

import itertools
import math
import statistics
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.stats import (
    clopper_pearson_high,
    clopper_pearson_low,
    counted,
    fisher_fewer,
    holm,
    percent_range,
    percentile,
    ratio_above,
    student_t,
    wilson,
)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (0, 3, 0.0, 0.5615),
        (0, 10, 0.0, 0.2775),
        (1, 10, 0.0179, 0.4042),
        (9, 10, 0.5958, 0.9821),
        (3, 3, 0.4385, 1.0),
        (5, 10, 0.2366, 0.7634),
    ],
)
def test_wilson_gives_the_published_values(hits: int, trials: int, low: float, high: float) -> None:
    assert wilson(hits, trials) == pytest.approx((low, high), abs=1e-4)


def test_nothing_tried_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert clopper_pearson_high(0, 0, 0.05) == 1.0


@given(st.integers(0, 30), st.integers(1, 30), st.floats(0.001, 0.3))
def test_the_exact_bound_is_where_the_tail_has_its_chance(
    hits: int, more: int, alpha: float
) -> None:
    trials = hits + more
    low = clopper_pearson_low(hits, trials, alpha)
    if hits:
        chances = (
            math.comb(trials, i) * low**i * (1 - low) ** (trials - i)
            for i in range(hits, trials + 1)
        )
        assert math.fsum(chances) == pytest.approx(alpha, rel=1e-6)
    else:
        assert low == 0.0
    assert low <= hits / trials <= clopper_pearson_high(hits, trials, alpha)


def test_holm_adjusts_stepwise_and_keeps_the_order_given() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.2, 0.7]) == pytest.approx([1.0, 0.6, 1.0])
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


@cache
def _likeliest_score(seen: tuple[int, int], trials: tuple[int, int], ratio: float) -> float:
    """The same statistic, with the base's rate found by trying ten thousand of them."""

    def likelihood(base: float) -> float:
        chances = (ratio * base, base)
        return math.prod(
            chance**hits * (1 - chance) ** (of - hits)
            for chance, hits, of in zip(chances, seen, trials, strict=True)
        )

    base = max((step / 10_000 for step in range(10_001)), key=likelihood)
    variance = ratio * base * (1 - ratio * base) / trials[0]
    variance += ratio**2 * base * (1 - base) / trials[1]
    difference = seen[0] / trials[0] - ratio * seen[1] / trials[1]
    return difference / math.sqrt(variance) if variance else math.inf * difference


def test_the_chance_of_a_ratio_is_that_of_all_outcomes_at_least_as_extreme() -> None:
    for hits, base_hits in [(1, 5), (2, 4), (3, 5), (4, 5), (2, 2), (4, 1)]:
        told = ratio_above(hits, 4, base_hits, 5, 0.5)
        assert told == pytest.approx(_chance_of_a_ratio(hits, base_hits)), (hits, base_hits)


def _chance_of_a_ratio(hits: int, base_hits: int) -> float:
    """By adding up every outcome of four trials beside a base's five, at the base's worst rate."""
    trials, ratio = (4, 5), 0.5
    seen = _likeliest_score((hits, base_hits), trials, ratio)
    extreme = [
        outcome
        for outcome in itertools.product(range(5), range(6))
        if outcome[0] and _likeliest_score(outcome, trials, ratio) >= seen - 1e-3
    ]

    def chance(base: float) -> float:
        rates = (ratio * base, base)
        return math.fsum(
            math.prod(
                math.comb(of, found) * rate**found * (1 - rate) ** (of - found)
                for found, of, rate in zip(outcome, trials, rates, strict=True)
            )
            for outcome in extreme
        )

    return 1.0 if seen <= 0 else max(chance(step / 64) for step in range(1, 65))


@pytest.mark.parametrize("hits", [57, 60, 64, 68, 75])
def test_the_chance_of_a_ratio_does_not_jump_where_the_approximation_begins(
    hits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = ratio_above(hits, 120, 110, 120, 0.5)
    monkeypatch.setattr("aorta.core.stats._MOST_EXACT", 119)
    near = 0.04 if exact > 0.1 else 0.015  # closer where it decides
    assert exact != ratio_above(hits, 120, 110, 120, 0.5) == pytest.approx(exact, abs=near)


def test_no_hit_at_all_speaks_for_no_ratio() -> None:
    assert ratio_above(0, 5, 5, 5, 0.5) == 1.0


@pytest.mark.parametrize(
    ("freedom", "two_sided"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (10, 2.2281), (31, 2.0395)],
)
def test_student_has_the_published_quantiles(freedom: int, two_sided: float) -> None:
    assert student_t(0.95, freedom) == pytest.approx(two_sided, abs=1e-4)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0, 0.0038, "0-0.4 %"),
        (0.9962, 1.0, "99.6-100 %"),
        (0.12, 0.34, "12-34 %"),
        (0.0, 1.0, "0-100 %"),
        (0.0, 0.0, "0-0 %"),
        (1.0, 1.0, "100-100 %"),
        (0.0, 0.00496, "0-0.5 %"),
        (0.0, 0.00504, "0-1 %"),
        (0.99504, 1.0, "99.5-100 %"),
        (0.99496, 1.0, "99-100 %"),
        (0.0, 4e-9, "0-0.000000 %"),
        (0.0, 6e-9, "0-0.000001 %"),
    ],
)
def test_what_is_possible_does_not_read_as_impossible(low: float, high: float, said: str) -> None:
    assert percent_range(low, high) == said


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.integers(1, 99))
def test_a_percentile_lies_between_its_neighbours_as_statisticians_say(
    values: list[float], share: int
) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")[share - 1]
    assert percentile(sorted(values), share / 100) == pytest.approx(expected, abs=1e-6)


def test_of_one_value_every_percentile_is_that_value() -> None:
    assert percentile([4.0], 0.9) == 4.0


def test_one_is_not_many() -> None:
    assert [counted(n, "trial") for n in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]


@pytest.mark.parametrize(("hits", "base_hits"), [(70, 110), (61, 100), (90, 121)])
@pytest.mark.parametrize("ratio", [0.5, 0.4])
def test_of_many_trials_the_chance_of_a_ratio_is_that_of_the_score(
    hits: int, base_hits: int, ratio: float
) -> None:
    trials = (121, 121)
    score = _likeliest_score((hits, base_hits), trials, ratio)
    expected = math.erfc(score / math.sqrt(2)) / 2
    found = ratio_above(hits, trials[0], base_hits, trials[1], ratio)
    assert found == pytest.approx(expected, rel=0.01, abs=0)
