"""Lives in the process that is recorded: a digest of every operation's result, without touching the
user's code.

It is loaded by file, where nothing of Aorta need be installed: the standard library here, torch
beside it once the user has imported it. One JSON line an operation goes to
`stream-<pid>-<part>.jsonl`.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

SAMPLES = 16
SMALL = 32  # elements: such a tensor is written down whole
_PENDING = 256  # records between two fetches from the device
_SEGMENT = 50_000  # records in a file of the ring
Place = tuple[str, str, str, int]  # phase, module, file, line


@dataclass(frozen=True)
class Orders:
    """What a run is told by the variable AORTA_DIVERGE."""

    out: str
    seed: int = 0
    first_step: int = 0
    last_step: int | None = None
    most: int = 1_000_000  # records
    # over that: the oldest go (what leads to a NaN is at the end), instead of recording no more
    ring: bool = False
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
        # Not as the program says: on another device, in another precision, drawn alike.
        self.runs_otherwise = bool(orders.device or orders.dtype or orders.same_random)
        self._notes: set[str] = set()
        self._count = 0
        self._truncated = False
        self.batch: Any = None  # of tensors, where torch is
        self._pending: list[_Pending] = []
        self._fetching: tuple[list[_Pending], Callable[[], None] | None] = ([], None)
        self._file: TextIO | None = None
        self._segments: list[Path] = []
        self._in_segment = 0

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

    def emit(
        self,
        head: str,
        writers: "Writers",
        shapes: Sequence[str],
        outputs: list["Slot"],
    ) -> int:
        """One more record; its number. Spelled out once its numbers are there."""
        index = self._count
        self._count += 1
        self._pending.append((index, self.step, head, writers, shapes, outputs))
        if len(self._pending) >= _PENDING or (self.batch is not None and self.batch.is_full):
            self.flush()
        return index

    def flush(self) -> None:
        """What waits is summed up; what a device was asked for at the last flush is there by now,
        and is written.
        """
        pending, self._pending = self._pending, []
        batch, self.batch = self.batch, None
        self._write_fetched()
        on_its_way, wait = (False, None) if batch is None else batch.launch()
        self._fetching = (pending, wait)
        if not on_its_way:
            self._write_fetched()

    def _write_fetched(self) -> None:
        (pending, wait), self._fetching = self._fetching, ([], None)
        if not pending:
            return
        if wait is not None:
            wait()
        file = self._stream()
        file.writelines(_spelled(record) for record in pending)
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
        self._write_fetched()
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


class Lot:
    """Numbers of several results, one behind the other, once they are fetched."""

    def __init__(self, fetched: bytes = b"") -> None:
        self.fetched = memoryview(fetched)


Writers = list[list[int] | None]  # of each tensor that was read
Slot = tuple[str, Lot | None, int, int]  # facts of a result, and where its numbers are
_Pending = tuple[int, int, str, Writers, Sequence[str], list[Slot]]


def facts_of(
    shape: list[int], dtype: str, device: str, count: int, *, weighed: bool = False
) -> str:
    """What is told of a tensor without looking into it, of how many numbers its digest is, and
    whether the last of them is a weighed sum.
    """
    facts = {"sh": shape, "dt": dtype, "dev": device, "n": count, **({"w": 1} if weighed else {})}
    return json.dumps(facts, separators=(",", ":"))


def head_of(op: str, place: "Place", *, random: bool = False, tf32: bool = False) -> str:
    """Which operation a record is of, and where it stands in the program."""
    phase, module, file, line = place
    facts = {
        "op": op,
        "p": phase,
        "m": module,
        "f": file,
        "l": line,
        **({"r": 1} if random else {}),
        **({"t": 1} if tf32 else {}),
    }
    return json.dumps(facts, separators=(",", ":"))[1:-1]


def _spelled(record: _Pending) -> str:
    """One line. All doubles of a record in base64: spelling them out takes longer than everything
    else does.
    """
    index, step, head, writers, shapes, outputs = record
    facts = ",".join([slot[0] for slot in outputs])
    numbers = b"".join([lot.fetched[start:end] for _, lot, start, end in outputs if lot])
    return (
        f'{{"i":{index},"s":{step},{head},"in":{writers},"ish":[{",".join(shapes)}],'
        f'"d":[{facts}],"v":"{b2a_base64(numbers, newline=False).decode()}"}}\n'
    )


def record_value(name: str, value: Any) -> None:
    """A value of the user's own, by `aorta.diverge.record`."""
    recorder = current()
    if recorder is None or not recorder.wants_more:
        return
    file, line = users_line()
    head = head_of(f"record::{name}", ("f", "", file, line))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        importlib.import_module("aorta_recorder_torch").emit(recorder, torch, head, [value])
        return
    elements = list(_flat(value))
    numbers = array("d", _statistics(elements)).tobytes()
    facts = facts_of([len(elements)], "float64", "cpu", len(numbers) // 8)
    recorder.emit(head, [], [], [(facts, Lot(numbers), 0, len(numbers))])


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


_users_files: dict[str, bool] = {}  # whether its lines are the user's


def users_line(ours: tuple[str, ...] = ()) -> tuple[str, int]:
    """The innermost line that is neither torch's, nor the standard library's, nor this file's."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        is_users = _users_files.get(name)
        if is_users is None:
            is_users = _users_files[name] = _is_users(name, ours)
        if is_users:
            return name, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _is_users(name: str, ours: tuple[str, ...]) -> bool:
    if name.startswith((*ours, _PACKAGE, "<frozen")):
        return False
    return not name.startswith(_LIBRARY) or "site-packages" in name
