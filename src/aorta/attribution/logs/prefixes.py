"""What stands before a line's own text: told apart by its fields, learned from the log where no
field is typed, and taken off.

Launchers, container engines, schedulers and loggers all write something before what a program says:
a time, a host, a pod, a pid, a rank, a level, a place in the source. The commonest have a form of
their own (`_HEAD_FIELDS`). The rest (`node7: `, `worker-0 trainer `) is learned: it is what nearly
all lines of this log begin with, or what stands before the frames of its tracebacks. Lines that are
JSON are opened. This module knows text; it knows neither files nor failures.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache

from aorta.core.templates import TERMINAL_SEQUENCE

# ---- when


_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
MONTH = "|".join(_MONTHS)
CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,:]\d{1,9})?"
TIME = (
    r"(?:(?:(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ]|"
    r"(?P<us>\d\d/\d\d)/\d{2,4}[ ,]+|(?P<short>\d\d-\d\d) "
    rf"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|"
    rf"Sun),? )?(?P<named>(?:{MONTH}) {{1,2}}\d{{1,2}}),? (?:\d{{4}} )?"
    rf"|(?=\d\d:\d\d:\d\d[.,\]\s])){CLOCK}(?: ?(?:Z|UTC|GMT|"
    rf"[+-]\d\d:?\d\d))?(?: \d{{4}}(?=[\][]))?"
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
    time: float | None = None  # see `moment_of`
    level: str = ""
    offset: int = 0  # in its log

    @property
    def who(self) -> tuple[int | None, str]:
        return (self.rank, "") if self.rank is not None else (None, self.stream)


def moment_of(told: dict[str, str]) -> float | None:
    """Seconds since the epoch; where no year is told, since the year began. None: no day is told.

    Times of the two kinds are comparable after `in_one_calendar`.
    """
    if "epoch" in told:
        return float(int(float(told["epoch"])))
    clock = told.get("clock")
    if clock is None:
        return None
    try:
        month, day = _month_and_day(told)
        hour, minute, second = (int(part) for part in clock.split(":"))
        year = int(told.get("year") or _LEAP_YEAR)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return moment if "year" in told else moment - _LEAP_YEAR_BEGAN


def in_one_calendar(moments: Iterable[float]) -> dict[float, float]:
    """Each moment of one cycle with the time it stands for, all on one time line.

    A cycle is shorter than half a year. So what tells no year is of the year that brings it next to
    what does; and where none does, January comes after December.
    """
    known = set(moments)
    told = [moment for moment in known if moment >= _YEAR]
    if not told:
        latest = max(known, default=0.0)
        return {at: at + _YEAR if latest - at > _YEAR / 2 else at for at in known}
    year = datetime.fromtimestamp(max(told), UTC).year
    return {at: at if at >= _YEAR else _nearest(at, year, max(told)) for at in known}


def _nearest(moment: float, year: int, told: float) -> float:
    """A moment without a year, in the year around `year` that brings it next to `told`."""
    at = datetime.fromtimestamp(moment + _LEAP_YEAR_BEGAN, UTC)
    day = at.day if (at.month, at.day) != (2, 29) else 28
    placed = (at.replace(year=year + off, day=day).timestamp() for off in (-1, 0, 1))
    return min(placed, key=lambda each: abs(each - told))


def _month_and_day(told: dict[str, str]) -> tuple[int, int]:
    if "month" in told:
        return int(told["month"]), int(told["day"])
    if "mmdd" in told:
        return int(told["mmdd"][:-2]), int(told["mmdd"][-2:])
    for key in ("us", "short"):
        if key in told:
            month, day = re.split(r"[/-]", told[key])
            return int(month), int(day)
    if "named" in told:
        name, day = told["named"].split()
        return _MONTHS[name], int(day)
    raise ValueError("no day")


# ---- who, where and how loud


_LEVELS = r"DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|CRIT|FATAL|SEVERE|TRACE|EXCEPTION"
_LEVEL = rf"(?P<level>{_LEVELS})"
_PLACE = r"[\w./<>-]+:\d+(?::[\w<>.]+)?"
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
            rf"\[?(?P<letter>[IWEF])(?P<mmdd>\d{{3,4}}) (?:{CLOCK}|00:00:\d{{10}}\.\d+)\s+"
            r"(?:\d+\s+)?[\w./<>-]+:\d+\]"
        ),
        # syslog, journald
        (
            rf"{TIME} (?P<node>[\w.-]+) (?P<who>[\w./@:-]+(?:\([^)]*\))?(?:\[\d+\])|kernel|systemd|"
            r"dockerd|containerd|kubelet):"
        ),
        rf"{TIME} (?P<node>(?:\d{{1,3}}\.){{3}}\d{{1,3}}) \[(?P<rank>\d+)\]",
        rf"[\[(<]{TIME}[\])>](?:\s*[,|:>-]{{1,2}}(?=\s))?",
        rf"{TIME}(?:\s*[,|:>-]{{1,2}}(?=\s)|(?=\s)|(?=\[))",
        r"(?P<host>[a-zA-Z][\w.-]*):\d+:\d+ \[\d+\] (?=NCCL |RCCL |misc/|transport/|init)",
    )
)
_LOGGED_FIELDS = tuple(
    re.compile(field)
    for field in (
        r"(?:stdout|stderr) [FP](?=\s|$)",
        rf"[\[(](?P<level>{_LEVELS}|{_LEVELS.lower()})\s*[\])](?:\s*[:-](?=\s))?",
        rf"{_LEVEL}(?:\s*(?:\||:|-))?(?=\s)",
        rf"[\[(]{_PLACE}[\])]:?",
        rf"{_PLACE}\s*(?:\]|-|:|\||>>)(?=\s)",
    )
)
_IN_PARENTHESES = re.compile(r"\b(rank|ip|pid|host|node)=([\w.:-]+)")
_ANCHOR = re.compile(r'\s*(?:File "[^"]+", line \d+|Traceback \(most recent)')
_FRAME = re.compile(r'^(?P<before>\S.{0,200}?\S?)\s+File "[^"]+", line \d+')
_ANY_FIELDS = (*_HEAD_FIELDS, *_LOGGED_FIELDS)
_OF_A_LOGGER = frozenset({"clock", "letter", "level"})
_MOST_FIELDS = 10
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "C": "CRITICAL", "D": "DEBUG"}


@dataclass(frozen=True)
class LineFormat:
    """The prefixes of one log. Without anything learned it takes off what has a form of its own."""

    learned: tuple[re.Pattern[str], ...] = ()
    ranks_of: Mapping[str, int] = field(default_factory=dict)  # of processes
    loud_throughout: bool = False  # every line has a level: it is not the program that gave it

    def read(self, raw: str) -> LogLine:
        """The line without its prefix. Several lines, where a logger folded them into one."""
        spoken = _without_prefix(_plain(raw), self.learned)
        document = document_in(spoken.text)
        if document is not None:
            inner = spoken_in(document)
            inner = replace(inner, stream=inner.stream or spoken.stream)
            spoken = _with_outer(_rest(inner, self.learned), spoken)
        if spoken.rank is None and spoken.stream in self.ranks_of:
            return replace(spoken, rank=self.ranks_of[spoken.stream])
        return spoken


_BAR = re.compile(
    r"[^\n|]{0,120}\|[^|]{0,300}\|\s*\d[\d.]*[kMG]?/\d[\d.]*[kMG]?\w? ?\[[^\]]{0,200}\](?=\S)"
)


def _plain(raw: str) -> str:
    """Without colours. What is glued behind a progress bar, which leaves its line open, is a line
    of its own.
    """
    text = TERMINAL_SEQUENCE.sub("", raw) if "\x1b" in raw else raw
    bar = _BAR.match(text) if "|" in text and "]" in text else None
    return text[bar.end() :] if bar else text


def _with_outer(inner: LogLine, outer: LogLine) -> LogLine:
    """What a document tells, and what stood before it."""
    return replace(
        inner,
        rank=inner.rank if inner.rank is not None else outer.rank,
        node=inner.node or outer.node,
        time=inner.time if inner.time is not None else outer.time,
        level=inner.level or outer.level,
    )


_BARE_RANK = re.compile(r"\s*(?P<rank>\d{1,6}):(?= |$)")
_LEADING = re.compile(r"(?P<token>[\[(<]?[A-Za-z0-9][\w./@-]*[\])>]?)(?P<sep>: ?|\s*\|\s?|> | +)")
_MASK = re.compile(r"\d+")
_WORDS_OF_FAILURE = re.compile(
    r"error|exception|traceback|warning|fatal|info\b|debug", re.IGNORECASE
)
_ENOUGH = 3
_NEARLY_ALL = 0.8
_HALF = 0.5
_RAY_RANK = re.compile(r"pid=(\d+)\)(?:[^\n(]{0,60}\[| )(?:world_)?rank[=: ]+(\d+)")


def learn(lines: Iterable[str], *, of_one_rank: bool = False) -> LineFormat:
    """The format of a log, from as many of its lines as are worth looking at."""
    sample = [_plain(line) for line in lines if line.strip()]
    ranks_of = {f"pid={pid}": int(rank) for line in sample for pid, rank in _RAY_RANK.findall(line)}
    bare = sum(_BARE_RANK.match(line) is not None for line in sample)
    known = LineFormat(ranks_of=ranks_of)
    if not of_one_rank and bare >= _HALF * len(sample):
        known = replace(known, learned=(_BARE_RANK,))
    for _ in range(3):
        rest = [known.read(line).text for line in sample]
        more = _shared(rest) or _before_frames(rest)
        if more is None:
            break
        known = replace(known, learned=(*known.learned, more))
    loud = sum(bool(known.read(line).level) for line in sample)
    throughout = len(sample) > _ENOUGH and loud >= _NEARLY_ALL * len(sample)
    return replace(known, loud_throughout=throughout)


def _shared(lines: list[str]) -> re.Pattern[str] | None:
    """What nearly all lines still begin with: a token that names a host or a pod."""
    rest = [text for text in lines if text.strip()]
    found = [match for text in rest if (match := _LEADING.match(text))]
    shapes = Counter(map(_shape, found))
    for (token, separator), count in shapes.most_common(2):
        if _WORDS_OF_FAILURE.search(token) or count < _ENOUGH:
            continue
        alike = (match for match in found if _shape(match) == (token, separator))
        anchored = any(_ANCHOR.match(match.string, match.end()) for match in alike)
        share = count / len(rest)
        if (_names_a_place(token, separator) and share >= _NEARLY_ALL) or (
            anchored and share >= _HALF
        ):
            return _pattern_of(token, separator)
    return None


def _shape(leading: re.Match[str]) -> tuple[str, str]:
    """A token without its digits, and what parts it from the rest."""
    return _MASK.sub("#", leading["token"]), leading["sep"].strip() or " "


def _names_a_place(token: str, separator: str) -> bool:
    """Whether it may name a host, a pod or a process, and is not the message's first word."""
    if separator == "|" or token[0] in "[(<":
        return True
    numbered = "#" in token and token.strip("#") != ""
    return numbered and (separator == ":" or "-" in token or "." in token or "/" in token)


