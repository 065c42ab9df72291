"""Searches that only go through a list: all of it, up to the first that reproduces, or in turns."""

from collections.abc import Sequence

import pytest

from aorta.core.axis import Point
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.search.repeated import (
    EveryPoint,
    FirstThatReproduces,
    Interleaved,
    RankedSearch,
    cell_of,
    cell_point,
)

POINTS = [Point.of({"n": n}) for n in range(5)]
FAILS, PASSES, UNKNOWN = Verdict(True), Verdict(False), Verdict(None)


@pytest.mark.parametrize("kind", [EveryPoint, FirstThatReproduces])
def test_pending_points_are_left_out_and_no_more_are_asked_than_wanted(
    kind: type[EveryPoint | FirstThatReproduces],
) -> None:
    search = kind(POINTS)
    assert search.ask(2) == POINTS[:2]
    assert search.ask(2, POINTS[1:2]) == [POINTS[0], POINTS[2]]
    assert search.ask(9, POINTS[:4]) == POINTS[4:]
    assert search.ask(0) == []
    assert all(search.wants(point) for point in POINTS)
    assert not search.wants(Point.of({"n": 9}))
    assert (search.done, search.best) == (False, None)


def test_every_point_is_judged_and_the_first_that_reproduces_is_the_best() -> None:
    search = EveryPoint(POINTS)
    search.tell(POINTS[3], FAILS)
    assert search.best == POINTS[3]
    assert not search.wants(POINTS[3])
    assert search.ask(9) == [*POINTS[:3], POINTS[4]]
    for point, verdict in zip(POINTS[:3], (PASSES, FAILS, UNKNOWN), strict=True):
        search.tell(point, verdict)
    assert (search.best, search.done) == (POINTS[1], False)
    search.tell(POINTS[4], PASSES)
    assert search.done


def test_after_one_that_reproduces_only_those_before_it_are_asked_about() -> None:
    search = FirstThatReproduces(POINTS)
    search.tell(POINTS[3], FAILS)
    assert (search.best, search.more_wanted()) == (POINTS[3], tuple(POINTS[:3]))
    assert search.ask(9) == POINTS[:3]
    assert [search.wants(point) for point in POINTS] == [True] * 3 + [False] * 2
    search.tell(POINTS[0], PASSES)
    search.tell(POINTS[2], UNKNOWN)
    assert [search.wants(point) for point in POINTS] == [False, True, False, False, False]
    assert (search.best, search.done) == (POINTS[3], False)
    search.tell(POINTS[1], FAILS)
    assert (search.best, search.done, search.ask(3)) == (POINTS[1], True, [])


def test_where_none_reproduces_all_were_wanted_more_and_there_is_no_best() -> None:
    search = FirstThatReproduces(POINTS)
    for point in POINTS:
        assert not search.done
        search.tell(point, PASSES)
    assert (search.done, search.best, search.more_wanted()) == (True, None, tuple(POINTS))


class Counting(RankedSearch):
    """Its ideal list is endless."""

    best = None

    def ranked(self, n: int) -> Sequence[Point]:
        return [Point.of({"n": number}) for number in range(n)]

    def tell(self, point: Point, verdict: Verdict) -> None:
        raise AssertionError("it is told nothing")


def test_a_pending_point_is_wanted_while_it_stands_near_the_top_of_the_list() -> None:
    search = Counting()
    assert not search.done
    assert search.wants(Point.of({"n": 63}))
    assert not search.wants(Point.of({"n": 64}))
    assert search.ask(2, [Point.of({"n": 0}), Point.of({"n": 2})]) == [POINTS[1], POINTS[3]]


def told(search: Interleaved, cell: str, number: int, *outcomes: Outcome) -> None:
    search.tell(cell_point(cell, number), Verdict(None, Tally.of(outcomes)))


def test_of_cells_in_turns_each_number_is_asked_once_and_told_numbers_are_kept() -> None:
    search = Interleaved(
        ["a", "b"],
        place=lambda cell, number: (number, "ba".index(cell)),
        is_open=lambda cell, tallies: tallies[cell].evidence < 3,
    )
    assert [(cell_of(p), p.replica) for p in search.ask(3)] == [("b", 0), ("a", 0), ("b", 1)]
    told(search, "a", 2, Outcome.CLEAN)
    assert list(search.recorded("a")) == [2]
    assert list(search.recorded("b")) == []
    pending = [cell_point("a", 1)]
    assert [p.replica for p in search.ask(9, pending) if cell_of(p) == "a"] == [3]
    assert search.wants(pending[0])
    assert not search.wants(cell_point("a", 2))
    told(search, "a", 1, Outcome.REPRODUCED, Outcome.CLEAN)
    assert not search.wants(cell_point("a", 3))
    assert {cell_of(p) for p in search.ask(9)} == {"b"}
    assert (search.done, search.best) == (False, None)
