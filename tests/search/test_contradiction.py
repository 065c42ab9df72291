"""Broken, repaired and broken again is told from a failure that is merely flaky."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.search.belief import Counts
from aorta.search.bisection import USUAL_RATES
from aorta.search.ends import repaired_among

PASSES, FAILS = (0, 6), (6, 0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3))
def test_three_states_are_too_few_to_tell_of_a_repair(seen: list[Counts]) -> None:
    assert repaired_among(seen, USUAL_RATES) is None


@settings(max_examples=60)
@given(st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_a_repair_lies_between_the_first_failure_and_the_last_state_before_the_next(
    lengths: list[int],
) -> None:
    seen = [
        counts
        for length, counts in zip(lengths, (PASSES, FAILS) * 2, strict=True)
        for _ in range(length)
    ]
    found = repaired_among(seen, USUAL_RATES)
    assert found == (lengths[0], sum(lengths[:3]) - 1)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 6))
def test_one_boundary_is_no_repair_however_often_it_was_seen(
    good: int, bad: int, times: int
) -> None:
    seen = [(0, times)] * good + [(times, 0)] * bad
    assert repaired_among(seen, USUAL_RATES) is None


@pytest.mark.parametrize("seen", [[(0, 1), (1, 0), (0, 1), (1, 0)], [(0, 4), (2, 2)] * 2])
def test_what_a_flaky_failure_shows_as_well_is_no_repair(seen: list[Counts]) -> None:
    assert repaired_among(seen, USUAL_RATES) is None


def test_of_two_states_that_run_clean_the_one_with_less_evidence_does_not_hide_the_repair() -> None:
    seen = [(0, 5), (9, 1), (8, 0), (0, 1), (0, 9), (10, 0)]
    assert repaired_among(seen, USUAL_RATES) == (1, 4)
