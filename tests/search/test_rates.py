"""Unknown rates, integrated over: the closed form against a sum over four thousand rates."""

import math

import pytest

from aorta.search.belief import (
    ANY_RATE,
    BAD_RATE,
    FLAKY,
    GOOD_RATE,
    NOISY_BAD,
    NOISY_GOOD,
    QUIET,
    BetaMixture,
)

STEPS = 4000


def chance(rate: BetaMixture, hits: int, misses: int) -> float:
    """Of so many hits and misses in one order, by the middle of every step."""
    total = 0.0
    for weight, a, b in rate.components:
        shape = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
        total += (
            weight
            * shape
            * math.fsum(
                p ** (hits + a - 1) * (1 - p) ** (misses + b - 1) / STEPS
                for p in ((step + 0.5) / STEPS for step in range(STEPS))
            )
        )
    return total


@pytest.mark.parametrize(("hits", "misses"), [(1, 1), (3, 2), (2, 7)])
@pytest.mark.parametrize("rate", [ANY_RATE, BAD_RATE])
def test_a_sequence_is_as_likely_as_over_all_rates(
    rate: BetaMixture, hits: int, misses: int
) -> None:
    exact = chance(rate, hits, misses)
    assert math.exp(rate.log_marginal(hits, misses)) == pytest.approx(exact, rel=1e-4)
    more = chance(rate, hits + 1, misses) / exact
    assert rate.mean(hits, misses) == pytest.approx(more, rel=1e-4)


@pytest.mark.parametrize(
    ("rate", "fails"),
    [
        (ANY_RATE, 1 / 2),
        (GOOD_RATE, 0.35 * 0.4 / 150.4 + 0.5 / 51 + 0.15 / 7),
        (BAD_RATE, 0.5 * 4 / 11 + 0.3 * 6 / 7 + 0.2 * 40 / 40.5),
        (QUIET, 0.4 * 0.4 / 150.4 + 0.6 * 0.7 / 50.7),
        (FLAKY, 0.7 * 6 / 14 + 0.25 * 6 / 7 + 0.05 * 40 / 40.5),
        (NOISY_GOOD, 1 / 7),
        (NOISY_BAD, 2 / 3),
    ],
)
def test_before_any_trial_a_rate_is_held_to_be_its_mean(rate: BetaMixture, fails: float) -> None:
    assert rate.log_marginal(0, 0) == pytest.approx(0.0, abs=1e-12)
    assert rate.mean(0, 0) == pytest.approx(fails)
    assert math.fsum(weight for weight, _, _ in rate.components) == pytest.approx(1.0)
