"""The searches of a reduction against failures that are known: the right answer, for whatever
fails, within a number of questions that grows with the logarithm of what is searched.
"""

import math
import random
from collections.abc import Callable, Sequence

import pytest
from benchmarks.simulate import Cost, Rate, drive
from hypothesis import given, settings
from hypothesis import strategies as st

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
from aorta.search.descent import Descent
from aorta.search.reduction import Status
from aorta.search.subset import SubsetSearch

SLOTS = st.integers(1, 4)


# -- one number


def values_until_done(
    axis: NumberAxis, least: float, slots: int = 1, suspect: int | None = None
) -> tuple[NumericSearch, list[float]]:
    """The values that are asked about, of what fails from `least` on."""
    search = NumericSearch(Point.of({"n": axis.initial}), axis, axis.initial, suspect=suspect)
    asked: list[float] = []
    while points := search.ask(slots):
        assert all(search.wants(point) for point in points)
        asked += [as_number(point["n"]) for point in points]
        for point in points:
            search.tell(point, Verdict(as_number(point["n"]) >= least))
    assert len(set(asked)) == len(asked), "no value is asked about twice"
    assert all(axis.floor <= value < axis.initial for value in asked)
    return search, asked


@given(
    st.integers(-50, 50),
    st.integers(1, 5000),
    st.integers(1, 9),
    st.sampled_from([None, True]),
    SLOTS,
    st.data(),
)
def test_the_smallest_whole_number_that_fails_is_found(
    floor: int, span: int, step: int, monotone: bool | None, slots: int, data: st.DataObject
) -> None:
    axis = number("n", floor + span, floor, step=step, monotone=monotone)
    least = data.draw(st.integers(floor, floor + span))
    search, asked = values_until_done(axis, least, slots)
    grid = [*range(floor, floor + span, step), floor + span]
    assert search.best["n"] == min(value for value in grid if value >= least)
    assert search.monotone is True
    # Halving takes one logarithm; that it is monotone is looked at in another one's gaps.
    assert len(asked) <= slots * (2 * math.log2(len(grid)) + 6)


@given(st.floats(1.0, 100.0), st.floats(0.01, 0.5), SLOTS, st.data())
def test_a_float_is_found_within_its_tolerance(
    initial: float, tolerance: float, slots: int, data: st.DataObject
) -> None:
    axis = number("n", initial, 0.5, tolerance=tolerance)
    least = data.draw(st.floats(0.5, initial))
    search, asked = values_until_done(axis, least, slots)
    best = as_number(search.best["n"])
    assert least <= best <= max(least * (1 + tolerance), 0.5) * (1 + 1e-9)
    halvings = math.log2(math.log(initial / 0.5) / math.log(1 + tolerance) + 1)
    assert len(asked) <= slots * (2 * halvings + 6)


@given(st.integers(2, 100))
def test_what_was_rejected_just_below_the_answer_before_is_asked_first(answer: int) -> None:
    axis = number("n", 100, 1)
    _, asked = values_until_done(axis, least=answer, suspect=answer - 1)
    assert asked[0] == answer - 1
    search, asked = values_until_done(axis, least=100, suspect=99)
    assert (search.best["n"], asked) == (100, [99])


# -- lines


def kept_lines(
    lines: Sequence[str], fails: Callable[[frozenset[int]], bool], slots: int = 1, floor: int = 1
) -> tuple[frozenset[int], SubsetSearch, int]:
    axis = subset("f", tuple(lines), floor=floor)
    search = SubsetSearch(Point.of({"f": axis.initial}), axis)
    asked: list[tuple[int, ...]] = []
    while points := search.ask(slots):
        asked += [as_indexes(point["f"]) for point in points]
        for point in points:
            search.tell(point, Verdict(fails(frozenset(as_indexes(point["f"])))))
    assert len(set(asked)) == len(asked), "no set is asked about twice"
    return frozenset(as_indexes(search.best["f"])), search, len(asked)


def of_lines(size: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(0, size - 1), min_size=1)


@given(of_lines(16), SLOTS)
def test_the_lines_that_are_needed_are_left_each_with_its_check(
    needed: frozenset[int], slots: int
) -> None:
    kept, search, asked = kept_lines("0123456789abcdef", lambda have: needed <= have, slots)
    assert kept == needed
    # One line is at its floor and needs none.
    assert len(search.minimality_checks()) == (len(needed) if len(needed) > 1 else 0)
    assert asked <= slots * (3 * len(needed) * (math.log2(16 / len(needed)) + 1) + 8)


TEXT = ("def a():", "    b()", "    c()", "def d():", "    e()", "    f()", "g()", "h()")


@given(of_lines(len(TEXT)), SLOTS)
def test_structured_lines_give_the_same_answer_in_few_questions(
    needed: frozenset[int], slots: int
) -> None:
    kept, _, asked = kept_lines(TEXT, lambda have: needed <= have, slots)
    assert kept == needed
    assert asked <= slots * 5 * len(TEXT)


@given(st.integers(0, 2**32))
def test_where_larger_sets_do_not_fail_the_answer_still_does(seed: int) -> None:
    every = frozenset(range(len(TEXT)))

    def fails(have: frozenset[int]) -> bool:
        return have == every or random.Random(f"{seed} {sorted(have)}").random() < 0.3

    kept, _, asked = kept_lines(TEXT, fails)
    assert fails(kept)
    assert not any(fails(kept - {line}) for line in kept if len(kept) > 1)
    assert asked <= 2 ** len(TEXT)


