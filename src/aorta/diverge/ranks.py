"""Ranks against each other: whose gradients or parameters differ first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from aorta.diverge.rounding import outputs_apart
from aorta.diverge.stream import Digest, Operation, Stream, plain


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
    return tuple(sorted({*by_rank} - most if 2 * len(most) > len(by_rank) else by_rank))
