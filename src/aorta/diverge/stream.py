"""What the recorder wrote, read back: one stream of operations for each rank of a run."""

import json
import math
from array import array
from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

HOOK = Path(__file__).resolve().parent / "hook"  # on the path of a recorded process
_STATISTICS = 4  # norm, sum, minimum, maximum; samples follow
_HASH = _STATISTICS + 16  # the place of the hash
_WHOLE = 32  # elements up to which a tensor is written down whole


@dataclass(frozen=True)
class Digest:
    """One tensor in a few numbers. `values` are samples, or all elements of a small tensor."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    values: tuple[float, ...]
    norm: float
    total: float
    low: float
    high: float
    hash: int | None = None  # of all bits
    weighed: float | None = None  # a sum in which every place weighs something else

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def rms(self) -> float:
        return self.norm / math.sqrt(self.size) if self.size else 0.0

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def to_json(self) -> dict[str, Any]:
        stats = {"rms": self.rms, "min": self.low, "max": self.high, "finite": self.is_finite}
        return {
            "shape": list(self.shape),
            "dtype": self.dtype,
            "device": self.device,
            "stats": {name: _plain(value) for name, value in stats.items()},
        }


# One result of a record: the number of the record, and which of its results it is.
Writer = tuple[int, int]
_RESULT = 40  # bits of a written number that are the record's


@dataclass(frozen=True)
class Operation:
    """One operation of one rank. `inputs` are, for each tensor it read, the results of the records
    that wrote it; `input_shapes` say which part of that memory it read: shape, type and offset.
    """

    index: int
    step: int
    phase: str  # f(orward), b(ackward), o(ptimizer)
    module: str
    op: str
    file: str
    line: int
    inputs: tuple[tuple[Writer, ...], ...]
    input_shapes: tuple[tuple[tuple[int, ...], str, int], ...]
    outputs: tuple[Digest, ...]
    is_random: bool = False
    tf32: bool = False  # it may have rounded what it read to ten bits

    @cached_property
    def place(self) -> tuple[int, str, str, str]:
        """Where it stands in any run. The source line is not part: revisions move lines."""
        return (self.step, self.phase, self.module, self.op)

    @cached_property
    def shapes(self) -> tuple[object, ...]:
        """Of what it read and of what it gave."""
        return (
            tuple(shape for shape, _, _ in self.input_shapes),
            tuple(digest.shape for digest in self.outputs),
        )


@dataclass(frozen=True)
class Stream:
    """Everything one rank did, in order."""

    rank: int
    operations: tuple[Operation, ...]
    notes: tuple[str, ...] = ()
    truncated: bool = False
    ended: bool = True  # it closed its stream: a process that was killed did not

    def by_index(self) -> dict[int, Operation]:
        return {operation.index: operation for operation in self.operations}

    def all_read(self) -> frozenset[int]:
        """The records that something reads. Any other is an end: a loss, a weight at last."""
        reads = (writers for operation in self.operations for writers in operation.inputs)
        return frozenset(index for writers in reads for index, _ in writers)


def read_streams(directory: Path) -> list[Stream]:
    """The streams of all ranks of one run, by rank. A launcher beside ranks is none of them."""
    segments: dict[str, list[Path]] = {}
    for path in sorted(directory.glob("stream-*.jsonl")):
        segments.setdefault(path.name.rsplit("-", 1)[0], []).append(path)
    read = [_read(paths) for paths in segments.values()]
    found = [(rank, stream) for rank, stream in read if stream.operations]
    ranked = [(rank, stream) for rank, stream in found if rank is not None]
    longest: dict[int, Stream] = {}
    for rank, stream in ranked or found:
        place = rank or 0
        if place not in longest or len(stream.operations) > len(longest[place].operations):
            longest[place] = stream
    return [longest[rank] for rank in sorted(longest)]


def _read(paths: Sequence[Path]) -> tuple[int | None, Stream]:
    operations: list[Operation] = []
    rank: int | None = None
    end: Mapping[str, Any] = {}
    for line in _lines(paths):
        try:
            record = json.loads(line)
        except ValueError:
            break  # the last line of a process that was killed
        if "begin" in record or "end" in record:
            rank = rank if record["rank"] is None else int(record["rank"])
            end = record if "end" in record else end
        else:
            operations.append(_operation(record))
    stream = Stream(
        rank=rank or 0,
        operations=tuple(operations),
        notes=tuple(end.get("notes", ())),
        truncated=bool(end.get("truncated", False)),
        ended=bool(end),
    )
    return rank, stream


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        with path.open(encoding="utf-8") as file:
            yield from file


def _operation(record: Mapping[str, Any]) -> Operation:
    numbers = memoryview(a2b_base64(record["v"]))
    outputs = []
    for facts in record["d"]:
        size = 8 * facts["n"]
        outputs.append(_digest(facts, numbers[:size]))
        numbers = numbers[size:]
    # What is made like a tensor takes its shape alone.
    reads = [] if record["op"].endswith("_like") else record["in"]
    return Operation(
        index=record["i"],
        step=record["s"],
        phase=record["p"],
        module=record["m"],
        op=record["op"],
        file=record["f"],
        line=record["l"],
        inputs=tuple(
            tuple((w & ((1 << _RESULT) - 1), w >> _RESULT) for w in writers) for writers in reads
        ),
        input_shapes=tuple((tuple(shape), dtype, at) for shape, dtype, at in record["ish"]),
        outputs=tuple(outputs),
        is_random=bool(record.get("r")),
        tf32=bool(record.get("t")),
    )


def _digest(content: Mapping[str, Any], numbers: memoryview) -> Digest:
    shape, values = tuple(content["sh"]), tuple(array("d", numbers.tobytes()))
    facts = (shape, content["dt"], content["dev"])
    if not values:
        return Digest(*facts, (), 0.0, 0.0, 0.0, 0.0)
    size = math.prod(shape) * (2 if content["dt"].startswith("complex") else 1)
    if size <= _WHOLE:
        nan = any(math.isnan(v) for v in values)
        low, high = (math.nan, math.nan) if nan else (min(values), max(values))
        norm = (
            math.sqrt(math.fsum(v * v for v in values)) if math.isfinite(low + high) else math.nan
        )
        total = math.fsum(values) if math.isfinite(low + high) else math.nan
        return Digest(*facts, values, norm, total, low, high)
    norm, total, low, high = values[:_STATISTICS]
    samples, beyond = values[_STATISTICS:_HASH], numbers[8 * _HASH :]
    of_bits = int.from_bytes(beyond, "little") if beyond else None
    weighed = values[_HASH] if beyond and content.get("w") else None
    return Digest(*facts, samples, norm, total, low, high, of_bits, weighed)


def _plain(value: float | bool) -> float | bool | str:
    """JSON has no NaN and no infinity."""
    return value if isinstance(value, bool) or math.isfinite(value) else str(value)
