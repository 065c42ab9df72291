"""What the searches of a reduction find of failures that are known, and in how many questions."""

import random
from collections.abc import Callable, Sequence

import pytest
from benchmarks.simulate import Rate, drive

from aorta.core.axis import (
    Axis,
    NumberAxis,
    Point,
    Purpose,
    Window,
    as_indexes,
    as_number,
    as_window,
    choice,
    number,
    subset,
    window,
)
from aorta.core.trial import Tally, Verdict
from aorta.engine.judge import Judges, KOfN, SameJudge, SequentialJudges
from aorta.search.axes import NumericSearch
from aorta.search.cure import AXIS, CureSearch
from aorta.search.descent import Descent, DescentRules
from aorta.search.reduction import Status
from aorta.search.subset import SubsetSearch

SIGNS = "0123456789abcdef"


def asked_of(axis: NumberAxis, least: float, slots: int = 1, suspect: int | None = None) -> str:
    """The values that are asked about, and the answer, of what fails from `least` on."""
    search = NumericSearch(Point.of({"n": axis.initial}), axis, axis.initial, suspect=suspect)
    asked: list[str] = []
    while points := search.ask(slots):
        assert all(search.wants(point) for point in points)
        asked += [f"{as_number(point['n']):.4g}" for point in points]
        for point in points:
            search.tell(point, Verdict(as_number(point["n"]) >= least))
    assert search.monotone is (axis.monotone is not False)
    return f"{' '.join(asked)}: {as_number(search.best['n']):.4g}"


@pytest.mark.parametrize(
    ("axis", "least", "slots", "asked"),
    [
        (number("n", 1000, 1), 37, 1, "1 32 179 76 49 40 36 38 37 6 2: 37"),
        (number("n", 1000, 1), 37, 3, "1 32 179 76 117 49 40 44 36 38 39 37 6 2 3: 37"),
        (
            number("n", 1000, 1),
            1000,
            1,
            "1 32 179 423 650 806 898 948 974 987 993 996 998 999 6 2: 1000",
        ),
        (number("n", 64.0, 0.5, tolerance=0.2), 3.0, 1, "0.5 5.171 1.47 2.52 3.61 3.016: 3.016"),
        (
            number("n", 64.0, 0.5, tolerance=0.2),
            3.0,
            3,
            "0.5 5.171 18.19 1.47 2.52 0.8572 3.61 4.32 3.016: 3.016",
        ),
        (number("n", 20, -10), 4, 1, "-10 -5 3 10 6 4 -9 -8: 4"),
        (number("n", 20, -10), 4, 3, "-10 -5 3 10 15 6 4 5 -9 -8: 4"),
        (number("n", 100, 2, step=7), 40, 1, "2 16 37 58 44 9: 44"),
        (number("n", 100, 2, step=7), 40, 3, "2 16 37 58 79 44 9: 44"),
        (number("n", 10, 0), 1, 1, "0 2 1: 1"),
        (number("n", 10, 0), 1, 3, "0 2 5 1: 1"),
        (
            number("n", 1000, 1, monotone=True),
            600,
            1,
            "1 32 179 423 650 524 584 616 600 592 596 598 599: 600",
        ),
        (
            number("n", 1000, 1, monotone=True),
            600,
            3,
            "1 32 179 423 650 275 524 584 471 616 633 600 592 596 588 598 599 597: 600",
        ),
        (
            number("n", 8.0, -2.0, tolerance=0.3),
            1.0,
            1,
            "-2 -1.732 -0.3407 1.587 0.1461 0.7748 1.155 0.9588 -1.957 -1.328: 1.155",
        ),
        (
            number("n", 8.0, -2.0, tolerance=0.3),
            1.0,
            3,
            ("-2 -1.732 -0.3407 1.587 3.99 0.1461 0.7748 1.155 0.4404 0.9588 -1.957 -1.328: 1.155"),
        ),
        (number("n", 3, 1), 3, 1, "1 2: 3"),
        (number("n", 2, 1), 2, 1, "1: 2"),
    ],
)
def test_a_number_is_halved_by_its_ratio_and_then_looked_at_in_its_gaps(
    axis: NumberAxis, least: float, slots: int, asked: str
) -> None:
    assert asked_of(axis, least, slots) == asked


