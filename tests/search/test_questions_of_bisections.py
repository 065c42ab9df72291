"""What a bisection asks, trial by trial, of failures that are known: which state, why, and when it
is content.

A question is a state; `/ca` marks a trial of an end, `/co` one of a side of the answer, `/re` one
beside it.
"""

import random
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from aorta.core.axis import Point, Purpose
from aorta.core.trial import Verdict
from aorta.search.belief import Counts
from aorta.search.bisecting import Bisection, BisectionSettings
from aorta.search.bisection import USUAL_RATES, TimelineBisection
from aorta.search.contradiction import Repaired, repaired_among
from aorta.search.ends import EndsVerdict
from aorta.search.gallop import GallopBack, GallopVerdict
from aorta.search.graph import GraphHistory
from aorta.search.graph_bisection import GraphBisection
from aorta.search.interval import Interval
from aorta.search.timeline import History, Timeline
from support.timelines import Judge, flaky_judge, one_package


def said(point: Point) -> str:
    state = ",".join(str(value) for _, value in point.values)
    return state + ("" if point.purpose is Purpose.PROBE else f"/{point.purpose.value[:2]}")


def asked_of(
    search: Bisection, judge: Judge, workers: int = 1, broken: Collection[str] = ()
) -> str:
    asked: list[str] = []
    while not search.done and len(asked) < 600:
        points = search.ask(workers)
        assert all(search.wants(point) for point in points)
        for point in points:
            asked.append(said(point))
            failed = judge(search.timeline.vector(point))
            search.tell(point, Verdict(None if said(point).split("/")[0] in broken else failed))
    return " ".join(asked)


def from_state(first: int) -> Judge:
    return lambda vector: vector[0] >= first


def found(search: TimelineBisection) -> tuple[int, int, float] | None:
    answer = search.answer
    return (answer.start, answer.stop, round(answer.mass, 3)) if answer else None


@pytest.mark.parametrize(
    ("first", "workers", "asked", "mass"),
    [
        (1, 1, "63/ca 0/ca 31 15 7 3 1 1/co 0/co", 0.987),
        (1, 3, "63/ca 0/ca 31 47 15 7 11 3 1 2 3/co 1/co 0/co", 0.996),
        (20, 1, "63/ca 0/ca 31 15 23 19 21 20 19/co 19/co 20/co", 0.979),
        (20, 3, "63/ca 0/ca 31 47 15 23 19 27 21 20 22 19/co 19/co 20/co", 0.994),
        (33, 1, "63/ca 0/ca 31 47 39 35 33 32 32/co 33/co 32/co", 0.972),
        (33, 3, "63/ca 0/ca 31 47 15 39 35 43 33 32 34 32/co 32/co 33/co", 0.993),
        (63, 1, "63/ca 0/ca 31 47 55 59 61 62 63/co 63/co 62/co 63/co 62/co", 0.956),
        (
            63,
            3,
            ("63/ca 0/ca 31 47 15 55 51 59 61 60 62 63/co 63/co 62/co 63/co 62/co 62/co"),
            0.985,
        ),
    ],
)
def test_a_steady_failure_is_halved_and_its_two_sides_are_tried_again(
    first: int, workers: int, asked: str, mass: float
) -> None:
    search = TimelineBisection(one_package(64))
    assert asked_of(search, from_state(first), workers) == asked
    assert found(search) == (first - 1, first, mass)
    assert search.is_sure


