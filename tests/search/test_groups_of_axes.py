"""Axes that do not matter cost next to nothing, however many there are."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point, number
from aorta.core.trial import Tally, Verdict
from aorta.search.descent import Descent


def reduced(names: list[str], needed: dict[str, int]) -> tuple[dict[str, object], int]:
    """The final values, and how many points were judged."""
    descent = Descent([number(name, 64, 1) for name in names])
    judged = 0
    while not descent.done:
        (point,) = descent.ask(1)
        holds = all(int(str(point[name])) >= least for name, least in needed.items())
        descent.tell(point, Verdict(holds, Tally(int(holds), int(not holds)), "", 0.1))
        judged += 1
    best = descent.best
    assert isinstance(best, Point)
    return dict(best.values), judged


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(6, 40), st.data())
def test_the_axes_that_matter_are_found_among_many_that_do_not(
    count: int, data: st.DataObject
) -> None:
    names = [f"axis_{number:02d}" for number in range(count)]
    needed = data.draw(
        st.dictionaries(st.sampled_from(names), st.integers(2, 64), max_size=3), "needed"
    )
    final, _ = reduced(names, needed)
    assert final == {name: needed.get(name, 1) for name in names}


def test_forty_axes_of_which_two_matter_cost_little_more_than_the_two() -> None:
    names = [f"axis_{number:02d}" for number in range(40)]
    needed = {"axis_07": 20, "axis_31": 5}
    _, alone = reduced(sorted(needed), needed)
    final, among = reduced(names, needed)
    assert final["axis_07"] == 20
    assert among - alone <= 20
