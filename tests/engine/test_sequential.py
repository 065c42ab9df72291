"""The sequential judge against exact enumeration of everything that can happen to it."""

import random
from collections.abc import Callable
from functools import cache
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Tally, Verdict
from aorta.engine.judge import (
    Calibration,
    HitCount,
    Judge,
    PresenceTest,
    SequentialJudge,
    SequentialJudges,
    Sprt,
    calibrating,
)
from aorta.search.descent import DescentRules

ORIGINAL = Point.of({"n": 100})
CALIBRATE = ORIGINAL.asked_for(Purpose.CALIBRATE)


def tally(hits: int, misses: int) -> Tally:
    return Tally(reproduced=hits, clean=misses)


def exact(judge: Judge, rate: float) -> tuple[float, float]:
    """The chance of acceptance and the expected number of trials, over every course that trials can
    take.
    """
    return _at_each(judge, rate)[0]


def _at_each(judge: Judge, *rates: float) -> list[tuple[float, float]]:
    """The same at several rates: what the judge says of so many hits and misses does not depend on
    them.
    """

    @cache
    def verdict(hits: int, misses: int) -> Verdict | None:
        return judge.verdict(tally(hits, misses))

    return [_from_here(verdict, rate) for rate in rates]


def _from_here(verdict: Callable[[int, int], Verdict | None], rate: float) -> tuple[float, float]:
    @cache
    def from_here(hits: int, misses: int) -> tuple[float, float]:
        said = verdict(hits, misses)
        if said is not None:
            return float(said.reproduces is True), 0.0
        hit, miss = from_here(hits + 1, misses), from_here(hits, misses + 1)
        return (
            rate * hit[0] + (1 - rate) * miss[0],
            1 + rate * hit[1] + (1 - rate) * miss[1],
        )

    return from_here(0, 0)


def calibrated(hits: int, misses: int) -> SequentialJudges:
    judges = SequentialJudges()
    judges.learn(CALIBRATE, Verdict(True, tally(hits, misses)))
    return judges


