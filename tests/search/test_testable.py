"""How likely a state is to run, learned from those that did and did not."""

from fractions import Fraction

import pytest

from aorta.search import testable
from aorta.search.timeline import History, Timeline
from support.timelines import one_package

LINE = one_package(41)


def learned(*, ran: tuple[int, ...] = (), broken: tuple[int, ...] = ()) -> testable.Testability:
    found = testable.Testability()
    for state in ran:
        found.learn(LINE, (state,), ran=True)
    for state in broken:
        found.learn(LINE, (state,), ran=False)
    return found


def test_while_nothing_is_broken_every_state_is_taken_to_run() -> None:
    assert testable.Testability().chance(LINE, (7,)) == 1.0
    assert learned(ran=(0, 40)).chance(LINE, (7,)) == 1.0


def test_what_was_broken_is_not_built_again() -> None:
    found = learned(ran=(0, 40), broken=(20,))
    assert found.chance(LINE, (20,)) == 0.0
    assert found.untestable == {(20,)}


@pytest.mark.parametrize(
    ("state", "chance"),
    [
        (21, Fraction(1, 2)),
        (19, Fraction(1, 2)),
        (22, Fraction(2, 3)),
        (23, Fraction(2, 3)),
        (24, Fraction(3, 4)),
        (27, Fraction(3, 4)),
        (28, Fraction(7, 9)),  # as far as the two that were tried first: one ran and one did not
        (39, Fraction(7, 9)),
        (12, Fraction(7, 9)),
    ],
)
def test_the_further_from_a_broken_state_the_likelier_it_runs(state: int, chance: Fraction) -> None:
    found = learned(ran=(0, 40), broken=(20,))
    assert found.chance(LINE, (state,)) == pytest.approx(float(chance))


def test_what_was_seen_at_a_distance_counts_for_every_state_at_that_distance() -> None:
    found = learned(ran=(0, 40), broken=(20, 21, 19))
    assert found.chance(LINE, (22,)) == pytest.approx(1 / 4)
    assert found.chance(LINE, (23,)) == pytest.approx(2 / 3)
    found.learn(LINE, (22,), ran=True)
    assert found.chance(LINE, (18,)) == pytest.approx(2 / 5)


def test_inside_a_stretch_where_nothing_ran_it_gives_up_after_a_dozen() -> None:
    """Beside a state that ran it never does."""
    found = testable.Testability()
    for state in range(10, 20):
        found.learn(LINE, (state,), ran=False)
    assert found.chance(LINE, (20,)) == pytest.approx(1 / 12)
    found.learn(LINE, (20,), ran=False)
    assert found.chance(LINE, (21,)) == 0.0
    found.learn(LINE, (22,), ran=True)
    assert found.chance(LINE, (21,)) == pytest.approx(1 / 2)


def test_versions_that_all_ran_before_will_most_likely_run_together() -> None:
    timeline = Timeline([History("a", tuple("012")), History("b", tuple("012"))])
    found = testable.Testability()
    found.learn(timeline, (1, 0), ran=True)
    found.learn(timeline, (2, 2), ran=False)
    assert timeline.position((0, 2)) is None
    assert found.chance(timeline, (0, 2)) == pytest.approx(6 / 7)  # of another order, and far off
    found.learn(timeline, (0, 1), ran=True)
    assert found.chance(timeline, (1, 1)) == pytest.approx(6 / 7)
    found.learn(timeline, (1, 1), ran=False)
    assert found.chance(timeline, (0, 0)) == pytest.approx(6 / 8)
