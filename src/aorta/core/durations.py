"""Durations as people write them: `30s`, `4h`, `1h30m`, or plain seconds."""

import math
import re

from aorta.core.errors import UsageError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 3650 * 86400.0
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def parse_duration(value: str | float, *, where: str | None = None) -> float:
    """Seconds; refuses what is not a positive, finite time, or longer than anybody waits."""
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(
            f"{value!r} is not a duration; expected a positive time such as 30s, 10m, 4h or 1h30m",
            where=where,
        )
    if seconds > _LONGEST:
        raise UsageError(f"{value!r} is longer than ten years; give a shorter time", where=where)
    return seconds


def _seconds(value: str | float) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    text = value.strip().lower()
    parts = _PART.findall(text)
    if parts and _PART.sub("", text).strip() == "":
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        return None


def show_duration(seconds: float) -> str:
    """Two significant units at most: `0.4s`, `38s`, `4m10s`, `2h05m`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 100:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m"
