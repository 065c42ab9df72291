"""Reductions and what they rest on, where one trial more or one item less decides: what is asked
and said just there.
"""

import math
from collections.abc import Callable

import pytest

from aorta.core.axis import Point, Purpose, as_indexes, as_number, number, subset
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.search.axes import Bracket, NumberScale, NumericSearch
from aorta.search.blocks import levels_of
from aorta.search.cure import AXIS, CureSearch
from aorta.search.descent import Descent, DescentRules
from aorta.search.reduction import Status
from aorta.search.repeated import EveryPoint, FirstThatReproduces, Interleaved, cell_point
from aorta.search.subset import Splitting, SubsetSearch

NEVER = 1_000_000
Answers = Callable[[Point, bool], Verdict]
"""What a point is told, and whether it fails as far as its number goes."""


def n_of(point: Point) -> float:
    return as_number(point["n"])


def asked_of(rules: DescentRules, least: int, answers: Answers) -> list[str]:
    """Of a number from 1000 down to 1 that fails from `least` on: what is asked, with why and how
    often before.
    """
    return asked_and_said(rules, least, answers)[0]


def asked_and_said(rules: DescentRules, least: int, answers: Answers) -> tuple[list[str], Descent]:
    search, asked = Descent([number("n", 1000, 1, monotone=True)], rules), list[str]()
    while points := search.ask(1):
        [point] = points
        why = "" if point.purpose is Purpose.PROBE else f"/{point.purpose.value[:3]}"
        asked.append(f"{point['n']}{why}" + (f".{point.replica}" if point.replica else ""))
        search.tell(
            point, answers(point, point.purpose is not Purpose.PROBE or n_of(point) >= least)
        )
    return asked, search


def always(
    *,
    confirms: bool = True,
    replays: bool | None = True,
    rates: bool = True,
    clean: int = 0,
    flakes: str = "",
) -> Answers:
    """`clean`: trials of a rejected value that told against it; `flakes`: why those were asked that
    pass once, too.
    """

    def answer(point: Point, fails: bool) -> Verdict:
        if point.purpose is Purpose.PROBE:
            return Verdict(fails, Tally(reproduced=1) if fails else Tally(clean=clean))
        once = int(point.purpose.value == flakes)
        said = {Purpose.CONFIRM: confirms, Purpose.REPLAY: replays, Purpose.RATE: rates}
        told = said.get(point.purpose, fails)
        return Verdict(told, Tally(reproduced=2, clean=once))

    return answer


def test_where_not_even_the_original_is_confirmed_it_is_lost() -> None:
    rules = DescentRules(NEVER, NEVER)
    asked, search = asked_and_said(rules, 37, always(confirms=False, rates=False))
    assert asked[-2:] == ["37/con", "1000/rat"]
    assert (search.result.status, search.result.setbacks) == (Status.LOST, 1)


@pytest.mark.parametrize("often", [38, 150, 700, 1000])
def test_what_is_not_confirmed_is_bisected_for_the_last_that_fails_as_often(often: int) -> None:
    """From there on the axis is searched by comparing its values with the original."""

    def answer(point: Point, fails: bool) -> Verdict:
        holds = fails if point.purpose is Purpose.PROBE else n_of(point) >= often
        return Verdict(holds, Tally(reproduced=2 if fails else 0, clean=2 * (not holds)))

    asked, search = asked_and_said(DescentRules(NEVER, NEVER), 37, answer)
    back = asked[asked.index("37/con") + 1 :]
    assert back[:2] == ["1000/rat", "37/rat"]
    assert search.result.setbacks == 1
    assert often <= n_of(search.result.best) <= 1.25 * often
    [facts] = search.result.axes
    assert facts.rarer
    wanted = Status.NOT_REDUCED if often == 1000 else Status.REDUCED
    assert search.result.status is wanted


