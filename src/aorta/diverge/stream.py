"""What the recorder wrote, read back: one stream of operations for each rank of a run."""

import json
import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

HOOK = Path(__file__).resolve().parent / "hook"  # on the path of a recorded process
_STATISTICS = 4  # norm, sum, minimum, maximum; samples follow
_WEIGHED = _STATISTICS + 16  # its place, where there is one
_WHOLE = 32  # elements up to which a tensor is written down whole
_OF_LISTS, _OF_ONE = "aten::_foreach_", "aten::"
_WHOLE_NUMBERS = ("int", "uint", "bool")

# Moves numbers, and makes none: of the operations of a line the one that computes is named.
_MOVES = re.compile(
    r"_to_copy|copy_|clone|contiguous|lift_fresh_copy|detach|alias|input|scalar_tensor|arange|"
    r"(full|zeros|ones|empty)(_like)?|fill_|zero_"
)


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
    weighed: float | None = None  # a sum in which every place weighs something else

    @cached_property
    def size(self) -> int:
        return _numbers_in(self.shape, self.dtype)

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
            "stats": {name: plain(value) for name, value in stats.items()},
        }


# One result of an operation: the index of the operation, and which of its results it is.
Writer = tuple[int, int]
_RECORD = (1 << 40) - 1  # the bits of a writer that say which record it is; above: which result


@dataclass(frozen=True)
class Operation:
    """One operation of one rank. `inputs` are, for each tensor it read, the results of the
    operations that wrote it; `input_shapes` say which part of that memory it read: shape, type and
    offset. What it writes over in part is an input that nobody wrote. An operation on a list of
    tensors is one for each of its elements.
    """

    index: int  # among all of its stream
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
    element: int = 0  # which one of a list
    in_one_step: bool = False  # the other side counts no steps

    @property
    def aligned_step(self) -> int:
        return 0 if self.in_one_step else self.step

    @property
    def is_of_list(self) -> bool:
        return self.op.startswith(_OF_LISTS)

    @property
    def gives_whole_numbers(self) -> bool:
        return all(digest.dtype.startswith(_WHOLE_NUMBERS) for digest in self.outputs)

    @property
    def moves(self) -> bool:
        return not self.is_random and _MOVES.fullmatch(self.op.rpartition("::")[2]) is not None

    def is_constant(self, result: int) -> bool:
        """Whether that is zeros, or memory that was made of one number."""
        digest = self.outputs[result]
        is_made = not self.inputs and not self.is_random and not self.op.startswith("aten::empty")
        is_zero = bool(digest.values) and digest.norm == 0 and digest.size > 1
        return is_zero or (is_made and bool(digest.values) and digest.low == digest.high)

    @property
    def writes_at(self) -> tuple[int, ...]:
        """Where in its memory is what it writes over in part."""
        read = zip(self.inputs, self.input_shapes, strict=False)
        return tuple(at for writers, (_, _, at) in read if not writers)

    @cached_property
    def place(self) -> tuple[int, str, str, str]:
        """Where it stands in any run. The source line is not part: revisions move lines. Nor is
        whether it is one of a list.
        """
        op = self.op.replace(_OF_LISTS, _OF_ONE) if self.is_of_list else self.op
        return (self.aligned_step, self.phase, self.module, op)

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
        return self._read_by(self.operations) | self._left_over

    def all_read_and_kept(self) -> frozenset[int]:
        """But for those that are written over by what reads them."""
        return self._read_by(o for o in self.operations if not o.op.endswith("_"))

    def all_read_as_numbers(self) -> frozenset[int]:
        """But for those of which only a choice is made: a token, a comparison. What is counted on
        is read; what a counter held before it was.
        """
        whole = {o.index for o in self.operations if o.gives_whole_numbers}
        counted = self._read_by(o for o in self.operations if o.index in whole and o.op[-1:] != "_")
        numbers = self._read_by(o for o in self.operations if o.index not in whole)
        return numbers | (counted & whole) | self._left_over

    @cached_property
    def _left_over(self) -> frozenset[int]:
        """What nothing reads of a call that gives something else that is read behind it: the last
        state of an LSTM.
        """
        read_at = {i: o.index for o in self.operations for writers in o.inputs for i, _ in writers}
        found: set[int] = set()
        for (phase, module, *_), run in groupby(self.operations, _call):
            call = list(run)
            is_read = any(read_at.get(o.index, 0) > call[-1].index for o in call)
            if phase == "f" and module and is_read:
                unread = (o for o in call if o.index not in read_at and not o.op.endswith("_"))
                found |= {o.index for o in unread if any(d.size > 1 for d in o.outputs)}
        return frozenset(found)

    def _read_by(self, operations: Iterable[Operation]) -> frozenset[int]:
        """Of a loss that is given with its total weight, the loss."""
        losses = {o.index for o in self.operations if len(o.outputs) > 1 and o.outputs[0].size == 1}
        written = (by for o in operations for writers in o.inputs for by in writers)
        return frozenset(i for i, result in written if result == 0 or i not in losses)


def _call(operation: Operation) -> tuple[str, str, str, int]:
    """Of a module: where its operations stand."""
    return (operation.phase, operation.module, operation.file, operation.line)


def read_streams(directory: Path) -> list[Stream]:
    """The streams of all ranks of one run, by rank. A launcher beside ranks is none of them."""
    read = [_read(path) for path in sorted(directory.glob("stream-*"))]
    found = [(rank, stream) for rank, stream in read if stream.operations]
    ranked = [(rank, stream) for rank, stream in found if rank is not None]
    longest: dict[int, Stream] = {}
    for rank, stream in ranked or found:
        place = rank or 0
        if place not in longest or len(stream.operations) > len(longest[place].operations):
            longest[place] = stream
    return [longest[rank] for rank in sorted(longest)]


