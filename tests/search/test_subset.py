"""Subsets: the answer is verified, 1-minimal, cheap, and as good with many slots as with one."""

from statistics import mean

import pytest
from benchmarks.reduction import PARALLEL, SUBSETS, needed_items, subset_cost
from benchmarks.simulate import drive
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.axis import Point, subset
from aorta.core.trial import Verdict
from aorta.search.subset import SubsetSearch

Needs = list[frozenset[int]]


def searching(items: int, *, monotone: bool | None = None, floor: int = 1) -> SubsetSearch:
    axis = subset("f", tuple(map(str, range(items))), monotone=monotone, floor=floor)
    return SubsetSearch(Point.of({"f": axis.initial}), axis)


def kept(point: Point) -> frozenset[int]:
    value = point["f"]
    assert isinstance(value, tuple)
    return frozenset(value)


def any_of(needs: Needs, items: frozenset[int]) -> bool:
    return any(need <= items for need in needs)


def causes(size: int) -> st.SearchStrategy[Needs]:
    """One or more sets of items, each of which makes it fail."""
    one = st.frozensets(st.integers(0, size - 1), min_size=1, max_size=6)
    return st.lists(one, min_size=1, max_size=3)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), causes(n))), st.integers(1, 9))
def test_whatever_makes_it_fail_the_answer_is_one_minimal(
    problem: tuple[int, Needs], slots: int
) -> None:
    items, needs = problem
    search = searching(items)
    drive(search, lambda p: float(any_of(needs, kept(p))), slots=slots)
    answer = kept(search.best)
    assert any_of(needs, answer)
    if len(answer) > 1:
        assert not any(any_of(needs, answer - {item}) for item in answer)


@given(st.randoms(use_true_random=False), st.integers(1, 30), st.integers(1, 9))
def test_without_any_monotonicity_the_answer_was_still_seen_to_reproduce(
    rng: object, items: int, slots: int
) -> None:
    seed = hash(repr(rng))
    search = searching(items)
    full = frozenset(range(items))

    def reproduces(chosen: frozenset[int]) -> bool:
        return chosen == full or hash((seed, chosen)) % 3 == 0

    cost = drive(search, lambda p: float(reproduces(kept(p))), slots=slots)
    accepted = {p for p, verdict in cost.verdicts if verdict.reproduces}
    assert kept(search.best) == full or search.best in accepted


@given(st.frozensets(st.integers(0, 39), min_size=1, max_size=5), st.frozensets(st.integers(0, 39)))
def test_what_cannot_be_told_is_kept_and_counted(
    needed: frozenset[int], brittle: frozenset[int]
) -> None:
    """Leaving out a brittle item while others stay breaks the workload: no answer, hence no
    removal.
    """
    search = searching(40)
    while points := search.ask(1):
        chosen = kept(points[0])
        broken = bool(brittle - chosen) and bool(brittle & chosen)
        search.tell(points[0], Verdict(None if broken else needed <= chosen))
    answer = kept(search.best)
    assert needed <= answer
    assert not (brittle - answer and brittle & answer)


def test_neighbours_that_only_go_together_do_go() -> None:
    search = searching(30)

    def reproduces(p: Point) -> float:
        chosen = kept(p)
        return float(7 in chosen and (20 in chosen) == (21 in chosen))

    drive(search, reproduces)
    assert kept(search.best) == {7}


def test_neighbours_that_only_go_together_go_where_no_part_fails_by_itself() -> None:
    search = searching(30)

    def reproduces(p: Point) -> float:
        chosen = kept(p)
        return float({3, 27} <= chosen and (20 in chosen) == (21 in chosen))

    drive(search, reproduces)
    assert kept(search.best) == {3, 27}


def test_an_accepted_set_inside_a_rejected_one_is_reported_as_not_monotone() -> None:
    search = searching(8)
    first = search.ask(1)[0]
    search.tell(first, Verdict(False))
    needed = max(kept(first))
    drive(search, lambda p: float(needed in kept(p) and p != first))
    assert search.monotone is False


@given(st.frozensets(st.integers(0, 99), min_size=1, max_size=5), st.integers(1, 8))
def test_told_the_same_it_asks_the_same(needed: frozenset[int], slots: int) -> None:
    one, two = searching(100), searching(100)
    while points := one.ask(slots):
        assert one.ask(slots) == points == two.ask(slots)
        for point in points:
            verdict = Verdict(needed <= kept(point))
            one.tell(point, verdict)
            two.tell(point, verdict)
    assert one.best == two.best


@given(st.frozensets(st.integers(0, 49), min_size=1, max_size=5), st.integers(0, 50))
def test_it_never_goes_below_the_floor(needed: frozenset[int], floor: int) -> None:
    search = searching(50, floor=floor)
    cost = drive(search, lambda p: float(needed <= kept(p)), slots=3)
    assert all(len(kept(p)) >= floor for p, _ in cost.verdicts)
    assert len(kept(search.best)) == max(floor, len(needed))


def test_pending_points_are_not_asked_for_again() -> None:
    search = searching(200)
    pending: list[Point] = []
    while more := search.ask(3, pending):
        assert not set(more) & set(pending)
        pending += more
        if len(pending) > 60:
            break
    assert len(set(pending)) == len(pending)


def test_a_promise_of_monotonicity_saves_the_check() -> None:
    needed = frozenset({3, 30, 60})
    costs = [
        drive(searching(100, monotone=promise), lambda p: float(needed <= kept(p))).trials
        for promise in (None, True)
    ]
    assert costs[1] < costs[0]


@pytest.mark.parametrize(("items", "needed"), [key for key in SUBSETS if key[0] < 10_000])
def test_calls_stay_within_the_figure(items: int, needed: int) -> None:
    calls = mean(subset_cost(items, draw).trials for draw in needed_items(items, needed, 6))
    assert calls <= SUBSETS[items, needed]


@pytest.mark.parametrize("needed", [5, 20])
def test_calls_for_ten_thousand_items_stay_within_the_figure(needed: int) -> None:
    calls = mean(subset_cost(10_000, draw).trials for draw in needed_items(10_000, needed, 1))
    assert calls <= SUBSETS[10_000, needed]


@pytest.mark.parametrize(("items", "needed", "slots"), list(PARALLEL))
def test_rounds_stay_within_the_figure(items: int, needed: int, slots: int) -> None:
    draws = needed_items(items, needed)
    assert (
        mean(subset_cost(items, d, slots).rounds for d in draws) <= PARALLEL[items, needed, slots]
    )
