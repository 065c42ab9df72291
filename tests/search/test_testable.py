"""How likely a state is to run, learned from those that did and did not."""

import random

import pytest

from aorta.core.trial import Verdict
from aorta.search.bisection import Bisection
from aorta.search.timeline import History, Timeline
from aorta.search.timeline import Testability as Chances  # a name that pytest takes for no test
from support.timelines import one_package

LINE = one_package(41)


def learned(*, ran: tuple[int, ...] = (), broken: tuple[int, ...] = ()) -> Chances:
    found = Chances(LINE)
    for state in ran:
        found.learn((state,), ran=True)
    for state in broken:
        found.learn((state,), ran=False)
    return found


def test_while_nothing_is_broken_every_state_is_taken_to_run() -> None:
    assert Chances(LINE).chance((7,)) == 1.0
    assert learned(ran=(0, 40)).chance((7,)) == 1.0


def test_what_was_broken_is_not_built_again() -> None:
    found = learned(ran=(0, 40), broken=(20,))
    assert found.chance((20,)) == 0.0
    assert found.untestable == {(20,)}


def test_the_further_from_a_broken_state_the_likelier_it_runs() -> None:
    found = learned(ran=(0, 40), broken=(20,))
    chances = [found.chance((state,)) for state in (21, 22, 24, 28)]
    assert chances == sorted(chances)
    assert chances[0] < 0.6 < chances[-1]
    assert found.chance((19,)) == chances[0]


def test_the_longer_a_broken_stretch_the_further_from_it_one_looks() -> None:
    short, long = learned(ran=(0, 40), broken=(20,)), learned(ran=(0, 40), broken=(20, 12))
    assert long.chance((24,)) < short.chance((24,))
    assert long.chance((16,)) < long.chance((36,))


def test_inside_a_stretch_where_nothing_ran_it_gives_up() -> None:
    """Beside a state that ran it never does."""
    found = learned(ran=(0, 40), broken=(8, 34))
    assert found.chance((9,)) == 0.0
    assert found.chance((20,)) > 0.0
    found.learn((10,), ran=True)
    assert 0.0 < found.chance((9,)) <= 0.5


def test_versions_that_all_ran_before_will_most_likely_run_together() -> None:
    timeline = Timeline([History("a", tuple("012")), History("b", tuple("012"))])
    found = Chances(timeline)
    found.learn((1, 0), ran=True)
    found.learn((2, 2), ran=False)
    before = found.chance((1, 1))
    found.learn((0, 1), ran=True)
    assert found.chance((1, 1)) == 0.85 > before


def test_a_broken_state_that_is_taken_as_it_was_said_counts_no_more() -> None:
    found = learned(ran=(0,), broken=(40,))
    found.forget((40,))
    assert found.untestable == set()
    assert found.chance((39,)) == 1.0


@pytest.mark.parametrize(("commits", "first", "last"), [(200, 70, 130), (1000, 200, 800)])
def test_a_search_gallops_out_of_a_stretch_that_cannot_be_tested(
    commits: int, first: int, last: int
) -> None:
    """One state in the middle of it, then further and further off: not one after the other."""
    for seed in range(6):
        outside = [n for n in range(1, commits) if not first - 9 <= n <= last + 9]
        culprit = random.Random(seed).choice(outside)
        search = Bisection(one_package(commits + 1))
        wasted = 0
        while points := search.ask(1):
            [state] = search.timeline.vector(points[0])
            broken = first <= state <= last
            wasted += broken
            search.tell(points[0], Verdict(None if broken else state >= culprit))
        assert search.answer is not None
        assert [change.rank + 1 for change in search.answer.changes] == [culprit]
        assert wasted <= 20