@pytest.mark.parametrize(
    ("settings", "asked", "answer"),
    [
        (
            {"sentinels": 2},
            "63/ca 0/ca 31 15 23 19 21 20 19/co 19/co 20/co 47/re 39/re 7/re",
            (19, 20, 0.993),
        ),
        (
            {"sentinels": 2, "steady_sentinels": False},
            "63/ca 0/ca 31 15 23 19 21 20 19/co 19/co 20/co",
            (19, 20, 0.979),
        ),
        (
            {"sentinels": 1},
            "63/ca 0/ca 31 15 23 19 21 20 19/co 19/co 20/co 47/re 7/re",
            (19, 20, 0.989),
        ),
        ({"confirm": False}, "63/ca 0/ca 31 15 23 19 21 20", (19, 20, 0.75)),
        ({"check_ends": False}, "31 15 23 19 21 20 19/co 19/co 20/co", (19, 20, 0.979)),
        (
            {"confidence": 0.99},
            "63/ca 0/ca 31 15 23 19 21 20 19/co 19/co 20/co 19/co 19/co",
            (19, 20, 0.994),
        ),
        ({"confidence": 0.6}, "63/ca 0/ca 31 15 23 19 21 20 20/co 19/co", (19, 20, 0.947)),
    ],
)
def test_what_is_asked_beside_the_halving_is_a_matter_of_the_settings(
    settings: dict[str, Any], asked: str, answer: tuple[int, int, float]
) -> None:
    search = TimelineBisection(one_package(64), BisectionSettings(**settings))
    assert asked_of(search, from_state(20)) == asked
    assert found(search) == answer


def test_it_ends_where_the_answer_is_close_enough() -> None:
    def close(interval: Interval) -> bool:
        return interval.stop - interval.start <= 4

    search = TimelineBisection(one_package(64), BisectionSettings(close_enough=close))
    assert asked_of(search, from_state(20)) == "63/ca 0/ca 31 15 23 19"
    assert found(search) == (19, 23, 0.814)


@pytest.mark.parametrize(
    ("broken", "asked", "answer"),
    [
        ("31 15 19 20", "63/ca 0/ca 31 35 17 26 21 19 18 20 18/co 21/co", (18, 21, 0.975)),
        ("63", "63/ca 0/ca 62 31 15 23 19 21 20 19/co 19/co 20/co", (19, 20, 0.987)),
        ("0", "63/ca 0/ca 31 15 23 19 21 20 19/co 19/co 20/co", (19, 20, 0.979)),
        ("63 62 61", "63/ca 0/ca 62 61 59 29 14 21 17 19 20 19/co 20/co", (19, 20, 0.968)),
        ("31 32 30", "63/ca 0/ca 31 35 17 26 21 19 20 19/co 19/co 20/co", (19, 20, 0.98)),
        ("19", "63/ca 0/ca 31 15 23 19 17 21 18 20 18/co 20/co", (18, 20, 0.988)),
        ("20", "63/ca 0/ca 31 15 23 19 21 20 19/co 21/co", (19, 21, 0.956)),
    ],
)
def test_states_that_cannot_be_tested_are_gone_around(
    broken: str, asked: str, answer: tuple[int, int, float] | None
) -> None:
    search = TimelineBisection(one_package(64))
    assert asked_of(search, from_state(20), broken=broken.split()) == asked
    assert found(search) == answer


@pytest.mark.parametrize(
    ("first", "settings", "broken", "asked", "ends"),
    [
        (0, {}, "", "63/ca 0/ca 0/ca", EndsVerdict.GOOD_FAILS_TOO),
        (64, {}, "", " ".join(["63/ca"] * 16), EndsVerdict.BAD_DOES_NOT_FAIL),
        (64, {"silent": 3}, "", "63/ca 63/ca 63/ca", EndsVerdict.BAD_DOES_NOT_FAIL),
        (20, {}, "0 63", "63/ca 0/ca", EndsVerdict.BAD_UNTESTABLE),
        (20, {"trust_ends": False}, "63", "63/ca", EndsVerdict.BAD_UNTESTABLE),
        (20, {"trust_ends": False}, "0", "63/ca 0/ca", EndsVerdict.GOOD_UNTESTABLE),
    ],
)
def test_ends_that_leave_no_question_are_tried_no_further(
    first: int, settings: dict[str, Any], broken: str, asked: str, ends: EndsVerdict
) -> None:
    search = TimelineBisection(one_package(64), BisectionSettings(**settings))
    assert asked_of(search, from_state(first), broken=broken.split()) == asked
    assert (search.ends, search.answer) == (ends, None)


