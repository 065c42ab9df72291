"""Results in a few numbers: copied when they come about, summed up on their device many at a time,
fetched without waiting.

A small tensor is written down whole. Of any other: norm, sum, extrema, sixteen samples, and a sum
in which every place weighs something else, or the sum of all bits.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import ONE_COLUMN, SAMPLES, SMALL, Recorder, Widths
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import ONE_COLUMN, SAMPLES, SMALL, Recorder, Widths

_NUMBERS = 4 + SAMPLES + 1
_LARGE = {"cpu": 1 << 13}  # elements from which computing takes longer than launching does
_LARGE_ELSEWHERE = 1 << 22
_HELD_BYTES = 512 * 2**20  # of copies that wait for the next fetch, as the doubles they become
_ROW = 256  # elements that are summed up before the sums are
# with fewer a GPU adds up a row in another order: the last bit would tell what else was fetched
_ROWS = 16
_WEIGHTS = 1021


class _Lot:
    """Results of one device and type that are summed up together, by one of the functions below."""

    def __init__(self, torch: Any, device: Any, sum_up: Callable[[Any, Any, Any], Any]) -> None:
        self._torch, self.device, self._sum_up = torch, device, sum_up
        self.is_on_gpu: bool = device.type == "cuda"
        self._copies: list[Any] = []
        self._sizes: list[int] = []
        self.width = 0  # of all its numbers so far

    def add(self, tensors: Sequence[Any], kinds: Sequence["TensorKind"]) -> int:
        """With one launch: the program may write over them before they are fetched. Gives the bytes
        that wait.
        """
        if kinds[0].convert is not None:
            tensors = [kinds[0].convert(tensor) for tensor in tensors]
        if self._sum_up is _of_large:
            self._copies += [_statistics(self._torch, tensor) for tensor in tensors]
        elif len(tensors) > 1:
            self._copies.append(self._torch._C._nn.flatten_dense_tensors(tensors))
        elif tensors[0].is_contiguous():
            self._copies.append(tensors[0].clone())
        else:
            self._copies.append(tensors[0].contiguous())
        size = 0
        for kind in kinds:
            self._sizes.append(kind.size)
            self.width += kind.count
            size += kind.size
        return 8 * size

    def summed_up(self) -> Any:
        """All numbers of all its results, one behind the other, as doubles on the device."""
        copies, self._copies = self._copies, []
        return self._sum_up(self._torch, copies, self._sizes)


def _doubles(torch: Any, copies: list[Any]) -> Any:
    return torch._C._nn.flatten_dense_tensors(copies).to(torch.float64)


def _of_small(torch: Any, copies: list[Any], _sizes: list[int]) -> Any:
    return _doubles(torch, copies)


def _of_ragged(torch: Any, copies: list[Any], sizes: list[int]) -> Any:
    flat = _doubles(torch, copies)
    lengths = _lengths(torch, sizes, flat.device)
    starts = lengths.cumsum(0) - lengths
    samples = _samples(torch, flat, starts, lengths)
    weighed = flat * _weights(torch, starts, lengths, len(flat))
    return _rows(torch, (flat * flat, flat, flat, flat, weighed), samples, lengths)


def _of_even(torch: Any, copies: list[Any], sizes: list[int]) -> Any:
    """Of sizes that are whole rows: first the rows, on which all of a GPU works at once."""
    flat = _doubles(torch, copies)
    lengths = _lengths(torch, sizes, flat.device)
    starts = lengths.cumsum(0) - lengths
    samples = _samples(torch, flat, starts, lengths)
    rows, lengths = flat.view(-1, _ROW), lengths // _ROW
    low, high = torch.aminmax(rows, dim=1)
    squares, totals = torch.linalg.vector_norm(rows, dim=1).square_(), rows.sum(1)
    weighed = rows.mul_(torch.arange(1, _ROW + 1, device=flat.device)).sum(1)
    weighed.mul_(_weights(torch, starts // _ROW, lengths, len(rows)))
    return _rows(torch, (squares, totals, low, high, weighed), samples, lengths)


def _lengths(torch: Any, sizes: list[int], device: Any) -> Any:
    """On the device, without waiting for what it computes."""
    if device.type != "cuda":
        return torch.tensor(sizes, device=device)
    return torch.tensor(sizes, pin_memory=True, device="cpu").to(device, non_blocking=True)


def _weights(torch: Any, starts: Any, lengths: Any, size: int) -> Any:
    """One for each place, counted from the start of its own tensor."""
    begins = torch.repeat_interleave(starts, lengths, output_size=size)
    places = torch.arange(size, device=begins.device).sub_(begins)
    return places.remainder_(_WEIGHTS).add_(1)


def _samples(torch: Any, flat: Any, starts: Any, lengths: Any) -> Any:
    every = torch.arange(SAMPLES, device=flat.device)
    strides = lengths // SAMPLES
    strides -= (strides > ONE_COLUMN).long()
    return flat[starts[:, None] + strides[:, None] * every]


def _rows(torch: Any, values: tuple[Any, ...], samples: Any, lengths: Any) -> Any:
    """Squares, numbers, lowest, highest and weighed of all tensors, to the digest of each."""
    norms, totals, lows, highs, weighed = (
        torch.segment_reduce(value, how, lengths=lengths, unsafe=True)
        for value, how in zip(values, ("sum", "sum", "min", "max", "sum"), strict=True)
    )
    statistics = torch.stack([norms.sqrt_(), totals, lows, highs], 1)
    return torch.cat([statistics, samples, weighed[:, None]], 1).reshape(-1)


def _statistics(torch: Any, tensor: Any) -> tuple[Any, ...]:
    """Of a large tensor, at once: a copy of it would be a lot of memory."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        flat = flat.to(torch.float64)
    stride = flat.numel() // SAMPLES - 1
    low, high = torch.aminmax(flat)
    sums = [torch.linalg.vector_norm(flat, dtype=torch.float64), flat.sum(dtype=torch.float64)]
    samples = [low.view(1), high.view(1), flat[: stride * SAMPLES : stride].clone()]
    return sums, samples, _sum_of_bits(torch, flat)


