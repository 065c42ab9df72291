"""What one side has in one piece and the other in several, or laid out otherwise."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from aorta.diverge.rounding import led_elsewhere
from aorta.diverge.stream import Operation

_MOST = 300  # operations of one kind among which runs are looked for
_One = TypeVar("_One")
_Sides = tuple[Sequence[Operation], Sequence[Operation]]


def by_kind(
    mine: Iterable[_One], theirs: Iterable[_One], kind: Callable[[_One], object]
) -> Iterator[tuple[list[_One], list[_One]]]:
    """Those of each kind that both sides have, in their order."""
    found: tuple[dict[object, list[_One]], ...] = ({}, {})
    for kinds, side in zip(found, (mine, theirs), strict=True):
        for one in side:
            kinds.setdefault(kind(one), []).append(one)
    return ((of_kind, found[1][key]) for key, of_kind in found[0].items() if key in found[1])


def in_other_parts(mine: Iterable[Operation], theirs: Iterable[Operation]) -> set[int]:
    """Operations of one place, by `id`, whose results agree when they are put together: a batch or
    a matrix that one side has in parts.
    """
    kinds = by_kind(_giving(mine), _giving(theirs), lambda o: o.place)
    return _ids(sides for sides in kinds if len(sides[0]) != len(sides[1]))


def in_runs(mine: Iterable[Operation], theirs: Iterable[Operation]) -> set[int]:
    """The same of one operation and of those behind each other, wherever they stand in a step."""
    for_kinds = by_kind(_giving(mine), _giving(theirs), lambda o: (o.phase, o.op))
    return _ids(chain.from_iterable(_runs(one[:_MOST], other[:_MOST]) for one, other in for_kinds))


def _giving(operations: Iterable[Operation]) -> Iterator[Operation]:
    return (operation for operation in operations if operation.outputs)


def _ids(found: Iterable[_Sides]) -> set[int]:
    agree = (sides for sides in found if _are_together(*sides))
    return {id(operation) for sides in agree for operation in chain(*sides)}


def _runs(mine: Sequence[Operation], theirs: Sequence[Operation]) -> Iterator[_Sides]:
    yield from (([whole], run) for whole in mine for run in _of_as_many_numbers(theirs, whole))
    yield from ((run, [whole]) for whole in theirs for run in _of_as_many_numbers(mine, whole))


def _of_as_many_numbers(
    operations: Sequence[Operation], whole: Operation
) -> Iterator[Sequence[Operation]]:
    for begin, first in enumerate(operations):
        size, end = 0, begin
        while size < whole.outputs[0].size and end < len(operations):
            size, end = size + operations[end].outputs[0].size, end + 1
        if size == whole.outputs[0].size and first.shapes[1] != whole.shapes[1]:
            yield operations[begin:end]


def _are_together(*of_sides: Sequence[Operation]) -> bool:
    """Whether the results of both sides hold the same numbers, in whatever parts."""
    mine, theirs = ([o.outputs[0] for o in of_side] for of_side in of_sides)
    if sum(d.size for d in mine) != sum(d.size for d in theirs):
        return False
    sides = [
        (
            math.sqrt(math.fsum(d.norm**2 for d in side)),
            math.fsum(d.total for d in side),
            min(d.low for d in side),
            max(d.high for d in side),
        )
        for side in (mine, theirs)
    ]
    limit = led_elsewhere(mine[0], theirs[0], 0.0, 0.0, 0.0) * max(sides[0][0], sides[1][0])
    return limit < math.inf and all(abs(a - b) <= limit for a, b in zip(*sides, strict=True))
