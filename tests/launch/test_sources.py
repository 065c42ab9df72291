"""One verdict from many sources, in bounded time, whatever they do."""

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.launch.config import Aggregation
from aorta.launch.decision import AttributionSources
from aorta.launch.records import (
    Action,
    CycleStart,
    DecisionSource,
    FailedCycle,
    SourceError,
    SourceVerdict,
)
from support.waiting import patience, wait_until

FAILED = FailedCycle(CycleStart("job", 0, ("node",)), ())
ANSWERS = ["STOP", "RESTART", "UNKNOWN", "unreachable", "silent"]


class Says:
    """A source that answers one thing."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.triggers = 0

    @property
    def name(self) -> str:
        return f"says {self._answer}"

    def trigger(self, failed: FailedCycle) -> None:
        del failed
        self.triggers += 1

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        del failed
        if self._answer == "unreachable":
            raise SourceError("no route")
        if self._answer == "silent":
            return None
        return SourceVerdict(Action(self._answer), "why", self.name)


def verdict(answers: Sequence[str], aggregation: Aggregation, timeout: float = 30.0) -> Action:
    sources: list[DecisionSource] = [Says(answer) for answer in answers]
    return AttributionSources(sources, aggregation).read(FAILED, timeout).action


@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5))
def test_any_stops_exactly_when_somebody_says_stop(answers: list[str]) -> None:
    assert (verdict(answers, "any") is Action.STOP) == ("STOP" in answers)


@given(st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=5))
def test_all_stops_exactly_when_every_opinion_is_stop_and_there_is_one(answers: list[str]) -> None:
    opinions = {answer for answer in answers if answer in {"STOP", "RESTART"}}
    assert (verdict(answers, "all") is Action.STOP) == (opinions == {"STOP"})


class Blocked(Says):
    """Answers when the test lets it."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.released = threading.Event()

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        self.released.wait(patience())
        return super().read(failed)


def test_a_stop_is_not_kept_waiting_by_a_slow_source() -> None:
    slow = Blocked("RESTART")
    assert (
        AttributionSources([slow, Says("STOP")], "any").read(FAILED, 2 * patience()).action
        is Action.STOP
    )
    assert not slow.released.is_set()
    slow.released.set()


def test_time_is_bounded_and_a_stop_that_comes_later_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = Blocked("STOP")
    assert AttributionSources([late], "any").read(FAILED, 0.1).action is Action.UNKNOWN
    late.released.set()
    told = "late STOP from says STOP for cycle job:0 is dropped"
    wait_until(lambda: told in caplog.text, told)


def test_a_stop_that_comes_later_is_obeyed_where_that_is_asked_for() -> None:
    late, heard = Blocked("STOP"), list[SourceVerdict]()
    assert (
        AttributionSources([late], "any").read(FAILED, 0.1, heard.append).action is Action.UNKNOWN
    )
    late.released.set()
    wait_until(lambda: heard, "the late STOP")
    assert heard[0].source == "says STOP"


def answered(name: str) -> bool:
    return not any(thread.name == f"query-{name}" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("aggregation", "first", "decided"), [("any", "STOP", "STOP"), ("all", "RESTART", "RESTART")]
)
def test_a_stop_behind_the_decision_is_not_called_late(
    aggregation: Aggregation, first: str, decided: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With `any` the job stops by the first one; with `all` it goes on against the second."""
    second = Blocked("STOP")
    heard: list[SourceVerdict] = []
    sources = AttributionSources([Says(first), second], aggregation)
    assert sources.read(FAILED, 2 * patience(), heard.append).action is Action(decided)
    second.released.set()
    wait_until(lambda: answered(second.name), "its answer")
    assert "late STOP" not in caplog.text
    assert not heard
