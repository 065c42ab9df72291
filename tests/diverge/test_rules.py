"""The pure rules: what rounding explains, which operation is which, which rank is odd."""

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.diverge.alignment import align
from aorta.diverge.comparing import compare
from aorta.diverge.ranks import between_ranks
from aorta.diverge.rounding import difference
from aorta.diverge.stream import Digest, Operation, Stream

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def digest(*values: float, dtype: str = "float32") -> Digest:
    norm = math.sqrt(math.fsum(v * v for v in values))
    low, high = min(values), max(values)
    return Digest((len(values),), dtype, "cpu", values, norm, math.fsum(values), low, high)


def operation(
    index: int, *values: float, op: str = "aten::mul", reads: tuple[int, ...] = ()
) -> Operation:
    inputs = tuple((i,) for i in reads)
    shapes = (((len(values),), "float32"),) * len(reads)
    return Operation(index, 0, "f", "", op, "train.py", index, inputs, shapes, (digest(*values),))


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8))
def test_nothing_differs_from_itself(values: list[float]) -> None:
    assert difference(digest(*values), digest(*values)) == 0.0


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8), st.lists(numbers, min_size=1, max_size=8))
def test_a_difference_is_the_same_from_both_sides(a: list[float], b: list[float]) -> None:
    assert difference(digest(*a), digest(*b)) == difference(digest(*b), digest(*a))


@settings(deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=8),
    st.sampled_from([1.0 + 2**-23, 1 - 2**-23]),
)
def test_the_last_bit_is_rounding_and_a_percent_is_not(values: list[float], ulp: float) -> None:
    def sides(factor: float) -> tuple[Stream, Stream]:
        bad = (operation(0, *values), operation(1, *(v * factor for v in values), reads=(0,)))
        good = (operation(0, *values), operation(1, *values, reads=(0,)))
        return Stream(0, bad), Stream(0, good)

    near, far = sides(ulp), sides(1.01)
    assert compare([[near[0]]], [[near[1]]]).first is None
    found = compare([[far[0]]], [[far[1]]]).first
    assert found is not None
    assert found.operation.index == 1


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12), st.data())
def test_an_alignment_keeps_order_and_pairs_only_what_is_alike(
    ops: list[str], data: st.DataObject
) -> None:
    other = [op for op in ops if data.draw(st.booleans())]
    first = Stream(0, tuple(operation(i, 1.0, op=op) for i, op in enumerate(ops)))
    second = Stream(0, tuple(operation(i, 1.0, op=op) for i, op in enumerate(other)))
    found = align(first, second)
    assert all(a.op == b.op for a, b in found.pairs)
    places = [(a.index, b.index) for a, b in found.pairs]
    assert places == sorted(places)
    assert len({b for _, b in places}) == len(places)
    assert len(found.pairs) == len(other)  # a stream with parts left out loses nothing more
    assert len(found.only_first) == len(ops) - len(other)


def test_what_two_runs_of_one_side_do_differently_is_not_held_against_the_other() -> None:
    def run(value: float) -> list[Stream]:
        return [Stream(0, (operation(0, value, 1.0), operation(1, 3.0, 1.0)))]

    assert compare([run(1.0), run(1.4)], [run(1.2), run(0.9)]).first is None
    bad = [[Stream(0, (operation(0, v, 1.0), operation(1, 5.0, 1.0)))] for v in (1.0, 1.4)]
    found = compare(bad, [run(1.2), run(0.9)]).first
    assert found is not None
    assert found.operation.index == 1


def test_the_rank_that_differs_from_most_is_the_odd_one() -> None:
    same = operation(0, 1.0, 2.0, op="grad::layer.weight")
    odd = replace(same, outputs=(digest(1.0, 2.5),))
    found = between_ranks([Stream(0, (same,)), Stream(1, (odd,)), Stream(2, (same,))])
    assert found is not None
    assert found.odd == (1,)
    assert between_ranks([Stream(0, (same,)), Stream(1, (same,))]) is None


def test_a_rank_that_only_one_side_has_leaves_the_sides_unaligned() -> None:
    rank = Stream(0, (operation(0, 1.0, 2.0),))
    assert compare([[rank]], [[rank]]).is_aligned
    assert not compare([[rank, rank]], [[rank]]).is_aligned
