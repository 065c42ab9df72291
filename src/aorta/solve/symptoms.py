"""What a run that ends well may show all the same: a number that is none, or steps that got slow on
the way; and where one stands that does not end.
"""

import os
import re
import signal
import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.attribution import FailureClass
from aorta.core.oracle import late_against_early
from aorta.core.trial import StreamEnd, TrialEnd
from aorta.executors.process_tree import descendants

_NOT_A_NUMBER = r"(?i)(?<![\w.])(?:nan|[-+]?inf)(?![\w.])"
_SLOWER = 1.8  # an exact doubling is seen though it is noisy
_MOST_READ = 1 << 22
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
_TIME = rf"(?i)(?:step|iter(?:ation)?|batch)[_ -]?time\b[^\w\n.-]{{0,3}}{_NUMBER}"
_RATES = (
    rf"(?i)\bthroughput\b[^\w\n.-]{{0,3}}{_NUMBER}",
    rf"(?i)(?<![\w.]){_NUMBER} ?(?:steps|samples|tokens|images|examples)/s(?:ec)?\b",
)


@dataclass(frozen=True)
class Symptom:
    oracle: Mapping[str, Any]
    kind: FailureClass
    confidence: float
    summary: str


def symptom_of(end: TrialEnd) -> Symptom | None:
    """Of a run, whether it failed or not; None where it looks healthy."""
    streams = {"stdout": end.stdout, "stderr": end.stderr}
    for name, stream in streams.items():
        line = re.search(rf"{_NOT_A_NUMBER}.*", stream.tail)
        if line is not None:
            whole = stream.tail[stream.tail.rfind("\n", 0, line.start()) + 1 : line.end()]
            oracle = {"kind": "regex", "pattern": _NOT_A_NUMBER, "stream": name}
            said = f"a number that is none: {whole.strip()[:160]}"
            return Symptom(oracle, FailureClass.NAN, 0.9, said)
    slow = (_slow(stream, name) for name, stream in streams.items())
    return next(filter(None, slow), None)


def _slow(stream: StreamEnd, name: str) -> Symptom | None:
    """Its last quarter is slower than its first half; so must be that of whatever it shrinks to.
    The speeds of progress bars are not read: each kind of work has a bar of its own.
    """
    text = _text(stream)
    for pattern in (_TIME, *_RATES):
        is_time = pattern is _TIME
        values = [float(found[1]) for found in re.finditer(pattern, text)]
        ratio = late_against_early(values, rises=is_time)
        if ratio is None or (ratio < _SLOWER if is_time else ratio > 1 / _SLOWER):
            continue
        limit = {"above": _SLOWER} if is_time else {"below": round(1 / _SLOWER, 4)}
        oracle = {"kind": "metric", "pattern": pattern, "stream": name, "relative": True, **limit}
        early = statistics.median(values[: len(values) // 2])
        late = statistics.median(values[-(len(values) // 4) :])
        words = f"it got slower: {early:g} at first, {late:g} at its end"
        return Symptom(oracle, FailureClass.UNKNOWN, 0.0, words)
    return None


def _text(stream: StreamEnd) -> str:
    """Its beginning and its end: the tail alone holds no early step."""
    if not stream.path.is_file():
        return stream.tail
    with stream.path.open("rb") as file:
        begun = file.read(_MOST_READ).decode("utf-8", "replace")
        more = bool(file.read(1))
    return f"{begun}\n{stream.tail}" if more else begun


# -- where a command stands that does not come to its end: the stacks of its Pythons

# Python's own faulthandler then writes them on SIGABRT.
STACKS_ON_ABORT = {"PYTHONFAULTHANDLER": "1"}
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)', re.MULTILINE)
_OURS = (b"aorta.", b"aorta/")


@contextmanager
def end_after(seconds: float | None) -> Iterator[threading.Event]:
    """After so many seconds every Python below this process writes its stacks and ends; the event
    says that it came to this.
    """
    ended = threading.Event()

    def end() -> None:
        ended.set()
        for pid in filter(_is_python, descendants(os.getpid())):
            with suppress(OSError):
                os.kill(pid, signal.SIGABRT)

    timer = threading.Timer(seconds or 0.0, end)
    timer.daemon = True
    if seconds is not None:
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


def _is_python(pid: int) -> bool:
    """A Python, and none of our own."""
    with suppress(OSError):
        place = Path("/proc") / str(pid)
        words = (place / "cmdline").read_bytes()
        name = (place / "exe").readlink().name
        return name.startswith("python") and not any(mark in words for mark in _OURS)
    return False
