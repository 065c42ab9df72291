"""Which failure is meant: the first that is seen, and what varies where it was seen."""

from pathlib import Path

import pytest

from aorta.core.axis import Point, Purpose
from aorta.core.failure import failure_of
from aorta.core.trial import Outcome, StreamEnd, Tally, TrialEnd
from aorta.engine.drive import record_of
from aorta.engine.judge import KOfN, SameJudge
from aorta.engine.question import Budget, Question, SoughtFailure
from aorta.search.repeated import EveryPoint
from support.simulated import ValueExperiment

ORIGINAL = Point.of({"n": 9}, Purpose.CALIBRATE)
SMALLER = Point.of({"n": 3})
LOST = "RuntimeError: shard left lost its peer"
LOST_AGAIN = "RuntimeError: shard right lost its peer"
OTHER = "KeyError: no such key"


def sought(**about: object) -> SoughtFailure:
    return SoughtFailure(
        Question(
            EveryPoint([ORIGINAL]),
            SameJudge(KOfN(1, 1)),
            ValueExperiment(),
            {},
            **about,  # type: ignore[arg-type]
        )
    )


def failed(words: str) -> TrialEnd:
    nothing = StreamEnd(Path("none"))
    return TrialEnd("t", nothing, StreamEnd(Path("none"), tail=words), exit_code=1)


def seen(sought: SoughtFailure, point: Point, words: str) -> Outcome:
    end = failed(words)
    found = sought.classified(point, end)
    sought.learn(record_of(point, 0, found, end, seq=0, elapsed=0.0, path=""))
    return found.outcome


def test_the_first_failure_is_the_one_that_is_meant() -> None:
    one = sought()
    assert seen(one, ORIGINAL, LOST) is Outcome.REPRODUCED
    assert one.failure is not None
    assert "left" in one.failure.text
    assert seen(one, SMALLER, OTHER) is Outcome.OTHER
    assert seen(one, SMALLER, LOST) is Outcome.REPRODUCED


def test_what_varies_where_it_was_first_seen_is_an_accident_everywhere() -> None:
    one = sought()
    seen(one, ORIGINAL, LOST)
    assert seen(one, SMALLER, LOST_AGAIN) is Outcome.OTHER
    assert seen(one, ORIGINAL, LOST_AGAIN) is Outcome.REPRODUCED
    assert seen(one, SMALLER, LOST_AGAIN) is Outcome.REPRODUCED
    assert seen(one, ORIGINAL, OTHER) is Outcome.OTHER


def test_a_failure_that_is_known_already_is_meant_from_the_start() -> None:
    known = sought(expected=failure_of(failed(LOST)))
    assert seen(known, ORIGINAL, OTHER) is Outcome.OTHER
    assert seen(known, ORIGINAL, LOST) is Outcome.REPRODUCED


def test_only_where_it_shows_the_failure_is_learned() -> None:
    one = sought(shows_it=lambda point: point == SMALLER)
    seen(one, ORIGINAL, OTHER)
    assert one.failure is None
    seen(one, SMALLER, LOST)
    assert seen(one, ORIGINAL, OTHER) is Outcome.OTHER


def test_unguarded_every_failure_is_the_failure() -> None:
    one = sought(guard_signature=False)
    assert seen(one, ORIGINAL, LOST) is Outcome.REPRODUCED
    assert seen(one, SMALLER, OTHER) is Outcome.REPRODUCED
    assert not one.is_never_the_same(ORIGINAL, Tally(reproduced=1, other=9))


@pytest.mark.parametrize(
    ("point", "tally", "never"),
    [
        (ORIGINAL, Tally(reproduced=1, other=3), True),
        (ORIGINAL, Tally(reproduced=1, other=2), False),
        (ORIGINAL, Tally(reproduced=2, other=3), False),
        (ORIGINAL, Tally(reproduced=0, other=3), False),
        (SMALLER, Tally(reproduced=1, other=3), False),
    ],
)
def test_an_original_that_never_fails_twice_in_the_same_way_is_noticed(
    point: Point, tally: Tally, never: bool
) -> None:
    assert sought().is_never_the_same(point, tally) is never


def test_the_words_about_it_show_two_of_them_and_cut_them_short() -> None:
    records = []
    for words in (OTHER, OTHER, LOST, "ValueError: " + "y" * 300):
        end = failed(words)
        found = sought().classified(ORIGINAL, end)
        records.append(record_of(ORIGINAL, 0, found, end, seq=0, elapsed=0.0, path=""))
    said = SoughtFailure.different_words([records[0], *records[2:]])
    assert said.startswith("every one of its 3 failures looks different, such as ")
    assert "no such key" in said
    assert "lost its peer" in said
    assert "yy" not in said
    long = SoughtFailure.different_words(records[3:])
    [shown] = [part for part in long.split("'") if "y" * 50 in part]
    assert len(shown) == 120


def test_a_budget_is_spent_with_its_last_trial_or_second_and_not_before() -> None:
    budget = Budget(max_trials=3, max_seconds=2.5)
    assert [budget.allows(trials) for trials in (0, 2, 3, 4)] == [True, True, False, False]
    assert budget.spent(2, 2.4) == ""
    assert budget.spent(3, 0.0) == "3 trials are spent"
    assert budget.spent(2, 2.5) == budget.spent(0, 99.0) == "2.5s are spent"
    assert Budget().allows(10**9)
    assert Budget().spent(10**9, 1e9) == ""
    nothing = Budget(max_trials=0, max_seconds=0.0)
    assert not nothing.allows(0)
    assert nothing.spent(0, 0.0) == "0 trials are spent"
    assert Budget(max_seconds=0.0).spent(0, 0.0) == "0.0s are spent"


def test_what_varies_elsewhere_is_no_accident_of_the_failure() -> None:
    one = sought(guard_signature=False)
    seen(one, ORIGINAL, LOST)
    first = one.failure
    assert seen(one, SMALLER, LOST_AGAIN) is Outcome.REPRODUCED
    assert one.failure == first
    seen(one, ORIGINAL, LOST_AGAIN)
    assert one.failure != first
    varied = one.failure
    seen(one, ORIGINAL, OTHER)
    assert one.failure == varied


def test_words_that_vary_in_a_smaller_configuration_that_showed_it_are_an_accident() -> None:
    one = sought()
    seen(one, ORIGINAL, LOST)
    assert seen(one, SMALLER, LOST_AGAIN) is Outcome.OTHER
    assert seen(one, SMALLER, LOST) is Outcome.REPRODUCED
    assert seen(one, SMALLER, LOST_AGAIN) is Outcome.REPRODUCED
    assert seen(one, SMALLER, OTHER) is Outcome.OTHER
    assert seen(one, Point.of({"n": 2}), LOST_AGAIN) is Outcome.REPRODUCED


def test_a_failure_that_another_run_learned_is_the_one_that_is_meant() -> None:
    one = sought(expected=failure_of(failed(LOST)))
    assert seen(one, ORIGINAL, OTHER) is Outcome.OTHER
    assert seen(one, ORIGINAL, LOST) is Outcome.REPRODUCED
    assert seen(one, ORIGINAL, LOST_AGAIN) is Outcome.REPRODUCED


def test_a_question_is_guarded_cold_and_in_the_open_unless_it_says_otherwise() -> None:
    plain = Question(EveryPoint([ORIGINAL]), SameJudge(KOfN(1, 1)), ValueExperiment(), {})
    assert (plain.guard_signature, plain.private_trials, plain.warm) == (True, False, False)
    assert plain.shows_it(SMALLER)
