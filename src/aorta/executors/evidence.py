"""Evidence of how a trial ended besides its status: its output, its metric file, kills for memory.

A match may span up to `OVERLAP` bytes. One at the end of what was read so far waits for more, or
for the stream to end or fall quiet: `loss=1$` must not fire on the first half of `loss=12`. A
metric file in a working directory that trials share is believed only if no other trial could have
written it. Standard library only: it runs inside the supervisor.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

OVERLAP = 64 * 1024
SCAN_BYTES = 256 * 1024  # scan as soon as this much is new ...
SCAN_EVERY = 0.02  # ... or this long after the last scan: small writes must not cost a scan each
QUIET = 0.2
TAIL = 32 * 1024
# Of CPU for one scan of one window: a pattern that needs more backtracks for ever.
PATTERN_SECONDS = 2.0
_LINE = 400


def read_end(path: Path, most: int) -> bytes:
    """The last `most` bytes of a log that may be long, and may still be written."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - most))
        return file.read(most)


class SlowPatternError(Exception):
    """A pattern took too long on one window."""


class CompiledPattern:
    """No dataclass: to load those takes a fifth of a supervisor's start."""

    def __init__(self, pattern: dict[str, Any]) -> None:
        self.text: str = pattern["pattern"]
        self.regex = re.compile(self.text.encode())
        self.stop: bool = pattern["stop"]
        self.keep_last: bool = pattern["keep_last"]
        self.keep_all: bool = pattern["keep_all"]
        self.every = deque[str](maxlen=8192)  # for `keep_all`; memory is bounded
        self.match: dict[str, Any] | None = None
        self.searched_to = 0  # absolute offset behind the last match, for `keep_last`
        self.hopeless = False  # it took too long once, and is not tried again


class Log:
    """The first `limit` bytes of a stream in a file and, behind a marker, the last ones."""

    def __init__(self, path: Path, limit: int) -> None:
        self._file = path.open("wb", buffering=0)
        self._room = limit
        self._beyond = 0  # bytes behind the limit
        self._is_full = False

    def write(self, data: bytes) -> None:
        head = data[: self._room]
        self._room -= len(head)
        self._beyond += len(data) - len(head)
        if head and not self._is_full:
            try:
                self._file.write(head)
            except OSError:  # a full disk must not end the watching
                self._is_full = True

    def close(self, tail: bytes) -> None:
        """`tail`: what the stream ended with, as far as it is known."""
        kept = tail[-self._beyond :]
        if self._beyond and not self._is_full:
            self._room = sys.maxsize
            self.write(f"\n[aorta: {self._beyond - len(kept)} bytes left out]\n".encode() + kept)
        self._file.close()


