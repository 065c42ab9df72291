"""Digests of results: copied at once, summed on their device in batches, fetched without waiting.

A small tensor is written down whole. Of any other: norm, sum, extrema, sixteen samples, and of all
but the largest a sum weighted by place.
"""

import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import ONE_COLUMN, SAMPLES, SMALL, Recorder, Widths
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import ONE_COLUMN, SAMPLES, SMALL, Recorder, Widths

torch: Any = sys.modules.get("torch")  # whole before this is loaded
_NUMBERS = 4 + SAMPLES
_LARGE = {"cpu": 1 << 13}  # elements from which computing takes longer than launching does
_LARGE_ELSEWHERE = 1 << 22
_ROW = 256  # elements that are summed up before the sums are
# with fewer a GPU adds up a row in another order: the last bit would tell what else was fetched
_ROWS = 16
_WEIGHTS = 1021
_ROOM = 1 << 16  # numbers for which a lot has room at first
_MOST_VIEWS = 1 << 14  # of a room
# Of a GPU's memory, what may wait there to be summed up.
_SHARE_OF_A_GPU = 64


class _Room:
    """Memory for copies, one behind the other. Where a step does what one before it did, each of
    them has a view there.
    """

    def __init__(self, size: int, device: Any) -> None:
        self.size = size
        with torch.inference_mode(False):  # else nothing could be written there outside of it
            self.memory = torch.empty(size, dtype=torch.float64, device=device)
        self.views: dict[tuple[int, TensorKind | _Group], list[Any]] = {}  # by where they begin


class _Lot:
    """Results of one device that are summed up together, copied one behind the other as doubles:
    the program may write over them before they are fetched.
    """

    def __init__(self, number: int, device: Any, sum_up: "_SumUp") -> None:
        self.number, self.device, self._sum_up = number, device, sum_up
        self.sizes: list[int] = []
        self.width = 0  # of the numbers that come of them
        self._used = 0
        # What is in the one is summed up while the other is filled, perhaps in another stream.
        self._room = self._other_room = _Room(0, device)

    def place(self, key: "TensorKind | _Group") -> list[Any]:
        """Of what comes next."""
        begin = self._used
        self._used = begin + key.size
        self.sizes += key.sizes
        self.width += key.width
        views = self._room.views.get((begin, key))
        if views is None:
            if self._used > self._room.size:
                self._grow(begin)
            if len(self._room.views) > _MOST_VIEWS:
                self._room.views.clear()
            views = key.views(self._room.memory[begin : self._used])
            self._room.views[begin, key] = views
        return views

    def _grow(self, used: int) -> None:
        """So that there is room for all."""
        _synchronize(self.device)  # copies may have been made in any stream
        larger = _Room(max(_ROOM, 2 * self._used, self._other_room.size), self.device)
        larger.memory[:used].copy_(self._room.memory[:used])
        self._room = larger

    def add(self, tensor: Any, kind: "TensorKind") -> None:
        if kind.convert is not None:
            tensor = kind.convert(tensor)
        self.place(kind)[0].copy_(tensor)

    def summed_up(self) -> Any:
        """All numbers of all its results, one behind the other, as doubles on the device."""
        copied, sizes = self._room.memory[: self._used], self.sizes
        self._used, self.sizes, self.width = 0, [], 0
        self._room, self._other_room = self._other_room, self._room
        return self._sum_up(copied, sizes)


class _LargeLot:
    """Of large results, summed up at once: copies of them would be a lot of memory."""

    def __init__(self, number: int, device: Any) -> None:
        self.number, self.device, self.width = number, device, 0
        self._statistics: list[tuple[Any, ...]] = []

    def add(self, tensor: Any, kind: "TensorKind") -> None:
        self.width += kind.width
        if kind.convert is not None:
            tensor = kind.convert(tensor)
        self._statistics.append(_statistics(tensor))

    def summed_up(self) -> Any:
        found, self._statistics, self.width = self._statistics, [], 0
        sums = torch.stack([one for sums, _ in found for one in sums]).view(len(found), 2)
        samples = torch.cat([one for _, samples in found for one in samples]).to(torch.float64)
        return torch.cat([sums, samples.view(len(found), 2 + SAMPLES)], 1).reshape(-1)


# From what was copied and the size of each tensor in it to the numbers of all.
_SumUp = Callable[[Any, list[int]], Any]


