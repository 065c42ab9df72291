"""Bisection of histories with merges, simulated: any shape, any order of answers, any number of
workers.
"""

import random
from itertools import product

from benchmarks import merges
from benchmarks.git_bisect import SHAPES, history
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aorta.bisect.histories import CommitSpan, Graph
from aorta.core.trial import Verdict
from aorta.runtimes.git import Commit
from aorta.search.bisection import Bisection, BisectionSettings
from aorta.search.timeline import GraphTimeline

lenient = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def graph_of(shape: str, rng: random.Random) -> Graph:
    """From the first commit to the last, which contains all."""
    parents = list(history(shape, rng))
    commits = [
        Commit(f"c{n}", tuple(f"c{p}" for p in known), n, "Ann", "", f"commit {n}")
        for n, known in enumerate(parents)
    ]
    return CommitSpan("c0", commits[-1].sha, commits[0], (), tuple(commits[1:])).graph("package")


def run(
    search: Bisection,
    rng: random.Random,
    culprit: int,
    *,
    fails: float = 1.0,
    broken: frozenset[int] = frozenset(),
    workers: int = 1,
) -> int:
    trials = 0
    while not search.done:
        asked = search.ask(workers)
        assert asked
        assert all(search.wants(point) for point in asked)
        for point in asked:
            trials += 1
            [state] = search.timeline.vector(point)
            has = search.timeline.mask((state,)) >> culprit & 1
            reproduces = None if state in broken else bool(has and rng.random() < fails)
            search.tell(point, Verdict(reproduces))
    return trials


def run_noisy(
    search: Bisection,
    rng: random.Random,
    culprit: int,
    rates: tuple[float, float],
    broken: frozenset[int] = frozenset(),
    workers: int = 1,
) -> int:
    """Fails with the first rate where a state contains the culprit, with the second elsewhere."""
    trials = 0
    while asked := search.ask(workers):
        for point in asked:
            trials += 1
            [state] = search.timeline.vector(point)
            rate = rates[0] if search.timeline.mask((state,)) >> culprit & 1 else rates[1]
            search.tell(point, Verdict(None if state in broken else rng.random() < rate))
        if trials % 7 == 0:
            assert search.expected_questions() <= search.most_trials
    assert search.done
    return trials