def _sum_of_bits(torch: Any, flat: Any) -> Any:
    """As whole numbers of eight bytes where it can be read so, else of the size of an element: a
    fifth of the time of torch's own hash, and as blind for the order.
    """
    width = flat.element_size()
    if flat.numel() * width % 8:
        return flat.view(getattr(torch, f"int{8 * width}")).sum()
    # The same numbers have the same sum wherever in their memory they begin.
    begins_even = flat.storage_offset() * width % 8 == 0
    return (flat if begins_even else flat.clone()).view(torch.int64).sum()


def _of_large(torch: Any, copies: list[Any], _sizes: list[int]) -> Any:
    count = len(copies)
    sums = torch.stack([one for sums, _, _ in copies for one in sums]).view(count, 2)
    samples = torch.cat([one for _, samples, _ in copies for one in samples])
    columns = [sums, samples.to(torch.float64).view(count, 2 + SAMPLES)]
    bits = torch.stack([of_bits for _, _, of_bits in copies])
    columns.append(bits.view(torch.float64).view(count, 1))  # as they are, whatever they mean
    return torch.cat(columns, 1).reshape(-1)


class TensorKind:
    """What follows from shape, type and device alone, for all tensors that share them."""

    __slots__ = ("convert", "count", "lot", "number", "size")

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        shape: Any,
        dtype: Any,
        device: Any,
        layout: Any = None,
    ) -> None:
        name, size = str(dtype).removeprefix("torch."), 2 if dtype.is_complex else 1
        for length in shape:
            size *= length
        sum_up: Any = None
        self.count = _NUMBERS
        if size == 0 or layout or device.type == "meta" or name.startswith("q"):  # quantized
            self.count = 0
        elif size <= SMALL:
            sum_up, self.count = _of_small, size
        elif size >= _LARGE.get(device.type, _LARGE_ELSEWHERE):
            sum_up = _of_large
        elif size % _ROW == 0 and size >= _ROW * _ROWS:
            sum_up = _of_even
        else:
            sum_up = _of_ragged
        self.size = size
        self.lot = None if sum_up is None else _lots.setdefault((device, dtype, sum_up), len(_lots))
        self.convert: Callable[[Any], Any] | None = None
        if name.startswith("float8"):
            self.convert = torch.Tensor.float  # little is computed in eight bits
        elif dtype.is_complex:
            self.convert = lambda tensor: torch.view_as_real(tensor.detach().resolve_conj())
        weighed = sum_up in (_of_even, _of_ragged)
        facts = [list(shape), name, device.type, self.count, weighed, self.lot]
        self.number = recorder.number_of((shape, dtype, device, layout), facts)