def _read(path: Path) -> tuple[int | None, Stream]:
    end: Mapping[str, Any] = {}
    reader = _Reader()
    with path.open("rb") as file:
        while (line := file.readline()).endswith(b"\n"):  # or its process was killed
            found = json.loads(line)
            if "end" in found:
                end = found
                continue
            records, numbers = (file.read(length) for length in found["bytes"])
            if len(numbers) < found["bytes"][1]:
                break  # likewise
            reader.read(found, records, numbers)
    stream = Stream(
        rank=reader.rank or 0,
        operations=tuple(reader.operations),
        notes=tuple(end.get("notes", ())),
        truncated=bool(end.get("truncated", False)),
        ended=bool(end),
    )
    return reader.rank, stream


class _Reader:
    """The operations of one process, from lines of records."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.rank: int | None = None
        self.shared: list[Any] = []  # what the records refer to by number
        self._first: dict[int, int] = {}  # operation of a record
        self._lists: set[int] = set()  # records with one operation for each of their results

    def read(self, line: Mapping[str, Any], numbers_of_records: bytes, of_digests: bytes) -> None:
        self.rank = self.rank if line["rank"] is None else line["rank"]
        self.shared += line["new"]
        numbers = memoryview(of_digests)
        at, begins = 0, {}
        for lot, width in line["widths"]:
            begins[lot] = at
            at += 8 * width
        records, at, number = array("q", numbers_of_records), 0, line["first"]
        while at < len(records):
            ends = at + 4 + records[at + 2] + records[at + 3]
            self._add(number, records[at:ends], numbers, begins)
            at, number = ends, number + 1

    def _add(
        self,
        number: int,
        record: Sequence[int],
        numbers: memoryview,
        begins: dict[int, int],
    ) -> None:
        step, head, count, _ = record[:4]
        read, given = record[4 : 4 + count], record[4 + count :]
        writers = [[by] if by >= 0 else self.shared[-1 - by] for by in read[::3]]
        op, phase, module, file, line, is_random, tf32 = self.shared[head]
        outputs = []
        for kind in given:
            shape, dtype, device, count, lot = self.shared[kind]
            begin = begins.get(lot, 0)
            begins[lot] = end = begin + 8 * count
            if _is_for_its_backward(op, dtype):
                begin = end
            facts = (tuple(shape), dtype, device)
            outputs.append(_digest(facts, numbers[begin:end]))
        # What is made like a tensor takes its shape alone.
        inputs = [] if op.endswith("_like") else [tuple(map(self._writer, w)) for w in writers]
        kinds = [self.shared[kind] for kind in read[1::3]]
        shapes = [
            (tuple(shape), dtype, at)
            for (shape, dtype, *_), at in zip(kinds, read[2::3], strict=True)
        ]
        self._first[number] = len(self.operations)
        elements = len(outputs) if op.startswith(_OF_LISTS) and outputs else 1
        if elements > 1:
            self._lists.add(number)
        for element in range(elements):
            operation = Operation(
                len(self.operations),
                step,
                phase,
                module,
                op,
                file,
                line,
                tuple(_of_element(inputs, element, elements)),
                tuple(_of_element(shapes, element, elements)),
                tuple(outputs[element::elements]),
                is_random,
                tf32,
                element,
            )
            self.operations.append(operation)

    def _writer(self, written: int) -> Writer:
        record, result = written & _RECORD, written >> _RECORD.bit_length()
        first = self._first.get(record)
        if first is None:
            return (-1 - record, result)  # is not recorded
        return (first + result, 0) if record in self._lists else (first, result)


_Read = TypeVar("_Read")


def _of_element(read: list[_Read], element: int, count: int) -> list[_Read]:
    """Of lists that were read one behind the other, and of what all elements share."""
    whole = len(read) - len(read) % count
    return read[element:whole:count] + read[whole:]


def _is_for_its_backward(op: str, dtype: str) -> bool:
    """Whether it is no result: room that is filled in part, where a generator stood if one did."""
    of_attention = "dot_product" in op and dtype in ("int64", "uint64")
    return of_attention or ("cudnn" in op and dtype == "uint8")


def _numbers_in(shape: Sequence[int], dtype: str) -> int:
    """A complex one is two."""
    return math.prod(shape) * (2 if dtype.startswith("complex") else 1)


def _digest(facts: tuple[tuple[int, ...], str, str], numbers: memoryview) -> Digest:
    shape, dtype, _ = facts
    values = tuple(array("d", numbers.tobytes()))
    if not values:
        return Digest(*facts, (), 0.0, 0.0, 0.0, 0.0)
    if _numbers_in(shape, dtype) <= _WHOLE:
        nan = any(math.isnan(v) for v in values)
        low, high = (math.nan, math.nan) if nan else (min(values), max(values))
        norm = (
            math.sqrt(math.fsum(v * v for v in values)) if math.isfinite(low + high) else math.nan
        )
        total = math.fsum(values) if math.isfinite(low + high) else math.nan
        return Digest(*facts, values, norm, total, low, high)
    norm, total, low, high = values[:_STATISTICS]
    weighed = values[_WEIGHED] if len(values) > _WEIGHED else None
    return Digest(*facts, values[_STATISTICS:_WEIGHED], norm, total, low, high, weighed)


def plain(value: float | bool) -> float | bool | str:
    """JSON has no NaN and no infinity."""
    return value if isinstance(value, bool) or math.isfinite(value) else str(value)