def test_a_change_that_brings_many_commits_is_halved_by_them() -> None:
    weights = (1, 1, 1, 1, 20, 1, 1, 1, 1)
    for first, asked in (
        (5, "9/ca 0/ca 4 5 5/co 4/co"),
        (2, "9/ca 0/ca 4 2 1 2/co 1/co"),
        (9, "9/ca 0/ca 4 5 7 8 9/co 9/co 8/co 8/co 9/co"),
        (6, "9/ca 0/ca 4 5 7 6 5/co 5/co 5/co 6/co 5/co"),
    ):
        heavy = Timeline([History("a", tuple("0123456789"), weights=weights)])
        assert asked_of(TimelineBisection(heavy), from_state(first)) == asked


def test_of_two_packages_the_order_is_turned_where_states_cannot_be_tested() -> None:
    both = Timeline([History("a", tuple("01234567")), History("b", tuple("01234567"))])
    mixed = [f"{a},{b}" for a in range(1, 7) for b in range(8) if a != b]
    for broken, asked, answer in (
        ((), "7,7/ca 0,0/ca 4,3 5,5 4,4 4,3/co 4,3/co 4,4/co", (7, 8, 0.956)),
        (mixed, "7,7/ca 0,0/ca 4,3 3,2 3,3 6,5 5,5 4,4 3,3/co 3,3/co 4,4/co 3,4", (6, 8, 0.98)),
    ):
        search = TimelineBisection(both)
        assert asked_of(search, lambda vector: vector[1] >= 4, broken=broken) == asked
        assert found(search) == answer


@pytest.mark.parametrize(
    ("first", "rates", "workers", "settings", "asked", "mass"),
    [
        (
            3,
            (0.6, 0.0),
            1,
            {},
            (
                "31/ca 0/ca 15 7 11 13 12 11/co 11/co 8 5 7 5 6 5 5 2 3 4 3 3 3 2 2 2 3 2 2 "
                "2 2 2 2 3 2"
            ),
            0.96,
        ),
        (
            3,
            (0.9, 0.1),
            2,
            {"sentinels": 2},
            "31/ca 0/ca 15 23 7 11 3 5 1 2 3/co 2/co 3 4 2 3 19/re 27/re",
            0.973,
        ),
        (
            6,
            (0.6, 0.0),
            1,
            {},
            "31/ca 31/ca 31/ca 0/ca 14 6 8 5 6 3 4 5 5 5 5 6 6 5 5 5 5 5 6 6",
            0.953,
        ),
        (
            9,
            (0.5, 0.0),
            3,
            {},
            ("31/ca 0/ca 15 23 7 10 8 12 11 10 9 6 8 4 8 11 12 8 9 8 9 10 9 8 8 9 8 8 8 8 8 9"),
            0.98,
        ),
        (
            12,
            (0.6, 0.0),
            1,
            {},
            (
                "31/ca 0/ca 15 23 19 17 16 15/co 15/co 16/co 15 7 10 12 9 10 11 11 11 11 12 "
                "11 11 11 11 12 12"
            ),
            0.957,
        ),
        (
            12,
            (0.5, 0.0),
            3,
            {},
            (
                "31/ca 0/ca 15 23 7 19 17 21 12 15 9 16 15 16 12 13 10 10 9 11 11 11 10 12 "
                "11 12 11 11 11 12 11 12 11 11 11"
            ),
            0.957,
        ),
        (
            15,
            (0.6, 0.0),
            1,
            {},
            (
                "31/ca 31/ca 0/ca 14 19 22 16 19 20 21 21 20 16 18 14 16 9 11 13 14 15 15 14 "
                "14 14 14 14 14 14 15 15 15 14 14 14 14 14"
            ),
            0.952,
        ),
        (
            15,
            (0.9, 0.1),
            2,
            {"sentinels": 2},
            (
                "31/ca 31/ca 31/ca 0/ca 14 19 14 16 14 15 15 15 14 10 14 14 14 14 14 15 "
                "25/re 22/re 25/re 5/re 5/re"
            ),
            0.989,
        ),
        (
            15,
            (0.5, 0.0),
            3,
            {},
            (
                "31/ca 31/ca 31/ca 31/ca 0/ca 14 18 9 22 20 25 22 23 21 16 18 14 12 14 10 15 "
                "14 15 14 14 13 14 14 14 15 15 15 14 14 14"
            ),
            0.958,
        ),
        (
            18,
            (0.5, 0.0),
            3,
            {},
            (
                "31/ca 0/ca 15 23 7 19 17 21 18 17/co 19/co 17 16 13 17 18 17 18 18 17 17 18 "
                "17 18 18 17 17 17 18"
            ),
            0.978,
        ),
        (
            21,
            (0.6, 0.0),
            1,
            {},
            ("31/ca 0/ca 15 23 19 21 22 23/co 22/co 20 21 17 20 20 20 20 21 20 20 20"),
            0.957,
        ),
        (
            21,
            (0.5, 0.0),
            3,
            {},
            (
                "31/ca 0/ca 15 23 7 19 17 21 22 23/co 21/co 19 20 17 20 21 20 20 20 20 21 20 "
                "21 20 20 20"
            ),
            0.975,
        ),
    ],
)
def test_of_a_flaky_failure_the_state_that_says_most_is_asked_next(
    first: int,
    rates: tuple[float, float],
    workers: int,
    settings: dict[str, Any],
    asked: str,
    mass: float,
) -> None:
    judge = flaky_judge(first, *rates, random.Random(first))
    search = TimelineBisection(one_package(32), BisectionSettings(**settings))
    assert asked_of(search, judge, workers) == asked
    assert found(search) == (first - 1, first, mass)


