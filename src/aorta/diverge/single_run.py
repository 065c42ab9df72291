"""From one run: its first NaN or infinity with the magnitudes before, and ranks that differ."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from aorta.diverge.comparing import place_of
from aorta.diverge.rounding import outputs_apart
from aorta.diverge.stream import Digest, Operation, Stream, plain

_STEPS_BEFORE = 20
_SHOWN_MODULES = 8
_SHOWN_STEPS = 5
_NUMBERS = ("float", "bfloat", "complex")
_FILLING = re.compile(r"full(_like)?|fill_|masked_fill_?|scalar_tensor|where")


@dataclass(frozen=True)
class NonFinite:
    """The first result with NaN or infinity in it whose inputs had none."""

    operation: Operation
    rank: int
    parents: tuple[Operation, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            **place_of(self.operation, self.rank),
            "outputs": [digest.to_json() for digest in self.operation.outputs],
            "inputs": [
                {**place_of(parent, self.rank), **digest.to_json()}
                for parent in self.parents
                for digest in parent.outputs[:1]
            ],
        }


def first_nonfinite(streams: Sequence[Stream]) -> NonFinite | None:
    """The earliest over all ranks. Constants do not count: masks hold infinities on purpose."""
    found = [first for stream in streams if (first := _first_nonfinite(stream)) is not None]
    return min(found, key=lambda n: (n.operation.step, n.operation.index), default=None)


def _first_nonfinite(stream: Stream) -> NonFinite | None:
    known = stream.by_index()
    broken = [o for o in stream.operations if not all(d.is_finite for d in o.outputs)]
    passed_on = {index for o in broken for writers in o.inputs for index, _ in writers}
    for operation in broken:
        is_constant = _FILLING.fullmatch(operation.op.rpartition("::")[2])
        if is_constant or (_is_memory(operation) and operation.index not in passed_on):
            continue
        parents = tuple(known[i] for writers in operation.inputs for i, _ in writers if i in known)
        if all(d.is_finite for parent in parents for d in parent.outputs):
            return NonFinite(operation, stream.rank, parents)
    return None


def _is_memory(operation: Operation) -> bool:
    """What nobody has filled yet: whatever is in it means nothing, unless it is read."""
    return operation.op.startswith("aten::empty")


def call_number(operation: Operation, streams: Iterable[Stream]) -> int | None:
    """Which one it is of the values that a program recorded under one name; None of a lone one."""
    operation = replace(operation, in_one_step=False)
    for stream in streams if operation.op.startswith("record::") else ():
        same = [o for o in stream.operations if o.op == operation.op]
        if len(same) > 1 and operation in same:
            return same.index(operation) + 1
    return None


# -- what came before it ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Magnitudes:
    """Largest absolute value and norm of a module's results in a step, forward and of gradients."""

    step: int
    module: str
    activation: tuple[float, float] | None
    gradient: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        both = {"activation": self.activation, "gradient": self.gradient}
        return {
            "step": self.step,
            "module": self.module,
            **{name: {"max": of[0], "norm": of[1]} if of else None for name, of in both.items()},
        }


def magnitude_history(streams: Sequence[Stream], found: NonFinite) -> tuple[Magnitudes, ...]:
    """By module: the twenty steps before the first NaN or infinity, and its own up to there."""
    (stream,) = (s for s in streams if s.rank == found.rank)
    end = found.operation
    largest: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for operation in stream.operations:
        if operation.index >= end.index:
            break
        is_near = operation.step >= end.step - _STEPS_BEFORE
        if is_near and operation.phase in "fb" and not _is_memory(operation):
            both = largest.setdefault((operation.module, operation.step), {})
            size, before = _size(operation), both.get(operation.phase, (0.0, 0.0))
            both[operation.phase] = (max(before[0], size[0]), max(before[1], size[1]))
    history = [
        Magnitudes(step, module, both.get("f"), both.get("b"))
        for (module, step), both in largest.items()
    ]
    order = list(dict.fromkeys(module for module, _ in largest))
    return tuple(sorted(history, key=lambda one: (order.index(one.module), one.step)))


def _size(operation: Operation) -> tuple[float, float]:
    finite = [d for d in operation.outputs if d.is_finite and d.dtype.startswith(_NUMBERS)]
    largest = max((max(abs(d.low), abs(d.high)) for d in finite), default=0.0)
    return largest, max((d.norm for d in finite if math.isfinite(d.norm)), default=0.0)


def _grown(history: Sequence[Magnitudes], first: str) -> list[str]:
    """The modules, beginning with `first`, then those whose numbers grew most."""
    sizes: dict[str, list[float]] = {}
    for one in history:
        known = sizes.setdefault(one.module, [])
        known += [of[0] for of in (one.activation, one.gradient) if of and of[0] > 0]
    growth = {module: max(known) / min(known) if known else 0.0 for module, known in sizes.items()}
    return sorted(growth, key=lambda module: (module != first, -growth[module]))


def history_lines(history: Sequence[Magnitudes], found: NonFinite) -> Iterator[str]:
    """A small table: the largest activation and gradient of the modules that grew most."""
    modules = _grown(history, found.operation.module)
    chosen = modules[:_SHOWN_MODULES]
    steps = sorted({one.step for one in history})
    last = len(steps) - 1
    shown = sorted({steps[round(i * last / (_SHOWN_STEPS - 1))] for i in range(_SHOWN_STEPS)})
    wide = max(6, *(len(_named(module)) for module in chosen))
    at = {(one.module, one.step): one for one in history}
    yield f"  largest activation / gradient before it, of {len(modules)} modules:"
    yield f"    {'module':<{wide}}" + "".join(f"{f'step {step}':>20}" for step in shown)
    for module in chosen:
        cells = (f"{_cell(at.get((module, step))):>20}" for step in shown)
        yield f"    {_named(module):<{wide}}" + "".join(cells)


def _named(module: str) -> str:
    return module or "(no module)"


def _cell(one: Magnitudes | None) -> str:
    if one is None:
        return "-"
    return " / ".join(f"{of[0]:.3g}" if of else "-" for of in (one.activation, one.gradient))


# -- ranks against each other ----------------------------------------------------------------------


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


def values_of_ranks(streams: Sequence[Stream]) -> dict[tuple[int, str], dict[int, Operation]]:
    """The gradients and parameters that several ranks have, by step and name."""
    values: dict[tuple[int, str], dict[int, Operation]] = {}
    for stream in streams:
        for operation in stream.operations:
            if operation.op.startswith(("grad::", "param::")):
                values.setdefault((operation.step, operation.op), {})[stream.rank] = operation
    return {key: by_rank for key, by_rank in values.items() if len(by_rank) > 1}


def between_ranks(
    values: Mapping[tuple[int, str], Mapping[int, Operation]],
) -> RankParting | None:
    """The first of these that is not the same on every rank."""
    for (step, name), by_rank in values.items():
        ranks = sorted(by_rank)
        apart = max(outputs_apart(by_rank[a], by_rank[b]) for a, b in combinations(ranks, 2))
        if apart > 0:
            digests = {rank: by_rank[rank].outputs[0] for rank in ranks}
            return RankParting(name, step, _odd(by_rank), apart, digests)
    return None


def _odd(by_rank: Mapping[int, Operation]) -> tuple[int, ...]:
    def alike(mine: Operation) -> set[int]:
        return {rank for rank, other in by_rank.items() if outputs_apart(mine, other) == 0}

    most = max(map(alike, by_rank.values()), key=len)
    return tuple(sorted({*by_rank} - most if 2 * len(most) > len(by_rank) else by_rank))
