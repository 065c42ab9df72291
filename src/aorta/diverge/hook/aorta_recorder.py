"""Lives in the recorded process: a digest of every operation's result, the user's code untouched.

Loaded by file, since Aorta need not be installed there: standard library only, torch once the user
imports it. `stream-<pid>` has a line of JSON for some hundred records, and behind it their numbers
as they lie in memory; what they share (places, shapes) stands there once and is a number from then
on.
"""

import atexit
import importlib
import json
import math
import os
import random
import sys
import sysconfig
from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

SAMPLES = 16
# Samples further apart than that are moved by one each: else those of a matrix are of one column.
ONE_COLUMN = 4
SMALL = 32  # elements: such a tensor is written down whole
_PENDING = 512  # records between two fetches from the device
_HELD_BYTES = 512 * 2**20  # of copies that wait for a fetch; on a large GPU more
Place = tuple[str, str, str, int]  # phase, module, file, line
Widths = list[tuple[int, int]]  # of each lot in a batch: its number, how many doubles are in it
Written = int | list[int]  # by which record, or by which in parts


@dataclass(frozen=True)
class RecorderSettings:
    """What the variable AORTA_DIVERGE says of a run."""

    out: str
    seed: int = 0
    first_step: int = 0
    last_step: int | None = None
    most: int = 1_000_000  # records
    parameters: bool = False
    dtype: str | None = None
    device: str | None = None
    same_random: bool = False  # draw on the CPU, so that two devices draw alike


class Recorder:
    """The stream of one process."""

    current: "ClassVar[Recorder | None]" = None  # of this process, if it is recorded

    def __init__(self, settings: RecorderSettings) -> None:
        self.settings = settings
        self.step = 0  # of the optimizer
        self.paused = False  # what the recorder itself computes is nobody's operation
        # Not as the program says: on another device, in another precision, drawn alike.
        self.runs_otherwise = bool(settings.device or settings.dtype or settings.same_random)
        self._notes: set[str] = set()
        self.count = 0
        self._truncated = False
        self.is_on = settings.first_step == 0  # this step is recorded, and there is room
        self.is_on_gpu = False  # something that was recorded
        self.held_bytes, self.most_held_bytes = 0, _HELD_BYTES  # of copies that wait for a flush
        self._numbers: dict[Hashable, int] = {}
        self._defined: list[object] = []
        self._defined_before = 0  # that are in the file
        self.digests: Any = None  # of tensors, where torch is
        self._own = array("d")  # numbers of values that are no tensors
        # Of each record: step, head, how many numbers of what it read, how many results; then the
        # writer, kind and offset of each tensor that it read, and the kind of each result. Several
        # writers are a list that is shared, -1 the first of those.
        self._pending: list[int] = []
        self._first = 0  # of the records that are pending
        # What is to be written: the line, the records and its numbers of no tensor, what gives the
        # others.
        self._summed_up: tuple[dict[str, Any], bytes, bytes, Callable[[], bytes]] | None = None
        self._file: BinaryIO | None = None

    def note(self, words: str) -> None:
        self._notes.add(words)

    def next_step(self) -> None:
        self.step += 1
        if self.count - self._first >= _PENDING // 2:
            # So that the copies of one step lie where those of another lay. What sums them up is
            # called outside of the dispatcher here, and would be recorded.
            self.paused = True
            self.flush()
            self.paused = False
        first, last = self.settings.first_step, self.settings.last_step
        is_wanted = first <= self.step and (last is None or self.step <= last)
        self.is_on = is_wanted and not self._truncated

    def number_of(self, key: Hashable, value: object) -> int:
        """Of what many records share: `value` is written once."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._defined)
            self._defined.append(value)
        return number

    def head(self, op: str, place: Place, is_random: bool = False, tf32: bool = False) -> int:
        """Which operation a record is of, and where it stands in the program."""
        key = (op, place, tf32)
        number = self._numbers.get(key)
        return number if number is not None else self.number_of(key, (op, *place, is_random, tf32))

    def emit(self, head: int, read: Sequence[int], given: Sequence[int]) -> int:
        """The record's number. `read`: writer, kind, offset of each tensor; `given`: kinds."""
        self._pending += (self.step, head, len(read), len(given), *read, *given)
        self.count += 1
        if self.count - self._first >= _PENDING or self.held_bytes > self.most_held_bytes:
            self.flush()
            if self.count >= self.settings.most:
                self._truncated, self.is_on = True, False
                self.note(f"recorded up to step {self.step}; --steps A:B records later ones")
        return self.count - 1

    def emit_numbers(self, head: int, numbers: Sequence[float], size: int) -> None:
        """One more record, of a value that is no tensor."""
        kind = ([size], "float64", "cpu", len(numbers), -1)
        self._own.extend(numbers)
        self.emit(head, (), [self.number_of(("numbers", size), kind)])

    def flush(self) -> None:
        """Sum up what waits. What a GPU sums up is fetched and written at the next flush."""
        self._write_summed_up()
        if self.count == self._first:
            return
        launched: tuple[Widths, bool, Callable[[], bytes]] = ([], False, bytes)
        if self.digests is not None:
            launched = self.digests.launch()
        widths, waits, fetch = launched
        line = {
            "rank": rank(),
            "first": self._first,
            "widths": [(-1, len(self._own)), *widths],
        }
        records = array("q", self._pending).tobytes()
        self._summed_up = (line, records, self._own.tobytes(), fetch)
        self._pending, self._first, self.held_bytes = [], self.count, 0
        self._own = array("d")
        if not waits:
            self._write_summed_up()

    def _write_summed_up(self) -> None:
        if self._summed_up is None:
            return
        (line, records, own, fetch), self._summed_up = self._summed_up, None
        new = self._defined[self._defined_before :]
        self._defined_before = len(self._defined)
        numbers = own + fetch()
        lengths = [len(records), len(numbers)]
        self._write({**line, "new": new, "bytes": lengths}, records + numbers)

    def _write(self, line: dict[str, Any], numbers: bytes = b"") -> None:
        if self._file is None:
            path = Path(self.settings.out) / f"stream-{os.getpid()}"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n" + numbers)
        self._file.flush()

    def close(self) -> None:
        if not self.count:
            return
        self.paused = True
        self.flush()
        self._write_summed_up()
        self._write({"end": True, "truncated": self._truncated, "notes": sorted(self._notes)})
        self.is_on = False
        if self._file is not None:
            self._file.close()


