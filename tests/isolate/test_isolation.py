"""The search behind `aorta isolate`: the right part is named, and innocent ones are not."""

import random

import pytest
from benchmarks.isolate import Story, draw
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.core.axis import as_indexes
from aorta.core.trial import Verdict
from aorta.search.isolation import NODES, Hypothesis, Isolation


def driven(search: Isolation, fails: "object", most: int = 400) -> Isolation:
    for _ in range(most):
        if search.done:
            return search
        (point,) = search.ask(1)
        search.tell(point, Verdict(fails(frozenset(as_indexes(point[NODES])))))  # type: ignore[operator]
    raise AssertionError("the search did not end")


@settings(max_examples=25, deadline=None)
@given(nodes=st.integers(2, 24), data=st.data())
def test_a_node_that_always_fails_is_named_and_nothing_else(
    nodes: int, data: st.DataObject
) -> None:
    guilty = data.draw(st.integers(0, nodes - 1))
    smallest = data.draw(st.integers(1, max(1, nodes // 2)))
    search = driven(Isolation(nodes, smallest=smallest), lambda chosen: guilty in chosen)
    assert search.answer == Hypothesis("node", (guilty,))
    assert search.runs <= 16


@settings(max_examples=15, deadline=None)
@given(nodes=st.integers(2, 24), data=st.data())
def test_what_fails_everywhere_is_the_software(nodes: int, data: st.DataObject) -> None:
    smallest = data.draw(st.integers(1, nodes - 1))
    search = driven(Isolation(nodes, smallest=smallest), lambda _chosen: True)
    assert search.answer == Hypothesis("software")


@pytest.mark.parametrize("pair", [(0, 1), (3, 9)])
def test_a_link_is_named_as_a_pair(pair: tuple[int, int]) -> None:
    search = driven(Isolation(12), lambda chosen: chosen.issuperset(pair))
    assert search.answer == Hypothesis("link", pair)


def test_two_guilty_nodes_are_more_than_one() -> None:
    search = driven(Isolation(12), lambda chosen: not chosen.isdisjoint({2, 7}))
    assert search.answer == Hypothesis("several", (2, 7))


def test_every_placement_has_as_many_nodes_as_the_job_needs() -> None:
    search, sizes = Isolation(16, smallest=4), []
    while not search.done:
        (point,) = search.ask(1)
        sizes.append(len(as_indexes(point[NODES])))
        search.tell(point, Verdict(5 in as_indexes(point[NODES])))
    assert min(sizes) >= 4
    assert search.answer == Hypothesis("node", (5,))


def test_placements_asked_for_at_once_share_no_node() -> None:
    search = Isolation(16)
    asked = search.ask(4)
    chosen = [node for point in asked for node in as_indexes(point[NODES])]
    assert len(asked) > 1
    assert len(chosen) == len(set(chosen))


@pytest.mark.parametrize("fault", ["node", "rank"])
def test_a_job_that_only_runs_whole_is_told_by_the_rank_that_fails_first(fault: str) -> None:
    """Hardware stays with the node, the software with the rank, however they are permuted."""
    search, rng = Isolation(8, smallest=8), random.Random(1)
    while not search.done:
        (point,) = search.ask(1)
        members = as_indexes(point[NODES])
        first = members.index(5) if fault == "node" else 3
        search.note_first(point, first if rng.random() < 0.9 else rng.randrange(8))
        search.tell(point, Verdict(True))
    assert search.answer == Hypothesis(fault, (5,) if fault == "node" else (3,))


def test_a_job_that_only_runs_whole_and_shows_no_rank_is_not_known_after_a_few_runs() -> None:
    search = driven(Isolation(8, smallest=8), lambda _chosen: True)
    assert search.answer is None
    assert search.runs <= 6


@pytest.mark.parametrize("smallest", [1, 8])
def test_a_job_that_does_not_fail_is_given_up_before_the_limit(smallest: int) -> None:
    search = driven(Isolation(8, smallest=smallest), lambda _chosen: False)
    assert search.answer is None
    assert search.runs < search.most_runs


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_a_node_that_is_lost_again_and_again_is_placed_no_more(nodes: int) -> None:
    for lost in range(0, nodes, 2):
        search = Isolation(nodes)
        for _ in range(20):
            if search.done:
                break
            (point,) = search.ask(1)
            members = as_indexes(point[NODES])
            search.tell(point, Verdict(None if lost in members else 3 in members))
        assert search.answer == Hypothesis("node", (3,))


def test_a_suspect_of_earlier_logs_is_looked_at_first() -> None:
    weights = [1.0] * 32
    weights[20] = 20.0
    plain = driven(Isolation(32), lambda chosen: 20 in chosen)
    hinted = driven(Isolation(32, suspicion=weights), lambda chosen: 20 in chosen)
    assert hinted.answer == plain.answer
    assert hinted.runs < plain.runs


def test_told_the_same_it_asks_the_same() -> None:
    asked = []
    for _ in range(2):
        search, rng, seen = Isolation(16), random.Random(3), []
        while not search.done:
            (point,) = search.ask(1)
            seen.append(point)
            search.tell(point, Verdict(3 in as_indexes(point[NODES]) and rng.random() < 0.5))
        asked.append(seen)
    assert asked[0] == asked[1]


def test_a_flaky_node_is_named_and_flaky_software_accuses_hardly_anybody() -> None:
    flaky = [draw(Story(16, "node", 0.5), seed) for seed in range(12)]
    assert sum(called == "right" for _, called in flaky) >= 11
    software = [draw(Story(16, "software", 0.5), seed) for seed in range(40)]
    assert sum(called == "accused" for _, called in software) <= 3