@pytest.mark.parametrize("allowed", [0, 1, 2, None])
def test_it_ends_with_the_first_setback_that_is_not_allowed(allowed: int | None) -> None:
    """Unless more are allowed, five are."""
    rules = DescentRules(NEVER, NEVER) if allowed is None else DescentRules(NEVER, NEVER, allowed)
    asked, search = asked_and_said(rules, 37, always(confirms=False))
    setbacks = 6 if allowed is None else allowed + 1
    assert sum("/con" in one for one in asked) == setbacks
    assert [one for one in asked if "/rat" in one][:2] == ["1000/rat", "37/rat"]
    assert search.result.setbacks == setbacks
    assert search.result.status is Status.UNCONFIRMED
    assert search.result.why == f"accepted points failed again {setbacks} times"


@pytest.mark.parametrize("least", [2, 37, 600, 999])
@pytest.mark.parametrize("clean", [0, 2])
@pytest.mark.parametrize("most", [2, 3, 4, 5])
@pytest.mark.parametrize("what", ["trials", "rejections"])
def test_the_answer_so_far_is_replayed_after_just_so_many_trials_or_rejections(
    what: str, most: int, clean: int, least: int
) -> None:
    """Counted from when it was accepted or replayed; not before something smaller was accepted, and
    the last ones are followed by the confirmation.
    """
    rules = DescentRules(most, NEVER) if what == "trials" else DescentRules(NEVER, most)
    each = max(1, clean) if what == "trials" else 1
    since, is_smaller = 0, False
    for one in asked_of(rules, least, always(clean=clean))[1:]:
        if "/rep" in one:
            assert since >= most
        elif "/con" not in one and is_smaller:
            assert since < most
        is_rejected = one.isdecimal() and int(one) < least
        since = since + each if is_rejected else 0
        is_smaller = is_smaller or not is_rejected


@pytest.mark.parametrize(
    ("clean", "flakes", "again"),
    [
        (0, "", False),
        (1, "", True),
        (2, "", False),
        (2, "calibrate", True),
        (2, "replay", True),
        (3, "replay", True),
        (0, "calibrate", False),
    ],
)
def test_a_rejection_is_tried_again_where_it_rests_on_one_trial_or_something_is_flaky(
    clean: int, flakes: str, again: bool
) -> None:
    """A replay that never passes makes nothing flaky."""
    asked = asked_of(DescentRules(NEVER, 3), 600, always(clean=clean, flakes=flakes))
    assert "600/rep" in asked
    assert ("599.1" in asked) is again


def test_after_a_setback_what_rested_on_certainty_is_tried_again() -> None:
    rules = DescentRules(NEVER, NEVER, 1)
    asked = asked_of(rules, 37, always(confirms=False, clean=2))
    after = asked[asked.index("37/con") + 1 :]
    assert "36.1" in after
    assert after.index("36.1") < after.index("37/con.1")


@pytest.mark.parametrize("rules", [(NEVER, 1), (1, NEVER)])
def test_each_replay_of_one_answer_has_trials_of_its_own(rules: tuple[int, int]) -> None:
    asked = asked_of(DescentRules(*rules), 600, always())
    replays = [one for one in asked if "/rep" in one]
    of_answer = [one for one in replays if one.startswith("600/rep")]
    assert len(set(replays)) == len(replays)
    assert of_answer == ["600/rep", *(f"600/rep.{n}" for n in range(1, len(of_answer)))]
    assert len(of_answer) > 1


def test_a_replay_that_cannot_be_told_is_no_setback() -> None:
    asked, search = asked_and_said(DescentRules(NEVER, 3), 600, always(replays=None))
    assert asked.count("600/rep") == 1
    assert (search.result.status, search.result.setbacks) == (Status.REDUCED, 0)


