"""The arithmetic behind the answers: what is significant, what is still open, when a cell has enough trials."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.outcome import Tally
from aorta.core.stats import student_t
from aorta.triage.statistics import (
    ALPHA,
    Call,
    Caps,
    beats,
    compare_all,
    is_settled,
    p_fewer,
    p_more,
    trials_needed,
)


def seen(failed: int, of: int, *, other: int = 0, error: int = 0) -> Tally:
    return Tally(reproduced=failed, clean=of - failed - other, other=other, error=error)


def call(cell: Tally, baseline: Tally, **more: Tally) -> Call:
    return compare_all({"base": baseline, "cell": cell, **more}, "base")["cell"].call


@pytest.mark.parametrize(
    ("cell", "baseline", "expected"),
    [
        (seen(0, 3), seen(3, 3), Call.OPEN),
        (seen(0, 4), seen(4, 4), Call.WORKS),
        (seen(4, 4), seen(0, 4), Call.WORSE),
        (seen(4, 4), seen(4, 4), Call.NO_EFFECT),
        (seen(9, 10), seen(8, 10), Call.NO_EFFECT),
        (seen(0, 4), seen(0, 4), Call.OPEN),
        (seen(0, 0, error=3), seen(4, 4), Call.DID_NOT_RUN),
        (seen(0, 4), seen(0, 0, error=3), Call.OPEN),
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
    assert call(seen(0, 4), seen(4, 4), **others) is Call.OPEN


def test_an_inert_cell_is_no_hypothesis_and_never_works() -> None:
    tallies = {"base": seen(4, 4), "cell": seen(0, 4), "inert": seen(0, 4)}
    found = compare_all(tallies, "base", {"inert": "read by nobody"})
    assert found["inert"].call is Call.INERT
    assert found["cell"].p_holm == found["cell"].p


def test_errors_are_never_evidence() -> None:
    found = compare_all({"base": seen(5, 5), "cell": seen(0, 3, error=50)}, "base")
    assert found["cell"].p == p_fewer(0, 3, 5, 5)


def test_trials_still_needed_are_enough_and_one_less_is_not() -> None:
    for cell, base in [
        (seen(0, 3), seen(3, 3)),
        (seen(1, 4), seen(3, 4)),
        (seen(2, 6), seen(5, 6)),
    ]:
        needed = trials_needed(cell, base)
        assert needed is not None
        total = cell.evidence + needed

        def p(trials: int, cell: Tally = cell, base: Tally = base) -> float:
            share, base_share = cell.reproduced / cell.evidence, base.reproduced / base.evidence
            both = max(trials, base.evidence)
            return p_fewer(round(share * trials), trials, round(base_share * both), both)

        assert p(total) < ALPHA
        assert p(total - 1) >= ALPHA


def test_no_number_of_trials_tells_equal_rates_apart() -> None:
    assert trials_needed(seen(2, 4), seen(2, 4)) is None


def test_a_mitigation_must_beat_its_control() -> None:
    assert beats(seen(0, 8), seen(8, 8))
    assert not beats(seen(0, 8), seen(1, 8))
    assert not beats(seen(0, 8), Tally())


counts = st.integers(1, 12)


@given(counts, counts, st.data())
def test_a_cell_that_is_left_early_would_have_been_told_the_same(
    cap: int, base_cap: int, data: st.DataObject
) -> None:
    """Whatever the trials that were not run had said, "works" is never lost or won by leaving early."""
    caps = Caps(cap, base_cap)
    trials = data.draw(st.integers(0, cap))
    cell = seen(data.draw(st.integers(0, trials)), trials)
    base = seen(data.draw(st.integers(0, base_cap)), base_cap)
    if not is_settled(cell, base, caps) or trials == cap:
        return
    now = (cell.reproduced, trials, base.reproduced, base_cap)
    if min(p_fewer(*now), p_more(*now)) <= 0.001:
        return  # far beyond the level: what this costs is measured, not proved
    left = cap - trials
    ends = {
        p_fewer(cell.reproduced + failed, cap, base.reproduced, base_cap) < ALPHA
        for failed in range(left + 1)
    }
    assert len(ends) == 1


@given(counts, counts, st.data())
def test_a_cell_has_never_more_than_its_cap(cap: int, base_cap: int, data: st.DataObject) -> None:
    failed = data.draw(st.integers(0, cap))
    assert is_settled(seen(failed, cap), seen(base_cap, base_cap), Caps(cap, base_cap))


def test_too_few_trials_to_settle_anything_are_all_run() -> None:
    assert not is_settled(seen(0, 2), seen(3, 3), Caps(3, 3))
    assert not is_settled(seen(0, 0), seen(3, 3), Caps(3, 3))


def test_a_hopeless_cell_and_a_clear_one_are_left_early() -> None:
    assert is_settled(seen(7, 7), seen(10, 10), Caps(10, 10))
    assert is_settled(seen(0, 7), seen(10, 10), Caps(10, 10))
    assert not is_settled(seen(1, 4), seen(10, 10), Caps(10, 10))


def matrix(rates: dict[str, float], cap: int, draw: random.Random) -> tuple[dict[str, Call], int]:
    """One simulated matrix with early stopping, the baseline first."""
    tallies = {name: Tally() for name in rates}
    caps = Caps(cap, cap, len(rates) - 1)
    tallies["base"] = seen(sum(draw.random() < rates["base"] for _ in range(cap)), cap)
    for _ in range(cap):
        for name, rate in rates.items():
            if name != "base" and not is_settled(tallies[name], tallies["base"], caps):
                tallies[name] += seen(int(draw.random() < rate), 1)
    found = compare_all(tallies, "base")
    return {name: c.call for name, c in found.items()}, sum(t.trials for t in tallies.values())


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.9])
def test_cells_that_are_all_the_same_are_seldom_told_apart(rate: float) -> None:
    draw = random.Random(7)
    rates = dict.fromkeys(["base", "a", "b", "c", "d", "e"], rate)
    works = worse = 0
    for _ in range(400):
        calls, _ = matrix(rates, 12, draw)
        works += Call.WORKS in calls.values()
        worse += Call.WORSE in calls.values()
    assert works <= 0.05 * 400
    assert worse <= 0.05 * 400


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
    """17 trials a cell are said to find a cure in 80 of 100 matrices."""
    draw = random.Random(11)
    rates = {"base": 0.5, "cell": 0.0, **{f"c{n}": 0.5 for n in range(9)}}
    found = sum(matrix(rates, 17, draw)[0]["cell"] is Call.WORKS for _ in range(300))
    assert found >= 0.78 * 300


def test_a_cell_that_makes_it_worse_is_found_too() -> None:
    draw = random.Random(5)
    found = sum(
        matrix({"base": 0.2, "cell": 0.9}, 12, draw)[0]["cell"] is Call.WORSE for _ in range(200)
    )
    assert found >= 0.9 * 200


def test_the_quantiles_of_student_are_those_of_the_tables() -> None:
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 10: 2.228, 30: 2.042}
    assert {df: round(student_t(0.95, df), 3) for df in table} == table