# -- back in growing steps ------------------------------------------------------------------------


def walked(
    days: Sequence[int],
    first_bad: int,
    *,
    fails: float = 1.0,
    seed: int = 0,
    workers: int = 1,
    broken: Collection[int] = (),
    **known: Any,
) -> tuple[str, GallopBack]:
    chance = random.Random(seed)
    search = GallopBack("day", [str(d) for d in days], [float(d) for d in days], **known)
    asked: list[str] = []
    while not search.done and len(asked) < 300:
        points = search.ask(workers)
        asked += [said(point) for point in points]
        for point in points:
            day = int(str(point["day"]))
            hit = day >= first_bad and chance.random() < fails
            search.tell(point, Verdict(None if day in broken else hit))
    return " ".join(asked), search


@pytest.mark.parametrize(
    ("days", "first_bad", "how", "asked"),
    [
        (range(40), 30, {}, "39/ca 39/ca 39/ca 39/ca 38 37 35 31 23 27 29 30 29/co 30/co"),
        (
            range(40),
            30,
            {"workers": 3},
            ("39/ca 39/ca 39/ca 39/ca 38 37 35 31 23 7 27 25 29 30 31/co 29/co 30/co"),
        ),
        (range(40), 39, {}, "39/ca 39/ca 39/ca 39/ca 38 38/co 38/co"),
        (range(40), 39, {"workers": 3}, "39/ca 39/ca 39/ca 39/ca 38 37 35 38/co 38/co 38/co"),
        (range(0, 60, 3), 20, {}, "57/ca 57/ca 57/ca 57/ca 54 51 45 33 9 21 15 18 21/co 18/co"),
        (
            range(0, 60, 3),
            20,
            {"workers": 3},
            "57/ca 57/ca 57/ca 57/ca 54 51 45 33 9 0 21 15 27 18 15/co 21/co 18/co",
        ),
        (
            range(40),
            30,
            {"broken": {36, 20, 38}},
            "39/ca 39/ca 39/ca 39/ca 38 37 35 31 23 27 29 30 29/co 30/co",
        ),
        (
            range(40),
            30,
            {"broken": {38, 23}},
            "39/ca 39/ca 39/ca 39/ca 38 37 35 31 23 22 27 29 30 29/co 30/co",
        ),
        (range(40), 30, {"first": 32.0}, "39/ca 39/ca 39/ca 39/ca 32 25 28 30 29 29/co 30/co"),
        (
            range(40),
            30,
            {"first": 25.0, "known_bad": True, "known_good": True},
            "32 28 30 29 29/co 30/co",
        ),
        (range(2), 1, {}, "1/ca 1/ca 1/ca 1/ca 0 0/co"),
        (range(0, 11, 10), 1, {}, "10/ca 10/ca 10/ca 10/ca 0 0/co"),
        (range(40), 1, {}, "39/ca 39/ca 39/ca 39/ca 38 37 35 31 23 7 0 3 1 0/co 1/co"),
        (
            range(40),
            25,
            {"fails": 0.6, "seed": 0},
            ("39/ca 39/ca 39/ca 39/ca 38 37 35 35 31 23 23 25 10 21 24 24 24 25 25 24 24 24 25 24"),
        ),
        (
            range(40),
            25,
            {"fails": 0.6, "seed": 1},
            (
                "39/ca 39/ca 39/ca 39/ca 38 37 35 35 35 13 24 28 18 24 25 26 25 25 18 22 24 "
                "24 24 24 25 24 24 24 24 24"
            ),
        ),
        (
            range(40),
            25,
            {"fails": 0.6, "seed": 2},
            (
                "39/ca 39/ca 39/ca 39/ca 38 38 38 38 37 37 37 35 31 23 23 19 24 26 23 24 24 "
                "25 25 25 25 24 24 24 24 24 25 24 24 24 24 24"
            ),
        ),
        (
            range(100),
            60,
            {"fails": 0.8, "seed": 4, "workers": 2},
            (
                "99/ca 99/ca 99/ca 99/ca 98 97 95 91 96 95/co 92 83 35 59 72 67 59 62 60 59 "
                "61 60 62 61 61 64 60 60 59 60 61 62 60 60 59 45 59 59 60 60 59 59"
            ),
        ),
    ],
)
def test_the_way_back_doubles_its_steps_and_is_halved_from_the_first_good_day_on(
    days: Sequence[int], first_bad: int, how: dict[str, Any], asked: str
) -> None:
    questions, search = walked(days, first_bad, **how)
    assert questions == asked
    assert search.verdict is GallopVerdict.BRACKETED
    assert search.bisection is not None
    answer = search.bisection.answer
    assert answer is not None
    good, bad = days[answer.start - 1], days[answer.stop - 1]
    assert good < first_bad <= bad
    assert days.index(bad) == days.index(good) + 1