_lots: dict[tuple[Any, Any, Any], int] = {}  # by number: a device takes long to hash


class Digests:
    """The results of one process: those since the last fetch, and the kinds of all."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._torch, self._recorder = torch, recorder
        self.kinds: dict[Any, TensorKind] = {}
        self._lots: dict[int, _Lot] = {}
        self._held_bytes = 0
        self._streams: set[tuple[int, int]] = set()

    @property
    def is_full(self) -> bool:
        return self._held_bytes > _HELD_BYTES

    def kind(self, tensor: Any) -> TensorKind:
        key: tuple[Any, ...] = (tensor.shape, tensor.dtype, tensor.device)
        if tensor.layout is not self._torch.strided:
            key = (*key, tensor.layout)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = TensorKind(self._torch, self._recorder, *key)
        return kind

    def take(self, tensors: Sequence[Any], kinds: Sequence[TensorKind]) -> None:
        """Copies, whose numbers stand in their lots in the order in which they were taken."""
        if len(tensors) == 1:
            if kinds[0].lot is not None:
                self._add(kinds[0].lot, tensors, kinds)
            return
        waiting: dict[int, tuple[list[Any], list[TensorKind]]] = {}
        for tensor, kind in zip(tensors, kinds, strict=True):
            if kind.lot is not None:
                together, alike = waiting.setdefault(kind.lot, ([], []))
                together.append(tensor)
                alike.append(kind)
        for number, (together, alike) in waiting.items():
            self._add(number, together, alike)

    def _add(self, number: int, tensors: Sequence[Any], kinds: Sequence[TensorKind]) -> None:
        lot = self._lots.get(number)
        if lot is None:
            device, _, sum_up = list(_lots)[number]
            lot = self._lots[number] = _Lot(self._torch, device, sum_up)
        self._held_bytes += lot.add(tensors, kinds)
        if lot.is_on_gpu:
            index = lot.device.index
            self._streams.add((index, self._torch._C._cuda_getCurrentRawStream(index)))

    def launch(self) -> tuple[Widths, bool, Callable[[], bytes]]:
        """Summed up and on its way: which numbers will be there, whether there is something to wait
        for, and what waits for it and gives them.
        """
        lots: dict[Any, list[tuple[int, _Lot]]] = {}
        for number, lot in self._lots.items():
            lots.setdefault(lot.device, []).append((number, lot))
        widths = [(number, lot.width) for alike in lots.values() for number, lot in alike]
        fetches = [self._fetch(device, [lot for _, lot in alike]) for device, alike in lots.items()]
        self._lots, self._held_bytes, self._streams = {}, 0, set()
        waits = any(device.type == "cuda" for device in lots)
        return widths, waits, lambda: b"".join([arrived() for arrived in fetches])

    def _fetch(self, device: Any, lots: list[_Lot]) -> Callable[[], bytes]:
        torch = self._torch
        event: Any = None
        if device.type == "cuda":
            here = (device.index, torch._C._cuda_getCurrentRawStream(device.index))
            if any(stream[0] == device.index and stream != here for stream in self._streams):
                torch.cuda.synchronize(device)  # what another stream copied must be there
            else:
                event = torch.cuda.Event()
        numbers = torch.cat([lot.summed_up() for lot in lots])
        if event is None:
            numbers = numbers.cpu()
        else:
            numbers = numbers.to("cpu", non_blocking=True)
            event.record(torch.cuda.current_stream(device))

        def arrived() -> bytes:
            if event is not None:
                event.synchronize()
            return ctypes.string_at(numbers.data_ptr(), 8 * numbers.numel())

        return arrived
