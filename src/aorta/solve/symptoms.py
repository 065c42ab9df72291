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

NOT_A_NUMBER = re.compile(r"(?im)^.*(?<![\w.])(?:nan|[-+]?inf)(?![\w.]).*$")
_SLOWER = 1.8  # an exact doubling is seen though it is noisy
_MOST_READ = 1 << 22
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
_TIMES = (  # of one step: more is slower
    rf"(?i)(?:step|iter(?:ation)?|batch)[_ -]?time\b[^\w\n.-]{{0,3}}{_NUMBER}",
    rf"(?i)\b(?:ms|s|sec|secs|seconds)(?:/|_per_)(?:it|iter|step|batch)\b[^\w\n.-]{{0,3}}{_NUMBER}",
    rf"(?i)(?<![\w.]){_NUMBER} ?(?:ms|s|sec|secs|seconds)/(?:it|iter|step|batch)\b",
)
_RATES = (  # less is slower
    rf"(?i)\bthroughput\b[^\w\n.-]{{0,3}}{_NUMBER}",
    rf"(?i)(?<![\w.]){_NUMBER} ?(?:it|iter|steps|samples|tokens|images|examples)/s(?:ec)?\b",
)


@dataclass(frozen=True)
class Symptom:
    said: str  # of the run
    oracle: Mapping[str, Any]
    kind: FailureClass
    confidence: float
    summary: str


def symptom_of(end: TrialEnd) -> Symptom | None:
    """Of a run, whether it failed or not; None where it looks healthy."""
    for name, stream in (("stdout", end.stdout), ("stderr", end.stderr)):
        line = NOT_A_NUMBER.search(stream.tail)
        if line is not None:
            pattern = r"(?i)(?<![\w.])(?:nan|[-+]?inf)(?![\w.])"
            oracle = {"kind": "regex", "pattern": pattern, "stream": name}
            said = f"a number that is none: {line[0].strip()[:160]}"
            return Symptom("printed a number that is none", oracle, FailureClass.NAN, 0.9, said)
    for name, stream in (("stdout", end.stdout), ("stderr", end.stderr)):
        slow = next(_slow(stream, name), None)
        if slow is not None:
            return slow
    return None


def _slow(stream: StreamEnd, name: str) -> Iterator[Symptom]:
    """Its last quarter is slower than its first half; so must be that of whatever it shrinks to."""
    text = _text(stream)
    for known, is_time in (*((p, True) for p in _TIMES), *((p, False) for p in _RATES)):
        pattern = _of_one_kind(known, text)
        values = [float(found[1]) for found in re.finditer(pattern, text)]
        ratio = late_against_early(values, rises=is_time)
        if ratio is None or (ratio < _SLOWER if is_time else ratio > 1 / _SLOWER):
            continue
        limit = {"above": _SLOWER} if is_time else {"below": round(1 / _SLOWER, 4)}
        oracle = {"kind": "metric", "pattern": pattern, "stream": name, "relative": True, **limit}
        early, late = (
            statistics.median(part)
            for part in (values[: len(values) // 2], values[-(len(values) // 4) :])
        )
        words = f"it got slower: {early:g} at first, {late:g} at its end"
        yield Symptom("got slower on the way", oracle, FailureClass.UNKNOWN, 0.0, words)


def _of_one_kind(pattern: str, text: str) -> str:
    """The pattern in the kind of line that the last number stands in: another bar (of a download,
    an evaluation) has a speed of its own.
    """
    kinds: list[tuple[str, ...]] = []
    for found in re.finditer(pattern, text):
        begin = max(text.rfind(end, 0, found.start()) for end in "\r\n") + 1
        kinds.append(tuple(re.findall(r"[a-z]+", text[begin : found.start()].lower())))
    if len(set(kinds)) < 2:
        return pattern
    between = r"[^a-zA-Z\r\n]*"
    words = between.join(("", *kinds[-1], ""))
    return rf"(?im)(?:^|\r){words}{pattern.removeprefix('(?i)')}"


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
