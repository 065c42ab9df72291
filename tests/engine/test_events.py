"""What a run tells of its trials and of its end."""

from collections import Counter

import pytest

from aorta.core.errors import Exit
from aorta.engine.events import Ending, Reason, different_failures


def test_one_ending_from_two_parts_has_spent_what_both_spent_and_ended_as_the_later() -> None:
    first = Ending(Reason.BUDGET, "spent", 5, 2, 10.0, 3, "too different")
    later = Ending(Reason.DONE, "", 7, 1, 4.5, 1)
    assert first.followed_by(later) == Ending(Reason.DONE, "", 12, 3, 14.5, 4, "too different")
    assert later.followed_by(first).warm_dropped == "too different"
    assert later.followed_by(later).warm_dropped == ""


def test_an_ending_has_spent_nothing_unless_it_says_so() -> None:
    nothing = Ending(Reason.DONE)
    assert (nothing.trials, nothing.resumed_trials, nothing.seconds) == (0, 0, 0.0)
    assert nothing.warm_to_json() == {"trials": 0, "dropped": None}
    assert nothing.warm_words == []


def test_warm_trials_are_told_of_and_so_is_why_they_do_not_count() -> None:
    warm = Ending(Reason.DONE, warm_trials=1)
    assert warm.warm_to_json() == {"trials": 1, "dropped": None}
    [words] = warm.warm_words
    assert words.startswith("1 trial started warm")
    dropped = Ending(Reason.DONE, warm_trials=1, warm_dropped="they differ")
    assert dropped.warm_to_json() == {"trials": 1, "dropped": "they differ"}
    assert dropped.warm_words == ["warm trials were not believed, and none counts: they differ"]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.DONE, Exit.OK),
        (Reason.BUDGET, Exit.BUDGET),
        (Reason.INTERRUPTED, Exit.INTERRUPTED),
        (Reason.TERMINATED, Exit.TERMINATED),
        (Reason.INFRASTRUCTURE, Exit.INFRASTRUCTURE),
    ],
)
def test_each_reason_has_its_exit_code(reason: Reason, code: Exit) -> None:
    assert Ending(reason).exit_code is code


def test_other_failures_are_counted_the_most_frequent_first_and_cut_short() -> None:
    assert different_failures(Counter()) == []
    seen = Counter({"exit 1 | a": 1, "exit 2 | b": 3})
    assert different_failures(seen) == [
        "4 trials failed differently:",
        "  3 x exit 2 | b",
        "  1 x exit 1 | a",
    ]
    assert different_failures(Counter(["x" * 300]))[1] == "  1 x " + "x" * 200
