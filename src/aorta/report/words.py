"""How pages say numbers: rates with their intervals, counts, factors."""

from collections.abc import Sequence
from datetime import UTC, datetime

from aorta.core.durations import show_duration
from aorta.core.stats import percent_range, wilson


def percent(share: float) -> str:
    """`0.4 %` where rounding to whole percents would say none or all."""
    value = 100 * share
    if 0 < value < 1 or 99 < value < 100:
        return f"{value:.1f} %"
    return f"{value:.0f} %"


def rate(hits: int, trials: int, noun: str = "") -> str:
    """`3 of 10 (30 %, 95 % interval 11 to 60 %)`; with a noun, `3 of 10 trials (...)`."""
    said = counted(trials, noun) if noun else str(trials)
    if not trials:
        return f"0 of {said}"
    low, high = wilson(hits, trials)
    interval = f"95 % interval {percent_range(low, high, ' to ')}"
    return f"{hits} of {said} ({percent(hits / trials)}, {interval})"


def seconds(value: float | None) -> str:
    return "" if value is None else show_duration(value)


def moment(text: str) -> str:
    """`2026-11-15 06:43 UTC` of a time as documents write it."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return text


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(names: Sequence[str], most: int = 4) -> str:
    """`a, b and c`; beyond `most` how many more there are."""
    shown = list(names[:most])
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def factor(before: float, after: float) -> str:
    """`36 times less`."""
    if after <= 0 or before < 1.2 * after:
        return ""
    return f"{before / after:.3g} times less"