def _pattern_of(token: str, separator: str) -> re.Pattern[str]:
    masked = r"\d+".join(re.escape(part) for part in token.split("#"))
    gap = r"(?=\s|$)" if separator == " " else rf"\s*{re.escape(separator)}"
    if re.match(rf"[\[(<]?{_RANK_WORDS}[-_/]?#[\])>]?$", token, re.IGNORECASE):
        at = masked.rindex(r"\d+")
        masked = masked[:at] + r"(?P<rank>\d+)" + masked[at + 3 :]
        return re.compile(masked + gap)
    if re.fullmatch(r"[\[(<]?#[\])>]?", token):
        return re.compile(masked.replace(r"\d+", r"(?P<rank>\d{1,6})") + gap)
    return re.compile(rf"(?P<node>{masked}){gap}")


def _before_frames(lines: list[str]) -> re.Pattern[str] | None:
    """Whatever stands before the frames of tracebacks is no part of them."""
    shapes = Counter(
        _MASK.sub("#", found["before"])
        for text in lines
        if (found := _FRAME.match(text)) is not None
    )
    if not shapes:
        return None
    shape, count = shapes.most_common(1)[0]
    pattern = re.compile(r"\d+".join(re.escape(part) for part in shape.split("#")))
    begun = sum(pattern.match(text) is not None for text in lines)
    return pattern if count > 1 or begun >= _NEARLY_ALL * len(lines) else None


