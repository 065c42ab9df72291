"""Results in a few numbers: copied when they come about, summed up on their device many at a time,
fetched without waiting.

A small tensor is written down whole. Of any other: norm, sum, extrema, sixteen samples, and a sum
in which every place weighs something else, or torch's hash of all bits.
"""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aorta.diverge.hook.aorta_recorder import SAMPLES, SMALL, Lot, Slot, facts_of
else:  # the directory of this file is on the path, and Aorta may not be installed
    from aorta_recorder import SAMPLES, SMALL, Lot, Slot, facts_of

_NUMBERS = 4 + SAMPLES + 1
_LARGE = {"cpu": 1 << 13}  # elements from which computing takes longer than launching does
_LARGE_ELSEWHERE = 1 << 22
_HELD_BYTES = 512 * 2**20  # of copies that wait for the next fetch, as the doubles they become
_ROW = 256  # elements that are summed up before the sums are
# with fewer a GPU adds up a row in another order: the last bit would tell what else was fetched
_ROWS = 16
_WEIGHTS = 1021
_dtype_names: dict[Any, str] = {}


def name_of(dtype: Any) -> str:
    """Torch takes longer to spell one than to launch an operation."""
    found = _dtype_names.get(dtype)
    if found is None:
        found = _dtype_names[dtype] = str(dtype).removeprefix("torch.")
    return found