@pytest.mark.parametrize(
    ("first_bad", "how", "asked", "verdict"),
    [
        (-1, {}, "39/ca 39/ca 39/ca 39/ca 38 37 35 31 23 7 0", GallopVerdict.NEVER_GOOD),
        (
            -1,
            {"workers": 3},
            "39/ca 39/ca 39/ca 39/ca 38 37 35 31 23 7 0",
            GallopVerdict.NEVER_GOOD,
        ),
        (99, {"workers": 3}, " ".join(["39/ca"] * 16), GallopVerdict.DOES_NOT_FAIL),
        (30, {"broken": {39}}, "39/ca", GallopVerdict.UNTESTABLE),
    ],
)
def test_where_there_is_no_good_day_or_no_bad_one_there_is_no_first_bad_day(
    first_bad: int, how: dict[str, Any], asked: str, verdict: GallopVerdict
) -> None:
    questions, search = walked(range(40), first_bad, **how)
    assert questions == asked
    assert (search.verdict, search.bisection, search.best) == (verdict, None, None)
    assert search.ask(3) == []


def test_on_the_way_back_a_day_that_failed_is_wanted_no_more() -> None:
    search = GallopBack(
        "day", [str(d) for d in range(8)], [float(d) for d in range(8)], known_bad=True
    )
    one, other = search.ask(2)
    assert (said(one), said(other)) == ("6", "5")
    search.tell(one, Verdict(True))
    assert not search.wants(one)
    assert search.wants(other)
    assert search.wants(Point.of({"day": "7"}, Purpose.CALIBRATE, 9))
    assert (search.verdict, search.done) == (GallopVerdict.OPEN, False)


