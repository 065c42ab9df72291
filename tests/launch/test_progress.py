"""When a job stops moving."""

from hypothesis import given
from hypothesis import strategies as st

from aorta.attribution import FailureClass, Finding, PastCycle, Root
from aorta.attribution.decision import LONG_CYCLE, JobStanding, decide, without_progress
from aorta.launch.records import Action, CycleStart, SourceVerdict

STEPS = st.lists(st.none() | st.integers(0, 50), min_size=1, max_size=20)


def told(step: int | None) -> SourceVerdict:
    return SourceVerdict(Action.RESTART, "why", finding={"last_step": step})


def walk(steps: list[int | None], lived: float = 1.0) -> CycleStart:
    from aorta.launch.decision import progress

    start = CycleStart("job", 0, ("node",))
    for step in steps:
        now = progress(start, (), told(step), lived)
        start = CycleStart(
            "job", start.cycle + 1, ("node",), best_step=now.best_step, idle_cycles=now.idle
        )
    return start


@given(STEPS)
def test_the_best_step_is_the_furthest_ever_told(steps: list[int | None]) -> None:
    assert walk(steps).best_step == max((step for step in steps if step is not None), default=None)


@given(STEPS)
def test_idle_cycles_count_back_to_the_last_record(steps: list[int | None]) -> None:
    idle = 0
    best = -1
    for step in steps:
        moved = step is not None and step > best
        idle = 0 if moved else idle + 1
        best = max(best, step if step is not None else -1)
    assert walk(steps).idle_cycles == idle


def test_where_no_step_is_ever_told_a_long_life_counts_as_progress() -> None:
    assert walk([None, None, None], lived=LONG_CYCLE).idle_cycles == 0
    assert walk([None, None, None], lived=1.0).idle_cycles == 3


def test_a_preempted_cycle_is_not_held_against_the_job() -> None:
    from aorta.launch.decision import progress

    start = CycleStart("job", 0, ("node",), best_step=7, idle_cycles=1)
    taken = SourceVerdict(Action.RESTART, "why", finding={"class": "preempted", "last_step": 3})
    assert progress(start, (), taken, 1.0) == JobStanding(7, 1)


@given(STEPS)
def test_attribution_and_the_launcher_agree_on_which_cycle_made_progress(
    steps: list[int | None],
) -> None:
    *before, last = steps
    history = [PastCycle(str(n), FailureClass.KILLED, step) for n, step in enumerate(before)]
    finding = Finding(FailureClass.KILLED, 0.9, Root(), (), "x", "killed", last_step=last)
    moved = last is not None and not without_progress(finding, history)
    assert (walk(steps).idle_cycles == 0) == moved


@given(STEPS, st.integers(1, 5))
def test_attribution_and_the_launcher_count_the_same_cycles_without_progress(
    steps: list[int | None], limit: int
) -> None:
    *before, last = [0 if step is None else step for step in steps]
    history = [PastCycle(str(n), FailureClass.KILLED, step) for n, step in enumerate(before)]
    finding = Finding(FailureClass.KILLED, 0.9, Root(), (), "x", "killed", last_step=last)
    told_at = walk([*before, last])
    stopped = decide(finding, history, no_progress_limit=limit).rule == "no_progress"
    assert stopped == (JobStanding(told_at.best_step, told_at.idle_cycles).in_a_row >= limit)