@pytest.mark.parametrize(
    ("suspect", "least", "asked"),
    [
        (49, 50, "49: 100"),
        (49, 30, "49 1 7 19 31 24 27 29 30 3: 30"),
        (1, 1, "1: 1"),
        (99, 100, "99: 100"),
        (100, 98, "1 10 32 57 75 87 93 96 98 97 3 5 18: 98"),
    ],
)
def test_what_was_rejected_just_below_the_answer_before_is_asked_first(
    suspect: int, least: int, asked: str
) -> None:
    assert asked_of(number("n", 100, 1), least, suspect=suspect) == asked


def lines_of(
    items: Sequence[str],
    fails: Callable[[frozenset[int]], bool],
    slots: int = 1,
    *,
    floor: int = 1,
    monotone: bool | None = None,
    all_expected: bool = False,
) -> tuple[str, int]:
    """The answer, and how many sets were asked about."""
    axis = subset("f", tuple(items), monotone=monotone, floor=floor)
    search = SubsetSearch(Point.of({"f": axis.initial}), axis, all_expected=all_expected)
    asked = 0
    while points := search.ask(slots):
        assert all(search.wants(point) for point in points)
        asked += len(points)
        for point in points:
            search.tell(point, Verdict(fails(frozenset(as_indexes(point["f"])))))
    return "".join(SIGNS[item] for item in as_indexes(search.best["f"])), asked


@pytest.mark.parametrize("needed", ["3", "3c", "567", "0f", SIGNS])
@pytest.mark.parametrize("slots", [1, 4])
def test_of_flat_lines_those_that_are_needed_are_found(needed: str, slots: int) -> None:
    wanted = {SIGNS.index(sign) for sign in needed}
    found, asked = lines_of(SIGNS, lambda kept: wanted <= kept, slots)
    assert found == needed
    assert asked <= 10 + 4 * len(needed)


@pytest.mark.parametrize("needed", ["", "3", "39", "0f"])
@pytest.mark.parametrize("floor", [0, 1, 2, 3, 5, 15, 16])
@pytest.mark.parametrize("slots", [1, 3])
def test_so_many_lines_are_kept_as_the_floor_says(needed: str, floor: int, slots: int) -> None:
    wanted = {SIGNS.index(sign) for sign in needed}
    found, asked = lines_of(SIGNS, lambda kept: wanted <= kept, slots, floor=floor)
    assert set(needed) <= set(found)
    assert len(found) == max(floor, len(needed))
    assert asked <= 10 + 4 * len(needed)


def test_a_promise_saves_the_check_and_an_earlier_search_the_halving() -> None:
    found, asked = lines_of(SIGNS, lambda kept: {3, 9} <= kept)
    promised, fewer = lines_of(SIGNS, lambda kept: {3, 9} <= kept, monotone=True)
    assert found == promised == "39"
    assert fewer < asked
    for slots in (1, 3):
        again = lines_of(SIGNS[:5], lambda kept: {1, 3} <= kept, slots, all_expected=True)
        assert (again[0], again[1] <= 8) == ("13", True)


TEXT = ("def a():", "    b()", "    c()", "def d():", "    e()", "    f()", "g()", "h()")


@pytest.mark.parametrize("needed", ["2", "5", "02", "357", "6"])
@pytest.mark.parametrize("slots", [1, 3])
def test_of_structured_lines_those_that_are_needed_are_found(needed: str, slots: int) -> None:
    wanted = {SIGNS.index(sign) for sign in needed}
    found, asked = lines_of(TEXT, lambda kept: wanted <= kept, slots)
    assert found == needed
    assert asked <= 8 + 4 * len(needed)


