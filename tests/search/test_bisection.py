"""What the bisection promises: few builds, the right answer or an honest one, however the trials
lie.
"""

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from benchmarks import merges
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import Point
from aorta.core.trial import Verdict
from aorta.search.bisection import Bisection, BisectionSettings
from aorta.search.ends import EndsVerdict
from aorta.search.timeline import GraphTimeline, History, Timeline, Vector
from support.timelines import flaky_judge, one_package, random_histories, simulate


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.sampled_from(["uniform", "same", "window"]),
    st.randoms(use_true_random=False),
)
def test_a_steady_failure_needs_only_halving_and_the_two_ends(
    sizes: list[int], spread: str, rng: random.Random
) -> None:
    timeline = Timeline(random_histories(sizes, rng, spread=spread))
    package = rng.randrange(len(sizes))
    culprit = rng.randrange(1, sizes[package] + 1)
    done = simulate(timeline, lambda vector: vector[package] >= culprit)
    assert done.changes == {(package, culprit)}
    assert len(done.search.trials) <= math.ceil(math.log2(sum(sizes))) + 2


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(1, 8),
    st.sampled_from([1.0, 0.8]),
    st.randoms(use_true_random=False),
)
def test_whatever_is_asked_is_wanted_and_asked_once(
    states: int, workers: int, fails: float, rng: random.Random
) -> None:
    """The engine drops what is not wanted and asks again: an unwanted question would go round for
    ever.
    """
    judge = flaky_judge(rng.randrange(1, states), fails, 0.0, rng)
    broken = {i for i in range(1, states - 1) if rng.random() < 0.2}
    search = Bisection(one_package(states), BisectionSettings(sanity_probes=2))
    pending: list[Point] = []
    asked = set()
    for _ in range(600):
        if search.done:
            break
        pending = [point for point in pending if search.wants(point)]
        while len(pending) < workers and (found := search.ask(1, pending)):
            assert search.wants(found[0])
            assert found[0] not in pending
            pending.append(found[0])
        point = pending.pop(rng.randrange(len(pending)))
        assert point not in asked
        asked.add(point)
        vector = search.timeline.vector(point)
        search.tell(point, Verdict(None if vector[0] in broken else judge(vector)))
    assert search.done


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 60), st.randoms(use_true_random=False))
def test_told_the_same_it_asks_the_same(states: int, rng: random.Random) -> None:
    judge = flaky_judge(rng.randrange(1, states), 0.7, 0.02, rng)
    first, twin = (Bisection(one_package(states)) for _ in range(2))
    for _ in range(40):
        if first.done:
            break
        [one], [two] = first.ask(1), twin.ask(1)
        assert one == two
        verdict = Verdict(judge(first.timeline.vector(one)))
        first.tell(one, verdict)
        twin.tell(two, verdict)
    assert (first.done, first.best) == (twin.done, twin.best)


@pytest.mark.parametrize(
    ("fails", "flakes", "most"), [(0.5, 0.0, 60), (0.9, 0.02, 28), (0.3, 0.0, 110)]
)
def test_a_flaky_failure_is_found_at_the_stated_confidence(
    fails: float, flakes: float, most: float
) -> None:
    runs, right, trials = 12, 0, 0
    for seed in range(runs):
        rng = random.Random(seed)
        culprit = rng.randrange(1, 1024)
        done = simulate(one_package(1024), flaky_judge(culprit, fails, flakes, rng))
        right += done.changes == {(0, culprit)}
        trials += done.trials
    assert right >= 10
    assert trials / runs <= most


def test_of_noisy_tests_hardly_more_answers_are_wrong_than_stated() -> None:
    """They fail at the second rate without the change, too; the answer is checked as it is by
    default.
    """
    answers = wrong = 0
    for seed, (fails, flakes) in product(range(20), ((0.7, 0.1), (0.9, 0.1), (0.9, 0.2))):
        rng = random.Random(seed)
        culprit = rng.randrange(1, 64)
        done = simulate(
            one_package(64),
            flaky_judge(culprit, fails, flakes, rng),
            settings=BisectionSettings(sanity_probes=2),
        )
        if done.search.answer is not None:
            answers += 1
            wrong += (0, culprit) not in done.changes
    assert answers >= 57
    assert wrong <= 0.06 * answers


def test_where_states_are_built_a_steady_answer_is_not_looked_at_elsewhere() -> None:
    everywhere = BisectionSettings(sanity_probes=2)
    flaky_only = replace(everywhere, probe_steady=False)

    def trials(fails: float, settings: BisectionSettings) -> int:
        judge = flaky_judge(40, fails, 0.0, random.Random(7))
        return simulate(one_package(64), judge, settings=settings).trials

    plain = BisectionSettings()
    assert trials(1.0, flaky_only) == trials(1.0, plain) < trials(1.0, everywhere)
    assert trials(0.5, flaky_only) == trials(0.5, everywhere) > trials(0.5, plain)


