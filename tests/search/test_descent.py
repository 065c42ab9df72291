"""The whole descent: right, verified, replayable, and able to find its way back from bad luck."""

import random
from collections.abc import Callable
from statistics import mean

import pytest
from benchmarks.reduction import CERTAIN, FLAKY, flaky_number, flaky_reduction, is_within
from benchmarks.simulate import Cost, Rate, drive
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import (
    Axis,
    AxisKind,
    ChoiceAxis,
    Point,
    Purpose,
    Window,
    as_indexes,
    as_number,
    choice,
    number,
    subset,
    window,
)
from aorta.core.trial import Tally, Verdict
from aorta.engine.judge import KOfN, SameJudge, SequentialJudges
from aorta.search.descent import Descent
from aorta.search.reduction import Reduction, Status


def n_of(point: Point) -> float:
    value = point["n"]
    assert isinstance(value, (int, float))
    return value


ITEMS = tuple(map(str, range(40)))


def axes() -> list[Axis]:
    return [
        number("steps", 5000, 50, tolerance=0.1),
        number("batch", 2048, 16),
        subset("lines", ITEMS),
        choice("dtype", ("fp32", "bf16", "fp16")),
        window("window", 0, 1000),
    ]


def failing(steps: int, batch: int, lines: frozenset[int], dtypes: set[str], at: int) -> Rate:
    """Fails where every axis holds what it must."""

    def rate(point: Point) -> float:
        kept, span, n, b = point["lines"], point["window"], point["steps"], point["batch"]
        assert isinstance(kept, tuple)
        assert isinstance(span, Window)
        assert isinstance(n, int)
        assert isinstance(b, int)
        inside = span.start <= at < span.start + span.length
        return float(
            n >= steps and b >= batch and lines <= set(kept) and point["dtype"] in dtypes and inside
        )

    return rate


PROBLEMS = st.builds(
    failing,
    st.integers(1, 5000),
    st.integers(1, 2048),
    st.frozensets(st.integers(0, 39), min_size=1, max_size=4),
    st.sampled_from([{"fp32"}, {"fp32", "bf16"}, {"fp32", "bf16", "fp16"}]),
    st.integers(0, 999),
)


def reduced(rate: Rate, slots: int = 1) -> tuple[Reduction, Cost]:
    search = Descent(axes())
    cost = drive(search, rate, judges=SequentialJudges(), slots=slots, rng=random.Random(5))
    return search.result, cost


@settings(max_examples=40)
@given(PROBLEMS, st.integers(1, 8))
def test_every_axis_ends_as_small_as_it_goes_whatever_the_slots(rate: Rate, slots: int) -> None:
    result, cost = reduced(rate, slots)
    best = result.best
    assert rate(best) == 1
    assert result.status in {Status.REDUCED, Status.NOT_REDUCED}
    assert best == result.original or any(
        p.values == best.values for p, v in cost.verdicts if v.reproduces
    )
    for axis in axes():
        for smaller in _smaller(axis, best):
            assert rate(smaller) == 0, axis.name


def _smaller(axis: Axis, best: Point) -> list[Point]:
    value = best[axis.name]
    if axis.name == "steps":
        assert isinstance(value, int)
        less = int(value / 1.11)
        return [best.with_value("steps", less)] if less >= 50 else []
    if axis.name == "batch":
        assert isinstance(value, int)
        return [best.with_value("batch", value - 1)] if value > 16 else []
    if axis.name == "lines":
        assert isinstance(value, tuple)
        single = [tuple(i for i in value if i != out) for out in value]
        return [best.with_value("lines", kept) for kept in single if kept]
    if isinstance(axis, ChoiceAxis):
        position = axis.choices.index(str(value))
        return [best.with_value("dtype", wanted) for wanted in axis.choices[position + 1 :]]
    assert isinstance(value, Window)
    shorter = [Window(start, value.length - 1) for start in (value.start, value.start + 1)]
    return [best.with_value("window", span) for span in shorter if span.length >= 1]