def test_parts_are_tried_alone_where_no_larger_set_without_its_neighbours_fails() -> None:
    def parts(kept: frozenset[int]) -> bool:
        return kept in ({4, 5, 6, 7}, {4, 5}) or len(kept) > 6

    found, asked = lines_of(TEXT, parts)
    assert found == "45"
    assert asked <= 30


def descended(
    axes: Sequence[Axis],
    rate: Rate,
    judges: Judges | None = None,
    slots: int = 1,
    seed: int = 0,
    rules: DescentRules | None = None,
) -> tuple[Descent, list[str]]:
    search = Descent(axes, rules)
    cost = drive(
        search, rate, judges=judges or SameJudge(KOfN(1, 1)), slots=slots, rng=random.Random(seed)
    )
    return search, [said(point) for point, _ in cost.verdicts]


def said(point: Point) -> str:
    values = ",".join(
        "".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for _, value in point.values
    )
    return values + ("" if point.purpose is Purpose.PROBE else f"/{point.purpose.value}")


def pair() -> list[Axis]:
    return [choice("d", ("a", "b", "c")), number("n", 100, 1)]


def of_pair(point: Point) -> float:
    return float(as_number(point["n"]) >= 20 and point["d"] != "c")


@pytest.mark.parametrize(
    ("slots", "asked"),
    [
        (
            1,
            (
                "a,100/calibrate c,1 a,1 c,100 a,10 a,32 a,18 a,24 a,21 a,19 a,20 a,3 a,5 "
                "c,20 b,20 b,19 b,19 c,20 b,20/confirm"
            ),
        ),
        (
            3,
            (
                "a,100/calibrate c,1 a,1 c,100 a,10 a,32 a,3 a,18 a,24 a,13 a,21 a,22 a,19 "
                "a,20 a,5 a,4 c,20 b,20 b,19 b,1 b,4 b,19 c,20 b,20/confirm"
            ),
        ),
    ],
)
def test_a_descent_asks_for_the_corner_the_floors_each_axis_and_its_proofs_again(
    slots: int, asked: str
) -> None:
    search, questions = descended(pair(), of_pair, slots=slots)
    assert " ".join(questions) == asked
    result = search.result
    assert (result.status, result.setbacks) == (Status.REDUCED, 0)
    assert result.trials == len(questions)
    assert result.candidates == len(questions) - 2
    assert [facts.final for facts in result.axes] == ["b", 20]


def test_what_fails_everywhere_or_nowhere_is_known_at_once() -> None:
    search, questions = descended(pair(), lambda _: 1.0)
    assert questions == ["a,100/calibrate", "c,1", "c,1/confirm"]
    assert search.result.accepted == (search.result.original, search.result.best)
    search, questions = descended(pair(), lambda _: 0.0)
    assert questions == ["a,100/calibrate"]
    assert search.result.status is Status.DID_NOT_REPRODUCE


def test_where_nothing_smaller_fails_every_axis_was_asked_and_nothing_is_confirmed() -> None:
    search, questions = descended(
        pair(), lambda p: float(p == Point.of({"d": "a", "n": 100}, p.purpose, p.replica))
    )
    assert " ".join(questions) == (
        "a,100/calibrate c,1 a,1 c,100 a,10 a,32 a,57 a,75 a,87 a,93 a,96 a,98 a,99 "
        "a,3 a,5 a,18 b,100 a,99 c,100 b,100"
    )
    assert search.result.status is Status.NOT_REDUCED
    assert search.result.trials == len(questions)


