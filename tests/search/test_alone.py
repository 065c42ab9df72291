"""Whether a culprit fails alone is decided by as many trials as its rate asks for."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point
from aorta.core.trial import Tally, Verdict
from aorta.search.belief import Counts
from aorta.search.bisection import Bisection, BisectionSettings
from aorta.search.ends import EndsVerdict, SeenRates
from aorta.search.timeline import History, Timeline


def alone(good: Counts, bad: Counts) -> Bisection:
    timeline = Timeline([History("one", ("old", "new")), History("two", ("old", "new"))])
    search = Bisection(timeline, BisectionSettings(alone=SeenRates(good, bad, 0.95)))
    search.assume({timeline.bad_end: bad})
    return search


def fails(search: Bisection) -> bool | None:
    """What was found of the culprit alone; None while it is open."""
    known = {EndsVerdict.GOOD_FAILS_TOO: True, EndsVerdict.DIFFER: False}
    return known.get(search.ends)


def told(search: Bisection, point: Point, hit: bool) -> None:
    search.tell(point, Verdict(hit, Tally(reproduced=int(hit), clean=int(not hit))))


def tried(search: Bisection, rate: float, chance: random.Random) -> int:
    """The trials of the culprit alone, until that is settled."""
    trials = 0
    while fails(search) is None:
        [point] = search.ask(1)
        told(search, point, chance.random() < rate)
        trials += 1
    return trials


def test_one_failure_of_what_never_passes_is_enough() -> None:
    search = alone((0, 6), (4, 0))
    assert tried(search, 1.0, random.Random(0)) == 1
    assert fails(search)
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
        wrong += not fails(search)
    assert wrong / runs <= 0.02


def test_a_culprit_that_needs_another_passes_alone_and_the_search_goes_on() -> None:
    chance, trials = random.Random(5), []
    for _ in range(100):
        search = alone((0, 12), (6, 6))
        trials.append(tried(search, 0.0, chance))
        assert fails(search) is False
        assert not search.done
        assert search.wants(search.ask(1)[0])
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


def succession(hits: int, misses: int, seen: Counts, prior: tuple[float, float]) -> float:
    """How likely such trials are after those that were seen, one after the other."""
    a, b, chance = seen[0] + prior[0], seen[1] + prior[1], 1.0
    for hit in [True] * hits + [False] * misses:
        chance *= (a if hit else b) / (a + b)
        a, b = a + hit, b + (not hit)
    return chance


@given(
    st.lists(st.booleans(), min_size=1, max_size=25),
    st.tuples(st.integers(0, 3), st.integers(0, 12)),
    st.tuples(st.integers(1, 8), st.integers(0, 4)),
)
@settings(deadline=None, max_examples=60)
def test_it_is_settled_at_odds_of_twenty_for_failing_and_a_hundred_for_passing(
    hits: list[bool], good: Counts, bad: Counts
) -> None:
    search, seen = alone(good, bad), [0, 0]
    for hit in hits:
        odds = succession(seen[0], seen[1], bad, (1.0, 1.0)) / succession(
            seen[0], seen[1], good, (0.05, 1.0)
        )
        if not any(math.isclose(odds, line, rel_tol=1e-6) for line in (20, 1 / 100)):
            assert fails(search) is (True if odds > 20 else False if odds < 1 / 100 else None)
        if fails(search) is not None:
            return
        told(search, search.ask(1)[0], hit)
        seen[not hit] += 1


def test_as_many_are_asked_for_side_by_side_as_settle_it_if_all_are_quiet() -> None:
    search = alone((0, 12), (6, 6))
    asked = search.ask(100)
    assert len(set(asked)) == len(asked) > 2
    assert len(search.ask(100, asked[:2])) == len(asked) - 2
    assert search.ask(2, asked[:1]) == asked[1:3]
    assert search.ask(5, asked) == []
    for point in asked[:-1]:
        assert search.wants(point)
        told(search, point, False)
        assert fails(search) is None
    told(search, asked[-1], False)
    assert fails(search) is False


def test_rates_that_cannot_be_told_apart_are_given_sixty_trials() -> None:
    search = alone((10, 10), (10, 10))
    assert tried(search, 0.0, random.Random(1)) == 60
    assert fails(search) is False
    hitting = alone((10, 10), (10, 10))
    tried(hitting, 1.0, random.Random(1))
    assert fails(hitting) is True


def test_what_cannot_be_tried_alone_is_sent_after_no_partner() -> None:
    search = alone((0, 12), (6, 6))
    [point] = search.ask(1)
    search.tell(point, Verdict(None))
    assert search.ends is EndsVerdict.GOOD_UNTESTABLE
    assert search.done
    assert search.answer is None
    once = alone((0, 12), (6, 6))
    told(once, once.ask(1)[0], False)
    once.tell(once.ask(1)[0], Verdict(None))
    assert once.ask(1)[0].replica == 2


def test_once_it_fails_alone_nothing_more_is_wanted() -> None:
    search = alone((0, 6), (4, 0))
    [point, *_] = search.ask(4)
    assert search.wants(point)
    told(search, point, True)
    assert (search.done, search.wants(point), search.best) == (True, False, None)
