"""Digests of results: copied at once, summed on their device in batches, fetched without waiting.

A small tensor is written down whole. Of any other: norm, sum, extrema, sixteen samples, and of all
but the largest a sum weighted by place.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
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


class _Lot:
    """Results of one device and type that are summed up together, by one of the functions below."""

    def __init__(self, number: int, device: Any, sum_up: Callable[..., Any]) -> None:
        self.number, self.device, self._sum_up = number, device, sum_up
        self._is_large = sum_up is _of_large
        self.copies: list[Any] = []
        self.kinds: list[TensorKind] = []

    def add(self, tensor: Any, kind: "TensorKind") -> None:
        """A copy: the program may write over it before it is fetched."""
        self.kinds.append(kind)
        if kind.convert is not None:
            tensor = kind.convert(tensor)
        if self._is_large:
            self.copies.append(_statistics(tensor))
        else:
            self.copies.append(tensor.clone() if tensor.is_contiguous() else tensor.contiguous())

    def add_all(self, tensors: Sequence[Any], kinds: "Sequence[TensorKind]") -> None:
        """With one launch, where they may be copied as they are."""
        if len(tensors) == 1 or self._is_large or kinds[0].convert is not None:
            for tensor, kind in zip(tensors, kinds, strict=True):
                self.add(tensor, kind)
            return
        self.copies.append(torch._C._nn.flatten_dense_tensors(tensors))
        self.kinds += kinds

    def summed_up(self) -> Any:
        """All numbers of all its results, one behind the other, as doubles on the device."""
        return self._sum_up(self.copies, [kind.size for kind in self.kinds])


def _doubles(copies: list[Any]) -> Any:
    return torch._C._nn.flatten_dense_tensors(copies).to(torch.float64)


def _of_small(copies: list[Any], _sizes: list[int]) -> Any:
    return _doubles(copies)


def _of_ragged(copies: list[Any], sizes: list[int]) -> Any:
    flat = _doubles(copies)
    lengths, starts, samples = _segments(sizes, flat.device)
    weighed = flat * _weights(starts, lengths, len(flat))
    return _rows((flat * flat, flat, flat, flat, weighed), flat[samples], lengths)


def _of_even(copies: list[Any], sizes: list[int]) -> Any:
    """Of sizes that are whole rows: first the rows, on which all of a GPU works at once."""
    flat = _doubles(copies)
    lengths, starts, places = _segments(sizes, flat.device)
    samples = flat[places]
    rows, lengths = flat.view(-1, _ROW), lengths // _ROW
    low, high = torch.aminmax(rows, dim=1)
    squares, totals = torch.linalg.vector_norm(rows, dim=1).square_(), rows.sum(1)
    weighed = rows.mul_(torch.arange(1, _ROW + 1, device=flat.device)).sum(1)
    weighed.mul_(_weights(starts // _ROW, lengths, len(rows)))
    return _rows((squares, totals, low, high, weighed), samples, lengths)


def _segments(sizes: list[int], device: Any) -> list[Any]:
    """Lengths, starts and places of samples, found out on the CPU: each would be a launch."""
    lengths = torch.tensor(sizes, device="cpu")
    starts = lengths.cumsum(0) - lengths
    strides = lengths // SAMPLES
    strides -= (strides > ONE_COLUMN).long()
    samples = starts[:, None] + strides[:, None] * torch.arange(SAMPLES, device="cpu")
    return [one.to(device, non_blocking=True) for one in (lengths, starts, samples)]


def _weights(starts: Any, lengths: Any, size: int) -> Any:
    """One for each place, counted from the start of its own tensor."""
    begins = torch.repeat_interleave(starts, lengths, output_size=size)
    places = torch.arange(size, device=begins.device).sub_(begins)
    return places.remainder_(_WEIGHTS).add_(1)


def _rows(values: tuple[Any, ...], samples: Any, lengths: Any) -> Any:
    """Squares, numbers, lowest, highest and weighed of all tensors, to the digest of each."""
    norms, totals, lows, highs, weighed = (
        torch.segment_reduce(value, how, lengths=lengths, unsafe=True)
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


def _of_large(copies: list[Any], _sizes: list[int]) -> Any:
    count = len(copies)
    sums = torch.stack([one for sums, _ in copies for one in sums]).view(count, 2)
    samples = torch.cat([one for _, samples in copies for one in samples])
    return torch.cat([sums, samples.to(torch.float64).view(count, 2 + SAMPLES)], 1).reshape(-1)


class TensorKind:
    """What follows from shape, type and device alone, for all tensors that share them."""

    __slots__ = ("bytes", "convert", "count", "lot", "number", "size")

    def __init__(self, recorder: Recorder, tensor: Any, lots: "dict[Any, _Lot]") -> None:
        dtype, device = tensor.dtype, tensor.device
        name = str(dtype).removeprefix("torch.")
        self.size = size = tensor.numel() * (2 if dtype.is_complex else 1)
        self.bytes = 8 * size  # of a copy, as the doubles they become
        sum_up: Any = None
        self.count = _NUMBERS + 1
        is_plain = tensor.layout is torch.strided and not tensor.is_meta
        if size == 0 or not is_plain or name.startswith("q"):  # quantized
            self.count = 0
        elif size <= SMALL:
            sum_up, self.count = _of_small, size
        elif size >= _LARGE.get(device.type, _LARGE_ELSEWHERE):
            sum_up, self.count, self.bytes = _of_large, _NUMBERS, 0
        elif size % _ROW == 0 and size >= _ROW * _ROWS:
            sum_up = _of_even
        else:
            sum_up = _of_ragged
        self.lot: _Lot | None = None
        if sum_up is not None:
            new = _Lot(len(lots), device, sum_up)
            self.lot = lots.setdefault((device, dtype, sum_up), new)
        self.convert: Callable[[Any], Any] | None = None
        if name.startswith("float8"):
            self.convert = torch.Tensor.float  # little is computed in eight bits
        elif dtype.is_complex:
            self.convert = lambda one: torch.view_as_real(one.detach().resolve_conj())
        lot = None if self.lot is None else self.lot.number
        facts = [list(tensor.shape), name, device.type, self.count, lot]
        self.number = recorder.number_of(("kind", *map(str, facts)), facts)


# Which of an operation's results go into which lot, and how many bytes they hold there.
_Plan = list[tuple[_Lot, list[int], list[TensorKind], int]]


class Digests:
    """The results of one process: those since the last fetch, and the kinds of all."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.kinds: dict[Any, TensorKind] = {}
        self._lots: dict[Any, _Lot] = {}
        self._by_number: dict[int, TensorKind] = {}
        self._plans: dict[tuple[int, ...], _Plan] = {}  # by the numbers of the kinds

    def kind(self, tensor: Any) -> TensorKind:
        key = (tensor.shape, tensor.dtype, tensor.get_device())  # a device takes long to hash
        kind = self.kinds.get(key)
        if kind is None or tensor.is_meta or tensor.layout is not torch.strided:
            kind = TensorKind(self._recorder, tensor, self._lots)
            self._by_number[kind.number] = kind
            if kind.count:
                self.kinds[key] = kind
        return kind

    def take(self, tensors: Sequence[Any], numbers: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Copy these in their order; the numbers of their kinds, looked up unless given."""
        if len(tensors) == 1:
            kind = self.kind(tensors[0])
            if kind.lot is not None:
                kind.lot.add(tensors[0], kind)
                self._recorder.held_bytes += kind.bytes
            return (kind.number,)
        numbers = numbers or tuple([self.kind(tensor).number for tensor in tensors])
        plan = self._plans.get(numbers)
        if plan is None:
            plan = self._plans[numbers] = self._plan(numbers)
        for lot, places, kinds, held_bytes in plan:
            lot.add_all([tensors[place] for place in places], kinds)
            self._recorder.held_bytes += held_bytes
        return numbers

    def _plan(self, numbers: Sequence[int]) -> _Plan:
        kinds = [self._by_number[number] for number in numbers]
        places: dict[_Lot, list[int]] = {}
        for place, kind in enumerate(kinds):
            if kind.lot is not None:
                places.setdefault(kind.lot, []).append(place)
        return [
            (lot, own, [kinds[place] for place in own], sum(kinds[place].bytes for place in own))
            for lot, own in places.items()
        ]

    def launch(self) -> tuple[Widths, bool, Callable[[], bytes]]:
        """Start summing: which numbers will come, whether on a GPU, and a call that waits."""
        lots = [lot for lot in self._lots.values() if lot.kinds]
        on_gpu = {lot.device for lot in lots if lot.device.type == "cuda"}
        for device in on_gpu:
            torch.cuda.synchronize(device)  # copies may have been made in any stream
        widths = [(lot.number, sum([kind.count for kind in lot.kinds])) for lot in lots]
        # The copies stay until they are summed up: another stream would be given their memory.
        summed_up = [(lot.summed_up(), lot.copies) for lot in lots]
        for lot in lots:
            lot.copies, lot.kinds = [], []
        return widths, bool(on_gpu), lambda: b"".join([_bytes(one) for one, _ in summed_up])


def _bytes(numbers: Any) -> bytes:
    if numbers.is_cuda:
        torch.cuda.synchronize(numbers.device)  # in whatever stream it was computed
    fetched = numbers.cpu()
    return ctypes.string_at(fetched.data_ptr(), 8 * fetched.numel())
