"""Back in growing steps over days with holes, then bisection between the last good and the first
bad one.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point
from aorta.core.trial import Verdict
from aorta.search.bisection import BisectionSettings
from aorta.search.gallop import GallopBack, GallopVerdict


def search(
    days: list[int],
    first_bad: int,
    *,
    fails: float = 1.0,
    seed: int = 0,
    workers: int = 1,
    confirmations: int | None = None,
) -> tuple[GallopBack, list[int]]:
    rng = random.Random(seed)
    asked = BisectionSettings(confirmations=confirmations)
    gallop = GallopBack(
        "container", [f"{d:04d}" for d in days], [float(d) for d in days], settings=asked
    )
    tried: list[int] = []
    while not gallop.done and len(tried) < 500:
        for point in gallop.ask(workers):
            day = int(str(point["container"]))
            tried.append(day)
            gallop.tell(point, Verdict(day >= first_bad and rng.random() < fails))
    return gallop, tried


def found(gallop: GallopBack) -> tuple[int, int]:
    assert gallop.bisection is not None
    answer = gallop.bisection.answer
    assert answer is not None
    names = gallop.bisection.timeline.histories[0].versions
    return int(names[answer.good[0]]), int(names[answer.bad[0]])


@pytest.mark.parametrize("age", [1, 2, 17, 64, 128, 359])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_two_neighbouring_days_are_found_whatever_the_age(age: int, workers: int) -> None:
    rng = random.Random(age)
    days = sorted({399, *(d for d in range(400) if rng.random() > 0.1)})
    gallop, tried = search(days, 400 - age, workers=workers)
    good, bad = found(gallop)
    assert good < 400 - age <= bad
    assert days.index(bad) == days.index(good) + 1
    if workers == 1:
        assert len(set(tried)) <= 20


def test_a_series_that_never_passes_is_walked_to_its_oldest_day_and_no_further() -> None:
    gallop, tried = search(list(range(0, 700, 3)), -1)
    assert gallop.verdict is GallopVerdict.NEVER_GOOD
    assert min(tried) == 0
    assert len(tried) <= 16


def test_a_newest_day_that_does_not_fail_is_no_question() -> None:
    gallop, _ = search(list(range(30)), 99)
    assert gallop.verdict is GallopVerdict.DOES_NOT_FAIL


@pytest.mark.parametrize("further", [0, 1, 3])
def test_where_it_is_said_how_often_to_confirm_the_newest_day_is_run_so_often(further: int) -> None:
    gallop, tried = search(list(range(30)), 20, confirmations=further)
    assert found(gallop) == (19, 20)
    assert tried.index(28) == tried.count(29) == 1 + further


@pytest.mark.parametrize("fails", [0.7, 0.5])
def test_a_flaky_failure_is_placed_right_as_often_as_the_answer_says(fails: float) -> None:
    right, stated = 0, 0.0
    for seed in range(14):
        first_bad = 200 - 2 ** (seed % 7)
        gallop, _ = search(list(range(200)), first_bad, fails=fails, seed=seed)
        good, bad = found(gallop)
        right += good < first_bad <= bad
        assert gallop.bisection is not None
        assert gallop.bisection.answer is not None
        stated += gallop.bisection.answer.mass
    assert stated / 14 >= 0.95
    assert right >= 13


def test_a_flaky_series_that_never_passes_is_not_given_a_first_bad_day() -> None:
    verdicts = [search(list(range(60)), -1, fails=0.5, seed=seed)[0].verdict for seed in range(10)]
    assert verdicts.count(GallopVerdict.NEVER_GOOD) >= 9


@settings(max_examples=12, deadline=None)
@given(
    st.integers(2, 80),
    st.integers(1, 6),
    st.sampled_from([1.0, 0.6]),
    st.randoms(use_true_random=False),
)
def test_whatever_is_asked_is_a_day_there_is_and_wanted_and_asked_once(
    count: int, workers: int, fails: float, rng: random.Random
) -> None:
    days = sorted(rng.sample(range(200), count))
    first_bad = rng.choice([*days, -1])
    untestable = {day for day in days[:-1] if rng.random() < 0.15}
    gallop = GallopBack("container", [str(d) for d in days], [float(d) for d in days])
    pending: list[Point] = []
    asked: set[Point] = set()
    for _ in range(1500):
        if gallop.done:
            break
        pending = [point for point in pending if gallop.wants(point)]
        while len(pending) < workers and (more := gallop.ask(1, pending)):
            assert gallop.wants(more[0])
            assert more[0] not in pending
            pending.append(more[0])
        point = pending.pop(rng.randrange(len(pending)))
        assert point not in asked
        asked.add(point)
        day = int(str(point["container"]))
        assert day in days
        fired = day >= first_bad and rng.random() < fails
        gallop.tell(point, Verdict(None if day in untestable else fired))
    assert gallop.done
    assert gallop.verdict is not GallopVerdict.OPEN


def test_days_that_are_known_are_not_tried() -> None:
    days = [float(d) for d in range(20)]
    gallop = GallopBack(
        "container",
        [str(d) for d in range(20)],
        days,
        first=4.0,
        known_bad=True,
        known_good=True,
    )
    assert gallop.verdict is GallopVerdict.BRACKETED
    [point] = gallop.ask(1)
    assert 4 < int(str(point["container"])) < 19


def prior_of(search: GallopBack, changes: int) -> list[float]:
    prior = search.settings.prior or ()
    return [weight for bit in range(changes) for mask, weight in prior if mask >> bit & 1]


def test_each_doubling_of_the_age_is_as_likely_as_the_next_and_so_is_older_than_all() -> None:
    """Of seventeen days: older than all, 8 to 15 days back, 4 to 7, 2 and 3, yesterday, today."""
    search = GallopBack("day", [str(day) for day in range(17)], [float(day) for day in range(17)])
    weights = prior_of(search, 17)
    assert weights == [1.0] + [1 / 8] * 8 + [1 / 4] * 4 + [1 / 2] * 2 + [1.0, 1.0]


def test_a_first_step_of_a_week_makes_a_week_the_unit() -> None:
    days = [str(day) for day in range(29)]
    search = GallopBack("day", days, [float(day) for day in range(29)], first=21.0)
    weights = prior_of(search, 29)
    assert weights == [1.0] + [1 / 14] * 14 + [1 / 7] * 14
