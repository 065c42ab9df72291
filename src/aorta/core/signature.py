"""The fingerprint of a failure: the same bug has the same one, whatever the step, address, path or rank.

Two failures of one workload are the same failure when they leave by the same exit status through the same last
frames with the same kind of message. Everything that differs from run to run is folded away first.
"""

import hashlib
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from aorta.core.trial import TrialEnd

_NOISE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]"), ""),
    (re.compile(r"^\s*\[?(?:rank|default)\s*\d+\]?\s*:\s*"), ""),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"(?<![\w.])(?:[\w.~+-]*/)+(?=[\w.+-])"), ""),
    (re.compile(r"[-+]?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"), "<n>"),
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+, in (?P<function>\S+)')
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Fault)?\b(?::|$)"
)
_ERROR_LINE = re.compile(
    r"(?:error|exception)\b|\b(?:fatal|fail(?:ed|ure)?|abort(?:ed)?|assert|panic|nan|killed)\b",
    re.IGNORECASE,
)
# A launcher's own words: on which node a task ended, and that it did. They differ from run to run and name no failure.
_LAUNCHER = re.compile(r"^(?:\S*/)?(?:srun|slurmstepd\S*): ")
_FRAMES_KEPT = 3
_SIGNALLED = 128


@dataclass(frozen=True)
class Signature:
    """`text` is for people, `digest` for comparing."""

    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


def signature_of(end: TrialEnd) -> Signature:
    """What this failure looks like once everything accidental is taken away."""
    status = _status(end)
    for stream in (end.stderr.tail, end.stdout.tail):
        lines = stream.splitlines()
        words = _last_traceback(lines) or _last_error_line(lines)
        if words:
            return Signature(f"{status} | {words}")
    return Signature(status)


def error_line_of(text: str) -> str:
    """The line that names the failure, as it was written: the exception of the last traceback, or the last error."""
    lines = text.splitlines()
    start = next((i for i in reversed(range(len(lines))) if _TRACEBACK in lines[i]), None)
    if start is not None:
        found = next((line for line in lines[start + 1 :] if _is_exception(line)), "")
        if found:
            return found
    return next((line for line in reversed(lines) if _ERROR_LINE.search(line)), "")


def normalise(line: str) -> str:
    for noise, stand_in in _NOISE:
        line = noise.sub(stand_in, line)
    return " ".join(line.split())[:300]


def _status(end: TrialEnd) -> str:
    if end.hung:
        return "hang"
    number = end.signal
    if number is None and end.exit_code is not None and end.exit_code > _SIGNALLED:
        number = end.exit_code - _SIGNALLED  # how shells and container engines report a signal
    try:
        return signal.Signals(number).name if number is not None else f"exit {end.exit_code}"
    except ValueError:
        return f"exit {end.exit_code}" if end.signal is None else f"signal {number}"


def _last_traceback(lines: Sequence[str]) -> str:
    start = next((i for i in reversed(range(len(lines))) if _TRACEBACK in lines[i]), None)
    if start is None:
        return ""
    frames: list[str] = []
    for line in lines[start + 1 :]:
        plain = _NOISE[1][0].sub("", _NOISE[0][0].sub("", line))
        frame = _FRAME.match(plain)
        if frame:
            frames.append(f"{frame['file'].rsplit('/', 1)[-1]}:{frame['function']}")
        elif _is_exception(plain):
            return " > ".join([*frames[-_FRAMES_KEPT:], normalise(plain)])
    return " > ".join(frames[-_FRAMES_KEPT:])


def _is_exception(line: str) -> bool:
    plain = _NOISE[1][0].sub("", _NOISE[0][0].sub("", line))
    return bool(plain) and not plain[0].isspace() and _EXCEPTION.match(plain) is not None


def _last_error_line(lines: Sequence[str]) -> str:
    said = (line for line in reversed(lines) if not _LAUNCHER.match(line))
    return next((normalise(line) for line in said if _ERROR_LINE.search(line)), "")
