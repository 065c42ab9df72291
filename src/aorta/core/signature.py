"""The fingerprint of a failure: the same bug has the same one, whatever the step, address, path or
rank.

Two failures of one workload are the same failure when they leave by the same exit status through
the same last frames with the same kind of message. Everything that differs from run to run is
folded away first.
"""

import hashlib
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial

from aorta.core.trial import TrialEnd

TERMINAL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""What a terminal obeys and nobody reads: colours, titles, links."""

_NOISE: tuple[tuple[re.Pattern[str], str], ...] = (
    (TERMINAL_SEQUENCE, ""),
    (re.compile(r"^\s*\[?(?:rank|default)\s*\d+\]?\s*:\s*"), ""),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"(?<![\w.])(?:[\w.~+-]*/)+(?=[\w.+-])"), ""),
    (re.compile(r"\btmp[._-]?[A-Za-z0-9_]{6,}\b"), "<temp>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b"), "<id>"),  # a hash
    (re.compile(r"\b(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z0-9]{8,}\b"), "<id>"),  # a random name
    (re.compile(r"\b\d+(?:x\d+)+\b"), "<n>"),  # a shape
    (re.compile(r"\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"), "<n>"),
    (re.compile(r"(?<=[A-Za-z_])(?<!\b[a-z])\d+(?=\b|_)"), "<n>"),  # step451703, iter_12.pt
    (re.compile(r"[-+](?=<n>)"), ""),
)
# Words whose digits tell one failure from another: numeric types, operations and hashes by name.
_NAMED = re.compile(
    r"\b(?:u?int|b?float|fp|bf|tf|complex|conv|log|exp|atan|mat|relu|sha|md|utf|base)_?\d+(?:d|"
    r"p)?\b"
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
# A launcher's own words: on which node a task ended, and that it did. They differ from run to run
# and name no failure.
_LAUNCHER = re.compile(r"^(?:\S*/)?(?:srun|slurmstepd\S*): ")
_FRAMES_KEPT = 3
_SIGNALLED = 128


ANYTHING = "<*>"
_WORDS = re.compile(r"<[^<>\s]*>|\w+|\W")


@dataclass(frozen=True)
class Signature:
    """What a failure looks like. `<*>` in it stands for what was seen to vary from run to run."""

    text: str

    def covers(self, other: "Signature") -> bool:
        """Whether the other one looks like this, apart from what varies."""
        if ANYTHING not in self.text:
            return self.text == other.text
        fixed = (re.escape(part) for part in self.text.split(ANYTHING))
        return re.fullmatch(".*?".join(fixed), other.text) is not None

    def aligned(self, other: "Signature") -> "Signature | None":
        """What two failures of one configuration have in common; None if that is too little for one
        failure.

        They differ in accidents only if they end the same way, through the same frames, in the same
        kind of error, and share at least half of their words.
        """
        mine, theirs = _parts(self.text), _parts(other.text)
        if mine[0] != theirs[0]:
            return None
        ours, others = _WORDS.findall(mine[1]), _WORDS.findall(theirs[1])
        blocks = SequenceMatcher(None, ours, others, autojunk=False).get_matching_blocks()
        same = sum(_is_word(word) for at, _, size in blocks for word in ours[at : at + size])
        if 2 * same < max(sum(map(_is_word, ours)), sum(map(_is_word, others))):
            return None
        merged, i, j = "", 0, 0
        for at, there, size in blocks:
            if (at > i or there > j) and not merged.endswith(ANYTHING):
                merged += ANYTHING
            if size:
                merged += "".join(ours[at : at + size])
            i, j = at + size, there + size
        return Signature(mine[0] + merged)

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
    """The line that names the failure, as it was written: the exception of the last traceback, or
    the last error.
    """
    lines = text.splitlines()
    start = next((i for i in reversed(range(len(lines))) if _TRACEBACK in lines[i]), None)
    if start is not None:
        found = next((line for line in lines[start + 1 :] if _is_exception(line)), "")
        if found:
            return found
    return next((line for line in reversed(lines) if _ERROR_LINE.search(line)), "")


def normalise(line: str) -> str:
    for noise, stand_in in _NOISE:
        line = noise.sub(partial(_folded, stand_in), line)
    return " ".join(line.split())[:300]


def _folded(stand_in: str, found: re.Match[str]) -> str:
    """What stands in for an accident; a name keeps its digits."""
    named = _NAMED.search(found.string, max(0, found.start() - 10), found.end() + 2)
    while named is not None and named.end() <= found.start():
        named = _NAMED.search(found.string, named.end(), found.end() + 2)
    inside = named is not None and named.start() <= found.start() and found.end() <= named.end()
    return found[0] if inside else stand_in


def _parts(text: str) -> tuple[str, str]:
    """How it ended, through which frames and in which kind of error; and the words after that."""
    status, bar, said = text.partition(" | ")
    frames, arrow, words = said.rpartition(" > ")
    kind = _EXCEPTION.match(words)
    head = words[: kind.end()] if kind and ":" in kind[0] else ""
    return status + bar + frames + arrow + head, words[len(head) :]


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] in "_<"


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
        plain = _without_rank(line)
        frame = _FRAME.match(plain)
        if frame:
            frames.append(f"{frame['file'].rsplit('/', 1)[-1]}:{frame['function']}")
        elif _is_exception(plain):
            return " > ".join([*frames[-_FRAMES_KEPT:], normalise(plain)])
    return " > ".join(frames[-_FRAMES_KEPT:])


def _without_rank(line: str) -> str:
    """Nor colours, which stand before it."""
    for pattern, instead in _NOISE[:2]:
        line = pattern.sub(instead, line)
    return line


def _is_exception(line: str) -> bool:
    plain = _without_rank(line)
    return bool(plain) and not plain[0].isspace() and _EXCEPTION.match(plain) is not None


def _last_error_line(lines: Sequence[str]) -> str:
    said = (line for line in reversed(lines) if not _LAUNCHER.match(line))
    return next((normalise(line) for line in said if _ERROR_LINE.search(line)), "")