class WatchedStream:
    """Bytes in, log and matches out. Memory is bounded whatever is written."""

    def __init__(self, name: str, path: Path, patterns: list[CompiledPattern], limit: int) -> None:
        self.name = name
        self.path = path
        self.log = Log(path, limit)
        self.patterns = patterns
        self.seen = 0
        self.last_at: float | None = None
        self._tail = bytearray()
        self._window = bytearray()
        self._new = 0
        self._scanned_at = 0.0
        self._held = False

    def feed(self, data: bytes, at: float) -> None:
        self.log.write(data)
        self.seen += len(data)
        self.last_at = at
        self._tail += data[-TAIL:]
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]
        if self.patterns:
            self._window += data
            self._new += len(data)

    def next_scan(self) -> float | None:
        """When a scan is due, in seconds after the start; None when there is nothing to scan."""
        if self._held and self.last_at is not None:
            return self.last_at + QUIET
        return self._scanned_at + SCAN_EVERY if self._new else None

    def scan(self, at: float, *, final: bool = False) -> bool:
        """Search what is new. True when a pattern that ends the trial has matched."""
        due = final or self._new >= SCAN_BYTES or at >= (self.next_scan() or float("inf"))
        if not self.patterns or not due or not (self._new or self._held):
            return False
        is_quiet = final or (self.last_at is not None and at - self.last_at >= QUIET)
        self._held = False
        stop = False
        for pattern in self.patterns:
            stop = self._search(pattern, is_quiet) or stop
        self._new = 0
        self._scanned_at = at
        del self._window[: max(0, len(self._window) - OVERLAP)]
        return stop

    def _search(self, pattern: CompiledPattern, is_quiet: bool) -> bool:
        if pattern.hopeless or (pattern.match is not None and not pattern.keep_last):
            return False
        base = self.seen - len(self._window)  # the absolute offset of the window's first byte
        # One byte of context keeps `^` from matching at a cut that is not the start of a line.
        start = max(1 if base else 0, pattern.searched_to - base)
        try:
            with _time_limit(pattern.text):
                if pattern.keep_last:
                    matches = list(pattern.regex.finditer(self._window, start))
                    if matches and matches[-1].end() == len(self._window) and not is_quiet:
                        self._held = True
                        matches.pop()
                    found = matches[-1] if matches else None
                    if pattern.keep_all:
                        pattern.every.extend(_text(match[1] or b"") for match in matches)
                else:
                    found = pattern.regex.search(self._window, start)
        except SlowPatternError:
            pattern.hopeless = True
            raise
        if found is None:
            return False
        if found.end() == len(self._window) and not is_quiet:
            self._held = True
            return False
        pattern.searched_to = base + found.end()
        pattern.match = {
            "pattern": pattern.text,
            "stream": self.name,
            "line": self._line_of(found.start(), found.end()),
            "groups": [None if g is None else _text(bytes(g)) for g in found.groups()],
            "at": self.last_at,
            "every": list(pattern.every),
        }
        return pattern.stop

    def _line_of(self, start: int, end: int) -> str:
        first = max(self._window.rfind(b"\n", 0, start) + 1, start - _LINE)
        last = self._window.find(b"\n", end)
        return _text(bytes(self._window[first : last if last >= 0 else None][:_LINE]))

    def end(self) -> dict[str, Any]:
        tail = bytes(self._tail[-TAIL:])
        self.log.close(tail)
        return {"bytes_seen": self.seen, "last_at": self.last_at, "tail": _text(tail)}


@contextmanager
def _time_limit(pattern: str) -> Iterator[None]:
    """Break a regular expression after so much CPU time; a busy machine does not count."""

    def too_slow(_number: int, _frame: FrameType | None) -> None:
        raise SlowPatternError(
            f"the pattern {pattern!r} took more than {PATTERN_SECONDS:g} s of CPU on "
            f"{(OVERLAP + SCAN_BYTES) // 1024} KiB of output; make it simpler"
        )

    signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, PATTERN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# The kernel stamps files a few milliseconds coarse; two writes within that look like one.
_CLOCK_TICK = 0.02
# In a result: the place of the metric file, where other trials may write too.
SHARED = "metrics_shared"


class MetricFile:
    """Watches the places where a trial may leave its metric, from before it starts."""

    def __init__(self, own: Path, shared: Path) -> None:
        self._own, self._shared = own, shared
        own.unlink(missing_ok=True)  # of an attempt that was cut short
        self._before = _stable_stamp(shared)

    def found(self) -> dict[str, Any]:
        """What this trial wrote, for its result; nothing where it wrote none."""
        if self._own.exists():
            return {"metrics_file": json_object(self._own)}
        if _stamp(self._shared) not in (None, self._before):
            return {"metrics_file": json_object(self._shared), SHARED: str(self._shared)}
        return {}


def json_object(path: Path) -> dict[str, Any] | None:
    """An unreadable file counts as none."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def _stable_stamp(path: Path) -> tuple[int, ...] | None:
    """Taken late enough that any later write gets another one."""
    with suppress(OSError):
        age = time.time() - path.stat().st_ctime
        if 0 <= age < _CLOCK_TICK:
            time.sleep(_CLOCK_TICK - age)
    return _stamp(path)


def oom_kills() -> int:
    """How many processes the kernel killed for want of memory: in our group, or here."""
    for counter in (_events_of_our_group(), Path("/proc/vmstat")):
        with suppress(OSError, ValueError):
            for line in counter.read_text(encoding="ascii").splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return 0


def _events_of_our_group() -> Path:
    """In a container the path is the host's, and what is mounted the container's own group."""
    root, group = Path("/sys/fs/cgroup"), ""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            group = group if controllers else path.lstrip("/")
    # A path above root is no error, as it is to pathlib.
    inside = root / group if os.path.isdir(root / group) else root  # noqa: PTH112
    return inside / "memory.events"
