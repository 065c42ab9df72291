"""The arithmetic behind the answers: what is significant, what is still open, when a cell has
enough trials.
"""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.stats import student_t
from aorta.core.trial import Tally
from aorta.triage.statistics import (
    SIDE_ALPHA,
    USEFUL_RATIO,
    Call,
    Caps,
    compare_all,
    is_decided,
    p_fewer,
    p_more,
    p_no_cure,
)


def seen(failed: int, of: int, *, other: int = 0, error: int = 0) -> Tally:
    return Tally(reproduced=failed, clean=of - failed - other, other=other, error=error)


def call(cell: Tally, baseline: Tally, **more: Tally) -> Call:
    return compare_all({"base": baseline, "cell": cell, **more}, "base")["cell"].call


@pytest.mark.parametrize(
    ("cell", "baseline", "expected"),
    [
        (seen(0, 3), seen(3, 3), Call.NOT_KNOWN),
        (seen(0, 4), seen(4, 4), Call.WORKS),
        (seen(4, 4), seen(0, 4), Call.WORSE),
        (seen(4, 4), seen(4, 4), Call.NOT_KNOWN),
        (seen(1, 1), seen(5, 5), Call.NOT_KNOWN),
        (seen(6, 6), seen(6, 6), Call.NO_EFFECT),
        (seen(10, 10), seen(8, 10), Call.NO_EFFECT),
        (seen(5, 10), seen(5, 10), Call.NOT_KNOWN),
        (seen(25, 50), seen(25, 50), Call.NO_EFFECT),
        (seen(0, 4), seen(0, 4), Call.NOT_KNOWN),
        (seen(0, 0, error=3), seen(4, 4), Call.DID_NOT_RUN),
        (seen(0, 4), seen(0, 0, error=3), Call.NOT_KNOWN),
        (seen(0, 4, other=4), seen(4, 4), Call.OTHER_FAILURE),
        (seen(0, 9, other=8), seen(9, 9), Call.OTHER_FAILURE),
        (seen(0, 20, other=1), seen(20, 20), Call.WORKS),
    ],
)
def test_what_two_counts_amount_to(cell: Tally, baseline: Tally, expected: Call) -> None:
    assert call(cell, baseline) is expected


def test_many_cells_raise_the_bar() -> None:
    others = {f"c{n}": seen(4, 4) for n in range(5)}
    assert call(seen(0, 4), seen(4, 4)) is Call.WORKS
    assert call(seen(0, 4), seen(4, 4), **others) is Call.NOT_KNOWN


def test_an_inert_cell_is_no_hypothesis_and_never_works() -> None:
    tallies = {"base": seen(4, 4), "cell": seen(0, 4), "inert": seen(0, 4)}
    found = compare_all(tallies, "base", {"inert": "read by nobody"})
    assert found["inert"].call is Call.INERT
    assert found["cell"].p_adjusted == found["cell"].p


def test_errors_are_never_evidence() -> None:
    found = compare_all({"base": seen(5, 5), "cell": seen(0, 3, error=50)}, "base")
    assert found["cell"].p == p_fewer(0, 3, 5, 5)


def test_equal_rates_are_known_to_be_no_cure_once_there_are_trials_enough() -> None:
    assert call(seen(2, 4), seen(2, 4)) is Call.NOT_KNOWN
    assert call(seen(30, 60), seen(30, 60)) is Call.NO_EFFECT


counts = st.integers(1, 12)


@given(counts, counts, st.data())
@settings(deadline=None)
def test_a_cell_that_is_left_early_would_have_been_told_the_same(
    cap: int, base_cap: int, data: st.DataObject
) -> None:
    """Whatever the trials that were not run had said, "works" is never lost or won by leaving
    early.
    """
    caps = Caps(cap, base_cap)
    trials = data.draw(st.integers(0, cap))
    cell = seen(data.draw(st.integers(0, trials)), trials)
    base = seen(data.draw(st.integers(0, base_cap)), base_cap)
    if not is_decided(cell, base, caps) or trials == cap:
        return
    now = (cell.reproduced, trials, base.reproduced, base_cap)
    if min(p_fewer(*now), p_more(*now)) <= 0.001:
        return  # far beyond the level: what this costs is measured, not proved
    left = cap - trials
    ends = {
        p_fewer(cell.reproduced + failed, cap, base.reproduced, base_cap) < SIDE_ALPHA
        for failed in range(left + 1)
    }
    assert len(ends) == 1


def test_too_few_trials_to_settle_anything_are_all_run() -> None:
    assert not is_decided(seen(0, 2), seen(3, 3), Caps(3, 3))
    assert not is_decided(seen(0, 0), seen(3, 3), Caps(3, 3))


