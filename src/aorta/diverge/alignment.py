"""Which operation of one stream is which of another: a diff over modules and order, not a zip. A side with other kernels, or with
more operations, still compares: what has no partner is left without one.

And ranks against each other: which one's gradients or parameters differ first, and who took part in a collective alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Any

from aorta.diverge.comparing import outputs_apart, plain
from aorta.diverge.stream import Digest, Operation, Stream

_MOST_EDITS = (
    1500  # operations without a partner in one step; beyond, operations are matched by module alone
)


@dataclass(frozen=True)
class Alignment:
    pairs: tuple[tuple[Operation, Operation], ...]  # in the order of the first stream
    only_first: tuple[Operation, ...]
    only_second: tuple[Operation, ...]


def align(first: Stream, second: Stream) -> Alignment:
    """Step by step: the same step of both sides is the same work, however many operations it took."""
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
    """A longest common subsequence, by Myers' greedy search: fast where little differs. None where too much does."""
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
    """Too many to compare all with all: the n-th such operation of a module with the n-th of the other side."""
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


@dataclass(frozen=True)
class RankParting:
    """What all ranks should have alike, and do not."""

    name: str  # `grad::layer.weight` or `param::layer.weight`
    step: int
    odd: tuple[int, ...]  # the ranks that differ from most; all of them where there is no most
    difference: float
    digests: Mapping[int, Digest]

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.name,
            "module": self.name.partition("::")[2],
            "file": None,
            "line": None,
            "step": self.step,
            "rank": self.odd[0] if len(self.odd) == 1 else None,
            "ranks": list(self.odd),
            "index": None,
            "difference": plain(self.difference),
            "expected_rounding": 0.0,
            "inputs": [],
            "by_rank": {str(rank): digest.to_json() for rank, digest in self.digests.items()},
        }


def between_ranks(streams: Sequence[Stream]) -> RankParting | None:
    """The first gradient or parameter that is not the same on every rank."""
    values: dict[tuple[int, str], dict[int, Operation]] = {}
    for stream in streams:
        for operation in stream.operations:
            if operation.op.startswith(("grad::", "param::")):
                values.setdefault((operation.step, operation.op), {})[stream.rank] = operation
    for (step, name), by_rank in values.items():
        ranks = sorted(by_rank)
        apart = max(
            (outputs_apart(by_rank[a], by_rank[b]) for a, b in combinations(ranks, 2)), default=0.0
        )
        if apart > 0:
            digests = {rank: by_rank[rank].outputs[0] for rank in ranks}
            return RankParting(name, step, _odd(by_rank), apart, digests)
    return None


def _odd(by_rank: Mapping[int, Operation]) -> tuple[int, ...]:
    alike = {
        rank: frozenset(
            other for other in by_rank if outputs_apart(by_rank[rank], by_rank[other]) == 0
        )
        for rank in by_rank
    }
    most = max(alike.values(), key=len)
    return (
        tuple(sorted({*by_rank} - most)) if 2 * len(most) > len(by_rank) else tuple(sorted(by_rank))
    )


def lonely_collectives(streams: Sequence[Stream]) -> list[tuple[int, Operation]]:
    """Collectives that the first rank took part in and another did not, or the other way round."""
    found: list[tuple[int, Operation]] = []
    for other in streams[1:]:
        alignment = align(streams[0], other)
        found += [(streams[0].rank, o) for o in alignment.only_first if o.op.startswith("c10d::")]
        found += [(other.rank, o) for o in alignment.only_second if o.op.startswith("c10d::")]
    return found