# -- with merges ----------------------------------------------------------------------------------


def with_a_merge() -> GraphHistory:
    """A trunk a0 .. a7, a branch b0 .. b5 that leaves it after a2, the merge m of both, and c0 ..
    c4 after it.
    """
    names, holds = ["start"], [0]

    def commit(name: str, *parents: str) -> None:
        held = 0
        for parent in parents:
            held |= holds[names.index(parent)]
        holds.append(held | 1 << len(names) - 1)
        names.append(name)

    for letter, length, before in (("a", 8, "start"), ("b", 6, "a2")):
        for number in range(length):
            commit(f"{letter}{number}", f"{letter}{number - 1}" if number else before)
    commit("m", "a7", "b5")
    for number in range(5):
        commit(f"c{number}", f"c{number - 1}" if number else "m")
    changes = len(names) - 1
    return GraphHistory(
        "package", tuple(names), tuple(holds), tuple(range(changes)), tuple(range(1, changes + 1))
    )


def cut(
    culprit: str,
    rates: tuple[float, float] = (1.0, 0.0),
    workers: int = 1,
    broken: str = "",
    **settings: Any,
) -> tuple[str, tuple[str, float]]:
    graph, chance = with_a_merge(), random.Random(culprit)
    search = GraphBisection(graph, BisectionSettings(**settings))
    change = graph.states.index(culprit) - 1

    def judge(vector: tuple[int, ...]) -> bool:
        return chance.random() < rates[not graph.holds[vector[0]] >> change & 1]

    asked = asked_of(search, judge, workers, broken.split())
    answer = search.answer
    assert answer is not None
    changes = " ".join(graph.states[one.rank + 1] for one in answer.changes)
    return asked, (changes, round(answer.mass, 3))


