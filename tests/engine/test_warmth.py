"""Warm trials in the engine: which start warm, when they are believed, and that they never change
an answer.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from aorta.core.axis import Point, Purpose, number
from aorta.core.trial import Start, TrialEnd, TrialSpec
from aorta.engine.drive import Engine
from aorta.engine.journal import Journal
from aorta.engine.judge import EveryTrial, SameJudge, SequentialJudges
from aorta.engine.question import Answer, Question
from aorta.engine.warmth import PROOF_REPLICA, WarmRules
from aorta.search.descent import Descent
from aorta.search.reduction import Status
from aorta.search.repeated import EveryPoint
from support.simulated import SimulatedExecutor, ValueExperiment, end_of

PARTS = {"spec": 1}
Ends = Callable[[int, bool], bool]  # (value, starts warm) -> fails


def value_of(trial: TrialSpec) -> int:
    return int(trial.argv[0].removeprefix("N=")) if trial.argv else 0


@dataclass
class WarmingExecutor(SimulatedExecutor):
    """Starts warm whatever may be."""

    fails: Ends = lambda _value, _warm: True
    warms: bool = True
    starts: list[tuple[str, Start]] = field(default_factory=list)

    def start(self, trial: TrialSpec) -> None:
        self.starts.append((trial.id, trial.start))
        super().start(trial)

    warm = True

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        trials = dict(self._running)
        ended = super().wait(timeout)
        return [self._with_start(trials[end.trial_id], end) for end in ended]

    def _with_start(self, trial: TrialSpec, end: TrialEnd) -> TrialEnd:
        warm = self.warms and trial.start in {Start.WARM, Start.WARM_OF_FEW}
        if end.cancelled:
            return end
        code = int(self.fails(value_of(trial), warm))
        end = end_of(trial, code)
        if warm:
            return replace(end, saved=3.0, server="one")
        return replace(end, imports=3.0 if self.warms else None)


def executor(fails: Ends, **more: object) -> WarmingExecutor:
    return WarmingExecutor(answer=lambda _trial: 0, fails=fails, **more)  # type: ignore[arg-type]


def reduction() -> Question:
    axes = [number("N", initial=1000, floor=1)]
    search, judges = Descent(axes), SequentialJudges()
    return Question(
        search,
        judges,
        ValueExperiment(),
        PARTS,
        warm=WarmRules(proof=True),
        restart=lambda: (Descent(axes), SequentialJudges()),
    )


def drive(question: Question, place: WarmingExecutor, where: Path) -> Answer:
    path = where / "journal"
    journal = Journal.resume(path, PARTS) if path.exists() else Journal.create(path, PARTS)
    return Engine(question, place, journal, where).run()


def found(answer: Answer) -> object:
    assert isinstance(answer.search, Descent)
    assert answer.search.result.status is Status.REDUCED
    return answer.search.result.best["N"]


def test_the_original_and_every_confirmation_start_cold_and_the_search_goes_by_warm_trials(
    tmp_path: Path,
) -> None:
    place = executor(lambda value, _warm: value >= 37)
    answer = drive(reduction(), place, tmp_path)
    assert found(answer) == 37
    for record in answer.records:
        assert (record.saved == 0) == (record.point.purpose in {Purpose.CALIBRATE, Purpose.CONFIRM})
    assert answer.ending.warm_trials == sum(record.saved > 0 for record in answer.records) > 5
    assert not answer.ending.warm_dropped


def test_while_the_original_is_tried_warm_everything_else_waits(tmp_path: Path) -> None:
    place = executor(lambda value, _warm: value >= 37, slots=4)
    drive(reduction(), place, tmp_path)
    proofs = [n for n, trial in enumerate(place.started) if f".{PROOF_REPLICA}." in trial]
    assert proofs == list(range(proofs[0], proofs[0] + 3))


def test_where_nothing_can_start_warm_not_one_trial_more_is_run(tmp_path: Path) -> None:
    cold = executor(lambda value, _warm: value >= 37, warms=False)
    answer = drive(reduction(), cold, tmp_path / "cold")
    without = replace(reduction(), warm=None)
    plain = drive(without, executor(lambda value, _warm: value >= 37), tmp_path / "plain")
    assert [r.point for r in answer.records] == [r.point for r in plain.records]
    assert answer.ending.warm_trials == plain.ending.warm_trials == 0


def test_an_original_that_does_not_fail_warm_is_searched_cold_and_that_is_said(
    tmp_path: Path,
) -> None:
    place = executor(lambda value, warm: value >= 37 and not warm)
    answer = drive(reduction(), place, tmp_path)
    assert found(answer) == 37
    assert "warm trials failed 0 of" in answer.ending.warm_dropped
    believed = [r for r in answer.records if r.point.replica != PROOF_REPLICA]
    assert not any(record.saved for record in believed)


def test_warm_trials_that_go_wrong_away_from_the_original_do_not_change_the_answer(
    tmp_path: Path,
) -> None:
    """Warm, everything fails: the search ends at the floor, where cold trials find nothing."""
    place = executor(lambda value, warm: value >= 37 or (warm and value < 900))
    answer = drive(reduction(), place, tmp_path)
    assert found(answer) == 37
    assert answer.ending.warm_dropped
    assert not any(record.saved for record in answer.records)


@pytest.mark.parametrize("stop_after", [3, 8, 12, 20, 30])
def test_a_search_that_was_interrupted_before_or_after_it_went_cold_ends_the_same(
    tmp_path: Path, stop_after: int
) -> None:
    def fails(value: int, warm: bool) -> bool:
        return value >= 37 or (warm and value < 900)

    whole = drive(reduction(), executor(fails), tmp_path / "whole")
    drive(reduction(), executor(fails, die_after=stop_after), tmp_path / "cut")
    resumed = drive(reduction(), executor(fails), tmp_path / "cut")
    assert found(resumed) == found(whole) == 37
    assert bool(resumed.ending.warm_dropped) is True
    assert not any(record.saved for record in resumed.records)


def test_a_failure_that_one_start_decides_is_not_searched_warm(tmp_path: Path) -> None:
    """As one that hangs on the hash seed: cold trials fail now and then, those of one host always
    or never.
    """
    chance = random.Random(3)

    def of_host(lucky: bool) -> Ends:
        return lambda value, warm: value >= 37 and (lucky if warm else chance.random() < 0.5)

    dropped = 0
    for number_of_host in range(12):
        place = executor(of_host(number_of_host % 2 == 0))
        question = reduction()
        answer = drive(question, place, tmp_path / str(number_of_host))
        dropped += bool(answer.ending.warm_dropped)
    # Where the few cold trials of the original never missed, a host that always fails is like them.
    assert dropped >= 9


def test_a_flaky_failure_that_is_as_flaky_warm_is_searched_warm(tmp_path: Path) -> None:
    chance = random.Random(5)
    warm = 0
    for run in range(6):
        place = executor(lambda value, _warm: value >= 37 and chance.random() < 0.5)
        answer = drive(reduction(), place, tmp_path / str(run))
        warm += answer.ending.warm_trials > 20
    assert warm >= 3  # the others began with two failures in a row, and cost time alone


def rate_of(place: WarmingExecutor, where: Path, trials: int = 12) -> Answer:
    question = Question(
        EveryPoint([Point.of({})]),
        SameJudge(EveryTrial(trials)),
        ValueExperiment(),
        PARTS,
        warm=WarmRules(),
    )
    return drive(question, place, where)


def test_a_rate_begins_with_cold_trials_and_hosts_are_changed_often(tmp_path: Path) -> None:
    place = executor(lambda _value, _warm: True)
    answer = rate_of(place, tmp_path)
    assert [start for _, start in place.starts] == [Start.WATCHED] * 2 + [Start.WARM_OF_FEW] * 10
    assert len(answer.records) == 12


def test_a_rate_that_differs_warm_is_measured_cold(tmp_path: Path) -> None:
    place = executor(lambda _value, warm: not warm)
    answer = rate_of(place, tmp_path, trials=30)
    assert len(answer.records) == 30
    assert answer.ending.trials == len(place.started) > 30, "those that do not count are spent too"
    assert not any(record.saved for record in answer.records)
    assert "cold ones 2 of 2" in answer.ending.warm_dropped