def test_before_the_first_trial_nothing_is_known() -> None:
    search = Descent([number("n", 1000, 1)])
    result = search.result
    assert (result.status, result.trials, result.candidates) == (Status.RUNNING, 0, 0)
    assert (search.best, result.best, result.setbacks) == (None, Point.of({"n": 1000}), 0)
    [facts] = result.axes
    assert (facts.final, facts.trials, facts.candidates) == (1000, 0, 0)
    assert (facts.unresolved, facts.monotone, facts.moved) == (0, None, False)


# -- numbers --------------------------------------------------------------------------------------


def test_between_two_neighbouring_numbers_there_is_none() -> None:
    scale = NumberScale(1.0, 8.0, None, 0.0)
    assert scale.inside(1.0, math.nextafter(1.0, 2.0), 0.5) is None
    assert scale.inside(1.0, 2.0, 1.0) is None
    assert scale.inside(1.0, 4.0, 0.5) == pytest.approx(2.0)
    stepped = NumberScale(2, 100, 7, 0.0)
    assert [stepped.inside(2, high, 0.5) for high in (9, 10, 16, 17)] == [None, 9, 9, 9]


@pytest.mark.parametrize(
    ("low", "high", "between"),
    [(100, 110, None), (100, 111, 105), (100, 121, 110), (10, 11, None)],
)
def test_what_lies_within_the_tolerance_is_not_halved(
    low: int, high: int, between: int | None
) -> None:
    assert NumberScale(1, 1000, 1, 0.1).between(low, high) == between


def test_a_value_that_was_rejected_and_accepted_is_neither_below_nor_above_the_answer() -> None:
    bracket = Bracket(NumberScale(1, 100, 1, 0.0), 50, frozenset({20, 50, 80}))
    assert (bracket.below, bracket.above) == ([20], [80])
    assert bracket.answered(70, True).accepted == 50
    assert bracket.answered(40, True).below == [20]


def test_a_part_of_a_scale_is_measured_in_ratios_and_one_without_length_has_none() -> None:
    scale = NumberScale(1, 100, 1, 0.0)
    assert scale.part(1, 10) == scale.part(10, 100) == pytest.approx(0.5)
    assert NumberScale(5, 5, 1, 0.0).part(5, 5) == 0.0
    below_zero = NumberScale(-10.0, 20.0, None, 0.0)
    assert below_zero.part(-10.0, 20.0) == pytest.approx(1.0)
    assert below_zero.inside(-10.0, 20.0, 0.5) == pytest.approx(-10.03 + 0.03 * math.sqrt(1001))


def test_spare_slots_ask_what_either_answer_would_ask_next() -> None:
    axis = number("n", 64, 1, monotone=True)
    search = NumericSearch(Point.of({"n": 64}), axis, 64)
    asked = [point["n"] for point in search.ask(7)]
    assert asked[0] == 1, "the floor first"
    assert len(set(asked)) == 7
    search.tell(search.ask(1)[0], Verdict(None))
    assert (search.unresolved, search.monotone) == (1, None)


# -- subsets --------------------------------------------------------------------------------------


def of(*items: int) -> frozenset[int]:
    return frozenset(items)


def splitting(size: int, floor: int = 0) -> Splitting:
    return Splitting(frozenset(range(size)), floor=floor, all_expected=False, checks=True)


def test_a_check_is_wanted_once_everything_kept_was_found_needed_and_not_before() -> None:
    search = splitting(4)
    search.tell(of(2, 3), False)
    search.tell(of(0, 2, 3), True)
    search.tell(of(0, 2), True)
    assert search.verified == of(0, 2)
    assert not search.wants(of(2)), "0 is needed already, and whether 2 is comes first"
    assert search.ask(1) == [of(0)]
    search.tell(of(0), False)
    assert search.ask(3) == [of(2)]
    assert search.wants(of(2))
    assert not search.wants(of()), "0 and 2 are no neighbours"
    assert not search.wants(of(0)), "it was asked"
    search.tell(of(2), False)
    assert search.ask(3) == []


