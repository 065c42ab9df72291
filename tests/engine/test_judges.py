"""k-of-n stops as soon as the answer is known, and is right."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from aorta.core.trial import Outcome, Tally
from aorta.engine.judge import EveryTrial, KOfN

ENDS = (Outcome.REPRODUCED, Outcome.CLEAN)


def test_k_of_n_agrees_with_running_every_trial() -> None:
    for n in range(1, 6):
        for k in range(1, n + 1):
            for ends in itertools.product(ENDS, repeat=n):
                tally = Tally()
                for used, end in enumerate(ends):
                    if KOfN(k, n).verdict(tally):
                        break
                    assert KOfN(k, n).needs(tally) <= n - used
                    tally += end
                verdict = KOfN(k, n).verdict(tally)
                assert verdict is not None
                assert verdict.reproduces == (ends.count(Outcome.REPRODUCED) >= k)


@given(st.integers(1, 8), st.integers(0, 7), st.lists(st.sampled_from(ENDS), max_size=8))
def test_no_fewer_trials_than_it_needs_could_settle_it(
    k: int, more: int, ends: list[Outcome]
) -> None:
    judge = KOfN(k, k + more)
    tally = Tally.of(ends)
    needs = judge.needs(tally)
    for fewer in itertools.product(ENDS, repeat=max(0, needs - 1)):
        assert needs == 0 or judge.verdict(tally + Tally.of(fewer)) is None
    fastest = [tally + Tally.of([end] * needs) for end in ENDS]
    assert any(judge.verdict(t) for t in fastest)


def test_two_of_three_stops_after_two_equal_answers() -> None:
    judge = KOfN(2, 3)
    assert judge.verdict(Tally(reproduced=2)) is not None
    assert judge.verdict(Tally(clean=1, other=1)) is not None
    assert judge.verdict(Tally(reproduced=1, clean=1)) is None


def test_errors_are_no_evidence() -> None:
    assert KOfN(1, 2).verdict(Tally(error=10)) is None
    assert EveryTrial(3).needs(Tally(error=10, clean=1)) == 2


def test_k_of_n_can_use_what_is_left_of_n_and_needs_what_could_settle_it() -> None:
    judge = KOfN(2, 5)
    assert (judge.needs(Tally()), judge.at_most(Tally())) == (2, 5)
    assert (judge.needs(Tally(1, 1)), judge.at_most(Tally(1, 1))) == (1, 3)
    assert (judge.needs(Tally(0, 2)), judge.at_most(Tally(0, 2))) == (2, 3)
    assert (judge.needs(Tally(2)), judge.at_most(Tally(2))) == (0, 0)
    said = [judge.verdict(Tally(*counts)) for counts in ((0, 3), (1, 3), (0, 4), (1, 4), (2, 3))]
    assert [one and one.reproduces for one in said] == [None, None, False, False, True]


def test_every_trial_is_run_and_one_hit_is_enough_to_say_that_it_reproduces() -> None:
    judge = EveryTrial(3)
    assert judge.verdict(Tally(2)) is None
    said = [judge.verdict(Tally(*counts)) for counts in ((0, 3), (1, 2), (3, 0))]
    assert [one and one.reproduces for one in said] == [False, True, True]
    assert [judge.needs(Tally(n)) for n in (0, 2, 3, 4)] == [3, 1, 0, 0]
