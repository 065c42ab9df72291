"""The blocks that lines form: by indentation, by brackets, by paragraphs; the coarsest first."""

import pytest

from aorta.search.blocks import levels_of


def blocks(text: str) -> list[list[list[int]]]:
    """Lines counted from 0; a leading line break is not one of them."""
    lines = text.removeprefix("\n").splitlines()
    return [[sorted(group) for group in level] for level in levels_of(lines)]


def test_what_is_indented_below_a_line_belongs_to_it() -> None:
    text = """
def one():
    if x:
        y()
        z()
    w()
def two():
    v()
"""
    assert blocks(text) == [
        [[0, 1, 2, 3, 4], [5, 6]],
        [[1, 2, 3], [4], [6]],
    ]


def test_what_closes_or_goes_on_belongs_to_what_it_closes() -> None:
    text = """
if x:
    a()
else:
    b()
call(
    c,
)
"""
    assert blocks(text) == [[[0, 1, 2, 3], [4, 5, 6]]]


def test_what_stands_above_a_line_as_its_own_goes_with_it() -> None:
    text = """
@cached
@traced
def one():
    a()
/// says what it is
fn two() {
    b()
}
"""
    assert blocks(text)[0] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_conditional_that_is_never_closed_is_a_line_like_any_other() -> None:
    assert blocks("#if A\none\ntwo") == []


def test_flat_lines_are_parted_by_blank_ones() -> None:
    assert blocks("a\nb\n\nc\nd\n") == [[[0, 1, 2], [3, 4]], [[0], [1, 2], [3], [4]]]
    assert blocks("a\nb\nc") == []
    assert blocks("a\n\nb\n\nc") == [[[0, 1], [2, 3], [4]]]


@pytest.mark.parametrize(
    ("text", "first"),
    [("x:\n\ta\n        b\ny:", [[0, 1, 2], [3]]), ("x:\n    a\n\n    b\ny:", [[0, 1, 2, 3], [4]])],
)
def test_a_tab_is_eight_wide_and_a_blank_line_is_as_deep_as_the_one_before(
    text: str, first: list[list[int]]
) -> None:
    found = blocks(text)
    assert found[0] == first
    if "\t" in text:
        assert all([1, 2] not in level for level in found)


def test_every_level_parts_the_lines_it_has_without_overlap() -> None:
    text = "a:\n  b:\n    c\n    d\n  e\nf:\n  g\n  h"
    for level in blocks(text):
        lines = [line for group in level for line in group]
        assert len(lines) == len(set(lines))


def test_spaces_and_a_tab_of_the_same_width_stand_at_one_depth() -> None:
    assert blocks("x:\n        a\n\tb\ny:") == [[[0, 1, 2], [3]]]