@lru_cache(maxsize=4096)  # ranks write the same lines, and one line is asked for by many
def _without_prefix(text: str, learned: tuple[re.Pattern[str], ...]) -> LogLine:
    return _rest(LogLine(text), learned)


def _rest(spoken: LogLine, learned: tuple[re.Pattern[str], ...]) -> LogLine:
    """The line without the fields it begins with and the space behind them."""
    logged = False
    for taken in range(_MOST_FIELDS):
        gap = len(spoken.text) - len(spoken.text.lstrip()) if taken else 0
        known = (*learned, *(_ANY_FIELDS if logged else _HEAD_FIELDS))
        matches = (match for field in known if (match := field.match(spoken.text, gap)))
        found = next(matches, None)
        if found is None or found.end() == gap:
            return replace(spoken, text=spoken.text.removeprefix(" ")) if taken else spoken
        logged = logged or not _OF_A_LOGGER.isdisjoint(found.re.groupindex)
        spoken = _with_fields(spoken, found)
    return spoken


def _with_fields(spoken: LogLine, found: re.Match[str]) -> LogLine:
    told = {name: value for name, value in found.groupdict().items() if value}
    fields = dict(_IN_PARENTHESES.findall(told.get("fields", "")))
    rank = told.get("rank") or fields.get("rank")
    stream = told.get("node") or fields.get("ip") or fields.get("host") or fields.get("node") or ""
    node = stream or told.get("host")
    who = f"pid={fields['pid']}" if "pid" in fields else f"{stream} {told.get('who', '')}".strip()
    level = told.get("level", "").upper() or _LETTERS.get(told.get("letter", ""), "")
    return LogLine(
        spoken.text[found.end() :],
        spoken.rank if spoken.rank is not None or rank is None else int(rank),
        spoken.node or (node.strip("[]()<>") if node else None),
        spoken.stream or who,
        moment_of(told) if spoken.time is None else spoken.time,
        spoken.level or level,
    )


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


