"""What two failures of one configuration have in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aorta.core.signature import Signature, error_line_of

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


def test_half_of_the_words_is_enough_and_commas_and_spaces_are_no_words() -> None:
    def common(one: str, other: str) -> Signature | None:
        return Signature(f"{FRAMES}E: {one}").aligned(Signature(f"{FRAMES}E: {other}"))

    assert common("lost peer", "lost node") is not None
    assert common("lost peer, again", "lost node, once") is None
    assert common("_lost <id> up on", "_lost <id> off in") is not None
    assert common("_lost up on", "_lost off in") is None


_TOLD_TWICE = """\
Traceback (most recent call last):
  File "load.py", line 3, in read
OSError: no such file
and then
Traceback (most recent call last):
  File "train.py", line 8, in step
RuntimeError: the loss is NaN
failed after 8 steps"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_TOLD_TWICE, "RuntimeError: the loss is NaN"),
        ("step 1\nfatal: no device\nfailed: see above\nbye", "failed: see above"),
        ("failed early\nTraceback (most recent call last):\n  cut", "failed early"),
        ("all is well", ""),
    ],
)
def test_the_line_that_names_a_failure_is_its_exception_or_the_last_error(
    text: str, line: str
) -> None:
    assert error_line_of(text) == line


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
