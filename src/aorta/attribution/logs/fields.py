"""What one line tells besides its text: the time in the forms people write it, and the fields of
lines that are JSON or logfmt.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

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
class Spoken:
    """A line's own text, and what its prefix told: who wrote it, where and when, and how loudly."""

    text: str
    rank: int | None = None
    node: str | None = None
    who: str = ""  # whatever else tells the lines of one process from another's
    time: float | None = None  # see `moment_of`
    level: str = ""


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


def spoken_in(held: dict[str, object]) -> Spoken:
    message = str(_first(held, _TEXT_KEYS, str))
    text = message.rstrip("\n")
    nested = document_in(text)
    inner = spoken_in(nested) if nested is not None else Spoken(text)
    stack = "\n".join(_stack_lines(held, message))
    level = _first(held, _LEVEL_KEYS, str)
    rank, node, pid = (_first(held, keys, kind) for keys, kind in (
        (_RANK_KEYS, (int, str)), (_NODE_KEYS, str), (_PID_KEYS, (int, str))))  # fmt: skip
    return Spoken(
        f"{inner.text}\n{stack}" if stack else inner.text,
        int(str(rank)) if inner.rank is None and str(rank).isdigit() else inner.rank,
        inner.node or (str(node) if node else None),
        inner.who or (f"pid={pid}" if pid else ""),
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
