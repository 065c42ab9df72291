"""The two ends: what their trials amount to, and which of them is tried next."""

import pytest

from aorta.search.belief import Counts
from aorta.search.bisection import USUAL_RATES
from aorta.search.ends import Ends, EndsVerdict
from aorta.search.timeline import Vector
from support.timelines import one_package

GOOD, BAD = (0,), (4,)
OPEN, DIFFER = EndsVerdict.OPEN, EndsVerdict.DIFFER
SILENT, ALIKE = EndsVerdict.BAD_DOES_NOT_FAIL, EndsVerdict.GOOD_FAILS_TOO


def ends() -> Ends:
    return Ends(one_package(5), USUAL_RATES)


def seen(good: Counts, bad: Counts) -> dict[Vector, Counts]:
    return {GOOD: good, BAD: bad}


@pytest.mark.parametrize(
    ("good", "bad", "verdict", "next_one"),
    [
        ((0, 0), (0, 0), OPEN, BAD),
        ((0, 0), (1, 0), OPEN, GOOD),
        ((0, 1), (1, 0), DIFFER, None),
        ((0, 1), (0, 0), OPEN, BAD),
        ((0, 1), (0, 1), OPEN, BAD),
        ((0, 1), (0, 15), OPEN, BAD),
        ((0, 1), (0, 16), SILENT, None),
        ((0, 0), (0, 16), SILENT, None),
        ((0, 1), (1, 15), DIFFER, None),
        ((1, 0), (1, 0), OPEN, GOOD),
        ((2, 0), (2, 0), ALIKE, None),
        ((1, 1), (1, 0), OPEN, GOOD),
        ((1, 4), (3, 0), OPEN, GOOD),
        ((1, 5), (3, 0), DIFFER, None),
        ((4, 2), (4, 2), ALIKE, None),
        ((3, 2), (4, 2), OPEN, GOOD),
    ],
)
def test_the_trials_of_both_ends_say_what_comes_next(
    good: Counts, bad: Counts, verdict: EndsVerdict, next_one: Vector | None
) -> None:
    both = seen(good, bad)
    assert ends().verdict(both, ()) is verdict
    assert ends().are_alike(both) is (verdict is ALIKE)
    assert ends().wanted(both, {}) == next_one


def test_trials_under_way_are_not_asked_for_twice() -> None:
    assert ends().wanted({}, {BAD: 1}) is None
    assert ends().wanted(seen((0, 0), (1, 0)), {GOOD: 1}) is None
    assert ends().wanted(seen((0, 0), (0, 1)), {BAD: 14}) == BAD
    assert ends().wanted(seen((0, 0), (0, 1)), {BAD: 15}) is None
    assert ends().wanted(seen((1, 1), (1, 0)), {GOOD: 3}) == GOOD
    assert ends().wanted(seen((1, 1), (1, 0)), {GOOD: 4}) is None


def test_sixteen_silent_trials_of_the_bad_end_are_believed() -> None:
    assert ends().verdict(seen((0, 1), (0, 15)), ()) is OPEN
    assert ends().verdict(seen((0, 1), (0, 16)), ()) is SILENT


def test_an_end_that_cannot_be_tested_is_named() -> None:
    both = seen((0, 1), (1, 0))
    assert ends().verdict(both, {GOOD}) is EndsVerdict.GOOD_UNTESTABLE
    assert ends().verdict(both, {BAD}) is EndsVerdict.BAD_UNTESTABLE
    assert ends().verdict(both, {GOOD, BAD}) is EndsVerdict.BAD_UNTESTABLE