@pytest.mark.parametrize("names", ["wxyz", "vwxyz", "uvwxyz", "abcdefuvwxyz"])
def test_axes_that_do_not_matter_go_to_their_floors_together(names: str) -> None:
    axes: list[Axis] = [number(name, 10, 1) for name in names]
    search, questions = descended(
        axes, lambda p: float(as_number(p["w"]) >= 3 and as_number(p["y"]) >= 7)
    )
    assert search.result.status is Status.REDUCED
    assert dict(search.result.best.values) == {**dict.fromkeys(names, 1), "w": 3, "y": 7}
    assert len(questions) <= 26


def test_lines_steps_and_a_number_are_made_small_after_each_other() -> None:
    axes: list[Axis] = [
        subset("f", tuple("abcdefgh")),
        window("s", 0, 20),
        number("n", 50, 5, tolerance=0.1),
    ]

    def fails(point: Point) -> float:
        span = as_window(point["s"])
        inside = span.start <= 7 < span.start + span.length
        return float(
            {2, 5} <= set(as_indexes(point["f"])) and inside and as_number(point["n"]) >= 9
        )

    search, questions = descended(axes, fails)
    assert len(questions) <= 34
    facts = {one.axis.name: one for one in search.result.axes}
    assert {name: one.final for name, one in facts.items()} == {
        "f": (2, 5),
        "s": Window(7, 1),
        "n": 9,
    }


def test_an_accepted_point_that_fails_no_more_is_walked_back_from() -> None:
    search, questions = descended(pair(), lambda p: 0.8 * of_pair(p), seed=1)
    assert " ".join(questions) == (
        "a,100/calibrate c,1 a,1 c,100 a,10 a,32 a,18 a,24 a,21 a,19 a,20 a,3 a,5 "
        "c,21 b,21 b,20 b,1 b,4 b,9 b,13 b,16 b,18 b,20/replay b,21/replay b,5 b,10 "
        "b,14 b,17 b,19 b,20 b,2 b,3 c,20 b,19 c,20 b,20/confirm"
    )
    result = search.result
    assert (result.status, result.setbacks, result.best["n"]) == (Status.REDUCED, 1, 20)


@pytest.mark.parametrize("seed", range(6))
def test_a_flaky_failure_takes_the_trials_that_its_judge_asks_for(seed: int) -> None:
    search, asked = descended(pair(), lambda p: 0.7 * of_pair(p), SequentialJudges(), seed=seed)
    assert search.result.trials <= 100
    assert len(asked) <= 35
    assert (search.result.best["n"], search.result.best["d"]) == (20, "b")


def cured(names: str, gone: Callable[[set[int]], bool], slots: int = 1) -> tuple[CureSearch, str]:
    """The sets that are asked about; what begins with `!` is a confirmation."""
    search, asked = CureSearch(list(names)), list[str]()
    while not search.done:
        points = search.ask(slots)
        assert all(search.wants(point) for point in points)
        for point in points:
            items = as_indexes(point[AXIS])
            mark = {Purpose.CONFIRM: "!", Purpose.CALIBRATE: "?"}.get(point.purpose, "")
            asked.append(mark + "".join(names[item] for item in items))
            fails = point.purpose is Purpose.CALIBRATE
            search.tell(point, Verdict(fails or gone(set(items)), Tally(clean=1)))
    return search, " ".join(asked)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("cures", [["c"], ["bf"], ["a", "h"], ["ab", "cd"], []])
def test_a_cure_is_all_on_then_split_then_confirmed(cures: list[str], slots: int) -> None:
    wanted = [{"abcdefgh".index(sign) for sign in cure} for cure in cures]
    search, questions = cured("abcdefgh", lambda on: any(w <= on for w in wanted), slots)
    smallest = "".join("abcdefgh"[i] for i in (search.cure.items if search.cure else ()))
    assert questions.startswith("? abcdefgh")
    assert smallest in (cures or [""])
    assert not cures or questions.endswith(f"!{smallest}")
    assert len(questions.split()) <= 14
    assert search.ask(3) == []
    assert not search.wants(search.without_any)


