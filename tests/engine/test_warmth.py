"""Warm trials in the engine: which start warm, when they are believed, and that they never change
an answer.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from aorta.core.axis import Point, Purpose, number
from aorta.core.oracle import Classified
from aorta.core.trial import Outcome, Start, StreamEnd, Tally, TrialEnd, TrialSpec, Verdict
from aorta.engine.drive import Engine, record_of
from aorta.engine.events import TrialRecord
from aorta.engine.journal import Journal
from aorta.engine.judge import EveryTrial, SameJudge, SequentialJudges
from aorta.engine.question import (
    Answer,
    Question,
    Warmth,
    independent_starts,
    of_independent_starts,
)
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
    serves: bool = True
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
        warm = self.warms and self.serves and trial.start is Start.WARM
        if end.cancelled:
            return end
        code = int(self.fails(value_of(trial), warm))
        end = end_of(trial, code)
        if warm:
            return replace(end, saved=3.0)
        return replace(end, imports=3.0 if self.warms else None)


def executor(fails: Ends, **more: object) -> WarmingExecutor:
    return WarmingExecutor(answer=lambda _trial: 0, fails=fails, **more)  # type: ignore[arg-type]


def reduction(*, warm: bool = True) -> Question:
    search = Descent([number("N", initial=1000, floor=1)])
    return Question(search, SequentialJudges(), ValueExperiment(), PARTS, warm=warm)


def drive(question: Question, place: WarmingExecutor, where: Path) -> Answer:
    path = where / "journal"
    journal = Journal.resume(path, PARTS) if path.exists() else Journal.create(path, PARTS)
    return Engine(question, place, journal, where).run()


def reduced(place: WarmingExecutor, where: Path) -> tuple[Answer, object]:
    """The answer, and the smallest value that was found."""
    question = reduction()
    answer = drive(question, place, where)
    assert isinstance(question.search, Descent)
    assert question.search.result.status is Status.REDUCED
    return answer, question.search.result.best["N"]


def test_the_original_and_every_confirmation_start_cold_and_the_search_goes_by_warm_trials(
    tmp_path: Path,
) -> None:
    place = executor(lambda value, _warm: value >= 37, slots=4)
    answer, found = reduced(place, tmp_path)
    assert found == 37
    for record in answer.records:
        assert (record.saved == 0) == (record.point.purpose in {Purpose.CALIBRATE, Purpose.CONFIRM})
    assert answer.ending.warm_trials == sum(record.saved > 0 for record in answer.records) > 5
    assert not answer.ending.warm_dropped
    compared = answer.ending.trials - len(answer.records)
    assert compared == 3, "warm trials of the original, which count for nothing else"
    first = [start for _, start in place.starts].index(Start.WARM)
    assert len({trial.rpartition(".")[0] for trial, _ in place.starts[first : first + 3]}) == 1


def test_where_nothing_can_start_warm_not_one_trial_more_is_run(tmp_path: Path) -> None:
    cold = executor(lambda value, _warm: value >= 37, warms=False)
    answer = drive(reduction(), cold, tmp_path / "cold")
    plain = executor(lambda value, _warm: value >= 37)
    without = drive(reduction(warm=False), plain, tmp_path / "plain")
    assert [r.point for r in answer.records] == [r.point for r in without.records]
    assert answer.ending.warm_trials == without.ending.warm_trials == 0


def test_a_program_that_no_server_can_serve_is_tried_three_times_and_that_is_said(
    tmp_path: Path,
) -> None:
    place = executor(lambda value, _warm: value >= 37, serves=False)
    answer, found = reduced(place, tmp_path)
    assert found == 37
    assert answer.ending.warm_dropped == "no trial can be started warm"
    assert answer.ending.trials == len(answer.records) + 3
    assert [start for _, start in place.starts].count(Start.WARM) == 3


def test_an_original_that_does_not_fail_warm_is_searched_cold_and_that_is_said(
    tmp_path: Path,
) -> None:
    place = executor(lambda value, warm: value >= 37 and not warm)
    answer, found = reduced(place, tmp_path)
    assert found == 37
    assert "warm trials failed 0 of 3 times, cold ones" in answer.ending.warm_dropped
    assert not any(record.saved for record in answer.records)
    assert answer.ending.trials == len(place.started), "those that do not count are spent too"


def test_warm_trials_that_can_tell_nothing_prove_nothing() -> None:
    warmth = Warmth(True, [record(Outcome.REPRODUCED), record(Outcome.REPRODUCED)])
    warmth.proposal(3.0, 4.0, 0)
    proof = warmth.proof
    assert proof is not None
    warmth.proofs.append(replace(record(Outcome.ERROR, saved=3.0), point=proof))
    warmth.decided(proof, Verdict(None, Tally(error=3), "could not be tried: it was killed"))
    assert warmth.dropped == "warm trials failed 0 of 0 times, cold ones 2 of 2"
    assert warmth.start_for(proof) is Start.COLD


def test_warm_trials_that_go_wrong_away_from_the_original_do_not_change_the_answer(
    tmp_path: Path,
) -> None:
    """Warm, everything fails: the search ends at the floor, where cold trials find nothing."""
    place = executor(lambda value, warm: value >= 37 or (warm and value < 900))
    answer, found = reduced(place, tmp_path)
    assert found == 37
    assert "did not confirm" in answer.ending.warm_dropped
    dropped = next(n for n, r in enumerate(answer.records) if r.point.purpose is Purpose.CONFIRM)
    assert not any(record.saved for record in answer.records[dropped:])


@pytest.mark.parametrize("stop_after", [3, 8, 12, 20])
def test_a_search_that_was_interrupted_before_or_after_it_went_cold_ends_the_same(
    tmp_path: Path, stop_after: int
) -> None:
    def fails(value: int, warm: bool) -> bool:
        return value >= 37 or (warm and value < 900)

    drive(reduction(), executor(fails, die_after=stop_after), tmp_path)
    resumed, found = reduced(executor(fails), tmp_path)
    assert found == 37
    assert resumed.ending.warm_dropped


def test_a_failure_that_one_start_decides_is_not_searched_warm(tmp_path: Path) -> None:
    """As one that depends on the hash seed: cold trials fail now and then, those of one server
    always or never.
    """
    chance = random.Random(3)

    def of_server(lucky: bool) -> Ends:
        return lambda value, warm: value >= 37 and (lucky if warm else chance.random() < 0.5)

    dropped = 0
    for run in range(8):
        answer = drive(reduction(), executor(of_server(run % 2 == 0)), tmp_path / str(run))
        dropped += bool(answer.ending.warm_dropped)
    # Where the few cold trials of the original never missed, a server that always fails is like
    # them.
    assert dropped >= 6


def test_a_flaky_failure_that_is_as_flaky_warm_is_searched_warm(tmp_path: Path) -> None:
    chance = random.Random(5)
    warm = 0
    for run in range(4):
        place = executor(lambda value, _warm: value >= 37 and chance.random() < 0.5)
        answer = drive(reduction(), place, tmp_path / str(run))
        warm += answer.ending.warm_trials > 20
    assert warm >= 2  # the others began with two failures in a row, and cost time alone


def rate_of(place: WarmingExecutor, where: Path, trials: int = 12) -> Answer:
    judge = SameJudge(EveryTrial(trials))
    search = EveryPoint([Point.of({})])
    return drive(Question(search, judge, ValueExperiment(), PARTS, warm=True), place, where)


def test_a_rate_begins_with_cold_trials(tmp_path: Path) -> None:
    place = executor(lambda _value, _warm: True)
    answer = rate_of(place, tmp_path)
    assert [start for _, start in place.starts] == [Start.WATCHED] * 2 + [Start.WARM] * 13
    assert [record.saved > 0 for record in answer.records] == [False] * 2 + [True] * 10


def test_a_rate_that_differs_warm_is_measured_cold(tmp_path: Path) -> None:
    place = executor(lambda _value, warm: not warm)
    answer = rate_of(place, tmp_path)
    assert len(answer.records) == 12
    assert answer.ending.trials == len(place.started) == 15
    assert not any(record.saved for record in answer.records)
    assert "cold ones 2 of 2" in answer.ending.warm_dropped


def record(outcome: Outcome, saved: float = 0.0) -> TrialRecord:
    nothing = StreamEnd(Path("none"))
    end = TrialEnd("t", nothing, nothing, saved=saved)
    found = Classified(outcome, "")
    return record_of(Point.of({"n": 3}), 0, found, end, seq=0, elapsed=0.0, path="")


def test_warm_trials_are_one_start_for_an_interval() -> None:
    """An order-dependent bug: 13 of 18 failed, and few hash seeds were drawn."""
    cold = [record(Outcome.REPRODUCED), record(Outcome.CLEAN)]
    warm = [replace(cold[number % 4 == 0], saved=3.0) for number in range(16)]
    records = [*cold, *warm, record(Outcome.ERROR)]
    assert independent_starts(records) == 3
    assert of_independent_starts(Tally(13, 5, 0, 1), records) == Tally(2, 1, 0, 1)
    assert of_independent_starts(Tally(1, 1), cold) == Tally(1, 1)


@pytest.mark.parametrize(
    ("imports", "duration", "left", "said"),
    [
        (3.4, 4.4, 36, "imports are 3.4s of 4.4s a trial; --warm would save about 2m02s"),
        (3.4, 4.4, 0, "imports are 3.4s of 4.4s a trial; --warm would save about 3.4s"),
        (1.0, 4.4, 36, ""),
        (0.1, 0.2, 36, ""),
    ],
)
def test_what_warm_starts_would_save_is_said_once(
    imports: float, duration: float, left: int, said: str
) -> None:
    warmth = Warmth(requested=False)
    assert warmth.proposal(imports, duration, left) == said
    if said:
        assert warmth.proposal(3.4, 4.4, 36) == ""
    assert Warmth(requested=True).proposal(3.4, 4.4, 36) == ""
