"""The sums behind a judge: how likely hits and misses are, and where a line is crossed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.trial import Tally
from aorta.engine.judge import (
    NOTHING,
    Calibration,
    HitCount,
    PresenceTest,
    Sprt,
    log_chance,
    misses_that_tell,
)


def succession(evidence: HitCount, seen: HitCount) -> float:
    """Laplace's rule, one trial after the other."""
    hits, misses, chance = seen.hits, seen.misses, 1.0
    for _ in range(evidence.hits):
        chance *= (hits + 1) / (hits + misses + 2)
        hits += 1
    for _ in range(evidence.misses):
        chance *= (misses + 1) / (hits + misses + 2)
        misses += 1
    return chance


counts = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda c: HitCount(c[0], sum(c)))


@given(counts, counts)
def test_trials_are_as_likely_as_the_rule_of_succession_says(
    evidence: HitCount, seen: HitCount
) -> None:
    assert math.exp(log_chance(evidence, seen)) == pytest.approx(succession(evidence, seen))


@given(st.integers(0, 9), st.integers(1, 9), st.floats(0.01, 0.9))
def test_a_failure_that_may_be_certain_is_likelier_to_hit_again(
    seen: int, more: int, certain: float
) -> None:
    """Before anything was seen it always fails with that chance; one miss refutes it."""
    before = certain + (1 - certain) / (seen + 1)
    after = certain + (1 - certain) / (seen + more + 1)
    found = log_chance(HitCount(more, more), HitCount(seen, seen), certain)
    assert math.exp(found) == pytest.approx(after / before)
    missed = HitCount(seen, seen + 1)
    assert log_chance(HitCount(more, more), missed, certain) == pytest.approx(
        log_chance(HitCount(more, more), missed)
    )


@given(counts, st.floats(0.01, 0.9))
def test_so_many_misses_tell_and_one_fewer_does_not(seen: HitCount, chance: float) -> None:
    misses = misses_that_tell(seen, chance)
    assert succession(HitCount(0, misses), seen) <= chance * (1 + 1e-9)
    assert misses == 1 or succession(HitCount(0, misses - 1), seen) > chance * (1 - 1e-9)


def test_counts_add_up() -> None:
    both = HitCount(2, 5) + HitCount(1, 1)
    assert (both, both.misses, NOTHING) == (HitCount(3, 6), 3, HitCount(0, 0))
    assert HitCount.of(Tally(reproduced=2, clean=3, other=1, error=9)) == HitCount(2, 6)
    assert (NOTHING.low(0.1), NOTHING.high(0.1)) == (0.0, 1.0)
    assert HitCount(5, 5).low(0.1) == pytest.approx(0.1 ** (1 / 5))
    assert HitCount(0, 5).high(0.1) == pytest.approx(1 - 0.1 ** (1 / 5))


def test_false_alarms_speak_against_the_failure() -> None:
    test = PresenceTest(HitCount(4, 5), 0.1, alpha=0.02, beta=0.05)
    chance = 5 / 7 * 6 / 8 * 2 / 9
    assert test.weight(HitCount(2, 3)) == pytest.approx(math.log(chance / (0.1 * 0.1 * 0.9)))
    assert test.weight(NOTHING) == pytest.approx(0.0)
    silent = PresenceTest(HitCount(4, 5), 0.0, alpha=0.02, beta=0.05)
    assert silent.decide(HitCount(1, 30)) is True
    assert silent.decide(HitCount(0, 1)) is None


def test_a_presence_is_decided_where_a_line_is_crossed() -> None:
    test = PresenceTest(HitCount(40, 40), 0.02, alpha=0.01, beta=0.05)
    assert test.decide(HitCount(1, 1)) is None  # 49 times as likely, and 95 are wanted
    assert test.decide(HitCount(2, 2)) is True
    assert test.decide(HitCount(0, 1)) is False


def test_wald_weighs_two_rates_and_has_two_lines() -> None:
    test = Sprt(0.5, 0.1, alpha=0.02, beta=0.05)
    assert test.weight(HitCount(2, 5)) == pytest.approx(2 * math.log(5) + 3 * math.log(5 / 9))
    assert [test.decide(HitCount(n, n)) for n in (1, 2, 3)] == [None, None, True]
    assert [test.decide(HitCount(0, n)) for n in (1, 5, 6)] == [None, None, False]


@pytest.mark.parametrize(
    ("present", "absent", "evidence", "weight"),
    [
        (0.5, 0.0, HitCount(1, 9), math.inf),
        (0.5, 0.0, HitCount(0, 2), 2 * math.log(0.5)),
        (1.0, 0.2, HitCount(0, 1), -math.inf),
        (1.0, 0.2, HitCount(2, 2), 2 * math.log(5)),
        (0.3, 0.3, HitCount(2, 9), 0.0),
        (0.0, 0.0, HitCount(1, 1), 0.0),
        (0.0, 0.5, HitCount(1, 1), -math.inf),
    ],
)
def test_what_is_impossible_on_one_side_is_proof_of_the_other(
    present: float, absent: float, evidence: HitCount, weight: float
) -> None:
    assert Sprt(present, absent, 0.01, 0.01).weight(evidence) == pytest.approx(weight)


@pytest.mark.parametrize(
    ("hits", "trials", "decided"),
    [
        (2, 2, True),
        (1, 1, None),
        (3, 4, None),
        (4, 5, True),
        (3, 39, None),
        (3, 40, True),
        (1, 40, True),
        (0, 39, None),
        (0, 40, False),
    ],
)
def test_the_original_is_tried_until_its_rate_is_known_or_forty_times(
    hits: int, trials: int, decided: bool | None
) -> None:
    assert Calibration().decide(HitCount(hits, trials)) is decided
