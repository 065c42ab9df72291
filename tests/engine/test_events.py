"""What a run tells of its trials and of its end."""

from collections import Counter
from pathlib import Path

import pytest

from aorta.core.axis import Point
from aorta.core.errors import Exit
from aorta.core.failure import Failure
from aorta.core.oracle import Classified
from aorta.core.trial import Ended, Outcome, StreamEnd, TrialEnd
from aorta.engine.drive import record_of
from aorta.engine.events import (
    Ending,
    Reason,
    TrialRecord,
    different_failures,
    failed_differently,
)


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


def test_warm_trials_are_told_of_and_so_is_why_they_do_not_count() -> None:
    warm = Ending(Reason.DONE, warm_trials=1)
    assert warm.warm_to_json() == {"trials": 1, "dropped": None}
    dropped = Ending(Reason.DONE, warm_trials=1, warm_dropped="they differ")
    assert dropped.warm_to_json() == {"trials": 1, "dropped": "they differ"}


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


def test_of_many_kinds_of_failures_five_are_named_and_all_are_counted() -> None:
    seen = Counter({f"exit {n}": n for n in range(1, 8)})
    words = different_failures(seen)
    assert words[0] == "28 trials failed differently:"
    assert words[1:] == [f"  {n} x exit {n}" for n in (7, 6, 5, 4, 3)]


def recorded(found: Classified, **facts: float) -> TrialRecord:
    nothing = StreamEnd(Path("none"))
    end = TrialEnd("t", nothing, nothing, exit_code=1, **facts)  # type: ignore[arg-type]
    return record_of(Point.of({}), 4, found, end, seq=9, elapsed=2.0004567, path="trials/x")


def test_a_record_holds_times_to_the_millisecond_and_a_duration_to_the_microsecond() -> None:
    found = Classified(Outcome.REPRODUCED, "exit 1")
    record = recorded(found, duration=1.23456789, started_at=7.1234567, saved=0.9876543)
    assert (record.duration, record.started_at) == (1.234568, 7.123)
    assert (record.elapsed, record.saved) == (2.0, 0.988)
    assert (record.seq, record.index, record.path, record.exit_code) == (9, 4, "trials/x", 1)
    assert (record.value, record.kept, recorded(found).saved) == (None, {}, 0.0)


def test_only_other_failures_that_said_something_are_told_of() -> None:
    said = Failure(Ended(1), words=("KeyError",))
    records = [
        recorded(Classified(Outcome.OTHER, "", said)),
        recorded(Classified(Outcome.OTHER, "", None)),
        recorded(Classified(Outcome.REPRODUCED, "", said)),
    ]
    assert failed_differently(records) == [
        "1 trial failed differently:",
        "  1 x exit 1 | KeyError",
    ]
    assert failed_differently(records[1:]) == []
