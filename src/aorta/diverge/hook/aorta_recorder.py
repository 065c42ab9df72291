"""Lives in the process that is recorded: a digest of every operation's result, without touching the user's code.

It is loaded by file, where nothing of Aorta need be installed: the standard library here, torch beside it once the user has
imported it. One JSON line an operation goes to `stream-<pid>-<part>.jsonl`.
"""

import atexit
import importlib
import json
import math
import os
import sys
import sysconfig
from array import array
from binascii import b2a_base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

SAMPLES = 16
SMALL = 32  # elements: such a tensor is written down whole
_PENDING = 256  # records between two fetches from the device
_HELD_BYTES = 128 * 2**20  # of copies that wait for the next fetch, as the doubles they become
_SEGMENT = 50_000  # records in a file of the ring


@dataclass(frozen=True)
class Orders:
    """What a run is told by the variable AORTA_DIVERGE."""

    out: str
    seed: int = 0
    first_step: int = 0
    last_step: int | None = None
    most: int = 1_000_000  # records
    ring: bool = False  # over that: the oldest go (what leads to a NaN is at the end), instead of recording no more
    parameters: bool = False
    dtype: str | None = None
    device: str | None = None
    same_random: bool = False  # draw on the CPU, so that two devices draw alike
    keep: dict[str, Any] | None = None  # the operation whose inputs and outputs are saved whole


