"""What single lines of the output tell: which may be the words of a failure without exceptions, and
which say that nothing which could fail was ever started.

In:  the text of both streams. Out: templates of lines, without those of launchers, of warnings and
of progress; and `why_not_started`, decided here and nowhere else.
"""

import re
from collections import Counter
from collections.abc import Sequence

from aorta.core.raised import causes_in, exception_line_of, lines_outside_tracebacks
from aorta.core.templates import lines_of, template, words_in
from aorta.core.trial import TrialEnd

_ERROR_LINE = re.compile(
    r"(?i)(?:error|exception)\b|\b(?:fatal|fail(?:ed|ure|s)?|abort(?:ed|ing)?|assert\w*|"
    r"panic(?:ked)?|"
    r"nan|killed|crash(?:ed)?|core dumped|what\(\):|terminate called|segmentation fault|"
    r"double free|corrupt(?:ed|ion)?|diverged|out of memory|oom|illegal|invalid|exceeded|"
    r"timed out|cannot|can't|could not|unable|refused|denied|no such|not found|unexpected|"
    r"mismatch(?:ed)?|undefined|truncated|wrong)\b|what\(\):"
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
_TARGET = re.compile(r"^g?make(?:\[\d+\])?: \*\*\* \[(?:[^\]:]+:\d+: )?([^\]]+)\] Error ")
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
    """A template of every line, without those of tracebacks, launchers and warnings. An error that
    ends with a colon says in the next line what it is: they are one.
    """
    said: list[str] = []
    announced = False
    for line in lines_outside_tracebacks(text):
        if _LAUNCHER.search(line) or _HARMLESS.search(line):
            continue
        words = template(line.removeprefix(_OF_A_WORKLOAD))
        if announced:
            said[-1] = f"{said[-1]} {words}"
        elif words_in(words):
            said.append(words)
        announced = not announced and words.endswith(":") and is_error(words)
    return tuple(said)


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
        others = [line for line in stderr if not is_error(line)]
        reason = [] if any(map(_says_what, errors)) else _last(others)
        return tuple(dict.fromkeys([*errors[-_MOST_WORDS:], *reason, *_last(stderr)]))
    told = [line for line in dict.fromkeys(stdout) if is_error(line) and stdout.count(line) == 1]
    return tuple(dict.fromkeys([*_last(stderr), *(told[-_MOST_WORDS:] or _last(stdout))]))


def targets_in(text: str, *said: Sequence[str]) -> tuple[str, ...]:
    """The target that make could not build: words of a failure that speaks of no error itself."""
    if any(is_error(line) for lines in said for line in lines):
        return ()
    found = next((m for line in lines_of(text) if (m := _TARGET.match(line))), None)
    return (template(f"make failed to build {found[1]}"),) if found else ()


def _says_what(line: str) -> bool:
    """Whether a line of an error says more than that there was one: `job failed` does not."""
    return len(words_in(_ERROR_LINE.sub("", line))) > 1


def _last(lines: Sequence[str]) -> list[str]:
    counts = Counter(lines)
    return next(([line] for line in reversed(lines) if counts[line] == 1), [])


# -- nothing was started: shells, interpreters, engines, launchers and our own scripts say so


CANNOT_EXECUTE = frozenset({126, 127})
"""What a shell ends with when it finds no such command, or may not execute it; a program may end
with them too.
"""

OUR_SCRIPT = "run_repro.sh"
# With which exit codes (None: any), and in which words.
_NOTHING_BEGAN: tuple[tuple[frozenset[int] | None, re.Pattern[str]], ...] = (
    (
        CANNOT_EXECUTE,
        # shells, env, sudo, timeout and the dynamic loader
        re.compile(
            r"not found|[Nn]o such file|[Pp]ermission denied|[Cc]annot execute|can't execute|bad "
            r"interpreter|Exec format error|[Ii]s a directory|failed to (?:run|execute)|while "
            r"loading shared libraries|symbol lookup error|OCI runtime|^docker: |^Error: "
        ),
    ),
    (None, re.compile(rf"^(?:\S*/)?{re.escape(OUR_SCRIPT)}: ")),
    (
        None,
        re.compile(
            r"^(?:\S*/)?python[\d.]*: (?:can't open file|No module named|Error while finding mod)"
            r"|^make: (?:\*\*\* .*Error 12[67]$|\S+: (?:No such file|Permission denied))"
            r"|^(?:\S*/)?(?:srun|slurmstepd\S*): (?:error: )?.*(?:execve\(\)|Unable to (?:create "
            r"step|allocate|confirm)|[Ii]nvalid (?:partition|account)|couldn't chdir)"
            r"|^(?:mpirun|prterun) was unable to (?:launch|find)"
            # containers of clusters, uv and conda
            r"|^FATAL: +(?:could not open image|container creation failed|[Uu]nable to (?:handle|"
            r"build from|pull) )|^enroot-[\w.-]+: \[ERROR\] |\bpyxis: (?:container start failed|"
            r"couldn't start container|failed to (?:import|create))"
            r"|^error: Failed to spawn: |^EnvironmentLocationNotFound: "
        ),
    ),
    (frozenset({125}), re.compile(r"^docker: |^Error response from daemon: |^Error: ")),
    (frozenset({255}), re.compile(r"^ssh: (?:connect to host|Could not resolve)")),
)


def why_not_started(end: TrialEnd, known_statuses: frozenset[int] = frozenset()) -> str | None:
    """Why nothing was started, or None where the program itself failed.

    126 and 127 alone are a failure only of a program that is known to end so: `known_statuses` are
    those of the failure that is looked for; empty while none is known, where the first such end may
    be it. An exception of the program's own says that it was started.
    """
    if not end.failed:
        return None
    lines = [line for text in (end.stderr.tail, end.stdout.tail) for line in lines_of(text)]
    said = next((line.strip() for line in lines if _says_so(line, end.exit_code)), None)
    if said is not None and not _ran(end):
        return said
    unknown = bool(known_statuses) and end.exit_code not in known_statuses
    if end.exit_code in CANNOT_EXECUTE and unknown and not _ran(end):
        return f"exit {end.exit_code}: what a shell says of a command that it cannot execute"
    return None


def _says_so(line: str, exit_code: int | None) -> bool:
    return any(
        (codes is None or exit_code in codes) and words.search(line)
        for codes, words in _NOTHING_BEGAN
    )


def _ran(end: TrialEnd) -> bool:
    return any(not cause.wraps for cause in causes_in(end.stderr.tail))
