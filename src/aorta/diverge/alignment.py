"""Which operation of one stream is which of another: a diff over modules and order, not a zip.

A side with other kernels, or with more operations, still compares: what has no partner is left
without one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from aorta.diverge.stream import Operation, Stream

# Operations without a partner in one step; beyond, operations are matched by module alone.
_MOST_EDITS = 1500


@dataclass(frozen=True)
class Alignment:
    pairs: tuple[tuple[Operation, Operation], ...]  # in the order of the first stream
    only_first: tuple[Operation, ...]
    only_second: tuple[Operation, ...]


def align(first: Stream, second: Stream) -> Alignment:
    """Step by step: the same step of both sides is the same work, however many operations it
    took.
    """
    pairs: list[tuple[Operation, Operation]] = []
    mine, theirs = _by_step(first), _by_step(second)
    for step in sorted({*mine, *theirs}):
        pairs += _aligned(mine.get(step, []), theirs.get(step, []))
    pairs.sort(key=lambda pair: pair[0].index)
    of_first = {a.index for a, _ in pairs}
    of_second = {b.index for _, b in pairs}
    return Alignment(
        tuple(pairs),
        tuple(o for o in first.operations if o.index not in of_first),
        tuple(o for o in second.operations if o.index not in of_second),
    )


def _by_step(stream: Stream) -> dict[int, list[Operation]]:
    return {step: list(group) for step, group in groupby(stream.operations, lambda o: o.step)}


def _aligned(
    mine: Sequence[Operation], theirs: Sequence[Operation]
) -> list[tuple[Operation, Operation]]:
    start = 0
    while start < min(len(mine), len(theirs)) and mine[start].key == theirs[start].key:
        start += 1
    end = 0
    while end < min(len(mine), len(theirs)) - start and mine[-1 - end].key == theirs[-1 - end].key:
        end += 1
    found = list(zip(mine[:start], theirs[:start], strict=True))
    found += _middle(mine[start : len(mine) - end], theirs[start : len(theirs) - end])
    if end:
        found += zip(mine[-end:], theirs[-end:], strict=True)
    return found


def _middle(
    mine: Sequence[Operation], theirs: Sequence[Operation]
) -> list[tuple[Operation, Operation]]:
    if not mine or not theirs:
        return []
    places = _common([o.key for o in mine], [o.key for o in theirs])
    if places is None:
        return _by_module(mine, theirs)
    return [(mine[a], theirs[b]) for a, b in places]


def _common(mine: Sequence[object], theirs: Sequence[object]) -> list[tuple[int, int]] | None:
    """A longest common subsequence, by Myers' greedy search: fast where little differs. None where
    too much does.
    """
    reach = {1: 0}  # on each diagonal, how far into `mine` so many edits lead
    trail: list[dict[int, int]] = []
    for edits in range(min(len(mine) + len(theirs), _MOST_EDITS) + 1):
        trail.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            while _alike(mine, theirs, x, x - diagonal):
                x += 1
            reach[diagonal] = x
            if x >= len(mine) and x - diagonal >= len(theirs):
                return _walked_back(trail, len(mine), len(theirs))
    return None


def _alike(mine: Sequence[object], theirs: Sequence[object], x: int, y: int) -> bool:
    return x < len(mine) and y < len(theirs) and mine[x] == theirs[y]


def _walked_back(trail: Sequence[Mapping[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """The pairs on the way that was found, from its end to its beginning and turned round."""
    pairs: list[tuple[int, int]] = []
    for edits in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[edits], x - y
        down = diagonal == -edits or (
            diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]
        )
        before_x = reach[diagonal + 1] if down else reach[diagonal - 1]
        before_y = before_x - (diagonal + 1 if down else diagonal - 1)
        while x > before_x and y > before_y and x > 0 and y > 0:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = before_x, before_y
    return pairs[::-1]


def _by_module(
    mine: Sequence[Operation], theirs: Sequence[Operation]
) -> list[tuple[Operation, Operation]]:
    """Too many to compare all with all: the n-th such operation of a module with the n-th of the
    other side.
    """
    waiting: dict[object, list[Operation]] = {}
    for operation in theirs:
        waiting.setdefault(operation.key, []).append(operation)
    found: list[tuple[Operation, Operation]] = []
    last = -1
    for operation in mine:
        others = waiting.get(operation.key, [])
        while others and others[0].index <= last:
            others.pop(0)
        if others:
            found.append((operation, others.pop(0)))
            last = found[-1][1].index
    return found
