"""The lines of a process's output: as templates, in which what varies from run to run is a slot,
written `<*>`; which of them may be the words of a failure; and which say that nothing that could
fail was ever started.

In:  "[rank3]: Tried to allocate 32.00 MiB. GPU 0 has 1.25 GiB free"
Out: "Tried to allocate <*>. GPU <*> has <*> free"

Two templates say the same if the fixed parts of one stand in the other, in order. Knows nothing of
exceptions.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from aorta.core.trial import TrialEnd

TERMINAL_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""What a terminal obeys and nobody reads: colours, titles, links."""


def shortened(text: str, longest: int) -> str:
    """The text in at most so many characters, cut behind a word."""
    if len(text) <= longest:
        return text
    return f"{text[: longest - 2].rsplit(' ', 1)[0]} …"


ANYTHING = "<*>"
_LONGEST = 300
_ENOUGH_FIXED = 2  # words of a learned template
_ENOUGH_FOR_A_PART = 3  # words of a line that may be the beginning of a longer one
_FIRM = 3  # failures of one configuration whose quoted words are the same: they are its words
_UNIT = (
    r"(?:[KMGTP]i?B|[kmgtp]?b(?:ytes?|it/s|ps)?|bytes?|[munµ]?s(?:ec(?:ond)?s?)?|milliseconds?|"
    r"minutes?|mins?|h(?:ou)?rs?|h|m|days?|it/s|s/it|[KMG]?Hz|GFLOPS|TFLOPS|W|°?C)"
)
_NUMBER = rf"\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?(?:\s?(?:{_UNIT}\b|%))?"