def test_neighbours_are_checked_together_where_the_floor_lets_both_go() -> None:
    for floor, pair in (
        (0, [of(2, 3), of(0, 3), of(0, 1)]),
        (2, [of(2, 3), of(0, 3), of(0, 1)]),
        (3, []),
    ):
        search = splitting(4, floor)
        for item in range(4):
            search.tell(frozenset(range(4)) - {item}, False)
        assert search.ask(9) == pair


def test_a_set_that_was_assumed_clean_is_asked_about_and_falls_back_where_it_is_not() -> None:
    search = splitting(4)
    search.tell(of(1, 2, 3), True)
    search.tell(of(0, 2, 3), True)
    assumed = of(2, 3)
    assert search.wants(assumed)
    assert not search.wants(of(1, 2, 3))
    assert assumed in search.ask(9)
    search.tell(assumed, False)
    assert search.verified == of(1, 2, 3)
    assert not search.wants(search.verified)
    assert not search.wants(of(0, 1, 2)), "nothing beside what was verified is looked at any more"
    assert search.wants(of(1, 2))
    assert not search.wants(of(2, 3)), "what it leaves out cannot go"


def test_no_more_is_asked_than_there_is_room_for_above_the_floor() -> None:
    search = splitting(6, floor=5)
    assert search.ask(9) == [frozenset(range(6)) - {item} for item in range(1)]
    search.tell(of(1, 2, 3, 4, 5), True)
    assert search.ask(9) == []
    assert splitting(3, floor=3).ask(9) == []


def test_what_is_under_way_is_not_asked_again_and_counts_against_the_room() -> None:
    search = splitting(12)
    first = search.ask(4)
    assert len(first) == 4
    more = search.ask(3, first[:2])
    assert len(more) == 3
    assert not set(more) & set(first[:2])
    for floor, room in ((4, 1), (3, 2), (5, 0)):
        narrow = splitting(6, floor)
        assert len(narrow.ask(9, [of(1, 2, 3, 4, 5)])) == room


def test_the_largest_part_that_cannot_go_is_split_first_and_by_most_slots() -> None:
    search = splitting(14)
    every = frozenset(range(14))
    for bad in (of(0, 1, 2, 3), of(4, 5, 6, 7, 8, 9)):
        search.tell(every - bad, False)
    for slots, chunks in (
        (2, [[4, 5, 6], [0, 1]]),
        (3, [[4, 5], [6, 7], [0, 1]]),
        (4, [[4, 5], [6, 7], [0], [1]]),
        (5, [[4], [5], [6], [0], [1]]),
        (7, [[4], [5], [6], [7], [0], [1], [2]]),
        (9, [[4], [5], [6], [7], [8], [0], [1], [2], [10]]),
    ):
        assert [sorted(every - kept) for kept in search.ask(slots)] == chunks


def test_of_what_is_left_halves_quarters_and_eighths_are_tried_alone() -> None:
    lines = tuple(f"{' ' * (place % 2)}x" for place in range(17))
    axis = subset("f", lines)
    search, asked = SubsetSearch(Point.of({"f": axis.initial}), axis), list[tuple[int, ...]]()
    while points := search.ask(1):
        asked.append(as_indexes(points[0]["f"]))
        search.tell(points[0], Verdict(False))
    for size in (9, 5, 3):
        parts = [tuple(range(at, min(17, at + size))) for at in range(0, 17, size)]
        assert set(parts) <= set(asked)


def test_the_last_part_of_what_cannot_go_needs_no_question() -> None:
    search, every = splitting(12), frozenset(range(12))
    search.tell(every - of(*range(4, 10)), False)
    for under_way, asked in (
        (of(8, 9, 10), [4, 5]),
        (of(4, 5), [6, 7]),
        (of(6, 7, 8, 9), [0, 1, 2, 3]),
    ):
        [kept] = search.ask(1, [every - under_way])
        assert sorted(every - kept) == asked