@settings(max_examples=20)
@given(PROBLEMS, st.integers(1, 4))
def test_told_the_same_verdicts_it_asks_the_same_questions(rate: Rate, slots: int) -> None:
    one, two = Descent(axes()), Descent(axes())
    while points := one.ask(slots):
        assert points == one.ask(slots) == two.ask(slots)
        assert not set(one.ask(slots, points)) & set(points)
        for point in points:
            verdict = Verdict(rate(point) == 1, Tally(int(rate(point)), 1 - int(rate(point))))
            one.tell(point, verdict)
            two.tell(point, verdict)
    assert one.done
    assert one.result == two.result


def test_no_question_is_asked_twice() -> None:
    _, cost = reduced(failing(700, 100, frozenset({3, 17}), {"fp32", "bf16"}, 400))
    asked = [point for point, _ in cost.verdicts]
    assert len(set(asked)) == len(asked)


def test_the_corner_is_one_candidate() -> None:
    search = Descent([number("a", 5000, 50), number("b", 100, 1)])
    cost = drive(search, lambda _: 1.0)
    assert [p.purpose for p, _ in cost.verdicts] == [
        Purpose.CALIBRATE,
        Purpose.PROBE,
        Purpose.CONFIRM,
    ]
    assert search.result.best == Point.of({"a": 50, "b": 1})


def test_an_original_that_does_not_fail_ends_the_search_with_the_evidence() -> None:
    search = Descent(axes())
    cost = drive(search, lambda _: 0.0, judges=SequentialJudges())
    assert search.result.status is Status.DID_NOT_REPRODUCE
    assert search.result.why == "0 of 40 reproduced"
    assert search.best is None
    assert cost.trials == 40


def test_when_nothing_shrinks_the_original_stands() -> None:
    search = Descent([number("n", 100, 1), subset("lines", ITEMS)])
    drive(search, lambda p: float(p.values == search.result.original.values))
    assert search.result.status is Status.NOT_REDUCED
    assert search.result.best == search.result.original


def test_an_axis_that_is_not_monotone_is_named() -> None:
    search = Descent([number("n", 10_000, 1, tolerance=0.05)])

    def rate(point: Point) -> float:
        return float(n_of(point) >= 3000 or 5 <= n_of(point) <= 20)

    drive(search, rate, judges=SequentialJudges())
    (facts,) = search.result.axes
    assert facts.final == 5
    assert facts.monotone is False


def test_bad_luck_does_not_pass_for_an_axis_that_is_not_monotone() -> None:
    named = 0
    for seed in range(15):
        search = Descent([number("n", 5000, 50, tolerance=0.1)])
        rng = random.Random(seed)
        drive(search, lambda p: 0.5 * (n_of(p) >= 400), judges=SequentialJudges(), rng=rng)
        named += search.result.axes[0].monotone is False
    assert named <= 1


def test_priority_goes_first_then_the_axis_that_shortens_trials_most() -> None:
    search = Descent(
        [number("slow", 99, 1), number("fast", 99, 1), number("first", 99, 1, priority=1)]
    )
    order: list[str] = []
    while points := search.ask(1):
        (point,) = points
        changed = [name for name, value in point.values if value != 99]
        if point.purpose is Purpose.PROBE and len(changed) == 1 and changed[0] not in order:
            order += changed if point[changed[0]] != 1 else []
        holds = point.purpose is not Purpose.PROBE or not changed
        search.tell(
            point,
            Verdict(holds, seconds={"slow": 50.0, "fast": 2.0}.get(changed[0] if changed else "")),
        )
    assert order == ["first", "fast", "slow"]