def document_in(text: str) -> dict[str, object] | None:
    """The fields of a line that is a JSON object, if it holds a message."""
    if not (text.startswith("{") and text.rstrip().endswith("}")):
        return None
    try:
        held = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if isinstance(held, dict) and isinstance(payload := held.get("jsonPayload"), dict):
        held = {**payload, **held}
    return held if isinstance(held, dict) and _first(held, _TEXT_KEYS, str) is not None else None


def _first(held: dict[str, object], keys: Iterable[str], kind: type | tuple[type, ...]) -> object:
    return next(
        (held[key] for key in keys if isinstance(held.get(key), kind) and held[key] != ""), None
    )


def spoken_in(held: dict[str, object]) -> LogLine:
    message = str(_first(held, _TEXT_KEYS, str))
    text = message.rstrip("\n")
    nested = document_in(text)
    inner = spoken_in(nested) if nested is not None else LogLine(text)
    stack = "\n".join(_stack_lines(held, message))
    level = _first(held, _LEVEL_KEYS, str)
    rank, node, pid = (_first(held, keys, kind) for keys, kind in (
        (_RANK_KEYS, (int, str)), (_NODE_KEYS, str), (_PID_KEYS, (int, str))))  # fmt: skip
    return LogLine(
        f"{inner.text}\n{stack}" if stack else inner.text,
        int(str(rank)) if inner.rank is None and str(rank).isdigit() else inner.rank,
        inner.node or (str(node) if node else None),
        inner.stream or (f"pid={pid}" if pid else ""),
        inner.time
        if inner.time is not None
        else _time_of(_first(held, _TIME_KEYS, (str, int, float))),
        inner.level or (str(level).upper() if level else ""),
    )


def _stack_lines(held: dict[str, object], message: str) -> Iterator[str]:
    for value in map(held.get, _STACK_KEYS):
        if isinstance(value, list) and value and isinstance(value[0], str):
            yield from "\n".join(str(part).removesuffix("\n") for part in value).split("\n")
            return
        if not isinstance(value, str) or value.strip() == message.strip():
            continue
        if "\n" in value or re.match(r"[A-Za-z_][\w.]*(?:Error|Exception)\b", value):
            yield from value.rstrip("\n").split("\n")
            return


_WHOLE_TIME = re.compile(TIME)


def _time_of(told: object) -> float | None:
    if isinstance(told, (int, float)):
        told = f"{told / 1000 if told > 1e11 else told:.3f}"
    found = _WHOLE_TIME.match(told) if isinstance(told, str) else None
    return moment_of({k: v for k, v in found.groupdict().items() if v}) if found else None