def test_where_two_lines_must_stay_blocks_are_not_tried_alone() -> None:
    lines = ("def a():", "    b()", "    c()", "d()")
    for floor, alone in ((1, True), (2, False)):
        axis = subset("f", lines, floor=floor)
        search = SubsetSearch(Point.of({"f": axis.initial}), axis)
        assert (len(as_indexes(search.ask(1)[0]["f"])) == 1) is alone


# -- cures and lists ------------------------------------------------------------------------------


def test_a_stack_that_could_not_be_told_before_is_remembered_as_that_and_each_is_tried_alone() -> (
    None
):
    search, asked = CureSearch(["a", "b", "c"]), list[str]()
    while points := search.ask(1):
        [point] = points
        on = set(as_indexes(point[AXIS]))
        asked.append("".join(map(str, sorted(on))) + point.purpose.value[:2] * bool(on))
        told = None if on == {1, 2} else not on or bool(on & {0, 1})
        search.tell(point, Verdict(told))
    assert len(asked) == len({*asked}) <= 7
    assert search.cure is not None
    assert search.cure.items == (0,)


def test_side_by_side_as_many_are_asked_as_there_is_room_for_beside_those_under_way() -> None:
    search = CureSearch(["a", "b", "c"])
    for told in (True, None):
        search.tell(search.ask(1)[0], Verdict(told))
    one = search.ask(1)
    assert [point[AXIS] for point in one] == [(0,)]
    assert [point[AXIS] for point in search.ask(2, one)] == [(1,), (2,)]
    assert [point[AXIS] for point in search.ask(1, one)] == [(1,)]
    assert [point[AXIS] for point in search.ask(9)] == [(0,), (1,), (2,)]


def points(count: int) -> list[Point]:
    return [Point.of({"n": n}) for n in range(count)]


def test_what_was_judged_or_comes_after_the_answer_is_wanted_no_more() -> None:
    a, b, c, d = points(4)
    search = FirstThatReproduces([a, b, c, d])
    search.tell(a, Verdict(False))
    search.tell(c, Verdict(True))
    assert [search.wants(point) for point in (a, b, c, d)] == [False, True, False, False]
    assert (search.ask(4), search.done, search.best) == ([b], False, c)
    search.tell(b, Verdict(None))
    assert (search.ask(4), search.done, search.best) == ([], True, c)


def test_every_point_is_wanted_until_it_is_judged() -> None:
    a, b = points(2)
    search = EveryPoint([a, b])
    search.tell(b, Verdict(True))
    assert [search.wants(point) for point in (a, b)] == [True, False]
    assert (search.done, search.best) == (False, b)
    search.tell(a, Verdict(True))
    assert (search.done, search.best) == (True, a)


def test_a_cell_with_an_open_number_below_those_told_is_asked_for_the_next_free_one() -> None:
    search = Interleaved(
        ["a"],
        place=lambda cell, n: (n, 0),
        is_open=lambda cell, tallies: tallies[cell].evidence < 4,
    )
    search.tell(cell_point("a", 1), Verdict(False, Tally.of([Outcome.CLEAN])))
    assert [point.replica for point in search.ask(9)] == [2, 3, 4]
    assert [point.replica for point in search.ask(1, [cell_point("a", 2)])] == [3]
    assert not search.wants(cell_point("a", 1))
    assert search.wants(cell_point("a", 0))


# -- lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("a\n  b\n\tc", [[[0, 1, 2]], [[1, 2]]]),
        ("a\n        b\n\tc\nd", [[[0, 1, 2], [3]]]),
        ("#if A\nx\ny", []),
        ("a\nb\n\nc\nd", [[[0, 1, 2], [3, 4]], [[0], [1, 2], [3], [4]]]),
        ("a\n\nb", [[[0, 1], [2]]]),
        ("a\nb", []),
    ],
)
def test_lines_form_these_blocks(text: str, levels: list[list[list[int]]]) -> None:
    found = [[sorted(group) for group in groups] for groups in levels_of(text.splitlines())]
    assert found == levels