def test_a_failed_confirmation_walks_back_to_what_holds() -> None:
    """A point below 500 is accepted by luck, and never reproduces again."""
    search = Descent([number("n", 4000, 1, tolerance=0.1)])
    lucky: set[Point] = set()
    while points := search.ask(1):
        (point,) = points
        n = n_of(point)
        luck = 60 <= n < 500 and point.purpose is Purpose.PROBE and not lucky
        if luck:
            lucky.add(point)
        search.tell(point, Verdict(n >= 500 or luck))
    assert lucky
    assert search.result.status is Status.REDUCED
    assert search.result.setbacks >= 1
    assert 500 <= n_of(search.result.best) <= 550


def test_when_even_the_original_stops_failing_the_failure_is_lost() -> None:
    search = Descent([number("n", 4000, 1)])
    while points := search.ask(1):
        again = points[0].purpose in {Purpose.RATE, Purpose.CONFIRM}
        search.tell(points[0], Verdict(not again))
    assert search.result.status is Status.LOST


def test_a_confirmation_that_cannot_be_told_leaves_the_answer_unconfirmed() -> None:
    search = Descent([number("n", 4000, 1)])
    while points := search.ask(1):
        search.tell(points[0], Verdict(None if points[0].purpose is Purpose.CONFIRM else True))
    assert search.result.status is Status.UNCONFIRMED
    assert search.best == Point.of({"n": 1})


def test_the_answer_so_far_is_replayed_after_many_rejections() -> None:
    search = Descent([subset("lines", ITEMS)])
    needed = set(range(0, 40, 4))

    def rate(point: Point) -> float:
        kept = point["lines"]
        assert isinstance(kept, tuple)
        return float(needed <= set(kept))

    cost = drive(search, rate)
    assert any(point.purpose is Purpose.REPLAY for point, _ in cost.verdicts)


def test_a_given_k_of_n_is_honoured() -> None:
    search = Descent([number("n", 1000, 1, monotone=True)])
    drive(search, lambda p: float(n_of(p) >= 77), judges=SameJudge(KOfN(2, 3)))
    assert search.result.best == Point.of({"n": 77})


@pytest.mark.parametrize("steps_rate", [0.9, 0.5])
def test_a_failure_that_grows_with_the_steps_is_not_shrunk_into_a_rare_one(
    steps_rate: float,
) -> None:
    """What fails half as often passes with an eighth, and some are confirmed twice."""
    hazard = 1 - (1 - steps_rate) ** (1 / 5000)
    ends, trials = [], []
    for seed in range(16):
        search = Descent([number("n", 5000, 50, tolerance=0.1)])

        def rate(point: Point) -> float:
            return float(1 - (1 - hazard) ** n_of(point))

        cost = drive(search, rate, judges=SequentialJudges(), rng=random.Random(seed))
        trials.append(cost.trials)
        ends.append(rate(search.result.best))
    assert sum(end < 0.5 * steps_rate for end in ends) <= 4
    assert mean(ends) > 0.6 * steps_rate
    assert min(ends) > 0.25 * steps_rate
    assert mean(trials) < 500


@pytest.mark.parametrize("rate", list(FLAKY))
def test_flaky_reductions_stay_within_the_figures(rate: float) -> None:
    runs = [flaky_reduction(rate, 0.0, seed) for seed in range(30)]
    assert mean(run.trials for run in runs) <= 1.15 * FLAKY[rate]
    assert (
        mean(run.minimal for run in runs) >= 0.93
    )  # 28 of 30; the benchmark holds 100 runs to 95 %
    assert all(run.kept for run in runs)


def test_a_certain_failure_costs_hardly_more_than_one_trial_a_candidate() -> None:
    runs = [flaky_reduction(1.0, 0.0, seed) for seed in range(20)]
    assert all(run.minimal for run in runs)
    assert mean(run.trials for run in runs) <= CERTAIN


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.9])
def test_the_answer_is_within_the_tolerance_however_certain_the_failure_looked(rate: float) -> None:
    """A failure that shows at .7 often fails five times of five; the benchmark holds more runs to
    97 %.
    """
    runs = [flaky_number(rate, seed) for seed in range(20)]
    assert mean(is_within(ratio) for _, ratio in runs) >= 0.95


