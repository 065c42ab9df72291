"""When a job stops moving."""

from hypothesis import given
from hypothesis import strategies as st

from aorta.launch.decision import LONG_CYCLE, progress
from aorta.launch.records import Action, Start, Verdict

STEPS = st.lists(st.none() | st.integers(0, 50), min_size=1, max_size=20)


def told(step: int | None) -> Verdict:
    return Verdict(Action.RESTART, "why", finding={"last_step": step})


def walk(steps: list[int | None], lived: float = 1.0) -> Start:
    start = Start("job", 0, ("node",))
    for step in steps:
        best, idle = progress(start, (), told(step), lived)
        start = Start("job", start.cycle + 1, ("node",), best_step=best, idle_cycles=idle)
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
