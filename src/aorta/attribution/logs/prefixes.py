"""Takes off what launchers, schedulers and loggers write before a line: time, host, rank, level.

The commonest fields have a form of their own (`_HEAD_FIELDS`). The rest (`node7: `) is learned from
what stands before the frames of a log's tracebacks. Lines that are JSON are opened.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache

from aorta.core.templates import TERMINAL_SEQUENCE

# ---- when


_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,:]\d{1,9})?"
_TIME = (
    r"(?:(?:(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:\d{4}[-/])?"
    rf"(?P<date>\d\d[-/]\d\d|(?:{_MONTHS}) {{1,2}}\d{{1,2}})(?:/\d{{2,4}})?[T ,]+(?:\d{{4}} )?"
    rf"|(?=\d\d:\d\d:\d\d[.,\]\s])){_CLOCK}"
    r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?(?: \d{4}(?=[\][]))?"
    r"|(?P<epoch>1[5-9]\d{8}\.\d{1,9})|(?P<uptime>\[ *\d+\.\d{3,6}\]))"
)
_LEAP_YEAR = 2024
_LEAP_YEAR_BEGAN = datetime(_LEAP_YEAR, 1, 1, tzinfo=UTC).timestamp()
_YEAR = 366 * 86_400.0


@dataclass(frozen=True)
class LogLine:
    """A line's own text, and what its prefix told: who wrote it, where and when, and how loudly."""

    text: str
    rank: int | None = None
    node: str | None = None
    stream: str = ""  # whatever else tells the lines of one process from another's
    time: float | None = None  # see `_moment_of`
    level: str = ""
    offset: int = 0  # in its log

    @property
    def who(self) -> tuple[int | None, str]:
        return (self.rank, "") if self.rank is not None else (None, self.stream)

    def completed_by(self, outer: "LogLine") -> "LogLine":
        """With what stood before it, where it does not tell itself."""
        return replace(
            self,
            rank=self.rank if self.rank is not None else outer.rank,
            node=self.node or outer.node,
            stream=self.stream or outer.stream,
            time=self.time if self.time is not None else outer.time,
            level=self.level or outer.level,
        )


def _moment_of(fields: Mapping[str, str]) -> float | None:
    """Seconds since the year began, whichever it was; None where no day is told."""
    try:
        if "epoch" in fields:
            at = datetime.fromtimestamp(int(float(fields["epoch"])), UTC).replace(year=_LEAP_YEAR)
            return at.timestamp() - _LEAP_YEAR_BEGAN
        month, day = _month_and_day(fields["date"])
        hour, minute, second = (int(part) for part in fields["clock"].split(":"))
        at = datetime(_LEAP_YEAR, month, day, hour, minute, second, tzinfo=UTC)
    except (KeyError, ValueError):
        return None
    return at.timestamp() - _LEAP_YEAR_BEGAN


def _month_and_day(date: str) -> tuple[int, int]:
    """Of `Nov  5`, `11-05`, `11/05` and `1105`."""
    if date[0].isalpha():
        return 1 + _MONTHS.index(date[:3]) // 4, int(date[3:])
    digits = re.sub(r"\D", "", date)
    return int(digits[:-2]), int(digits[-2:])


def in_one_calendar(moments: Iterable[float]) -> dict[float, float]:
    """Each moment on one time line. A cycle is short, so January comes after December."""
    known = set(moments)
    latest = max(known, default=0.0)
    return {at: at + _YEAR if latest - at > _YEAR / 2 else at for at in known}


# ---- who, where and how loud


_LEVELS = r"DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|CRIT|FATAL|SEVERE|TRACE|EXCEPTION"
_RANK_WORDS = (
    r"(?:(?:global[ _]?|world[ _]?)?rank|default|trainer|worker|process|proc|task|replica|PE)"
)

