"""Where a command stands that does not come to its end: the stacks of its Pythons.

Python's own faulthandler writes them on SIGABRT, where PYTHONFAULTHANDLER is set.
"""

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLES = {"PYTHONFAULTHANDLER": "1"}
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)', re.MULTILINE)
_OURS = (b"aorta.", b"aorta/")


@dataclass
class StillRunning:
    """Whether it was ended because it still ran."""

    after: float
    is_so: bool = False


@contextmanager
def end_after(seconds: float | None) -> Iterator[StillRunning]:
    """After so many seconds every Python below this process writes its stacks and ends."""
    ended = StillRunning(seconds or 0.0)
    if seconds is None:
        yield ended
        return

    def end() -> None:
        ended.is_so = True
        for pid in _pythons_below(os.getpid()):
            with suppress(OSError):
                os.kill(pid, signal.SIGABRT)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield ended
    finally:
        timer.cancel()


def stands_at(text: str) -> str:
    """The innermost frames of the first stack in what it wrote; empty where there is none.

    >>> stands_at('  File "/home/a/train.py", line 7 in wait')
    'train.py:7 wait'
    """
    frames = list(_FRAME.finditer(text))
    own = [found for found in frames if "/lib/python" not in found["file"]] or frames
    return ", ".join(f"{Path(f['file']).name}:{f['line']} {f['name']}" for f in own[:3])


def _pythons_below(root: int) -> list[int]:
    """Programs of this kind that a process started, themselves or through others; none of ours."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    below = [pid for pid in parents if pid != root and _is_below(pid, root, parents)]
    return [pid for pid in below if _is_python(pid)]


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != root:
        pid = parents[pid]
    return pid == root


def _is_python(pid: int) -> bool:
    with suppress(OSError):
        place = Path("/proc") / str(pid)
        words = (place / "cmdline").read_bytes()
        name = (place / "exe").readlink().name
        return name.startswith("python") and not any(mark in words for mark in _OURS)
    return False
