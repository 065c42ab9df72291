"""Whether a culprit fails alone is decided by as many trials as its rate asks for."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point
from aorta.core.trial import Tally, Verdict
from aorta.search.alone import AloneFirst
from aorta.search.belief import Counts
from aorta.search.bisection import TimelineBisection
from aorta.search.timeline import History, Timeline


def alone(good: Counts, bad: Counts) -> AloneFirst:
    timeline = Timeline([History("one", ("old", "new")), History("two", ("old", "new"))])
    search = TimelineBisection(timeline)
    search.assume({timeline.bad_end: bad})
    return AloneFirst(search, timeline, good, bad, 0.95)


def told(search: AloneFirst, point: Point, hit: bool) -> None:
    search.tell(point, Verdict(hit, Tally(reproduced=int(hit), clean=int(not hit))))


def tried(search: AloneFirst, rate: float, chance: random.Random) -> int:
    """The trials of the culprit alone, until that is settled."""
    trials = 0
    while search.fails is None:
        [point] = search.ask(1)
        told(search, point, chance.random() < rate)
        trials += 1
    return trials


def test_one_failure_of_what_never_passes_is_enough() -> None:
    search = alone((0, 6), (4, 0))
    assert tried(search, 1.0, random.Random(0)) == 1
    assert search.fails
    assert search.done
    assert search.ask(4) == []


@pytest.mark.parametrize("rate", [0.3, 0.5, 0.9])
def test_a_flaky_culprit_is_hardly_ever_sent_after_an_innocent_partner(rate: float) -> None:
    """What is known of the rate is as little as a search over packages leaves."""
    chance, wrong, runs = random.Random(5), 0, 400
    for _ in range(runs):
        hits = sum(chance.random() < rate for _ in range(10))
        search = alone((0, 12), (max(1, hits), 10 - max(1, hits)))
        tried(search, rate, chance)
        wrong += not search.fails
    assert wrong / runs <= 0.02


def test_a_culprit_that_needs_another_passes_alone_and_the_search_goes_on() -> None:
    chance, trials = random.Random(5), []
    for _ in range(100):
        search = alone((0, 12), (6, 6))
        trials.append(tried(search, 0.0, chance))
        assert search.fails is False
        assert not search.done
        asked = search.ask(1)
        assert asked
        assert search.search.wants(asked[0])
    assert max(trials) <= 12


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_told_the_same_it_asks_the_same_side_by_side_or_not(hits: list[bool], slots: int) -> None:
    one, other = alone((0, 8), (5, 5)), alone((0, 8), (5, 5))
    for hit in hits:
        asked = one.ask(slots)
        assert asked == other.ask(slots)
        assert len(set(asked)) == len(asked)
        assert not set(one.ask(slots, asked[:1])) & set(asked[:1])
        if not asked:
            break
        for search in (one, other):
            told(search, asked[0], hit)