class Recorder:
    """The stream of one process, and what the process is told to record."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.step = 0
        self.optimizer_steps = 0
        self.paused = False  # what the recorder itself computes is nobody's operation
        self._notes: set[str] = set()
        self._count = 0
        self._truncated = False
        self._pending: list[tuple[dict[str, Any], list[Any]]] = []
        self._file: TextIO | None = None
        self._segments: list[Path] = []
        self._in_segment = 0
        self.held_bytes = 0

    @contextmanager
    def pause(self) -> Iterator[None]:
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def note(self, words: str) -> None:
        self._notes.add(words)

    @property
    def wants_more(self) -> bool:
        """Whether this step is asked for, and there is room."""
        last = self.orders.last_step
        within = self.orders.first_step <= self.step and (last is None or self.step <= last)
        if within and not self.orders.ring and self._count >= self.orders.most:
            self._truncated = True
            return False
        return within

    def emit(self, record: dict[str, Any], digests: list[Any]) -> int:
        """One more record; its number. `digests` are per output: None, or (facts, numbers, hash).

        The numbers are a list of tensors and floats, or a `Held` copy that is summed up with all others at the next fetch.
        """
        index = self._count
        self._count += 1
        self._pending.append(({**record, "i": index, "s": self.step}, digests))
        if len(self._pending) >= _PENDING or self.held_bytes > _HELD_BYTES:
            self.flush()
        return index

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        given = [digest for _, digests in pending for digest in digests if digest is not None]
        fetch_held([digest[1] for digest in given if isinstance(digest[1], Held)])
        self.held_bytes = 0
        told = [digest for digest in given if not isinstance(digest[1], Held)]
        numbers = _fetched([digest[1] for digest in told])
        hashes = _fetched([digest[2] for digest in told if digest[2] is not None])

        def said(digest: Any) -> dict[str, Any]:
            facts, found, of_bits = digest
            if isinstance(found, Held):
                return {**facts, "v": _packed(found.numbers), "h": found.hash}
            of_bits = None if of_bits is None else next(hashes)[0]
            return {**facts, "v": _packed(next(numbers)), "h": of_bits}

        file = self._stream()
        for record, digests in pending:
            record["d"] = [None if digest is None else said(digest) for digest in digests]
            file.write(_written(record) + "\n")
        file.flush()
        self._in_segment += len(pending)

    def _stream(self) -> TextIO:
        if self._file is not None and self.orders.ring and self._in_segment >= _SEGMENT:
            self._file.close()
            self._file = None
            while len(self._segments) * _SEGMENT > self.orders.most:
                self._segments.pop(0).unlink(missing_ok=True)
        if self._file is None:
            part = f"{self._count // _SEGMENT:06d}"
            path = Path(self.orders.out) / f"stream-{os.getpid()}-{part}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8")
            self._file.write(json.dumps({"begin": True, "rank": rank()}) + "\n")
            self._segments.append(path)
            self._in_segment = 0
        return self._file

    def close(self) -> None:
        if not self._count:
            return
        self.paused = True
        self.flush()
        torch = sys.modules.get("torch")
        end = {
            "end": True,
            "rank": rank(),
            "records": self._count,
            "steps": self.step,
            "truncated": self._truncated,
            "notes": sorted(self._notes),
            "torch": getattr(torch, "__version__", None),
        }
        file = self._stream()
        file.write(json.dumps(end) + "\n")
        file.close()


_current: Recorder | None = None


def current() -> Recorder | None:
    """The recorder of this process, if it is recorded."""
    return _current


def begin(orders: Orders) -> Recorder:
    """From here on this process is recorded."""
    global _current  # noqa: PLW0603 - one recorder a process, like the interpreter it watches
    import random

    random.seed(orders.seed)
    _current = Recorder(orders)
    atexit.register(_current.close)
    return _current


def begin_as_told() -> None:
    """At the start of a process, by its variable."""
    begin(Orders(**json.loads(os.environ["AORTA_DIVERGE"])))
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """A forked child (a data loader's worker) is not the program that is compared."""
    global _current  # noqa: PLW0603
    if _current is not None:
        atexit.unregister(_current.close)
    _current = None


def rank() -> int | None:
    """None for a process that is no rank of anything, such as a launcher."""
    torch = sys.modules.get("torch")
    if torch is not None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    told = os.environ.get("RANK", "")
    return int(told) if told.isdigit() else None


_written = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


def _packed(numbers: list[float]) -> str:
    """Doubles in base64: spelling them out takes longer than everything else that is done for a record."""
    return b2a_base64(array("d", numbers), newline=False).decode()


class Held:
    """A copy of one tensor that waits for the next fetch: `size` elements of `copy`, from `start`."""

    __slots__ = ("copy", "hash", "numbers", "size", "start")

    def __init__(self, copy: Any, start: int, size: int) -> None:
        self.copy, self.start, self.size = copy, start, size
        self.numbers: list[float] = []
        self.hash: float | None = None


def fetch_held(held: list[Held]) -> None:
    """The numbers of all copies, with a dozen launches for each device and type, however many there are.

    The copies of one operation lie one behind the other, and so they do in here.
    """
    torch = sys.modules.get("torch")
    groups: dict[tuple[Any, Any], list[Held]] = {}
    for one in held:
        groups.setdefault((one.copy.device, one.copy.dtype), []).append(one)
    for group in groups.values():
        assert torch is not None
        copies = [one.copy for one in group if one.start == 0]
        sizes = [one.size for one in group]
        for one, row in zip(group, _summed_up(torch, copies, sizes), strict=True):
            one.numbers, one.hash, one.copy = row[:-1], row[-1], None


def _summed_up(torch: Any, copies: list[Any], sizes: list[int]) -> list[list[float]]:
    """Of each tensor: norm, sum, extrema, samples, and a sum in which every place weighs something else."""
    flat = torch.cat(copies).to(torch.float64)
    lengths = torch.tensor(sizes, device=flat.device)
    starts = lengths.cumsum(0) - lengths
    begins = torch.repeat_interleave(starts, lengths, output_size=flat.numel())
    weights = (torch.arange(flat.numel(), device=flat.device) - begins).remainder_(_WEIGHTS).add_(1)

    def of_each(values: Any, how: str) -> Any:
        return torch.segment_reduce(values, how, lengths=lengths, unsafe=True)

    statistics = [
        of_each(flat * flat, "sum").sqrt(),
        of_each(flat, "sum"),
        of_each(flat, "min"),
        of_each(flat, "max"),
    ]
    at = starts[:, None] + (lengths // SAMPLES)[:, None] * torch.arange(SAMPLES, device=flat.device)
    weighed = of_each(flat * weights, "sum")
    rows = torch.cat([torch.stack(statistics, 1), flat[at], weighed[:, None]], 1)
    found: list[list[float]] = rows.tolist()
    return found


_WEIGHTS = 1021


def _fetched(digests: list[list[Any]]) -> Iterator[list[float]]:
    """Each digest's tensors as one list of numbers, with one transfer for each device and type."""
    torch = sys.modules.get("torch")
    groups: dict[tuple[Any, Any], list[Any]] = {}
    for pieces in digests:
        for piece in pieces:
            if not isinstance(piece, float):
                groups.setdefault((piece.device, piece.dtype), []).append(piece.reshape(-1))
    flat = {key: iter(torch.cat(group).tolist()) for key, group in groups.items() if torch}
    for pieces in digests:
        found: list[float] = []
        for piece in pieces:
            if isinstance(piece, float):
                found.append(piece)
            else:
                found += islice(flat[piece.device, piece.dtype], piece.numel())
        yield found


def record_value(name: str, value: Any) -> None:
    """A value of the user's own, by `aorta.diverge.record`."""
    recorder = current()
    if recorder is None or not recorder.wants_more:
        return
    file, line = users_line()
    record = {"op": f"record::{name}", "p": "f", "m": "", "f": file, "l": line, "in": [], "ish": []}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        digest_of = importlib.import_module("aorta_recorder_torch").digest_of
        with recorder.pause(), torch.no_grad():
            recorder.emit(record, [digest_of(torch, value)])
        return
    elements = list(_flat(value))
    facts = {"sh": [len(elements)], "dt": "float64", "dev": "cpu"}
    recorder.emit(record, [(facts, _statistics(elements), None)])


def _flat(value: Any) -> Iterator[float]:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield float(value)


def _statistics(elements: list[float]) -> list[float]:
    if len(elements) <= SMALL:
        return elements
    norm = math.sqrt(sum(x * x for x in elements))
    low, high = min(elements), max(elements)
    if any(math.isnan(x) for x in elements):
        low = high = math.nan
    stride = len(elements) // SAMPLES
    return [norm, sum(elements), low, high, *elements[: stride * SAMPLES : stride]]


_PACKAGE = str(Path(__file__).parent.parent)
_LIBRARY = sysconfig.get_paths()["stdlib"]


def users_line(ours: tuple[str, ...] = ()) -> tuple[str, int]:
    """The innermost line that is neither torch's, nor the standard library's, nor this file's."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((*ours, _PACKAGE, "<frozen")) and (
            not name.startswith(_LIBRARY) or "site-packages" in name
        ):
            return name, frame.f_lineno
        frame = frame.f_back
    return "", 0