def begin(settings: RecorderSettings) -> Recorder:
    """From here on this process is recorded."""
    random.seed(settings.seed)
    recorder = Recorder.current = Recorder(settings)
    atexit.register(recorder.close)
    return recorder


def begin_from_environment() -> None:
    """At the start of a process, by its variable."""
    begin(RecorderSettings(**json.loads(os.environ["AORTA_DIVERGE"])))
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """A forked child (a data loader's worker) is not the program that is compared."""
    if Recorder.current is not None:
        atexit.unregister(Recorder.current.close)
    Recorder.current = None


def rank() -> int | None:
    """None for a process that is no rank of anything, such as a launcher."""
    torch = sys.modules.get("torch")
    if torch is not None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    given = os.environ.get("RANK", "")
    return int(given) if given.isdigit() else None


def record_value(name: str, value: Any) -> None:
    """A value of the user's own, by `aorta.diverge.record`."""
    recorder = Recorder.current
    if recorder is None or not recorder.is_on:
        return
    head = recorder.head(f"record::{name}", ("f", "", *_users_line()))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        importlib.import_module("aorta_recorder_torch").emit(recorder, head, value)
        return
    elements = list(_flat(value))
    recorder.emit_numbers(head, _statistics(elements), len(elements))


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
    stride -= stride > ONE_COLUMN
    return [norm, sum(elements), low, high, *elements[: stride * SAMPLES : stride]]


_PACKAGE = str(Path(__file__).parent.parent)
_LIBRARY = sysconfig.get_paths()["stdlib"]


def is_users(name: str, ours: tuple[str, ...] = ()) -> bool:
    """Whether a file is neither the standard library's, nor ours, nor in one of those folders."""
    is_library = name.startswith(_LIBRARY) and "site-packages" not in name
    return not is_library and not name.startswith((*ours, _PACKAGE, "<frozen"))


def _users_line() -> tuple[str, int]:
    frame: Any = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