@lenient
@given(st.sampled_from(SHAPES), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_steady_failure_is_named_for_any_shape_and_number_of_workers(
    shape: str, workers: int, rng: random.Random
) -> None:
    graph = graph_of(shape, rng)
    culprit = rng.randrange(graph.history.changes)
    search = Bisection(GraphTimeline(graph.history))
    run(search, rng, culprit, workers=workers)
    assert search.answer is not None
    assert [change.rank for change in search.answer.changes] == [culprit]
    assert search.is_sure


@lenient
@given(st.sampled_from(SHAPES), st.sampled_from([0.1, 0.4]), st.randoms(use_true_random=False))
def test_what_states_that_cannot_be_tested_hide_is_among_the_candidates(
    shape: str, share: float, rng: random.Random
) -> None:
    graph = graph_of(shape, rng)
    states = len(graph.history.states)
    broken = frozenset(s for s in range(1, states - 1) if rng.random() < share)
    culprit = rng.randrange(graph.history.changes)
    search = Bisection(GraphTimeline(graph.history))
    run(search, rng, culprit, broken=broken)
    assert search.answer is not None
    assert culprit in [change.rank for change in search.answer.changes]


def test_a_flaky_failure_is_named_at_the_stated_confidence() -> None:
    right = 0
    for seed in range(30):
        rng = random.Random(seed)
        graph = graph_of(rng.choice(SHAPES), rng)
        culprit = rng.randrange(graph.history.changes)
        search = Bisection(GraphTimeline(graph.history))
        run(search, rng, culprit, fails=0.6)
        answer = search.answer
        right += answer is not None and culprit in [change.rank for change in answer.changes]
    assert right >= 26


def test_a_few_failures_of_one_state_are_not_taken_for_the_change_while_the_test_may_be_noisy() -> (
    None
):
    """Most wrong answers looked like this: a good state that failed by itself, and nothing tried
    between it and the culprit.
    """
    graph = merges.graph_of(merges.straight, 30, random.Random(0)).history
    search = Bisection(GraphTimeline(graph), BisectionSettings(sanity_probes=2))
    search.assume({(0,): (0, 1), (4,): (0, 9), (5,): (3, 0), (20,): (5, 2), (30,): (5, 0)})
    assert not search.is_sure
    assert search.ask(1)


def test_a_noisy_test_that_is_seen_through_is_hardly_ever_wrong() -> None:
    """One that looks steady by luck uses up most of the doubt that is allowed; together they are
    wrong as often as stated.
    """
    answers = seen_through = wrong = wrong_though_seen = 0
    for seed, rates in product(range(25), ((0.9, 0.2), (0.7, 0.1))):
        rng = random.Random(f"{seed} {rates}")
        graph = graph_of(rng.choice(SHAPES), rng)
        culprit = rng.randrange(graph.history.changes)
        search = Bisection(GraphTimeline(graph.history), BisectionSettings(sanity_probes=2))
        run_noisy(search, rng, culprit, rates)
        if search.answer is None:
            continue
        (flaked, _), (_, silent) = search.good_and_bad()
        missed = culprit not in [change.rank for change in search.answer.changes]
        answers, wrong = answers + 1, wrong + missed
        if flaked or silent:
            seen_through, wrong_though_seen = seen_through + 1, wrong_though_seen + missed
    assert answers >= 44
    assert seen_through >= 32
    assert wrong <= 0.05 * answers
    assert wrong_though_seen <= 0.01 * seen_through


@lenient
@given(
    st.sampled_from(SHAPES),
    st.sampled_from([0.6, 0.95, 0.9999]),
    st.sampled_from([(1.0, 0.0), (0.3, 0.0), (0.9, 0.2), (0.5, 0.4)]),
    st.sampled_from([0, 2]),
    st.sampled_from([0.0, 0.2]),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_no_search_runs_more_trials_than_it_may_and_never_says_it_will(
    shape: str,
    confidence: float,
    rates: tuple[float, float],
    sentinels: int,
    untestable: float,
    workers: int,
    rng: random.Random,
) -> None:
    graph = graph_of(shape, rng)
    culprit, states = rng.randrange(graph.history.changes), len(graph.history.states)
    broken = frozenset(s for s in range(1, states - 1) if rng.random() < untestable)
    search = Bisection(
        GraphTimeline(graph.history),
        BisectionSettings(confidence=confidence, sanity_probes=sentinels),
    )
    trials = run_noisy(search, rng, culprit, rates, broken, workers)
    assert trials <= search.most_trials + workers - 1


@lenient
@given(st.sampled_from(SHAPES), st.randoms(use_true_random=False))
def test_other_states_are_tried_only_once_trials_contradicted_each_other(
    shape: str, rng: random.Random
) -> None:
    """A steady failure costs what it costs without them; a flaky one is looked for on both sides of
    the answer.
    """
    graph = graph_of(shape, rng)
    culprit = rng.randrange(graph.history.changes)
    plain, checked, flaky = (
        Bisection(GraphTimeline(graph.history), BisectionSettings(sanity_probes=sentinels))
        for sentinels in (0, 2, 2)
    )
    assert run(plain, rng, culprit) == run(checked, rng, culprit)
    run(flaky, rng, culprit, fails=0.5)
    (good, bad), contradicted = flaky.good_and_bad(), any(h and m for h, m in flaky.trials.values())
    if contradicted and flaky.answer is not None:
        assert sum(good) + sum(bad) >= 6


def test_without_confirmation_it_takes_the_two_ends_and_halving() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        graph = graph_of("branches", rng)
        culprit = rng.randrange(graph.history.changes)
        search = Bisection(GraphTimeline(graph.history), BisectionSettings(confirm=False))
        trials = run(search, rng, culprit)
        assert search.answer is not None
        assert [change.rank for change in search.answer.changes] == [culprit]
        assert trials <= 3 + 2 * graph.history.changes.bit_length()
