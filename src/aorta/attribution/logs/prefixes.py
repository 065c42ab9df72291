"""What stands before a line's own text: told apart by its fields, learned from the log where no
field is typed, and taken off.

Launchers, container engines, schedulers and loggers all write something before what a program says:
a time, a host, a pod, a pid, a rank, a level, a place in the source. Most of it has a form of its
own (`_HEAD_FIELDS`). What has none (`node7: `, `worker-0 trainer `) is learned: it is what nearly
all lines of this log begin with, or what stands before the frames of its tracebacks. Lines that are
JSON or logfmt are opened. This module knows text; it knows neither files nor failures.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    rf"|(?P<dmy>\d\d-(?:{MONTH})-\d{{2,4}}) |(?=\d\d:\d\d:\d\d[.,\]\s])){CLOCK}(?: ?(?:Z|UTC|GMT|"
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
    if "dmy" in told:
        day, name, _ = told["dmy"].split("-")
        return _MONTHS[name], int(day)
    raise ValueError("no day")


# ---- who, where and how loud


_LEVELS = r"DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|CRITICAL|CRIT|FATAL|SEVERE|TRACE|EXCEPTION"
_LEVEL = rf"(?P<level>{_LEVELS})"
_ANY_LEVEL = rf"(?P<level>{_LEVELS}|{_LEVELS.lower()})"
_PLACE = r"[\w./<>-]+:\d+(?::[\w<>.]+)?"
_RANK_WORDS = (
    r"(?:(?:global[ _]?|world[ _]?)?rank|default|trainer|worker|process|proc|task|replica|PE)"
)
_AFTER_TIME = r"(?:\s*[,|:>-]{1,2}(?=\s)|(?=\s)|(?=\[))"


def _compiled(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts))


# Each may stand at the beginning of what is left of a line. `head`: always; `logged`: only behind a
# time or another logger's field.
_HEAD_FIELDS = (
    re.compile(rf"\s*\[{_RANK_WORDS}[ _:=]{{0,2}}(?P<rank>\d{{1,6}})\]:?", re.IGNORECASE),
    _compiled(r"\[(?:host|node)[ _:=]?(?P<node>[\w.-]*\d)\]:?"),
    _compiled(
        r"\[(?:[\w.@-]*\d,)?(?:mpirank:)?(?P<rank>\d{1,6})(?:,(?P<node>[\w.-]+))?\]<(?:stdout|"
        r"stderr|stddiag)>:"
    ),
    _compiled(r"\((?=[^()]{0,160}\bpid=\d)(?P<fields>(?:[^()]|\([^()]*\)){1,200})\)(?=\s|$)"),
    _compiled(r"\[pod/(?P<node>[\w.-]+)/[\w.-]+\]"),
    _compiled(r"(?P<node>[a-zA-Z][\w.-]*[-_]\d+)\s+\|"),
    _compiled(
        rf"\[?(?P<letter>[IWEF])(?P<mmdd>\d{{3,4}}) (?:{CLOCK}|"
        rf"00:00:\d{{10}}\.\d+)\s+(?:\d+\s+)?[\w./<>-]+:\d+\]"
    ),
    _compiled(r"\[(?P<letter>[IWEF]) [\w./-]+:\d+\]"),
    _compiled(rf"\[NeMo (?P<letter>[IWEF]) {TIME} [\w.<>-]+:\d+\]"),
    _compiled(rf"{TIME}: (?P<letter>[IWEF]) [\w./-]+:\d+\]"),
    _compiled(rf"\[{TIME} (?P<letter>[IWEFCD]) \d+ \d+\](?: \(\w+\))?(?: [\w./-]+:\d+:)?"),
    _compiled(rf"<\d+>\d? ?{TIME} (?P<node>\S+) [\w./-]+ \S+ \S+ (?:-|\[[^\]]*\])"),
    _compiled(
        rf"{TIME} (?P<node>[\w.-]+) (?P<who>[\w./@:-]+(?:\([^)]*\))?(?:\[\d+\])|kernel|systemd|"
        rf"dockerd|containerd|kubelet):"
    ),
    _compiled(rf"{TIME} (?P<node>(?:\d{{1,3}}\.){{3}}\d{{1,3}}) \[(?P<rank>\d+)\]"),
    _compiled(rf"{_LEVEL}:(?!\s)[\w.]*\w:(?!/)"),
    _compiled(rf"\[{_LEVEL}\s*\|[^\]]{{1,80}}\] {TIME} >>"),
    _compiled(rf"\(?{_LEVEL}\)?:?(?= [\[(]?{TIME}[ \])])"),
    _compiled(rf"\[{_LEVEL}\](?=\s*[\[(]?{TIME})"),
    _compiled(rf"[\[(<]{TIME}[\])>](?:\s*[,|:>-]{{1,2}}(?=\s))?"),
    _compiled(rf"{TIME}{_AFTER_TIME}"),
    _compiled(r"(?P<host>[a-zA-Z][\w.-]*):\d+:\d+ \[\d+\] (?=NCCL |RCCL |misc/|transport/|init)"),
    _compiled(
        r"\[(?P<host>(?!\w+\.(?:py|cc|cpp|cu|c|h|hpp|rs|go):)[a-zA-Z][\w.-]*):\d+(?::\d+:\d+)?\]"
    ),
)
_LOGGED_FIELDS = (
    _compiled(r"(?:stdout|stderr) [FP](?=\s|$)"),
    _compiled(rf"[\[(]{_ANY_LEVEL}\s*[\])](?:\s*[:-](?=\s))?"),
    _compiled(rf"{_LEVEL}\s*(?:\||:|-)(?=\s)"),
    _compiled(rf"{_LEVEL}(?=\s)"),
    _compiled(rf"[\[(]{_PLACE}[\])]:?"),
    _compiled(rf"{_PLACE}\s*(?:\]|-|:|\||>>)(?=\s)"),
    _compiled(r"[\w.]+:[\w<>.]+:\d+ -(?=\s|$)"),
    _compiled(r"\[(?:__main__|__mp_main__|MainThread|MainProcess|"
              r"[a-z_]\w*(?:\.\w+)+)\](?:\s*[:-](?=\s))?"),
    _compiled(r"(?:__main__|__mp_main__|root|[a-z_]\w*(?:\.\w+)+)\s+(?:-|:|\||>>)(?=\s)"),
    _compiled(r"\[(?:pid[ :=]*)?\d{1,7}\]:?"),
    _compiled(r"(?:pid[ :=]*)?\d{2,7} (?=[\w./-]+:\d+\]|-|\[)"),
    _compiled(r"(?P<node>[a-zA-Z][\w.-]*) [\w./-]+\[\d+\]:"),
    _compiled(r"(?:-|\||>>)(?= )"),
)  # fmt: skip
_MAY_BEGIN = re.compile(  # most lines have no prefix, and that is told soonest by how they begin
    rf"\s*[\[(<\d]|[IWEF]\d{{3,4}} |(?:{_LEVELS})[:\s]|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|{MONTH})[ ,]"
    r"|[a-zA-Z][\w.-]*(?:[-_]\d+\s+\||:\d+:\d+ \[)"
)
_IN_PARENTHESES = re.compile(r"\b(rank|ip|pid|host|node)=([\w.:-]+)")
_BAR = re.compile(
    r"^[^\n]{0,120}?\d{1,3}%\|[^|"
    r"]{0,300}\|\s*\d[\d.]*[kMG]?/\d[\d.]*[kMG]?\w? ?\[[^\]]{0,200}\](?=\S)"
)
_BARE_BAR = re.compile(r"^[^|]{0,80}\|[^|]{0,200}\|\s*\d+/\d+ \[[^\]]{0,200}\](?=\S)")
_ANCHOR = re.compile(r'\s*(?:File "[^"]+", line \d+|Traceback \(most recent)')
_FRAME = re.compile(r'^(?P<before>\S.{0,200}?\S?)\s+File "[^"]+", line \d+')
_ANY_FIELDS = (*_HEAD_FIELDS, *_LOGGED_FIELDS)
_OF_A_LOGGER = frozenset({"clock", "letter", "level"})
_MOST_FIELDS = 10
# Characters of a line whose fields are kept: thousands of them are a few megabytes.
_LONGEST_KEPT = 1000
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "C": "CRITICAL", "D": "DEBUG"}


@dataclass(frozen=True)
class LineFormat:
    """The prefixes of one log. Without anything learned it takes off what has a form of its own."""

    learned: tuple[re.Pattern[str], ...] = ()
    ranks_of: Mapping[str, int] = field(default_factory=dict)  # of processes
    margins: Mapping[tuple[int, ...], int] = field(default_factory=dict)
    loud_throughout: bool = False  # every line has a level: it is not the program that gave it

    def read(self, raw: str) -> LogLine:
        """The line without its prefix. Several lines, where a logger folded them into one."""
        text = _without_bar(TERMINAL_SEQUENCE.sub("", raw) if "\x1b" in raw else raw)
        spoken = self._without_prefix(LogLine(text))
        document = document_in(spoken.text)
        if document is None:
            return self._placed(spoken)
        inner = self._without_prefix(replace(spoken_in(document), stream=spoken.stream))
        return self._placed(
            replace(
                inner,
                rank=inner.rank if inner.rank is not None else spoken.rank,
                node=inner.node or spoken.node,
                time=inner.time if inner.time is not None else spoken.time,
                level=inner.level or spoken.level,
            )
        )

    def _without_prefix(self, spoken: LogLine) -> LogLine:
        """The fields taken off one by one, then the gap behind them, but no indentation."""
        spoken, fields = self._fields(spoken)
        if not fields:
            return spoken
        margin = self.margins.get(fields, 1)
        indent = len(spoken.text) - len(spoken.text.lstrip(" "))
        return replace(spoken, text=spoken.text[min(margin, indent) :])

    def _fields(self, spoken: LogLine) -> tuple[LogLine, tuple[int, ...]]:
        """Read once a line: ranks write the same lines, and one line is asked for by many."""
        if len(spoken.text) > _LONGEST_KEPT:
            return _fields_read(spoken, self.learned)
        return _fields_of(spoken, self.learned)

    def with_margins(self, sample: list[str]) -> "LineFormat":
        """The same with the gap that each sequence of fields leaves before its text."""
        margins: dict[tuple[int, ...], int] = {}
        loud = 0
        for line in sample:
            spoken, fields = self._fields(LogLine(line))
            folded = spoken.text.startswith(("{", "time=", "ts=", "level="))
            loud += bool(spoken.level or (folded and self.read(line).level))
            if fields and spoken.text.strip():
                indent = len(spoken.text) - len(spoken.text.lstrip(" "))
                margins[fields] = min(indent, margins.get(fields, indent))
        throughout = len(sample) > _ENOUGH and loud >= _NEARLY_ALL * len(sample)
        return replace(self, margins=margins, loud_throughout=throughout)

    def _placed(self, spoken: LogLine) -> LogLine:
        if spoken.rank is None and spoken.stream in self.ranks_of:
            return replace(spoken, rank=self.ranks_of[spoken.stream])
        return spoken


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
    sample = [
        TERMINAL_SEQUENCE.sub("", line) if "\x1b" in line else line
        for line in lines
        if line.strip()
    ]
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
    return known.with_margins(sample)


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


def _fields_read(
    spoken: LogLine, learned: tuple[re.Pattern[str], ...]
) -> tuple[LogLine, tuple[int, ...]]:
    """The line without the fields it begins with, and which these were."""
    logged = False
    taken: list[int] = []
    for _ in range(_MOST_FIELDS):
        gap = len(spoken.text) - len(spoken.text.lstrip()) if taken else 0
        found, number = _next_field(spoken.text, gap, logged, learned)
        if found is None or found.end() == gap:
            break
        logged = logged or not _OF_A_LOGGER.isdisjoint(found.re.groupindex)
        taken.append(number)
        spoken = _with_fields(spoken, found)
    return spoken, tuple(taken)


_fields_of = lru_cache(maxsize=4096)(_fields_read)


def _next_field(
    text: str, at: int, logged: bool, learned: tuple[re.Pattern[str], ...]
) -> tuple[re.Match[str] | None, int]:
    for learnt in learned:
        if (found := learnt.match(text, at)) is not None:
            return found, -1
    if not logged and _MAY_BEGIN.match(text, at) is None:
        return None, 0
    for number, known in enumerate(_ANY_FIELDS if logged else _HEAD_FIELDS):
        if (found := known.match(text, at)) is not None:
            return found, number
    return None, 0


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


def _without_bar(text: str) -> str:
    """What is glued behind a progress bar, which leaves its line open, is a line of its own."""
    if "|" in text and "[" in text and "/" in text:
        return _BARE_BAR.sub("", _BAR.sub("", text))
    return text


# ---- lines that are JSON or logfmt


_TEXT_KEYS = (
    "message", "msg", "log", "textPayload", "event", "text", "body", "short_message", "MESSAGE",
    "@message", "line", "data", "content",
)  # fmt: skip
_STACK_KEYS = (
    "exc_info", "exception", "exc_text", "stack_trace", "stacktrace", "traceback", "stack", "exc",
    "error", "err",
)  # fmt: skip
_INNER_STACK_KEYS = ("stack", "stack_trace", "stacktrace", "traceback")
_LEVEL_KEYS = ("level", "levelname", "severity", "lvl", "log.level", "level_name", "@l")
_TIME_KEYS = (
    "time", "timestamp", "ts", "asctime", "@timestamp", "t", "datetime", "date", "eventTime",
)  # fmt: skip
_RANK_KEYS = ("rank", "global_rank", "world_rank", "RANK", "process_index")
_NODE_KEYS = ("host", "hostname", "node", "pod", "pod_name", "nodename", "_HOSTNAME", "instance")
_PID_KEYS = ("pid", "process", "process_id", "_PID")
_LOGFMT = re.compile(r'(?P<key>[\w.@]+)=(?P<value>"(?:[^"\\]|\\.)*"|\S*)')


def document_in(text: str) -> dict[str, object] | None:
    """The fields of a line that is a JSON object or logfmt, if it holds a message."""
    if text.startswith("{") and text.rstrip().endswith("}"):
        try:
            found = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        held = {str(key): value for key, value in found.items()}
        for nested in ("jsonPayload", "record", "fields", "extra", "kubernetes"):
            inner = held.get(nested)
            if isinstance(inner, dict):
                held = {**{str(k): v for k, v in inner.items() if not isinstance(v, dict)}, **held}
        return held if _first(held, _TEXT_KEYS, str) is not None else None
    if " msg=" in text and text.startswith(("time=", "ts=", "level=", "t=", "lvl=")):
        return {found["key"]: _unquoted(found["value"]) for found in _LOGFMT.finditer(text)}
    return None


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        told = json.loads(value, strict=False)
    except ValueError:
        return value.strip('"')
    return told if isinstance(told, str) else value


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
    for key in _STACK_KEYS:
        value = held.get(key)
        if isinstance(value, dict):
            value = next((value[k] for k in _INNER_STACK_KEYS if k in value), None)
        if isinstance(value, str) and "\n" in value and value.strip() != message.strip():
            yield from value.rstrip("\n").split("\n")
            return
        if isinstance(value, list) and value and isinstance(value[0], str):
            yield from "\n".join(str(part).removesuffix("\n") for part in value).split("\n")
            return
        if isinstance(value, str) and re.match(r"[A-Za-z_][\w.]*(?:Error|Exception)\b", value):
            yield value
            return


_WHOLE_TIME: Callable[[str], re.Match[str] | None] = re.compile(TIME).match


def _time_of(told: object) -> float | None:
    if isinstance(told, (int, float)):
        told = f"{told / 1000 if told > 1e11 else told:.3f}"
    found = _WHOLE_TIME(told) if isinstance(told, str) else None
    return moment_of({k: v for k, v in found.groupdict().items() if v}) if found else None