@pytest.mark.parametrize(
    ("culprit", "how", "asked", "answer"),
    [
        ("a0", {}, "c4/ca start/ca b5 b0 a1 a0 a0/co start/co", ("a0", 0.993)),
        ("a4", {}, "c4/ca start/ca b5 a7 a4 a3 a3/co a4/co", ("a4", 0.961)),
        ("a7", {}, "c4/ca start/ca b5 a7 a4 a5 a6 a7/co a6/co a6/co", ("a7", 0.959)),
        ("b0", {}, "c4/ca start/ca b5 b0 a1 a2 b0/co a7/co a7/co", ("b0", 0.979)),
        ("b5", {}, "c4/ca start/ca b5 b0 b2 b3 b4 b5/co b4/co b5/co", ("b5", 0.966)),
        ("m", {}, "c4/ca start/ca b5 a7 c1 m b5/co a7/co m/co b5/co a7/co m/co", ("m", 0.966)),
        ("c4", {}, "c4/ca start/ca b5 a7 c1 c2 c3 c4/co c4/co c3/co c3/co c4/co", ("c4", 0.975)),
        ("a0", {"workers": 3}, "c4/ca start/ca b5 a7 b2 a0 a1 a7/co a0/co start/co", ("a0", 0.996)),
        (
            "a7",
            {"workers": 3},
            "c4/ca start/ca b5 a7 b2 a4 a5 a3 a6 a7/co a5/co a6/co a6/co a7/co",
            ("a7", 0.99),
        ),
        (
            "b5",
            {"workers": 3},
            "c4/ca start/ca b5 a7 b2 b3 b4 b2/co b5/co b4/co b5/co",
            ("b5", 0.972),
        ),
        (
            "m",
            {"workers": 3},
            "c4/ca start/ca b5 a7 b2 c1 m c2 a7/co b5/co a7/co m/co b5/co m/co",
            ("m", 0.984),
        ),
        ("b3", {"confirm": False}, "c4/ca start/ca b5 b0 b2 b3", ("b3", 0.759)),
        (
            "b3",
            {"broken": "b3 b2 a7"},
            "c4/ca start/ca b5 b0 b2 b3 b1 b4 b1/co b4/co",
            ("b2 b3 b4", 0.985),
        ),
        ("a4", {"broken": "c4"}, "c4/ca start/ca c3 b5 a7 a4 a3 a3/co a4/co", ("a4", 0.975)),
        ("a4", {"broken": "start"}, "c4/ca start/ca b5 a7 a4 a3 a3/co a4/co", ("a4", 0.961)),
        (
            "m",
            {"broken": "m"},
            "c4/ca start/ca b5 a7 c1 m c0 b5/co a7/co b5/co a7/co c0/co",
            ("m c0", 0.968),
        ),
        (
            "b2",
            {"rates": (0.6, 0.0)},
            "c4/ca start/ca b5 b0 b2 b3 b2/co b3/co b2/co",
            ("b3", 0.971),
        ),
        (
            "a5",
            {"rates": (0.6, 0.0)},
            (
                "c4/ca c4/ca c4/ca c4/ca start/ca b5 a7 a4 a5 a5 b5 a3 a4 a4 a4 a4 a5 a4 a4 "
                "a4 a4 a4 a5"
            ),
            ("a5", 0.974),
        ),
        (
            "c1",
            {"rates": (0.7, 0.0), "workers": 2},
            (
                "c4/ca start/ca b5 a7 c1 m c2 c3 c1/co c1/co m c0 c0 c1 c1 c2 c0 c1 c1 c1 c0 "
                "c0 c1 c1 c0 c0 c0 c1 c0 c0"
            ),
            ("c1", 0.963),
        ),
        (
            "a5",
            {"rates": (0.9, 0.1), "sentinels": 2, "workers": 2},
            (
                "c4/ca start/ca b5 a7 a4 a5 a3 b5/co a3/co a4/co a4 a4 a3 a4 b5 a5 a3 a4 a5 "
                "a5 a4 a4 a5 a5 a4 a4 a5 a5 a4 a5 a4 a5 m/re b1/re m/re b1/re b1/re b1/re "
                "b1/re b1/re"
            ),
            ("a5", 0.999),
        ),
        (
            "b4",
            {"rates": (0.9, 0.1), "sentinels": 2},
            (
                "c4/ca start/ca b5 b0 b2 b1 b1/co b2/co b3 a7 b4 b3 b4 b3 b3 b4 b3 b4 b3 b4 "
                "m/re a4/re a4/re"
            ),
            ("b4", 0.995),
        ),
        ("a4", {"sentinels": 2}, "c4/ca start/ca b5 a7 a4 a3 a3/co a4/co", ("a4", 0.961)),
    ],
)
def test_with_merges_each_question_cuts_what_is_left_in_half(
    culprit: str, how: dict[str, Any], asked: str, answer: tuple[str, float]
) -> None:
    assert cut(culprit, **how) == (asked, answer)


