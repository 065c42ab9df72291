"""A trial's plain facts: what counts as evidence, and what is taken for granted."""

from pathlib import Path

import pytest

from aorta.core.trial import (
    Environment,
    Outcome,
    Resources,
    RuntimeKind,
    StreamEnd,
    Tally,
    TrialEnd,
    TrialSpec,
    Verdict,
    WatchedPattern,
)


def test_only_what_reproduced_or_did_not_is_evidence() -> None:
    tally = Tally(reproduced=5, clean=3, other=2, error=1)
    assert (tally.against, tally.evidence, tally.trials) == (5, 10, 11)
    counted = Tally.of([Outcome.REPRODUCED, Outcome.CLEAN, Outcome.OTHER, Outcome.ERROR])
    assert counted == Tally(1, 1, 1, 1)
    assert tally + counted == Tally(6, 4, 3, 2)
    assert tally + Outcome.OTHER == Tally(5, 3, 3, 1)
    assert Tally() == Tally(0, 0, 0, 0)
    assert Verdict(None).tally == Tally()


@pytest.mark.parametrize(
    ("facts", "failed"),
    [
        ({"exit_code": 0}, False),
        ({"exit_code": 1}, True),
        ({"signal": 9}, True),
        ({"exit_code": None}, False),
        ({"exit_code": 0, "signal": 6}, True),
    ],
)
def test_a_trial_failed_by_its_exit_code_or_by_a_signal(
    facts: dict[str, int | None], failed: bool
) -> None:
    nothing = StreamEnd(Path("none"))
    assert TrialEnd("t", nothing, nothing, **facts).failed is failed  # type: ignore[arg-type]


def test_unless_it_says_so_a_trial_ended_by_itself_at_once_and_left_nothing() -> None:
    nothing = StreamEnd(Path("none"))
    end = TrialEnd("t", nothing, nothing)
    assert not any((end.timed_out, end.hung, end.cancelled, end.out_of_memory, nothing.bytes_seen))
    assert (end.started_at, end.duration, end.saved) == (0.0, 0.0, 0.0)


def test_a_match_ends_a_trial_and_the_first_one_is_kept_unless_told_otherwise() -> None:
    watched = WatchedPattern("NaN")
    assert (watched.stream, watched.stop, watched.keep_last) == ("both", True, False)


def test_the_host_says_nothing_about_what_runs_in_an_environment_of_its_own() -> None:
    assert not Environment("local").isolated
    assert Environment("mine", RuntimeKind.VENV).isolated
    spec = TrialSpec(("true",), Path("t"), Path())
    assert not spec.environment.isolated
    assert Resources(gpus=8, nodes=2).tasks == 2