def test_a_cure_that_is_never_confirmed_is_looked_for_three_times() -> None:
    search, asked = CureSearch(["a", "b"]), list[Point]()
    while points := search.ask(1):
        [point] = points
        asked.append(point)
        said = point.purpose is Purpose.CALIBRATE or (
            point.purpose is Purpose.PROBE and 1 in as_indexes(point[AXIS])
        )
        search.tell(point, Verdict(said, Tally(clean=1)))
    assert (search.cure, search.best) == (None, None)
    assert sum(point.purpose is Purpose.CONFIRM for point in asked) == 3
    assert len(set(asked)) == len(asked)
    found = search.verdict_of([1])
    assert found is not None
    assert found.reproduces
    assert search.verdict_of([]) is None


@pytest.mark.parametrize("tells", [True, False])
def test_where_all_on_fails_differently_each_is_tried_alone(tells: bool) -> None:
    search = CureSearch(["a", "b", "c"])
    search.tell(search.ask(1)[0], Verdict(True))
    [everything] = search.ask(1)
    search.tell(everything, Verdict(False, Tally(other=1)) if tells else Verdict(None))
    singles = search.ask(5)
    assert [as_indexes(point[AXIS]) for point in singles] == [(0,), (1,), (2,)]
    assert search.ask(5, singles[:1]) == singles[1:]
    for point in singles:
        search.tell(point, Verdict(point != singles[0]))
    [confirmation] = search.ask(2)
    assert (as_indexes(confirmation[AXIS]), confirmation.purpose) == ((1,), Purpose.CONFIRM)
    search.tell(confirmation, Verdict(True))
    assert search.best == Point.of({AXIS: (1,)})


def test_where_all_on_still_fails_the_same_nothing_is_a_cure() -> None:
    search = CureSearch(["a", "b", "c"])
    search.tell(search.ask(1)[0], Verdict(True))
    search.tell(search.ask(1)[0], Verdict(False, Tally(reproduced=3)))
    assert search.done
    assert (search.cure, search.fails_at_all) == (None, True)


@pytest.mark.parametrize(
    ("items", "needed", "floor", "most"),
    [("0", "", 0, 1), ("0", "0", 0, 1), ("0", "0", 1, 0), ("01", "1", 0, 3), ("01", "1", 1, 2)],
)
def test_one_or_two_lines_are_asked_about_once_each(
    items: str, needed: str, floor: int, most: int
) -> None:
    wanted = {SIGNS.index(sign) for sign in needed}
    found, asked = lines_of(items, lambda kept: wanted <= kept, floor=floor)
    assert (found, asked <= most) == (needed, True)


@pytest.mark.parametrize(("seen_flaky", "monotone"), [(False, False), (True, None)])
def test_an_axis_of_a_flaky_failure_is_not_called_not_monotone(
    seen_flaky: bool, monotone: bool | None
) -> None:
    """What a larger value did not show may have been bad luck."""
    search = Descent([number("n", 100, 1)])
    while points := search.ask(1):
        value = as_number(points[0]["n"])
        fails = value >= 50 or 3 <= value <= 5
        clean = 2 * (not fails) + (seen_flaky and points[0].purpose is Purpose.CALIBRATE)
        search.tell(points[0], Verdict(fails, Tally(reproduced=2 * fails, clean=clean)))
    [facts] = search.result.axes
    assert (facts.final, facts.monotone) == (3, monotone)


def test_a_confirmation_and_a_replay_are_counted_from_nought() -> None:
    search = Descent([number("n", 100, 1)])
    asked = []
    for said_so in (True, True, False):
        [point] = search.ask(1)
        asked.append((point["n"], point.purpose, point.replica))
        search.tell(point, Verdict(said_so))
    [replay] = search.ask(1)
    assert asked[2] == (1, Purpose.CONFIRM, 0)
    assert (replay["n"], replay.purpose, replay.replica) == (100, Purpose.REPLAY, 0)