def test_eight_workers_need_few_rounds() -> None:
    rng = random.Random(0)
    culprit = rng.randrange(1, 1024)
    done = simulate(one_package(1024), flaky_judge(culprit, 0.5, 0.0, rng), workers=8)
    assert done.rounds <= 14


@settings(max_examples=40, deadline=None)
@given(st.integers(5, 60), st.sampled_from([0.1, 0.3, 0.5]), st.randoms(use_true_random=False))
def test_states_that_cannot_be_tested_are_gone_around_and_what_they_hide_is_told(
    states: int, share: float, rng: random.Random
) -> None:
    broken = {i for i in range(1, states - 1) if rng.random() < share}
    culprit = rng.randrange(1, states)
    done = simulate(one_package(states), lambda v: None if v[0] in broken else v[0] >= culprit)
    low, high = culprit - 1, culprit
    while low in broken:
        low -= 1
    while high in broken:
        high += 1
    assert done.changes >= {(0, i) for i in range(low + 1, high + 1)}
    assert (0, culprit) in done.changes


def test_a_long_stretch_that_does_not_build_is_not_walked_through_step_by_step() -> None:
    broken = range(300, 420)
    done = simulate(one_package(1000), lambda v: None if v[0] in broken else v[0] >= 350)
    assert {(0, i) for i in range(300, 421)} == done.changes
    assert len(done.search.untestable | done.search.trials.keys()) < 60


def test_two_changes_that_must_move_together_are_the_answer() -> None:
    rng = random.Random(3)
    for _ in range(20):
        timeline = Timeline(random_histories([30, 30, 20], rng))
        first, second = rng.randrange(1, 31), rng.randrange(1, 31)

        def judge(v: Vector, a: int = first, b: int = second) -> bool | None:
            return None if (v[0] >= a) != (v[1] >= b) else v[0] >= a

        done = simulate(timeline, judge)
        assert done.changes == {(0, first), (1, second)}


def test_one_broken_commit_of_each_package_does_not_widen_the_answer_of_another() -> None:
    rng = random.Random(5)
    widths = []
    for _ in range(20):
        timeline = Timeline(random_histories([40, 40, 40], rng))
        broken = [{i for i in range(1, 40) if rng.random() < 0.2} for _ in range(3)]
        culprit = next(
            i for i in iter(lambda: rng.randrange(1, 41), 0) if {i, i - 1}.isdisjoint(broken[1])
        )

        def judge(v: Vector, bad: int = culprit, out: list[set[int]] = broken) -> bool | None:
            if any(rank in out[package] for package, rank in enumerate(v)):
                return None
            return v[1] >= bad

        done = simulate(timeline, judge)
        assert (1, culprit) in done.changes
        widths.append(len(done.changes))
    assert sum(widths) / len(widths) <= 1.1


def test_broken_repaired_and_broken_again_is_noticed() -> None:
    done = simulate(
        one_package(64),
        lambda v: 10 <= v[0] < 40 or v[0] >= 55,
        settings=BisectionSettings(sanity_probes=2),
    )
    assert done.changes == {(0, 55)}
    assert len(done.search.fixed_before) == 1


def test_a_bad_end_that_never_fails_and_a_good_end_that_always_does() -> None:
    silent = simulate(one_package(50), lambda _: False)
    assert silent.search.ends is EndsVerdict.BAD_DOES_NOT_FAIL
    loud = simulate(one_package(50), lambda _: True)
    assert loud.search.ends is EndsVerdict.GOOD_FAILS_TOO
    assert loud.trials <= 8
    assert loud.search.answer is None


def test_more_confidence_is_never_less_right() -> None:
    right = {0.8: 0, 0.99: 0}
    for level in right:
        for seed in range(10):
            rng = random.Random(seed)
            culprit = rng.randrange(1, 128)
            done = simulate(
                one_package(128),
                flaky_judge(culprit, 0.6, 0.05, rng),
                settings=BisectionSettings(confidence=level),
            )
            right[level] += done.changes == {(0, culprit)}
    assert right[0.99] == 10
    assert right[0.99] >= right[0.8] - 1


def test_where_nothing_more_can_be_learned_the_answer_is_an_interval_at_its_level() -> None:
    search = Bisection(one_package(100))
    for _ in range(9):
        [point] = search.ask(1)
        search.tell(point, Verdict(search.timeline.vector(point)[0] >= 60))
    answer = search.answer
    assert answer is not None
    assert 59 in [change.rank for change in answer.changes]
    assert answer.good < (60,) <= answer.bad
    assert answer.mass >= 0.95


def test_a_state_that_stops_telling_anything_is_not_asked_for_ever() -> None:
    """It passed or failed once, and then could never be tested again: the answer stands on what
    there is.
    """
    asked: Counter[int] = Counter()

    def judge(vector: Vector) -> bool | None:
        asked[vector[0]] += 1
        return vector[0] >= 20 if asked[vector[0]] == 1 or vector[0] == 32 else None

    done = simulate(one_package(33), judge, most=500)
    assert done.search.done
    assert done.trials < 60
    assert (0, 20) in done.changes