# Each may stand at the beginning of what is left of a line. `head`: always; `logged`: only behind a
# time or another logger's field.
_HEAD_FIELDS = tuple(
    re.compile(field)
    for field in (
        rf"(?i:\s*\[{_RANK_WORDS}[ _:=]{{0,2}}(?P<rank>\d{{1,6}})\]:?)",
        # mpirun, Horovod, SageMaker
        (
            r"\[(?:[\w.@-]*\d,)?(?:mpirank:)?(?P<rank>\d{1,6})(?:,(?P<node>[\w.-]+))?\]"
            r"<(?:stdout|stderr|stddiag)>:"
        ),
        # Ray, SkyPilot
        r"\((?=[^()]{0,160}\bpid=\d)(?P<fields>(?:[^()]|\([^()]*\)){1,200})\)(?=\s|$)",
        r"\[pod/(?P<node>[\w.-]+)/[\w.-]+\]",  # kubectl logs --prefix
        # glog
        (
            rf"\[?(?P<letter>[IWEF])(?P<date>\d{{3,4}}) (?:{_CLOCK}|00:00:\d{{10}}\.\d+)\s+"
            r"(?:\d+\s+)?[\w./<>-]+:\d+\]"
        ),
        # syslog, journald
        (
            rf"{_TIME} (?P<node>[\w.-]+) (?P<who>[\w./@:-]+(?:\([^)]*\))?(?:\[\d+\])|kernel|"
            r"systemd|dockerd|containerd|kubelet):"
        ),
        rf"[\[(<]{_TIME}[\])>](?:\s*[,|:>-]{{1,2}}(?=\s))?",
        rf"{_TIME}(?:\s*[,|:>-]{{1,2}}(?=\s)|(?=\s)|(?=\[))",
        r"(?P<node>[a-zA-Z][\w.-]*):\d+:\d+ \[\d+\] (?=NCCL |RCCL |misc/|transport/|init)",
    )
)
_LOGGED_FIELDS = tuple(
    re.compile(field)
    for field in (
        r"(?:stdout|stderr) [FP](?=\s|$)",
        rf"[\[(](?P<level>{_LEVELS}|{_LEVELS.lower()})\s*[\])](?:\s*[:-](?=\s))?",
        rf"(?P<level>{_LEVELS})(?:\s*(?:\||:|-))?(?=\s)",
        r"[\[(]?[\w./<>-]+:\d+(?::[\w<>.]+)?\s*(?:[\])]:?|(?:-|:|\||>>)(?=\s))",
    )
)
_IN_PARENTHESES = re.compile(r"\b(rank|ip|pid|host|node)=([\w.:-]+)")
_ANY_FIELDS = (*_HEAD_FIELDS, *_LOGGED_FIELDS)
_OF_A_LOGGER = frozenset({"clock", "letter", "level"})
_MOST_FIELDS = 10
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}


@dataclass(frozen=True)
class LineFormat:
    """The prefixes of one log. Without anything learned it takes off what has a form of its own."""

    learned: tuple[re.Pattern[str], ...] = ()
    loud_throughout: bool = False  # every line has a level: it is not the program that gave it

    def read(self, raw: str) -> LogLine:
        """The line without its prefix. Several lines, where a logger folded them into one."""
        line = _without_prefix(_plain(raw), self.learned)
        document = _document_in(line.text)
        if document is not None:
            outer = _line_of(document).completed_by(line)
            line = self.read(outer.text).completed_by(outer)
        return line


_BAR = re.compile(
    r"[^\n|]{0,120}\|[^|]{0,300}\|\s*\d[\d.]*[kMG]?/\d[\d.]*[kMG]?\w? ?\[[^\]]{0,200}\](?=\S)"
)


def _plain(raw: str) -> str:
    """Without colours, and without a progress bar that the text is glued to."""
    text = TERMINAL_SEQUENCE.sub("", raw) if "\x1b" in raw else raw
    bar = _BAR.match(text) if "|" in text and "]" in text else None
    return text[bar.end() :] if bar else text


@lru_cache(maxsize=4096)  # ranks write the same lines, and one line is asked for by many
def _without_prefix(text: str, learned: tuple[re.Pattern[str], ...]) -> LogLine:
    """The line without the fields it begins with and the space behind them."""
    line = LogLine(text)
    logged = False
    for taken in range(_MOST_FIELDS):
        gap = len(line.text) - len(line.text.lstrip()) if taken else 0
        known = (*learned, *(_ANY_FIELDS if logged else _HEAD_FIELDS))
        matches = (match for field in known if (match := field.match(line.text, gap)))
        found = next(matches, None)
        if found is None or found.end() == gap:
            return replace(line, text=line.text.removeprefix(" ")) if taken else line
        logged = logged or not _OF_A_LOGGER.isdisjoint(found.re.groupindex)
        rest = LogLine(line.text[found.end() :])
        line = rest.completed_by(line).completed_by(_fields_of(found))
    return line


def _fields_of(found: re.Match[str]) -> LogLine:
    fields = {name: value for name, value in found.groupdict().items() if value}
    fields |= dict(_IN_PARENTHESES.findall(fields.get("fields", "")))
    node = fields.get("node") or fields.get("ip") or fields.get("host")
    who = f"pid={fields['pid']}" if "pid" in fields else f"{node or ''} {fields.get('who', '')}"
    return LogLine(
        "",
        int(fields["rank"]) if fields.get("rank", "").isdigit() else None,
        node.strip("[]()<>") if node else None,
        who.strip(),
        _moment_of(fields),
        fields.get("level", "").upper() or _LETTERS.get(fields.get("letter", ""), ""),
    )


# ---- what is learned


_BARE_RANK = re.compile(r"\s*(?P<rank>\d{1,6}):(?= |$)")
_FRAME = re.compile(r'^(?P<before>\S.{0,200}?\S?)\s+File "[^"]+", line \d+')
_FIRST_WORD = re.compile(r"[\[(<]?[\w./@#-]*[\])>]?")
_MASK = re.compile(r"\d+")
_RANK_NAME = re.compile(rf"(?i:[\[(<]?(?:{_RANK_WORDS}[-_/]?)?#[\])>]?)")
_ENOUGH = 3
_NEARLY_ALL = 0.8
_HALF = 0.5