class TensorLot(Lot):
    """Results of one device and type that are summed up together, by one of the functions below."""

    def __init__(self, torch: Any, device: Any, sum_up: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self._torch, self.device, self._sum_up = torch, device, sum_up
        self.is_on_gpu: bool = device.type == "cuda"
        self._copies: list[Any] = []
        self._sizes: list[int] = []
        self.width = 0  # of all its numbers so far

    def add(self, tensors: list[Any], sizes: list[int]) -> None:
        """With one launch, however many there are: they may be written over before they are
        fetched.
        """
        torch = self._torch
        if self._sum_up is _of_large:
            self._copies += [_statistics(torch, tensor) for tensor in tensors]
        elif len(tensors) == 1:
            self._copies.append(torch.clone(tensors[0], memory_format=torch.contiguous_format))
        else:
            self._copies.append(torch._C._nn.flatten_dense_tensors(tensors))
        self._sizes += sizes

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
    """Of sizes that are whole rows: first the rows, on which all of a GPU works at once, then what
    they come to.
    """
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
    return flat[starts[:, None] + (lengths // SAMPLES)[:, None] * every]


def _rows(torch: Any, values: tuple[Any, ...], samples: Any, lengths: Any) -> Any:
    """Squares, numbers, lowest, highest and weighed of all tensors, to what is written down of
    each.
    """
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
    stride = flat.numel() // SAMPLES
    low, high = torch.aminmax(flat)
    sums = [torch.linalg.vector_norm(flat, dtype=torch.float64), flat.sum(dtype=torch.float64)]
    samples = [low.view(1), high.view(1), flat[: stride * SAMPLES : stride].clone()]
    return sums, samples, [torch.hash_tensor(flat)] if hasattr(torch, "hash_tensor") else []


def _of_large(torch: Any, copies: list[Any], _sizes: list[int]) -> Any:
    count = len(copies)
    sums = torch.stack([one for sums, _, _ in copies for one in sums]).view(count, 2)
    samples = torch.cat([one for _, samples, _ in copies for one in samples])
    columns = [sums, samples.to(torch.float64).view(count, 2 + SAMPLES)]
    if copies[0][2]:
        hashes = torch.stack([of_bits for _, _, (of_bits,) in copies])
        columns.append(hashes.view(torch.float64).view(count, 1))  # its bits, whatever they mean
    return torch.cat(columns, 1).reshape(-1)


class _Kind:
    """What follows from shape, type and device alone, found out once for all tensors that share
    them.
    """

    __slots__ = ("count", "facts", "is_complex", "is_narrow", "lot", "size")

    def __init__(self, torch: Any, shape: Any, dtype: Any, device: Any) -> None:
        name, size = name_of(dtype), 2 if dtype.is_complex else 1
        for length in shape:
            size *= length
        sum_up: Any = None
        self.count = _NUMBERS
        if size == 0 or device.type == "meta" or name.startswith("q"):  # quantized
            self.count = 0
        elif size <= SMALL:
            sum_up, self.count = _of_small, size
        elif size >= _LARGE.get(device.type, _LARGE_ELSEWHERE):
            sum_up = _of_large
            self.count -= not hasattr(torch, "hash_tensor")
        elif size % _ROW == 0 and size >= _ROW * _ROWS:
            sum_up = _of_even
        else:
            sum_up = _of_ragged
        self.size = size
        self.lot = None if sum_up is None else _lots.setdefault((device, dtype, sum_up), len(_lots))
        self.is_complex: bool = dtype.is_complex
        self.is_narrow = name.startswith("float8")
        weighed = sum_up in (_of_even, _of_ragged)
        self.facts = facts_of(list(shape), name, device.type, self.count, weighed=weighed)


_lots: dict[tuple[Any, Any, Any], int] = {}  # by number: a device takes long to hash
_kinds: dict[Any, _Kind] = {}


class DigestBatch:
    """The results since the last fetch."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._lots: dict[int, TensorLot] = {}
        self._held_bytes = 0
        self._streams: set[tuple[int, int]] = set()

    @property
    def is_full(self) -> bool:
        return self._held_bytes > _HELD_BYTES

    def take(self, tensors: list[Any]) -> list[Slot]:
        """Where the numbers of each will be found."""
        torch, lots = self._torch, self._lots
        plain, strided = torch.Tensor, torch.strided
        slots: list[Slot] = []
        waiting: dict[int, tuple[list[Any], list[int]]] = {}
        for tensor in tensors:
            if type(tensor) is not plain:
                tensor = _local(tensor)  # noqa: PLW2901 - of a DTensor: what this rank holds
            key = (tensor.shape, tensor.dtype, tensor.device)
            kind = _kinds.get(key)
            if kind is None:
                kind = _kinds[key] = _Kind(torch, *key)
            number = kind.lot
            if number is None or tensor.layout is not strided:
                slots.append(_nothing_of(*key))
                continue
            lot = lots.get(number)
            if lot is None:
                device, _, sum_up = list(_lots)[number]
                lot = lots[number] = TensorLot(torch, device, sum_up)
            if kind.is_narrow:
                tensor = tensor.float()  # noqa: PLW2901 - little is computed in eight bits
            elif kind.is_complex:
                tensor = torch.view_as_real(tensor.detach().resolve_conj())  # noqa: PLW2901
            start = 8 * lot.width
            lot.width += kind.count
            slots.append((kind.facts, lot, start, 8 * lot.width))
            if number in waiting:
                copied, sizes = waiting[number]
                copied.append(tensor)
                sizes.append(kind.size)
            else:
                waiting[number] = ([tensor], [kind.size])
        for number, (copied, sizes) in waiting.items():
            lot = lots[number]
            lot.add(copied, sizes)
            self._held_bytes += 8 * sum(sizes)
            if lot.is_on_gpu:
                index = lot.device.index
                self._streams.add((index, torch._C._cuda_getCurrentRawStream(index)))
        return slots

    def launch(self) -> tuple[bool, Callable[[], None]]:
        """Summed up and on its way. Whether there is something to wait for, and what waits for
        it.
        """
        lots: dict[Any, list[TensorLot]] = {}
        for lot in self._lots.values():
            lots.setdefault(lot.device, []).append(lot)
        fetches = [self._fetch(device, alike) for device, alike in lots.items()]

        def wait() -> None:
            for arrived in fetches:
                arrived()

        return any(device.type == "cuda" for device in lots), wait

    def _fetch(self, device: Any, lots: list[TensorLot]) -> Callable[[], None]:
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

        def arrived() -> None:
            if event is not None:
                event.synchronize()
            told = memoryview(ctypes.string_at(numbers.data_ptr(), 8 * numbers.numel()))
            for lot in lots:
                lot.fetched, told = told[: 8 * lot.width], told[8 * lot.width :]

        return arrived


def _nothing_of(shape: Any, dtype: Any, device: Any) -> Slot:
    return (facts_of(list(shape), name_of(dtype), device.type, 0), None, 0, 0)


def _local(tensor: Any) -> Any:
    if type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.wait()
    return getattr(tensor, "_local_tensor", tensor)