@pytest.mark.parametrize(
    ("lines", "needed", "floor", "left"),
    [("0", "", 0, ""), ("0", "0", 0, "0"), ("0", "0", 1, "0"), ("01", "1", 0, "1")],
)
def test_none_is_left_only_where_the_floor_lets_the_last_one_go(
    lines: str, needed: str, floor: int, left: str
) -> None:
    wanted = {int(sign) for sign in needed}
    kept, _, asked = kept_lines(lines, lambda have: wanted <= have, floor=floor)
    assert "".join(map(str, sorted(kept))) == left
    assert asked <= len(lines) + 1


# -- several axes


def descended(
    axes: Sequence[Axis], rate: Rate, judges: Judges | None = None, slots: int = 1, seed: int = 0
) -> tuple[Descent, Cost]:
    search = Descent(axes)
    judges = judges or SameJudge(KOfN(1, 1))
    return search, drive(search, rate, judges=judges, slots=slots, rng=random.Random(seed))


def pair() -> list[Axis]:
    return [choice("d", ("a", "b", "c")), number("n", 100, 1)]


def fails_from(least: int, *types: str) -> Rate:
    return lambda point: float(as_number(point["n"]) >= least and point["d"] in types)


@given(st.integers(1, 100), st.sampled_from(["a", "ab", "abc"]), SLOTS)
def test_a_descent_calibrates_finds_the_least_of_each_axis_and_confirms_it(
    least: int, types: str, slots: int
) -> None:
    search, cost = descended(pair(), fails_from(least, *types), slots=slots)
    result = search.result
    assert [facts.final for facts in result.axes] == [types[-1], least]
    moved = result.best != result.original
    assert result.status is (Status.REDUCED if moved else Status.NOT_REDUCED)
    purposes = [point.purpose for point, _ in cost.verdicts]
    assert purposes[0] is Purpose.CALIBRATE
    assert (purposes[-1] is Purpose.CONFIRM) is moved
    assert (result.trials, result.setbacks) == (cost.trials, 0)
    assert cost.trials <= slots * 30


def test_what_fails_everywhere_or_nowhere_is_known_at_once() -> None:
    search, cost = descended(pair(), lambda _: 1.0)
    assert cost.trials == 3, "the original, all floors, and their confirmation"
    assert search.result.accepted == (search.result.original, search.result.best)
    search, cost = descended(pair(), lambda _: 0.0)
    assert cost.trials == 1
    assert search.result.status is Status.DID_NOT_REPRODUCE


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), SLOTS)
def test_lines_steps_and_a_number_are_made_small_after_each_other(
    one: int, step: int, least: int, other: int, slots: int
) -> None:
    axes: list[Axis] = [
        subset("f", tuple(map(str, range(20)))),
        window("s", 0, 20),
        number("n", 20, 1),
    ]
    needed = {one - 1, other - 1}

    def fails(point: Point) -> float:
        span = as_window(point["s"])
        inside = span.start <= step - 1 < span.start + span.length
        lines = needed <= set(as_indexes(point["f"]))
        return float(lines and inside and as_number(point["n"]) >= least)

    search, cost = descended(axes, fails, slots=slots)
    finals = {facts.axis.name: facts.final for facts in search.result.axes}
    assert finals == {"f": tuple(sorted(needed)), "s": Window(step - 1, 1), "n": least}
    assert cost.trials <= slots * 70


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_a_flaky_failure_takes_the_trials_that_its_judge_asks_for(seed: int) -> None:
    def flaky(point: Point) -> float:
        return 0.7 * fails_from(20, "a", "b")(point)

    search, cost = descended(pair(), flaky, SequentialJudges(), seed=seed)
    assert search.result.trials == cost.trials <= 250
    best = search.result.best
    assert flaky(best), "what is named does fail"


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


def test_a_confirmation_and_a_measurement_are_counted_from_nought() -> None:
    search = Descent([number("n", 100, 1)])
    asked = []
    for reproduces in (True, True, False):
        [point] = search.ask(1)
        asked.append((point["n"], point.purpose, point.replica))
        search.tell(point, Verdict(reproduces))
    [measured] = search.ask(1)
    assert asked[2] == (1, Purpose.CONFIRM, 0)
    assert (measured["n"], measured.purpose, measured.replica) == (100, Purpose.RATE, 0)


# -- mitigations


@given(st.lists(of_lines(8), max_size=3), SLOTS)
def test_a_cure_is_confirmed_and_none_of_it_can_be_left_out(
    cures: list[frozenset[int]], slots: int
) -> None:
    def helps(on: frozenset[int]) -> bool:
        return any(cure <= on for cure in cures)

    search, purposes = CureSearch(list("abcdefgh")), list[Purpose]()
    while not search.done:
        for point in search.ask(slots):
            purposes.append(point.purpose)
            fails = point.purpose is Purpose.CALIBRATE
            gone = fails or helps(frozenset(as_indexes(point[AXIS])))
            search.tell(point, Verdict(gone, Tally(clean=1)))
    found = frozenset(search.cure.items) if search.cure else frozenset()
    assert bool(found) is bool(cures)
    if found:
        assert helps(found)
        assert purposes[-1] is Purpose.CONFIRM
        assert not any(helps(found - {item}) for item in found)
    assert search.ask(3) == []
    assert len(purposes) <= slots * 30


def test_a_cure_that_is_never_confirmed_is_looked_for_three_times() -> None:
    search, asked = CureSearch(["a", "b"]), list[Point]()
    while points := search.ask(1):
        [point] = points
        asked.append(point)
        gone = point.purpose is Purpose.CALIBRATE or (
            point.purpose is Purpose.PROBE and 1 in as_indexes(point[AXIS])
        )
        search.tell(point, Verdict(gone, Tally(clean=1)))
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
