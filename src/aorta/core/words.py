"""The words that a failure without exceptions leaves behind: which lines may be its own.

In:  the text of both streams. Out: templates of lines, without those of launchers, of warnings and
of progress.
"""

import re
from collections import Counter
from collections.abc import Sequence

from aorta.core.raised import exception_line_of, lines_outside_tracebacks
from aorta.core.templates import lines_of, template, words_in

_ERROR_LINE = re.compile(
    r"(?i)(?:error|exception)\b|\b(?:fatal|fail(?:ed|ure|s)?|abort(?:ed|ing)?|assert\w*|"
    r"panic(?:ked)?|"
    r"nan|killed|crash(?:ed)?|core dumped|what\(\):|terminate called|segmentation fault|"
    r"double free|corrupt(?:ed|ion)?|diverged|out of memory|oom|illegal|invalid|exceeded|"
    r"timed out|cannot|can't|could not|unable|refused|denied|no such|not found)\b|what\(\):"
)
_LAUNCHER = re.compile(
    r"^(?:\S*/)?(?:srun|slurmstepd\S*|g?make(?:\[\d+\])?|mpirun|mpiexec|prterun|orterun|npm ERR!|"
    r"torchrun|docker|podman): |^g?make(?:\[\d+\])?: \*\*\* |^Primary job +terminated|"
    r"^(?:[EWIF]\d{4} [\d:.]+ \d+ (?:\S*/)?torch/distributed/|(?:Sending|Closing) process )|"
    r"^\s*(?:=+|-+)\s*$|\bsending process \d+ closing signal|^Root Cause|^Failures:|"
    r"^\s*(?:time|host|rank|exitcode|error_file|traceback)\s+: |`conda run`.*failed|"
    r"^(?:.*: )?(?:line \d+: )?\s*\d+ (?:Killed|Terminated)\b|"
    # pytest's count of what failed
    r"^(?:=+ )?\d+ (?:failed|passed|errors?)\b.* in [\d.]+s\b"
)
_HARMLESS = re.compile(
    r"\b\w*Warning: |\b(?:WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE)\b[:\]\s|]|^[WI]\d{4} |"
    r"leaked semaphore|"
    r"^\s*warnings\.warn\(|resource_tracker|OMP_NUM_THREADS|^Exception ignored "
)
_MOST_WORDS = 8
_OF_A_WORKLOAD = "aorta: failed: "  # how a registered workload's own process tells its failure


def is_error(line: str) -> bool:
    """Whether a line speaks of a failure in so many words."""
    return _ERROR_LINE.search(line) is not None


def error_line_of(text: str) -> str:
    """The line that names the failure, as it was written: the exception that counts, or the last
    error; empty where there is neither.
    """
    last = next((line for line in reversed(lines_of(text)) if is_error(line)), "")
    return exception_line_of(text) or last


def said_in(text: str) -> tuple[str, ...]:
    """A template of every line, without those of tracebacks, launchers and warnings."""
    said = [
        template(line.removeprefix(_OF_A_WORKLOAD))
        for line in lines_outside_tracebacks(text)
        if not _LAUNCHER.search(line) and not _HARMLESS.search(line)
    ]
    return tuple(line for line in said if words_in(line))


def progress_in(said: Sequence[str]) -> tuple[str, ...]:
    """What was said again and again, and speaks of no error."""
    counts = Counter(said)
    return tuple(line for line, times in counts.items() if times > 1 and not is_error(line))


def words_of(stderr: Sequence[str], stdout: Sequence[str]) -> tuple[str, ...]:
    """Which of the lines that were said may be the failure's own words.

    Lines of errors and the last line of stderr, with the last before them where they say no more
    than that something failed; without any of an error, the last line of each stream. What is said
    again and again is progress.
    """
    errors = [line for line in dict.fromkeys(stderr) if is_error(line)]
    if errors:
        reason = [] if any(map(_says_what, errors)) else _last([*filter(_is_no_error, stderr)])
        return tuple(dict.fromkeys([*errors[-_MOST_WORDS:], *reason, *_last(stderr)]))
    told = [line for line in dict.fromkeys(stdout) if is_error(line) and stdout.count(line) == 1]
    return tuple(dict.fromkeys([*_last(stderr), *(told[-_MOST_WORDS:] or _last(stdout))]))


def _is_no_error(line: str) -> bool:
    return not is_error(line)


def _says_what(line: str) -> bool:
    """Whether a line of an error says more than that there was one: `job failed` does not."""
    return len(words_in(_ERROR_LINE.sub("", line))) > 1


def _last(lines: Sequence[str]) -> list[str]:
    counts = Counter(lines)
    return next(([line] for line in reversed(lines) if counts[line] == 1), [])
