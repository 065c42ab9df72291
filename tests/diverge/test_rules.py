"""The pure rules: what rounding explains, which operation is which, which rank is odd."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aorta.diverge.alignment import align
from aorta.diverge.comparing import compare
from aorta.diverge.rounding import difference, judge
from aorta.diverge.single_run import between_ranks, first_nonfinite, values_of_ranks
from aorta.diverge.stream import Digest, Operation, Stream

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def digest(*values: float, dtype: str = "float32") -> Digest:
    norm = math.sqrt(math.fsum(v * v for v in values))
    low, high = min(values), max(values)
    return Digest((len(values),), dtype, "cpu", values, norm, math.fsum(values), low, high)


def operation(
    index: int, *values: float, op: str = "aten::mul", reads: tuple[int, ...] = ()
) -> Operation:
    inputs = tuple(((i, 0),) for i in reads)
    shapes = (((len(values),), "float32", 0),) * len(reads)
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
@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=12, unique=True), st.randoms())
def test_operations_that_read_the_same_are_partners_in_whatever_order_they_come(
    factors: list[float], random: Random
) -> None:
    def run(order: list[float]) -> Stream:
        made = [operation(n + 1, 3 * f, f, reads=(0,)) for n, f in enumerate(order)]
        return Stream(0, (operation(0, 3.0, 1.0), *made))

    shuffled = random.sample(factors, len(factors))
    found = align(run(factors), run(shuffled))
    assert len(found.pairs) == len(factors) + 1
    assert all(pair.judged.difference == 0 for pair in found.pairs)
    assert compare([[run(factors)]], [[run(shuffled)]]).first is None


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12), st.data())
def test_a_stream_with_an_operation_left_out_ends_there_and_names_it(
    ops: list[str], data: st.DataObject
) -> None:
    """Each operation adds its own number to what the one before it gave."""
    lost = data.draw(st.integers(0, len(ops) - 1))

    def run(numbers: list[int]) -> Stream:
        made, total = [operation(0, 1.0, 2.0)], 1.0
        for place, number in enumerate(numbers):
            total += number + 1
            one = operation(place + 1, total, 2.0, op=ops[number], reads=(place,))
            made.append(replace(one, line=number))
        last = len(numbers)
        return Stream(0, (*made, operation(last + 1, 2 * total, 4.0, op="d", reads=(last,))))

    whole = list(range(len(ops)))
    found = compare([[run(whole[:lost] + whole[lost + 1 :])]], [[run(whole)]])
    assert found.is_aligned
    assert found.first is not None
    assert ops[lost] in (found.first.operation.op, found.first.good.op)
    for side in (run(whole), run(whole)):
        assert compare([[side]], [[run(whole)]]).first is None


@pytest.mark.parametrize("length", [64, 512, 4096, 32768])
def test_what_rounding_explains_of_a_sum_grows_with_the_root_of_its_length(length: int) -> None:
    def expected(dtype: str) -> float:
        read = replace(
            digest(*[1.0] * 8, dtype=dtype), shape=(8, length), norm=math.sqrt(8 * length)
        )
        out = digest(*[math.sqrt(length)] * 8, dtype=dtype)
        reads = (((8, length), dtype, 0),)
        one = Operation(1, 0, "f", "", "aten::sum", "", 0, (((0, 0),),), reads, (out,))
        return judge(one, one, [read], 0.0).expected

    of_single = expected("float32") * 2**24
    assert 50 < of_single < 20 * math.sqrt(length) + 200
    # Sums of a low precision are accumulated in float32: the result alone is rounded.
    assert expected("bfloat16") < 10 * 2**-8


def test_another_type_is_a_difference_unless_it_was_asked_for() -> None:
    single = operation(0, 1.0, 2.0)
    double = replace(single, outputs=(digest(1.0, 2.0, dtype="float64"),))
    sides = [[Stream(0, (single,))]], [[Stream(0, (double,))]]
    found = compare(*sides).first
    assert found is not None
    assert found.judged.other_type
    assert compare(*sides, any_type=True).first is None


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
    found = between_ranks(
        values_of_ranks([Stream(0, (same,)), Stream(1, (odd,)), Stream(2, (same,))])
    )
    assert found is not None
    assert found.odd == (1,)
    alike = values_of_ranks([Stream(0, (same,)), Stream(1, (same,))])
    assert len(alike) == 1
    assert between_ranks(alike) is None


def test_what_one_rank_alone_has_is_not_compared() -> None:
    assert not values_of_ranks([Stream(0, (operation(0, 1.0, op="grad::weight"),)), Stream(1, ())])


def test_a_rank_that_only_one_side_has_leaves_the_sides_unaligned() -> None:
    rank = Stream(0, (operation(0, 1.0, 2.0),))
    assert compare([[rank]], [[rank]]).is_aligned
    assert not compare([[rank, rank]], [[rank]]).is_aligned


@pytest.mark.parametrize(("passed_on", "named"), [(1.0, None), (math.nan, "aten::empty")])
def test_memory_that_is_filled_is_no_first_nan(passed_on: float, named: str | None) -> None:
    operations = (
        operation(0, math.nan, math.nan, op="aten::empty"),
        operation(1, passed_on, passed_on, reads=(0,)),
    )
    found = first_nonfinite([Stream(0, operations)])
    assert (found and found.operation.op) == named


def test_zeros_are_alike_and_what_has_no_numbers_is_not() -> None:
    zeros = operation(0, 0.0, 0.0, reads=(7,))
    opaque = replace(zeros, outputs=(replace(zeros.outputs[0], values=()),))  # a sparse one
    assert zeros.is_constant(0)
    assert not opaque.is_constant(0)
    assert not replace(opaque, inputs=()).is_constant(0)
