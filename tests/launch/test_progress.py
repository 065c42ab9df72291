"""When a job stops moving: one rule for attribution, the service and the launcher."""

import json
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from aorta.attribution import FailureClass, Finding, JobProgress, PastCycle
from aorta.attribution.documents import Root, finding_document, past_cycle
from aorta.attribution.policy import decide
from aorta.attribution.progress import LONG_CYCLE, progress_over
from aorta.launch.decision import progress
from aorta.launch.records import Action, CycleEvidence, CycleStart, SourceVerdict


class Cycle(NamedTuple):
    step: int | None = None
    heartbeat: int | None = None
    lived: float = 1.0
    kind: FailureClass = FailureClass.KILLED

    @property
    def finding(self) -> Finding:
        return Finding(
            self.kind,
            0.7,
            Root(),
            (),
            "same",
            "summary",
            last_step=self.step,
            heartbeat_step=self.heartbeat,
            lived_sec=self.lived,
        )


STEPS = st.none() | st.integers(0, 20)
LIVES = st.sampled_from([1.0, LONG_CYCLE, 7 * 86_400.0])
KINDS = st.sampled_from(
    [FailureClass.KILLED, FailureClass.PREEMPTED, FailureClass.HARDWARE_FAULT, FailureClass.HANG]
)
CYCLES = st.lists(st.builds(Cycle, STEPS, STEPS, LIVES, KINDS), min_size=1, max_size=12)


def launched(cycles: list[Cycle]) -> JobProgress:
    """As the launcher counts, one failed cycle after the other."""
    start = CycleStart("job", 0, ("node",))
    now = JobProgress()
    for cycle in cycles:
        heard = CycleEvidence("a", "node", 0, step=cycle.heartbeat)
        verdict = SourceVerdict(Action.RESTART, "", finding=finding_document(cycle.finding))
        now = progress(start, (heard,), verdict, cycle.lived)
        start = CycleStart("job", 0, ("node",), best_step=now.best_step, idle_cycles=now.idle)
    return now


def stored(cycles: list[Cycle]) -> list[PastCycle]:
    """As the service remembers them."""
    documents = [json.loads(json.dumps(finding_document(cycle.finding))) for cycle in cycles]
    found = [past_cycle(document) for document in documents]
    return [cycle for cycle in found if cycle is not None]


@given(CYCLES, st.integers(1, 5))
def test_attribution_the_service_and_the_launcher_agree_when_a_job_stops_moving(
    cycles: list[Cycle], limit: int
) -> None:
    *before, last = cycles
    launcher = launched(cycles)
    assert progress_over([*stored(before), last.finding]) == launcher
    stopped = decide(last.finding, stored(before), no_progress_limit=limit).rule == "no_progress"
    assert stopped == (launcher.idle >= limit and last.kind is not FailureClass.PREEMPTED)


@given(CYCLES)
def test_a_step_further_than_all_before_is_progress(cycles: list[Cycle]) -> None:
    assert launched([*cycles, Cycle(step=21)]) == JobProgress(21, 0)


def test_cycles_that_end_at_one_step_are_a_loop_and_short_lives_without_steps_too() -> None:
    assert launched([Cycle(10), Cycle(10), Cycle(10)]).idle == 3
    assert launched([Cycle(), Cycle(), Cycle()]).idle == 3


def test_the_cycle_that_came_far_is_not_one_of_those_that_failed_at_start_up() -> None:
    assert launched([Cycle(50_000), Cycle(), Cycle()]).idle == 2


def test_a_long_life_counts_whether_or_not_a_step_was_ever_reported() -> None:
    assert launched([Cycle(lived=LONG_CYCLE)] * 3).idle == 0
    assert launched([Cycle(100), *[Cycle(lived=LONG_CYCLE)] * 3]).idle == 0


def test_lost_nodes_over_weeks_are_no_loop_though_the_count_of_steps_begins_anew() -> None:
    week = 7 * 86_400.0
    lost = Cycle(2_000, lived=week, kind=FailureClass.HARDWARE_FAULT)
    assert launched([lost] * 4).idle == 0


def test_a_preempted_cycle_is_not_held_against_the_job() -> None:
    taken = Cycle(3, kind=FailureClass.PREEMPTED)
    assert launched([Cycle(7), Cycle(7), taken]) == launched([Cycle(7), Cycle(7)])