def test_a_cell_without_effect_and_a_clear_one_are_left_early() -> None:
    assert is_decided(seen(7, 7), seen(10, 10), Caps(10, 10))
    assert is_decided(seen(0, 7), seen(10, 10), Caps(10, 10))
    assert not is_decided(seen(1, 4), seen(10, 10), Caps(10, 10))


@given(st.integers(1, 15), st.integers(1, 8), st.data())
@settings(deadline=None)
def test_no_cell_is_left_for_want_of_hope_before_the_smallest_matrix_that_could_tell(
    cap: int, comparisons: int, data: st.DataObject
) -> None:
    caps = Caps(cap, cap, comparisons)
    trials, base_trials = data.draw(st.integers(0, cap)), data.draw(st.integers(0, cap))
    cell = seen(data.draw(st.integers(0, trials)), trials)
    base = seen(data.draw(st.integers(0, base_trials)), base_trials)
    if trials < min(cap, caps.floor) and is_decided(cell, base, caps):
        said = compare_all({"base": base, "cell": cell}, "base")["cell"].call
        assert said in {Call.WORKS, Call.WORSE, Call.NO_EFFECT}


def matrix(rates: dict[str, float], cap: int, draw: random.Random) -> tuple[dict[str, Call], int]:
    """One simulated matrix with early stopping, the baseline first."""
    tallies = {name: Tally() for name in rates}
    caps = Caps(cap, cap, len(rates) - 1)
    tallies["base"] = seen(sum(draw.random() < rates["base"] for _ in range(cap)), cap)
    for _ in range(cap):
        for name, rate in rates.items():
            if name != "base" and not is_decided(tallies[name], tallies["base"], caps):
                tallies[name] += seen(int(draw.random() < rate), 1)
    found = compare_all(tallies, "base")
    return {name: c.call for name, c in found.items()}, sum(t.trials for t in tallies.values())


def is_wrong(call: Call, rate: float, base: float) -> bool:
    return {
        Call.WORKS: rate >= base,
        Call.WORSE: rate <= base,
        Call.NO_EFFECT: rate <= USEFUL_RATIO * base,
    }.get(call, False)


@pytest.mark.parametrize("base", [0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("ratios", [(1, 1, 1, 1), (0.5, 0.5, 0.5, 0.5), (0, 0.5, 1, 2)], ids=str)
def test_at_most_five_matrices_of_a_hundred_say_anything_wrong(
    base: float, ratios: tuple[float, ...]
) -> None:
    draw = random.Random(7)
    rates = {"base": base, **{f"c{n}": min(1.0, base * r) for n, r in enumerate(ratios)}}
    wrong = 0
    for _ in range(200):
        calls, _ = matrix(rates, 10, draw)
        wrong += any(is_wrong(said, rates[name], base) for name, said in calls.items())
    assert wrong <= 0.05 * 200


def test_a_cure_is_found_with_the_power_that_the_trials_allow_and_fewer_trials_than_the_cap() -> (
    None
):
    draw = random.Random(3)
    found = spent = 0
    for _ in range(300):
        calls, trials = matrix({"base": 0.7, "cell": 0.0}, 12, draw)
        found += calls["cell"] is Call.WORKS
        spent += trials
    assert found >= 0.8 * 300
    assert spent < 300 * 24


def test_ten_cells_at_a_rate_of_one_half_need_the_trials_of_the_table() -> None:
    """19 trials a cell are said to find a cure in 80 of 100 matrices."""
    draw = random.Random(11)
    rates = {"base": 0.5, "cell": 0.0, **{f"c{n}": 0.5 for n in range(9)}}
    found = sum(matrix(rates, 19, draw)[0]["cell"] is Call.WORKS for _ in range(100))
    assert found >= 0.78 * 100


def test_a_cell_that_makes_it_worse_is_found_too() -> None:
    draw = random.Random(5)
    found = sum(
        matrix({"base": 0.2, "cell": 0.9}, 12, draw)[0]["cell"] is Call.WORSE for _ in range(200)
    )
    assert found >= 0.9 * 200


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.2, 0.5, 0.8, 1.0]))
@settings(deadline=None, max_examples=30)
def test_a_just_useful_cure_is_called_no_effect_at_most_as_often_as_the_level_says(
    trials: int, base_trials: int, base: float
) -> None:
    """Summed over every outcome: the test is exact."""

    def chance(hits: int, of: int, rate: float) -> float:
        return math.comb(of, hits) * rate**hits * (1 - rate) ** (of - hits)

    wrong = sum(
        chance(hits, trials, base / 2) * chance(base_hits, base_trials, base)
        for hits in range(trials + 1)
        for base_hits in range(base_trials + 1)
        if p_no_cure(hits, trials, base_hits, base_trials) < SIDE_ALPHA
    )
    assert wrong <= SIDE_ALPHA


def test_the_quantiles_of_student_are_those_of_the_tables() -> None:
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 10: 2.228, 30: 2.042}
    assert {df: round(student_t(0.95, df), 3) for df in table} == table