def learn(lines: Iterable[str], *, of_one_rank: bool = False) -> LineFormat:
    """The format of a log, from as many of its lines as are worth looking at."""
    sample = [_plain(line) for line in lines if line.strip()]
    bare = sum(_BARE_RANK.match(line) is not None for line in sample)
    labelled = not of_one_rank and bare >= _HALF * len(sample)
    known = LineFormat((_BARE_RANK,) if labelled else ())
    for _ in range(3):
        more = _before_frames([known.read(line).text for line in sample])
        if more is None:
            break
        known = replace(known, learned=(*known.learned, more))
    loud = sum(bool(known.read(line).level) for line in sample)
    throughout = len(sample) > _ENOUGH and loud >= _NEARLY_ALL * len(sample)
    return replace(known, loud_throughout=throughout)


def _before_frames(lines: list[str]) -> re.Pattern[str] | None:
    """What stands before frames is no part of them; a numbered word there names who wrote."""
    befores = (found["before"] for text in lines if (found := _FRAME.match(text)))
    shapes = Counter(_MASK.sub("#", before) for before in befores)
    if not shapes:
        return None
    shape, count = shapes.most_common(1)[0]
    first = _FIRST_WORD.match(shape)
    word = first[0] if first else ""
    masked = _masked(word)
    if _RANK_NAME.fullmatch(word):
        masked = masked.replace(r"\d+", r"(?P<rank>\d{1,6})")
    elif "#" in word:
        masked = f"(?P<node>{masked})"
    pattern = re.compile(masked + _masked(shape[len(word) :]))
    begun = sum(pattern.match(text) is not None for text in lines)
    return pattern if count > 1 or begun >= _NEARLY_ALL * len(lines) else None


def _masked(shape: str) -> str:
    return r"\d+".join(re.escape(part) for part in shape.split("#"))


# ---- lines that are JSON


_TEXT_KEYS = ("message", "msg", "log", "textPayload", "event", "text", "body", "MESSAGE", "line")
_STACK_KEYS = (
    "exc_info",
    "exception",
    "exc_text",
    "stack_trace",
    "stacktrace",
    "traceback",
    "error",
)
_LEVEL_KEYS = ("level", "levelname", "severity", "lvl", "log.level")
_TIME_KEYS = ("time", "timestamp", "ts", "asctime", "@timestamp", "datetime", "date")
_RANK_KEYS = ("rank", "global_rank", "world_rank", "process_index")
_NODE_KEYS = ("host", "hostname", "node", "pod", "pod_name", "_HOSTNAME")
_PID_KEYS = ("pid", "process", "process_id", "_PID")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception)\b")
_WHOLE_TIME = re.compile(_TIME)


def _document_in(text: str) -> dict[str, object] | None:
    """The fields of a line that is a JSON object, if it holds a message."""
    if not (text.startswith("{") and text.rstrip().endswith("}")):
        return None
    try:
        held = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return held if isinstance(held, dict) and isinstance(_first(held, _TEXT_KEYS), str) else None


def _first(held: Mapping[str, object], keys: Iterable[str]) -> object:
    return next((held[key] for key in keys if held.get(key) not in {None, ""}), None)


def _line_of(held: dict[str, object]) -> LogLine:
    text = str(_first(held, _TEXT_KEYS)).rstrip("\n")
    stack = _stack_in(held)
    named = (_first(held, keys) for keys in (_RANK_KEYS, _NODE_KEYS, _PID_KEYS, _LEVEL_KEYS))
    rank, node, pid, level = ("" if value is None else str(value) for value in named)
    return LogLine(
        f"{text}\n{stack}" if stack and stack != text else text,
        int(rank) if rank.isdigit() else None,
        node or None,
        f"pid={pid}" if pid else "",
        _time_of(_first(held, _TIME_KEYS)),
        level.upper(),
    )


def _stack_in(held: dict[str, object]) -> str:
    """The traceback that a record holds beside its message: as text, or a list of its lines."""
    for value in map(held.get, _STACK_KEYS):
        if isinstance(value, list) and value and isinstance(value[0], str):
            return "\n".join(str(part).removesuffix("\n") for part in value)
        if isinstance(value, str) and ("\n" in value or _RAISED.match(value)):
            return value.rstrip("\n")
    return ""


def _time_of(value: object) -> float | None:
    if isinstance(value, (int, float)):
        value = f"{value / 1000 if value > 1e11 else value:.3f}"
    found = _WHOLE_TIME.match(value) if isinstance(value, str) else None
    return _moment_of({k: v for k, v in found.groupdict().items() if v}) if found else None