def test_a_state_that_takes_long_is_waited_for_however_often_the_others_are_run() -> None:
    search = Bisection(one_package(3))
    slow = search.timeline.every_state()[1]
    pending: list[Point] = []
    for _ in range(40):
        pending += search.ask(2 - len(pending), pending)
        quick = [point for point in pending if search.timeline.vector(point) != slow]
        if not quick:
            break
        pending.remove(quick[0])
        fails = search.timeline.vector(quick[0]) == search.timeline.bad_end
        search.tell(quick[0], Verdict(fails))
    (point,) = pending
    assert search.timeline.vector(point) == slow
    assert search.wants(point)
    search.tell(point, Verdict(True))
    assert search.possible == 1


def any_timeline(kind: str, rng: random.Random) -> Timeline:
    if kind == "merges":
        shape = rng.choice(merges.SHAPES)
        return GraphTimeline(merges.graph_of(shape, rng.randrange(3, 40), rng).history)
    packages = 1 if kind == "line" else rng.randrange(2, 5)
    sizes = [rng.randrange(1, 40 if packages == 1 else 12) for _ in range(packages)]
    spread = rng.choice(["uniform", "same", "window"])
    return Timeline(random_histories(sizes, rng, spread=spread))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["line", "packages", "merges"]),
    st.fixed_dictionaries(
        {
            "confidence": st.sampled_from([0.6, 0.95, 0.99999]),
            "trust_bad": st.booleans(),
            "trust_ends": st.booleans(),
            "confirm": st.booleans(),
            "sanity_probes": st.sampled_from([0, 2]),
        }
    ),
    st.sampled_from([(1.0, 0.0), (0.0, 0.0), (1.0, 1.0), (0.3, 0.0), (0.9, 0.2), (0.5, 0.5)]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_every_search_ends_within_its_bound_and_foretells_no_more(
    kind: str,
    asked: dict[str, Any],
    rates: tuple[float, float],
    untestable: float,
    workers: int,
    rng: random.Random,
) -> None:
    """Whatever the shape, the ends, the rates and what can be tested; and steady ones are right."""
    timeline = any_timeline(kind, rng)
    search = Bisection(timeline, BisectionSettings(**asked))
    culprit = rng.randrange(timeline.changes)
    broken = {v for v in timeline.every_state() if rng.random() < untestable}
    trials = 0
    while not search.done:
        assert search.expected_questions() <= search.most_trials
        points = search.ask(workers)
        assert points
        assert all(search.wants(point) for point in points[:1])
        for point in points:
            trials += 1
            vector = timeline.vector(point)
            fails = rng.random() < rates[not timeline.mask(vector) >> culprit & 1]
            search.tell(point, Verdict(None if vector in broken else fails))
    assert trials <= search.most_trials + workers
    if rates == (1.0, 0.0) and not untestable:
        assert search.answer is not None
        assert search.answer.changes == (timeline.path[culprit],)
        (_, passed), (failed, _) = search.good_and_bad()
        assert passed >= 1
        assert failed >= 1


@pytest.mark.parametrize("seed", [6, 10, 25])
def test_a_search_that_every_state_contradicts_in_turn_ends_at_its_bound(seed: int) -> None:
    """Nothing is ever learned of a state that passes and fails in turn."""
    timeline = any_timeline("merges", random.Random(seed))
    search = Bisection(timeline, BisectionSettings(sanity_probes=2))
    tried: Counter[Vector] = Counter()
    while points := search.ask(1):
        vector = timeline.vector(points[0])
        fails = (tried[vector] + (vector == timeline.bad_end)) % 2 == 1
        tried[vector] += 1
        search.tell(points[0], Verdict(fails))
        assert tried.total() <= search.most_trials


def test_a_state_that_stands_twice_is_not_tried_for_ever() -> None:
    """As where git lists a commit that both ends have: no trial tells the two apart."""
    twice = Timeline([History("package", ("a", "b", "c", "d", "c"))])
    search = Bisection(twice, BisectionSettings(confidence=0.9999))
    trials = 0
    while points := search.ask(1):
        trials += 1
        search.tell(points[0], Verdict(str(points[0]["package"]) in "cd"))
    assert trials <= 40


def test_ends_that_turn_out_to_fail_alike_end_the_search() -> None:
    rng = random.Random(1)
    done = simulate(
        one_package(10), lambda _: rng.random() < 0.5, settings=BisectionSettings(confidence=0.999)
    )
    assert done.search.ends is EndsVerdict.GOOD_FAILS_TOO
    assert done.trials < 120


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 200), st.integers(1, 12), st.integers(1, 4), st.randoms())
def test_a_bad_end_that_cannot_be_tested_hides_nothing_that_can(
    states: int, untestable: int, workers: int, rng: random.Random
) -> None:
    first = max(2, states - untestable)
    culprit = rng.randrange(1, first)
    done = simulate(
        one_package(states), lambda v: None if v[0] >= first else v[0] >= culprit, workers=workers
    )
    assert done.changes == {(0, culprit)}