def test_the_first_miss_at_the_confirmation_reopens_what_rested_on_certainty() -> None:
    """Up to then bad luck made 30 look like the smallest that fails; it is 20."""
    search, confirmed = Descent([number("n", 100, 1)]), 0
    while not search.done:
        (point,) = search.ask(1)
        fails = n_of(point) >= (20 if confirmed else 30)
        if point.purpose is Purpose.CONFIRM:
            confirmed += 1
            search.tell(point, Verdict(True, Tally(reproduced=3, clean=1)))
        else:
            search.tell(point, Verdict(fails, Tally(reproduced=2 * fails, clean=2 * (not fails))))
    assert (n_of(search.result.best), confirmed) == (20, 2)


def test_an_original_that_can_no_longer_be_tried_is_not_called_gone() -> None:
    search = Descent([number("n", 100, 50, step=50)])
    while not search.done:
        (point,) = search.ask(1)
        if point.purpose in {Purpose.CONFIRM, Purpose.RATE}:
            told = False if point.purpose is Purpose.CONFIRM else None
            search.tell(point, Verdict(told, Tally(clean=3) if told is False else Tally(error=3)))
        else:
            search.tell(point, Verdict(True, Tally(reproduced=3)))
    assert search.result.status is Status.UNCONFIRMED
    assert "could not be tried again" in search.result.why


def test_eight_slots_give_the_quality_of_one() -> None:
    runs = [flaky_reduction(0.5, 0.0, seed, slots=8) for seed in range(20)]
    assert mean(run.minimal for run in runs) >= 0.9
    assert all(run.kept for run in runs)


def shrunk_after(questions: int, search: Descent, fails: Callable[[Point], bool]) -> Point:
    """The best so far once so many questions were answered; trials of `slow` values take long."""
    for _ in range(questions):
        points = search.ask(1)
        if not points:
            break
        holds = fails(points[0])
        every = as_number(dict(points[0].values).get("every", 500))
        seconds = 500 / every
        tally = Tally(reproduced=int(holds), clean=int(not holds))
        search.tell(points[0], Verdict(holds, tally, seconds=seconds))
    assert search.best is not None
    return search.best


def test_many_rows_shrink_before_a_number_that_gains_little_is_made_exact() -> None:
    """A schedule that fails near its end only: exact to the step it takes a dozen questions for
    nothing.
    """
    rows = subset("rows", tuple(map(str, range(5000))))

    def fails(point: Point) -> bool:
        return as_number(point["steps"]) > 1390 and 3100 in as_indexes(point["rows"])

    search = Descent([number("steps", 1500, 1), rows])
    assert len(as_indexes(shrunk_after(25, search, fails)["rows"])) <= 500
    end = shrunk_after(60, search, fails)
    assert (end["steps"], end["rows"]) == (1391, (3100,))
    assert search.result.status is Status.REDUCED


def test_a_folder_of_a_few_files_shrinks_before_a_number_that_gains_little() -> None:
    shards = subset("shards", tuple("abcdefgh"), kind=AxisKind.DIR_SUBSET)
    search = Descent([number("steps", 60, 1), shards])
    end = shrunk_after(8, search, lambda point: as_number(point["steps"]) > 40)
    assert len(as_indexes(end["shards"])) == 1


def test_a_period_whose_smallest_value_makes_a_trial_slower_is_left_alone() -> None:
    search = Descent([number("every", 500, 1), number("layers", 12, 1)])
    end = shrunk_after(40, search, lambda p: as_number(p["layers"]) >= 3)
    assert search.done
    asked = {f.axis.name: f.trials for f in search.result.axes}
    assert asked["every"] <= 2
    assert (end["every"], end["layers"]) == (500, 3)