def _synchronize(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _of_small(flat: Any, _sizes: list[int]) -> Any:
    return flat


def _of_ragged(flat: Any, sizes: list[int]) -> Any:
    ends, places = _segments(tuple(sizes), flat.device)
    weighed = flat * _weights(ends, len(flat))
    return _rows((flat * flat, flat, flat, flat, weighed), flat[places], ends)


def _of_even(flat: Any, sizes: list[int]) -> Any:
    """Of sizes that are whole rows: first the rows, on which all of a GPU works at once."""
    ends, places, in_row, weights = _segments_of_rows(tuple(sizes), flat.device)
    samples, rows = flat[places], flat.view(-1, _ROW)
    low, high = torch.aminmax(rows, dim=1)
    squares, totals = torch.linalg.vector_norm(rows, dim=1).square_(), rows.sum(1)
    weighed = rows.mul_(in_row).sum(1).mul_(weights)
    return _rows((squares, totals, low, high, weighed), samples, ends)


@lru_cache(maxsize=16)
def _segments(sizes: tuple[int, ...], device: Any) -> tuple[Any, Any]:
    """Where each begins and the last ends, and places of samples, found out on the CPU: each would
    be a launch.
    """
    lengths = torch.tensor(sizes, device="cpu")
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    strides = lengths // SAMPLES
    strides -= (strides > ONE_COLUMN).long()
    samples = ends[:-1, None] + strides[:, None] * torch.arange(SAMPLES, device="cpu")
    found = torch.cat([ends, samples.view(-1)]).to(device, non_blocking=True)
    return found[: len(ends)], found[len(ends) :].view(-1, SAMPLES)


@lru_cache(maxsize=16)
def _segments_of_rows(sizes: tuple[int, ...], device: Any) -> tuple[Any, Any, Any, Any]:
    """Likewise for rows, with the weights in each and of each."""
    ends, places = _segments(sizes, device)
    ends = ends // _ROW
    in_row = torch.arange(1, _ROW + 1, device=device)
    return ends, places, in_row, _weights(ends, sum(sizes) // _ROW)


def _weights(ends: Any, size: int) -> Any:
    """One for each place, counted from the start of its own tensor."""
    begins = torch.repeat_interleave(ends[:-1], ends.diff(), output_size=size)
    places = torch.arange(size, device=begins.device).sub_(begins)
    return places.remainder_(_WEIGHTS).add_(1)


def _rows(values: tuple[Any, ...], samples: Any, ends: Any) -> Any:
    """Squares, numbers, lowest, highest and weighed of all tensors, to the digest of each."""
    # Each by itself: what has two dimensions a GPU goes through one number after the other. From
    # lengths each would add up on its own where they end.
    norms, totals, lows, highs, weighed = (
        torch.segment_reduce(value, how, offsets=ends, unsafe=True)
        for value, how in zip(values, ("sum", "sum", "min", "max", "sum"), strict=True)
    )
    statistics = torch.stack([norms.sqrt_(), totals, lows, highs], 1)
    return torch.cat([statistics, samples, weighed[:, None]], 1).reshape(-1)


def _statistics(tensor: Any) -> tuple[Any, ...]:
    """Of a large tensor, at once: a copy of it would be a lot of memory."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        flat = flat.to(torch.float64)
    stride = flat.numel() // SAMPLES - 1
    low, high = torch.aminmax(flat)
    sums = [torch.linalg.vector_norm(flat, dtype=torch.float64), flat.sum(dtype=torch.float64)]
    samples = [low.view(1), high.view(1), flat[: stride * SAMPLES : stride].clone()]
    return sums, samples


class TensorKind:
    """What follows from shape, type and device alone, for all tensors that share them."""

    __slots__ = ("bytes", "convert", "is_alone", "lot", "number", "shape", "size", "sizes", "width")

    def __init__(self, recorder: Recorder, tensor: Any, lots: "_Lots") -> None:
        device, dtype = tensor.device, tensor.dtype
        name = str(dtype).removeprefix("torch.")
        self.convert: Callable[[Any], Any] | None = None
        if name.startswith("float8"):
            self.convert = torch.Tensor.float  # little is computed in eight bits
        elif dtype.is_complex:
            self.convert = lambda one: torch.view_as_real(one.detach().resolve_conj())
        # A list is not copied into another, where its numbers are unsigned ones.
        self.is_alone = self.convert is not None or name.startswith("uint")
        self.shape = [*tensor.shape, 2] if dtype.is_complex else [*tensor.shape]  # of the copy
        self.size = math.prod(self.shape)
        self.sizes = [self.size]
        self.bytes = 8 * self.size
        self.lot: _Lot | _LargeLot | None = None
        self.width = 0  # how many numbers come of it
        is_plain = tensor.layout is torch.strided and not tensor.is_meta
        if self.size and is_plain and not name.startswith("q"):  # quantized
            sum_up, self.width = _way_to_sum_up(self.size, device)
            number = len(lots)
            new = _LargeLot(number, device) if sum_up is None else _Lot(number, device, sum_up)
            self.lot = lots.setdefault((device, sum_up), new)
            if sum_up is None:
                self.bytes, self.is_alone = 0, True
        lot = None if self.lot is None else self.lot.number
        facts = [list(tensor.shape), name, device.type, self.width, lot]
        self.number = recorder.number_of(("kind", *map(str, facts)), facts)

    def views(self, memory: Any) -> list[Any]:
        return [memory.view(self.shape)]


def _way_to_sum_up(size: int, device: Any) -> "tuple[_SumUp | None, int]":
    """And to how many numbers. None: at once."""
    if size <= SMALL:
        return _of_small, size
    if size >= _LARGE.get(device.type, _LARGE_ELSEWHERE):
        return None, _NUMBERS
    is_even = size % _ROW == 0 and size >= _ROW * _ROWS
    return _of_even if is_even else _of_ragged, _NUMBERS + 1


_Lots = dict[tuple[Any, Any], _Lot | _LargeLot]  # by device and way to sum up


class _Group:
    """Those of an operation's results that are copied into one lot."""

    def __init__(self, lot: Any, places: list[int], kinds: list[TensorKind]) -> None:
        self.lot, self.places, self.kinds = lot, places, kinds
        self.sizes = [kind.size for kind in kinds]
        self.size, self.width = sum(self.sizes), sum(kind.width for kind in kinds)

    def views(self, memory: Any) -> list[Any]:
        parts = zip(self.kinds, memory.split(self.sizes), strict=True)
        return [part.view(kind.shape) for kind, part in parts]


class _Plan:
    """What becomes of the results of an operation: which are copied together, with one launch, and
    which by themselves.
    """

    def __init__(self, kinds: list[TensorKind]) -> None:
        known = [(place, kind) for place, kind in enumerate(kinds) if kind.lot is not None]
        self.bytes = sum(kind.bytes for _, kind in known)
        # In one lot they lie in their order.
        one_by_one = {kind.lot for _, kind in known if kind.is_alone}
        self.alone = [(place, kind) for place, kind in known if kind.lot in one_by_one]
        self.groups = []
        for lot in dict.fromkeys(kind.lot for _, kind in known if kind.lot not in one_by_one):
            places = [place for place, kind in known if kind.lot is lot]
            self.groups.append(_Group(lot, places, [kinds[place] for place in places]))

    def take(self, tensors: Sequence[Any]) -> None:
        views: list[Any] = []
        copied: list[Any] = []
        for group in self.groups:
            views += group.lot.place(group)
            copied += [tensors[place] for place in group.places]
        if copied:
            torch._foreach_copy_(views, copied)
        for place, kind in self.alone:
            kind.lot.add(tensors[place], kind)  # type: ignore[union-attr]


class Digests:
    """The results of one process: those since the last fetch, and the kinds of all."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.kinds: dict[Any, TensorKind] = {}
        self._lots: _Lots = {}
        self._by_number: dict[int, TensorKind] = {}
        self._plans: dict[tuple[int, ...], _Plan] = {}  # by the numbers of the kinds

    def kind(self, tensor: Any) -> TensorKind:
        key = (tensor.shape, tensor.dtype, tensor.get_device())  # a device takes long to hash
        kind = self.kinds.get(key)
        if kind is None or tensor.is_meta or tensor.layout is not torch.strided:
            kind = TensorKind(self._recorder, tensor, self._lots)
            self._by_number[kind.number] = kind
            if kind.width:
                self.kinds[key] = kind
                if tensor.is_cuda:
                    self._recorder.is_on_gpu = True
                    memory = torch.cuda.get_device_properties(tensor.device).total_memory
                    most = max(self._recorder.most_held_bytes, memory // _SHARE_OF_A_GPU)
                    self._recorder.most_held_bytes = most
        return kind

    def take(self, tensors: Sequence[Any], numbers: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Copy these in their order; the numbers of their kinds, looked up unless given."""
        if len(tensors) == 1:
            (tensor,) = tensors
            kind = self.kind(tensor)
            if kind.lot is not None:
                kind.lot.add(tensor, kind)
                self._recorder.held_bytes += kind.bytes
            return (kind.number,)
        numbers = numbers or tuple([self.kind(tensor).number for tensor in tensors])
        plan = self._plans.get(numbers)
        if plan is None:
            plan = self._plans[numbers] = _Plan([self._by_number[number] for number in numbers])
        plan.take(tensors)
        self._recorder.held_bytes += plan.bytes
        return numbers

    def launch(self) -> tuple[Widths, bool, Callable[[], bytes]]:
        """Start summing: which numbers will come, whether on a GPU, and a call that waits."""
        lots = [lot for lot in self._lots.values() if lot.width]
        for device in {lot.device for lot in lots}:
            _synchronize(device)  # copies may have been made in any stream
        widths = [(lot.number, lot.width) for lot in lots]
        summed_up = [lot.summed_up() for lot in lots]
        waits = any(lot.device.type == "cuda" for lot in lots)
        return widths, waits, lambda: b"".join(map(_bytes, summed_up))


def _bytes(numbers: Any) -> bytes:
    _synchronize(numbers.device)  # in whatever stream it was computed
    fetched = numbers.cpu()
    return ctypes.string_at(fetched.data_ptr(), 8 * fetched.numel())
