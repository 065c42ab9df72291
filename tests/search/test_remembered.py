"""A search that is told what an earlier run found out: each answer once, the ends always anew."""

from collections.abc import Sequence

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search.remembered import Remembered
from aorta.search.repeated import EveryPoint


def point(n: int, purpose: Purpose = Purpose.PROBE, replica: int = 0) -> Point:
    return Point.of({"n": n}, purpose, replica)


def remembered(points: list[Point], known: dict[int, Sequence[bool]]) -> Remembered[EveryPoint]:
    def answers(of: Point) -> Sequence[bool]:
        return known.get(int(str(of["n"])), ())

    return Remembered(EveryPoint(points), answers)


def test_what_is_known_is_not_asked_again() -> None:
    first, second, third = points = [point(1), point(2), point(3)]
    search = remembered(points, {1: [False], 3: [True]})
    assert (search.used, search.done) == (1, False)
    assert search.ask(1) == [second]
    assert search.wants(second)
    search.tell(second, Verdict(False))
    assert (search.used, search.done, search.best) == (2, True, third)
    assert not search.wants(second)
    said = search.search.verdicts
    assert [said[p].reproduces for p in (first, second, third)] == [False, False, True]


def test_an_answer_counts_once() -> None:
    again = [point(1), point(1, replica=1), point(1, replica=2)]
    search = remembered(again, {1: [True, False]})
    assert search.used == 2
    assert search.ask(3) == [again[2]]
    assert [search.search.verdicts[p].reproduces for p in again[:2]] == [True, False]


def test_an_end_is_tried_anew_and_where_it_is_as_it_was_the_rest_counts() -> None:
    end = point(1, Purpose.CALIBRATE)
    for verdict, used in ((True, 1), (False, 0), (None, 1)):
        search = remembered([end, point(2)], {1: [True], 2: [True]})
        assert (search.used, search.ask(5)) == (0, [end, point(2)])
        search.tell(end, Verdict(verdict))
        assert search.used == used
        assert search.outdated is (verdict is False)


def test_an_end_that_nobody_knew_says_nothing_about_the_rest() -> None:
    search = remembered([point(1, Purpose.CALIBRATE), point(2)], {2: [True]})
    search.tell(point(1, Purpose.CALIBRATE), Verdict(False))
    assert (search.used, search.outdated) == (1, False)


def test_what_is_out_of_date_stays_so() -> None:
    ends = [point(1, Purpose.CALIBRATE), point(2, Purpose.CALIBRATE)]
    search = remembered([*ends, point(3)], {1: [True], 2: [True], 3: [True]})
    search.tell(ends[0], Verdict(False))
    search.tell(ends[1], Verdict(True))
    assert (search.used, search.ask(1)) == (0, [point(3)])