@pytest.mark.parametrize("present", [0.2, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("absent", [0.0, 0.005, 0.02])
def test_the_test_keeps_both_error_rates_it_promises_in_fewer_trials_than_any_fixed_number(
    present: float, absent: float
) -> None:
    test = Sprt(present, absent, alpha=0.002, beta=0.02)
    judge = SequentialJudge((test,), cap=400)
    (wrong_accept, _), (right_accept, trials) = _at_each(judge, absent, present)
    assert wrong_accept <= 0.002 * 1.05
    assert right_accept >= 1 - 0.02 * 1.05
    if absent == 0.02 and present > 0.2:
        assert trials < _fewest_fixed(present, absent, 0.002, 0.02)


def _binomial_tail(hits: int, trials: int, rate: float) -> float:
    """P(at least `hits` of `trials`) at `rate`."""
    counts = range(hits, trials + 1)
    return sum(comb(trials, i) * rate**i * (1.0 - rate) ** (trials - i) for i in counts)


def _fewest_fixed(present: float, absent: float, alpha: float, beta: float) -> int:
    for n in range(1, 500):
        for k in range(1, n + 1):
            if _binomial_tail(k, n, absent) <= alpha:
                if _binomial_tail(k, n, present) >= 1 - beta:
                    return n
                break
    raise AssertionError("no fixed rule")


def test_without_false_alarms_one_hit_is_proof() -> None:
    assert Sprt(0.3, 0.0, 0.002, 0.02).decide(HitCount(1, 40)) is True


def test_what_never_missed_costs_one_trial_a_candidate_and_one_miss_ends_that() -> None:
    judges = calibrated(5, 0)
    judge = judges.judge_for(Point.of({"n": 50}))
    assert judge.needs(Tally()) == 1
    accepted, rejected = judge.verdict(tally(1, 0)), judge.verdict(tally(0, 1))
    assert accepted is not None
    assert accepted.reproduces is True
    assert rejected is not None
    assert rejected.reproduces is False
    assert calibrated(5, 1).judge_for(Point.of({"n": 50})).verdict(tally(0, 1)) is None


def test_what_throws_accepted_work_away_is_never_rejected_by_one_miss() -> None:
    judges = calibrated(9, 0)
    for purpose in (Purpose.REPLAY, Purpose.CONFIRM):
        assert judges.judge_for(ORIGINAL.asked_for(purpose)).verdict(tally(0, 1)) is None


@pytest.mark.parametrize("certain", [0.0, 0.2])
@pytest.mark.parametrize("beta", [0.1, 0.002])
def test_over_all_rates_a_candidate_like_the_original_is_missed_no_more_often_than_promised(
    beta: float, certain: float
) -> None:
    """Each rate is as likely as any other; the original is tried eight times, then a candidate of
    the same rate.

    Where some failures are certain, which are never missed, the others may be missed as often as
    makes up for it.
    """
    missed, rates = 0.0, [(i + 0.5) / 200 for i in range(200)]
    for hits in range(9):
        test = PresenceTest(HitCount(hits, 8), 0.0, 0.002, beta, certain)
        most = next(m for m in range(1, 10**4) if test.decide(HitCount(0, m)) is False)
        for rate in rates:
            chance = comb(8, hits) * rate**hits * (1 - rate) ** (8 - hits)
            missed += chance * (1 - rate) ** most / len(rates)
    assert missed * (1 - certain) <= beta


def test_one_miss_of_an_accepted_point_ends_the_belief_in_certainty() -> None:
    judges = calibrated(9, 0)
    assert judges.judge_for(Point.of({"n": 50})).verdict(tally(0, 1)) is not None
    judges.learn(ORIGINAL.asked_for(Purpose.REPLAY), Verdict(True, tally(2, 1)))
    assert judges.judge_for(Point.of({"n": 50})).verdict(tally(0, 1)) is None


def test_a_rejected_point_that_hits_when_rechecked_ends_the_belief_in_certainty() -> None:
    judges, point = calibrated(5, 0), Point.of({"n": 50})
    judges.learn(point, Verdict(False, tally(0, 1)))
    judges.learn(point.asked_for(Purpose.PROBE, 1), Verdict(True, tally(1, 0)))
    assert judges.rate < 0.95


def test_calibration_stops_at_four_hits_or_two_straight_or_forty_trials() -> None:
    judge = calibrating(Calibration())
    assert judge.verdict(tally(1, 0)) is None
    assert judge.verdict(tally(3, 36)) is None
    for hits, misses, expected in [(2, 0, True), (4, 1, True), (4, 30, True), (0, 40, False)]:
        verdict = judge.verdict(tally(hits, misses))
        assert verdict is not None
        assert verdict.reproduces is expected


def test_the_rate_is_learned_from_the_original_and_from_what_was_accepted() -> None:
    judges = calibrated(4, 4)
    before = judges.rate
    for n in range(1, 30):
        judges.learn(Point.of({"n": n}), Verdict(True, tally(1, 1)))
    assert before < judges.rate < 0.5


def test_every_acceptance_stands_for_misses_of_candidates_that_were_rejected_by_bad_luck() -> None:
    """Of those that fail like what was seen a tenth is rejected, after four misses each: 0.44
    misses an acceptance.
    """
    judges = calibrated(4, 4)
    judges.learn(Point.of({"n": 1}), Verdict(True, tally(1, 1)))
    assert judges.rate == HitCount(5, 10).low(0.2)
    judges.learn(Point.of({"n": 2}), Verdict(True, tally(1, 1)))
    assert judges.rate == HitCount(6, 13).low(0.2)
    judges.learn(Point.of({"n": 2}).asked_for(Purpose.REPLAY), Verdict(True, tally(1, 1)))
    assert judges.rate == HitCount(7, 15).low(0.2)


def test_what_stays_open_up_to_the_cap_is_not_accepted_and_said_to_be_undecided() -> None:
    judge = SequentialJudge((Sprt(0.5, 0.45, 0.002, 0.002),), cap=6)
    assert judge.verdict(tally(3, 2)) is None
    verdict = judge.verdict(tally(3, 3))
    assert verdict is not None
    assert (verdict.reproduces, verdict.why) == (False, "3 of 6 reproduced: undecided")
    assert judge.at_most(tally(3, 2)) == 1
    before = SequentialJudge((Sprt(0.5, 0.0, 0.002, 0.02),), cap=6, prior=HitCount(1, 4))
    assert before.verdict(Tally()) is None
    said = before.verdict(tally(0, 1))
    assert said is not None
    assert said.why == "0 of 1 reproduced, after 1 of 4 before"


def test_candidates_are_judged_more_strictly_after_each_setback_and_only_then() -> None:
    judges, point = calibrated(4, 4), Point.of({"n": 50})
    plain = judges.judge_for(point)
    assert isinstance(plain, SequentialJudge)
    assert isinstance(plain.tests[0], PresenceTest)
    assert (len(plain.tests), plain.tests[0].alpha, plain.cap) == (1, 0.002, 80)
    for harmless in (Verdict(False, Tally()), Verdict(None, Tally())):
        judges.learn(Point.of({"n": 60}), harmless)
    judges.learn(Point.of({"n": 60}).asked_for(Purpose.REPLAY), Verdict(None, Tally()))
    assert judges.judge_for(point) == plain
    for setbacks, purpose in enumerate((Purpose.REPLAY, Purpose.CONFIRM), 1):
        judges.learn(Point.of({"n": 60}).asked_for(purpose), Verdict(False, Tally()))
        strict = judges.judge_for(point)
        assert isinstance(strict, SequentialJudge)
        assert len(strict.tests) == 1
        assert isinstance(strict.tests[0], PresenceTest)
        assert strict.tests[0].alpha == pytest.approx(0.002 / 10**setbacks)


def test_the_rate_is_never_held_to_be_certain_nor_too_rare_to_be_found() -> None:
    assert calibrated(4000, 0).rate == 0.99
    assert calibrated(1, 399).rate == 0.03
    assert SequentialJudges().rate == 0.03


@pytest.mark.parametrize("rate", [0.3, 0.5])
def test_the_learned_rate_does_not_run_away_from_the_true_one(rate: float) -> None:
    rng, learned = random.Random(1), []
    for _ in range(100):
        judges = SequentialJudges()
        _judge_once(judges, CALIBRATE, rate, rng)
        rejected = 0
        for n in range(60):
            rejected += not _judge_once(judges, Point.of({"n": n}), rate, rng)
            if rejected == DescentRules().replay_after_rejections:  # as every descent does
                _judge_once(judges, ORIGINAL.asked_for(Purpose.REPLAY, n), rate, rng)
                rejected = 0
        learned.append(judges.rate)
    # Of those that begin with two straight hits some are overrated for long.
    assert sum(found >= rate * 1.25 for found in learned) <= 10
    assert sum(learned) / len(learned) < rate


def _judge_once(judges: SequentialJudges, point: Point, rate: float, rng: random.Random) -> bool:
    judge, seen = judges.judge_for(point), Tally()
    while (verdict := judge.verdict(seen)) is None:
        seen += tally(1, 0) if rng.random() < rate else tally(0, 1)
    judges.learn(point, verdict)
    return verdict.reproduces is True


@pytest.mark.parametrize("rate", [0.9, 0.5, 0.3])
def test_what_fails_half_as_often_as_a_measured_original_hardly_passes(rate: float) -> None:
    judges = calibrated(12, round(12 / rate) - 12)
    answer = Point.of({"n": 5})
    for purpose in (Purpose.RATE, Purpose.CONFIRM):
        judge = judges.judge_for(answer.asked_for(purpose))
        assert exact(judge, rate)[0] > 0.93
        assert exact(judge, rate / 2)[0] < 0.25
        assert exact(judge, rate / 4)[0] < 0.02


def test_the_original_is_measured_until_its_rate_is_known_and_no_longer() -> None:
    judges = calibrated(4, 4)
    judge = judges.judge_for(ORIGINAL.asked_for(Purpose.RATE))
    assert judge.verdict(tally(7, 5)) is None
    assert judge.verdict(tally(8, 5)) is not None


@pytest.mark.parametrize("rate", [0.5, 0.3])
def test_confirmation_lets_the_same_rate_pass_and_stops_one_that_drifted(rate: float) -> None:
    judges = calibrated(4, round(4 / rate) - 4)
    judge = judges.judge_for(Point.of({"n": 5}).asked_for(Purpose.CONFIRM))
    assert exact(judge, rate)[0] > 0.98
    assert exact(judge, 0.0)[0] == 0.0
    assert exact(judge, rate / 10)[0] < 0.1


def test_after_a_failed_replay_only_what_fails_as_often_as_the_original_says_how_often() -> None:
    judges = calibrated(4, 4)
    judges.learn(Point.of({"n": 50}).asked_for(Purpose.RATE), Verdict(True, tally(8, 8)))
    before = judges.rate
    judges.learn(Point.of({"n": 20}), Verdict(True, tally(1, 9)))
    assert judges.rate < before
    judges.learn(Point.of({"n": 20}).asked_for(Purpose.REPLAY), Verdict(False, tally(0, 12)))
    assert judges.rate == pytest.approx(before, abs=0.03)


def test_a_recheck_counts_what_was_seen_before() -> None:
    judges, point = calibrated(4, 4), Point.of({"n": 50})
    judges.learn(point, Verdict(False, tally(0, 6)))
    again = judges.judge_for(point.asked_for(Purpose.PROBE, 1))
    other = judges.judge_for(Point.of({"n": 51}).asked_for(Purpose.PROBE, 1))
    assert exact(again, 0.0)[1] == pytest.approx(exact(other, 0.0)[1] - 6)


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from(list(Purpose)),
    st.integers(0, 2),
)
def test_needs_is_the_fewest_trials_that_can_settle_it(
    hits: int, misses: int, purpose: Purpose, replica: int
) -> None:
    judges = calibrated(4, 5)
    judge = judges.judge_for(Point.of({"n": 7}).asked_for(purpose, replica))
    seen = tally(hits, misses)
    needs = judge.needs(seen)
    if judge.verdict(seen) is not None:
        assert needs == judge.at_most(seen) == 0
        return
    assert 1 <= needs <= judge.at_most(seen)
    all_hit, all_miss = tally(hits + needs, misses), tally(hits, misses + needs)
    assert judge.verdict(all_hit) or judge.verdict(all_miss)
    for more in range(1, needs):
        assert judge.verdict(tally(hits + more, misses)) is None
        assert judge.verdict(tally(hits, misses + more)) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 4), st.integers(0, 4))))
def test_judges_told_the_same_judge_the_same(told: list[tuple[int, bool, int, int]]) -> None:
    one, two = calibrated(4, 3), calibrated(4, 3)
    for n, reproduces, hits, misses in told:
        for judges in (one, two):
            judges.learn(Point.of({"n": n}), Verdict(reproduces, tally(hits, misses)))
    for purpose in Purpose:
        point = Point.of({"n": 3}).asked_for(purpose, 1)
        assert one.judge_for(point) == two.judge_for(point)


def test_long_runs_do_not_overflow() -> None:
    assert 0.48 < HitCount(2500, 5000).low(0.2) < 0.5
