"""What two failures of one configuration have in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.signature import Signature

FRAMES = "exit 1 | train.py:step > "


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("shard left lost its peer", "shard right lost its peer", "shard <*> lost its peer"),
        ("lost its peer left", "lost its peer right", "lost its peer <*>"),
        ("shard lost its peer", "shard also lost its peer", "shard<*> lost its peer"),
        ("shard lost its peer today", "shard lost its peer", "shard lost its peer<*>"),
        ("lost its peer", "lost its peer", "lost its peer"),
        ("lost left and right peer", "lost up and down peer", "lost <*> and <*> peer"),
    ],
)
def test_what_varies_is_taken_out_wherever_it_stands(one: str, other: str, common: str) -> None:
    words = (f"{FRAMES}RuntimeError: {text}" for text in (one, other, common))
    mine, theirs, expected = map(Signature, words)
    assert mine.aligned(theirs) == expected


def test_failures_that_share_less_than_half_of_their_words_are_two() -> None:
    mine = Signature(f"{FRAMES}RuntimeError: the loss is not a number")
    theirs = Signature(f"{FRAMES}RuntimeError: a worker was killed by the kernel")
    assert mine.aligned(theirs) is None


@pytest.mark.parametrize(
    "elsewhere",
    ["exit 2 | train.py:step > RuntimeError: lost", "exit 1 | load.py:read > RuntimeError: lost"],
)
def test_failures_that_end_in_another_way_are_two(elsewhere: str) -> None:
    assert Signature(f"{FRAMES}RuntimeError: lost").aligned(Signature(elsewhere)) is None


words = st.lists(st.sampled_from(("rank", "lost", "peer", "at", "step", "left")), min_size=1)


@given(words, words)
def test_what_two_have_in_common_covers_both(one: list[str], other: list[str]) -> None:
    mine = Signature(f"{FRAMES}RuntimeError: {' '.join(one)}")
    theirs = Signature(f"{FRAMES}RuntimeError: {' '.join(other)}")
    common = mine.aligned(theirs)
    if common is not None:
        assert common.covers(mine)
        assert common.covers(theirs)