# -- broken, repaired and broken again ------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "repaired"),
    [
        ([(0, 2), (2, 0), (0, 2), (2, 0)], None),
        ([(0, 2), (2, 0), (2, 0), (0, 2), (0, 2), (2, 0)], None),
        ([(0, 3), (3, 0), (0, 3), (3, 0)], None),
        ([(0, 3), (3, 0), (3, 0), (0, 3), (0, 3), (3, 0)], Repaired(1, 4)),
        ([(0, 4), (4, 0), (0, 4), (4, 0)], Repaired(1, 2)),
        ([(0, 4), (4, 0), (4, 0), (0, 4), (0, 4), (4, 0)], Repaired(1, 4)),
        ([(0, 5), (5, 1), (0, 5), (5, 0)], Repaired(1, 2)),
        ([(0, 5), (5, 0), (1, 5), (5, 0)], None),
        ([(0, 9), (9, 1), (1, 9), (9, 0)], Repaired(1, 2)),
        ([(1, 5), (5, 0), (0, 5), (5, 1)], Repaired(1, 2)),
        ([(0, 3), (6, 0), (0, 2), (6, 0)], None),
        ([(0, 3), (6, 0), (0, 3), (6, 0)], Repaired(1, 2)),
        ([(0, 3), (6, 0), (0, 4), (6, 0)], Repaired(1, 2)),
        ([(0, 6), (0, 6), (6, 0), (0, 6), (6, 0), (6, 0)], Repaired(2, 3)),
        ([(6, 0), (0, 6), (6, 0)], None),
        ([(4, 0), (0, 4), (2, 1), (5, 0)], None),
        ([(5, 0), (1, 0), (0, 4), (0, 1)], None),
        ([(1, 3), (4, 0), (0, 1), (1, 0)], None),
        ([(4, 0), (0, 6), (1, 0), (4, 0)], Repaired(0, 1)),
        ([(4, 0), (1, 0), (0, 4), (1, 0)], Repaired(0, 2)),
        ([(0, 1), (0, 6), (1, 1), (1, 0), (5, 0), (0, 6), (5, 0)], Repaired(2, 5)),
        ([(6, 0), (0, 6), (6, 0), (6, 0)], Repaired(0, 1)),
        ([(0, 6), (6, 0), (0, 6), (6, 0), (0, 6)], None),
        ([(0, 6), (6, 0), (0, 6), (6, 0), (0, 6), (6, 0)], None),
    ],
)
def test_so_much_evidence_tells_a_repair_from_a_flake(
    seen: list[Counts], repaired: Repaired | None
) -> None:
    assert repaired_among(seen, USUAL_RATES) == repaired


@pytest.mark.parametrize(
    ("workers", "asked"), [(1, "12 13 12/co 13/co"), (4, "12 10 13 11 13/co 12/co")]
)
def test_a_repair_is_told_and_the_later_break_is_searched_for_behind_it(
    workers: int, asked: str
) -> None:
    search = TimelineBisection(one_package(16))
    search.assume({(0,): (0, 6), (5,): (6, 0), (9,): (0, 6), (15,): (6, 0)})
    assert search.fixed_before == [((5,), (9,))]
    assert asked_of(search, from_state(13), workers) == asked
    assert search.answer is not None
    assert (search.answer.good, search.answer.bad) == ((12,), (13,))


@pytest.mark.parametrize(("hits", "astray"), [(1, 3), (2, 3), (3, 4), (5, 6)])
def test_a_state_is_given_up_once_three_trials_went_astray_and_more_than_told_anything(
    hits: int, astray: int
) -> None:
    search = TimelineBisection(one_package(8))
    end, good = search.timeline.bad_end, search.timeline.good_end
    search.tell(search.timeline.point(good, Purpose.CALIBRATE, 0), Verdict(False))
    for number in range(hits + astray):
        assert not search.is_exhausted(end)
        point = search.timeline.point(end, Purpose.CALIBRATE, number)
        search.tell(point, Verdict(True if number < hits else None))
        search.tell(point, Verdict(None))
    assert search.is_exhausted(end)
    assert search.trials[end] == (hits, 0)
    assert search.untestable == frozenset()


@pytest.mark.parametrize(
    ("states", "broken", "asked", "ends"),
    [
        (3, "2", "2/ca 0/ca 1 1/co 0/co", EndsVerdict.DIFFER),
        (3, "0", "2/ca 0/ca 1 1/co 0/co 0/co 0/co", EndsVerdict.DIFFER),
        (2, "1", "1/ca", EndsVerdict.BAD_UNTESTABLE),
        (2, "0", "1/ca 0/ca", EndsVerdict.GOOD_UNTESTABLE),
        (2, "", "1/ca 0/ca 1/co 0/co", EndsVerdict.DIFFER),
    ],
)
def test_an_end_that_cannot_be_tested_is_trusted_where_a_state_between_can_be(
    states: int, broken: str, asked: str, ends: EndsVerdict
) -> None:
    search = TimelineBisection(one_package(states))
    assert asked_of(search, from_state(1), broken=broken.split()) == asked
    assert search.ends is ends
    assert (found(search) is not None) == (ends is EndsVerdict.DIFFER)