# Numbers that tell one failure from another: statuses, and the digits of a name.
_KEPT = re.compile(
    r"\b(?:errno|exit status|(?:exit |status |error )?code|exitcode|HTTP(?: Error)?|signal)\W{0,3}"
    r"(?:[A-Z]{1,3}[-_]?|-)?\d+|\bE(?:RR)?[-_]?\d{3,5}\b(?! \d\d:)"
    r"|\b(?:u?int|b?float|fp|bf|tf|complex|conv|log|exp|atan|mat|relu|sha|md|utf|base)_?\d+(?:d|p)?"
    r"\b|\b(?:[45]\d\d)(?= (?:Client|Server) Error)|[A-Za-z]+Signals?\.SIG\w+: \d+",
    re.IGNORECASE,
)
_ACCIDENTS = re.compile(
    "|".join(
        (
            r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b",
            r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:\s?Z|\s?[+-]\d\d:?\d\d)?)?",
            r"\b\d{4}/\d\d/\d\d(?: \d\d:\d\d(?::\d\d)?)?",
            r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d(?: [A-Z]{3,4})?",
            r"\b(?:\d+ days?, )?\d+:\d\d(?::\d\d)?(?:[.,]\d+)?\b",
            r"\b(?:\d+(?:\.\d+)?\s?(?:days?|d|hours?|h|minutes?|min|m|seconds?|s|ms)\s?){2,}(?!\w)",
            r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",
            r"(?:\b|(?<=_)|[-+])0x[0-9a-fA-F]+",
            # a host
            r"\b(?:gpu|node|host|ip|compute|dgx|hgx|nid|cn)[-_]?\d+(?:[-.]\w+)*\b",
            r"\btmp[._-]?[A-Za-z0-9_]{6,}\b",
            # a hash, a random name, a shape
            r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b",
            r"\b(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z0-9]{8,}\b",
            r"\b\d+(?:x\d+)+\b",
            rf"(?<![A-Za-z])[-+]?{_NUMBER}",
            # step451703, iter_12.pt, node-17
            r"(?<=[A-Za-z_])(?<!\b[a-z])\d+(?=\b|_)",
        )
    )
)
_URL = re.compile(r"\b[a-z]+://[^\s'\"<>)\]]+")
# `n/a`, `and/or` and `tokens/s` are words, and no folders.
_FOLDERS = re.compile(r"(?<![\w.])(?![\w+-]+/[\w+-]+(?![\w+/-]|\.\w))(?:[\w.~+-]*/)+(?=[\w.+-])")
_RANK = re.compile(r"^\s*\[?(?:rank|default)\s*\d+\]?\s*:\s*")
_GLOG = re.compile(r"^[EWIF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ")
_TENSOR = re.compile(
    r"\b(?:tensor|array|Array|Tensor|frozenset|set|deque)\((?:[^()]|\([^()]*\))*\)"
)
_LISTED = re.compile(r"\[[^\[\]{}]*,[^\[\]{}]*\]|\{[^{}]*[,:'\"][^{}]*\}|\[\s*\]|\{\s*\}")
_SLOTS_ALONE = re.compile(r"[\[({](?:\s|<\*>|[,;:'\".x*-])*<\*>(?:\s|<\*>|[,;:'\".x*-])*[\])}]")
_UNCLOSED = re.compile(r"(?:\b\w+\()?[\[{(][^\])}]*,[^\])}]*$")
_SLOT_RUN = re.compile(r"<\*>(?:[\s,;:/x\u00d7*.-]*<\*>)+")
_QUOTED = re.compile(
    r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*[`']|\u2018[^\u2019]*\u2019|\u201c[^\u201d]*\u201d"
)
_EXPRESSION = re.compile(r"[=!<>]=|&&|\|\||->|::|\(\)|\s[<>]\s")
_TOKENS = re.compile(r"<\*>|\w+|\W")


HEADER = "Traceback (most recent call last)"
WRITER = re.compile(
    r"^\s*(?:\[(?P<rank>(?:rank|default|worker)[ _:-]?\d+|\d+,\d+)\](?:<std(?:err|out)>)?:?\s?"
    r"|(?P<task>\d{1,5}): |\((?P<actor>[^()]*\bpid=\d+[^()]*)\)\s?"
    r"|(?P<service>[\w.-]*[_-]\d+)\s+\| )"
)
_MESSAGE_KEYS = ("msg", "message", "event", "error", "err", "reason")
_LOGFMT_LEVEL = re.compile(r"\b(?:level|lvl|severity)=(?i:error|fatal|critical|panic)\b")
_LOGFMT_MESSAGE = re.compile(rf'\b(?:{"|".join(_MESSAGE_KEYS[::-1])})="([^"]+)"')
_CODE_KEYS = ("code", "error_code", "errno")
_TRACE_KEYS = ("exc_info", "exception", "traceback", "stack", "stack_trace", "stacktrace")


def lines_of(text: str) -> list[str]:
    """Without colours; progress bars, JSON records and tracebacks folded into one line apart."""
    lines: list[str] = []
    for raw in re.split(r"[\r\n]+|\n", TERMINAL_SEQUENCE.sub("", text)):
        if raw.startswith("{") and raw.rstrip().endswith("}"):
            lines += _unfolded_json(raw)
        elif _LOGFMT_LEVEL.search(raw) and (message := _LOGFMT_MESSAGE.search(raw)):
            lines.append(f"ERROR: {message[1]}")
        elif HEADER in raw and "\\n" in raw:
            lines += raw.replace('\\"', '"').split("\\n")
        else:
            lines.append(raw.rstrip())
    return lines


def _unfolded_json(raw: str) -> list[str]:
    """What a record of a structured logger says, with its level in front."""
    try:
        record = json.loads(raw)
    except ValueError:
        return [raw]
    texts = dict(_texts_in(record))
    traces = [texts.pop(key) for key in _TRACE_KEYS if key in texts]
    said = [texts[key] for key in _MESSAGE_KEYS if key in texts]
    # a logger with other names for them: its sentences
    said = said or [text for text in texts.values() if len(text.split()) > 2]
    if not said and not traces:
        return [raw]
    said += [f"(code {texts[key]})" for key in _CODE_KEYS if key in texts]
    level = str(record.get("level") or record.get("levelname") or record.get("severity") or "")
    head = f"{level.upper()}: " if level.isalpha() else ""
    rank = record.get("rank")
    writer = f"[rank{rank}]: " if isinstance(rank, int) else ""
    folded = [f"{head}{' '.join(said)}", *traces]
    return [f"{writer}{line}" for part in folded for line in part.split("\n")]


def _texts_in(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _texts_in(value)
        elif isinstance(value, str) or (key in _CODE_KEYS and isinstance(value, int)):
            yield key, str(value)


def by_writer(lines: Iterable[str]) -> dict[str, list[str]]:
    """Each process's own lines; those that name none are one writer's, named ""."""
    writers: dict[str, list[str]] = {}
    for line in lines:
        found = WRITER.match(line)
        name = found[found.lastgroup] if found and found.lastgroup else ""
        own = line[found.end() :] if found else line
        writers.setdefault(name.replace("default", "rank"), []).append(own)
    return writers


def template(line: str) -> str:
    """The line with a slot for each number, time, id, address, folder, list, set and tensor."""
    line = _GLOG.sub("", _RANK.sub("", TERMINAL_SEQUENCE.sub("", line)))
    line = _FOLDERS.sub("", _URL.sub(ANYTHING, line[: 4 * _LONGEST]))
    line = _TENSOR.sub(ANYTHING, line)
    for _nested in range(3):
        line = _LISTED.sub(ANYTHING, line)
    line = _UNCLOSED.sub(ANYTHING, line)
    kept = [(found.start(), found.end()) for found in _KEPT.finditer(line)]
    line = _ACCIDENTS.sub(lambda found: _slot(found, kept), line)
    line = _SLOTS_ALONE.sub(ANYTHING, line)
    line = _SLOT_RUN.sub(ANYTHING, line)
    return " ".join(line.split())[:_LONGEST]


def _slot(found: re.Match[str], kept: list[tuple[int, int]]) -> str:
    inside = any(begin <= found.start() and found.end() <= end for begin, end in kept)
    return found[0] if inside else ANYTHING


def blanked(text: str) -> str:
    """The template without quoted words; quoted expressions of code stay."""
    quoted = _QUOTED.sub(lambda m: m[0] if _EXPRESSION.search(m[0]) else ANYTHING, text)
    return _SLOT_RUN.sub(ANYTHING, quoted)


def words_in(text: str) -> list[str]:
    """The words of a template, without slots and punctuation."""
    return [token for token in _TOKENS.findall(text) if _is_word(token)]


def covers(known: str, other: str) -> bool:
    """Whether the fixed parts of `known` make up `other`, in order, with anything in its slots."""
    if ANYTHING not in known:
        return known == other
    fixed = (re.escape(part) for part in known.split(ANYTHING))
    return re.fullmatch(".*?".join(fixed), other, re.DOTALL) is not None


def says_the_same(known: str, other: str, *, seen: int = 1) -> bool:
    """Whether two templates differ in slots and quoted words only. One that was learned of `seen`
    failures may have any words in its slots, if enough of it is fixed; what it quotes is fixed,
    too, once several failures quoted the same.
    """
    mine, theirs = blanked(known), blanked(other)
    if mine != theirs:
        is_learned = seen > 1 and len(words_in(mine)) >= _ENOUGH_FIXED
        if not (is_learned and covers(mine, theirs)):
            return False
    return seen < _FIRM or covers(known, other)


def common(one: str, other: str) -> str | None:
    """What two templates of one configuration have in common; None if they share less than half of
    their words, and neither is a part of the other.

    "no shard left in queue", "no shard right in queue" -> "no shard <*> in queue"
    """
    ours, theirs = _TOKENS.findall(one), _TOKENS.findall(other)
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    same = sum(_is_word(word) for at, _, size in blocks for word in ours[at : at + size])
    counts = sorted((sum(map(_is_word, ours)), sum(map(_is_word, theirs))))
    is_part = same == counts[0] >= _ENOUGH_FOR_A_PART
    if 2 * same < counts[1] and not is_part:
        return None
    merged, i, j = "", 0, 0
    for at, there, size in blocks:
        if (at > i or there > j) and not merged.endswith(ANYTHING):
            merged += ANYTHING
        merged += "".join(ours[at : at + size])
        i, j = at + size, there + size
    return _SLOT_RUN.sub(ANYTHING, merged)


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


# -- which lines may be the words of a failure without exceptions


_ERROR_LINE = re.compile(
    r"(?i)(?:error|exception)\b|\b(?:fatal|fail(?:ed|ure|s)?|abort(?:ed|ing)?|assert\w*|"
    r"panic(?:ked)?|nan|killed|crash(?:ed)?|core dumped|what\(\):|terminate called|"
    r"segmentation fault|double free|corrupt(?:ed|ion)?|diverged|out of memory|oom|illegal|invalid|"
    r"exceeded|timed out|cannot|can't|could not|unable|refused|denied|no such|not found|unexpected|"
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
_HARMLESS = re.compile(
    r"\b\w*Warning: |\b(?:WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE)\b[:\]\s|]|^[WI]\d{4} |"
    r"leaked semaphore|^\s*warnings\.warn\(|resource_tracker|OMP_NUM_THREADS|^Exception ignored "
)
_MOST_WORDS = 8
_OF_A_WORKLOAD = "aorta: failed: "  # how a registered workload's own process tells its failure


def is_error(line: str) -> bool:
    """Whether a line speaks of a failure in so many words."""
    return _ERROR_LINE.search(line) is not None


def said_in(lines: Iterable[str]) -> tuple[str, ...]:
    """A template of every line but those of launchers and warnings; `Error:` joins the next."""
    said: list[str] = []
    announced = False
    for line in lines:
        own = line.removeprefix(_OF_A_WORKLOAD)
        if own == line and (_LAUNCHER.search(line) or _HARMLESS.search(line)):
            continue
        words = template(own)
        if announced and own == line:
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
    """Which lines may be the failure's own words: errors and the last line of stderr, with the last
    before them where they say no more than that something failed; else the last of each stream,
    that of stderr behind the other: what a program counts and measures is on stdout.
    """
    errors = [line for line in dict.fromkeys(stderr) if is_error(line)]
    if errors:
        others = [line for line in stderr if not is_error(line)]
        # `job failed` says no more than that there was an error.
        says_what = any(len(words_in(_ERROR_LINE.sub("", line))) > 1 for line in errors)
        reason = [] if says_what else _last(others)
        return tuple(dict.fromkeys([*errors[-_MOST_WORDS:], *reason, *_last(stderr)]))
    recorded = [
        line for line in dict.fromkeys(stdout) if is_error(line) and stdout.count(line) == 1
    ]
    return tuple(dict.fromkeys([*(recorded[-_MOST_WORDS:] or _last(stdout)), *_last(stderr)]))


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
    """Why nothing was started; None where it was. 126 and 127 alone are a failure only where
    `known_statuses`, those of the failure that is looked for, hold them or are not known yet.
    """
    if not end.failed:
        return None
    lines = [line for text in (end.stderr.tail, end.stdout.tail) for line in lines_of(text)]
    patterns = [words for codes, words in _NOTHING_BEGAN if codes is None or end.exit_code in codes]
    for line in lines:
        if any(words.search(line) for words in patterns):
            return line.strip()
    unknown = bool(known_statuses) and end.exit_code not in known_statuses
    if end.exit_code in CANNOT_EXECUTE and unknown:
        return f"exit {end.exit_code}: what a shell says of a command that it cannot execute"
    return None
