"""How long a step took, as commands print it. Texts in, numbers out.

The time stands beside a step (`12.3 it/s`, `0.5s/it`, `step time: 16 ms`), or lies between the clocks of two lines that tell of
steps.
"""

import re
from datetime import datetime, timedelta
from itertools import pairwise

_STEP_NUMBER = re.compile(
    r"(?:iteration|iter|step|update|batch)s?[\"']?[ \t]*[:=#]?[ \t]*\[?[ \t]*(?P<step>\d{1,12})(?![\d.]*%)",
    re.IGNORECASE,
)
_UNIT_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_NUMBER_OF = r"(?P<{0}>\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_UNIT_OF_TIME = r"(?P<{0}>us|ms|s)(?:ec(?:ond)?s?)?"
_A_STEP = r"(?:it(?:er(?:ation)?s?)?|steps?|batch(?:es)?|updates?)"
_STEP_TIME = re.compile(
    "|".join(
        (
            _NUMBER_OF.format("rate") + rf"[ \t]*{_A_STEP}/s(?:ec(?:ond)?)?\b",
            _NUMBER_OF.format("each")
            + rf"[ \t]*{_UNIT_OF_TIME.format('each_unit')}[ \t]*(?:/|per)[ \t]*{_A_STEP}\b",
            rf"\b(?:(?:elapsed[ _])?time[ _]per[ _]{_A_STEP}|{_A_STEP}[ _-]?time)[ _]*"
            rf"[(\[]?(?:{_UNIT_OF_TIME.format('named_unit')}\b)?[)\]]?[\"']?[ \t]*[:=]?[ \t]*"
            + _NUMBER_OF.format("named")
            + rf"[ \t]*(?:{_UNIT_OF_TIME.format('unit')}\b)?",
        )
    ),
    re.IGNORECASE,
)
_STAMP = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
    r"|(?<![\d:])(?P<time>\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?![\d:])"
)
_ENOUGH_SAMPLES = 3


def printed_step_times(text: str) -> list[float]:
    """Step times in ms as `text` prints them, without the first, which pays for warming up; else between its clocks."""
    times = [_milliseconds(found) for found in _STEP_TIME.finditer(text)]
    times = [time for time in times if time > 0] or _between_clocks(text)
    return times[1:] if len(times) > _ENOUGH_SAMPLES else times


def _milliseconds(found: re.Match[str]) -> float:
    if found["rate"]:
        rate = float(found["rate"])
        return 1000 / rate if rate else 0.0
    unit = found["each_unit"] or found["unit"] or found["named_unit"] or "s"
    return float(found["each"] or found["named"]) * _UNIT_MS[unit.lower()]


def _between_clocks(text: str) -> list[float]:
    """The time of one step between each two lines that tell of a later step and of when."""
    seen: list[tuple[datetime, int]] = []
    for line in re.split(r"[\r\n]+", text):
        stamp = _STAMP.search(line)
        step = _STEP_NUMBER.search(line) if stamp else None
        if stamp and step:
            day, clock = stamp["date"] or "2000-01-01", stamp["clock"] or stamp["time"]
            try:
                seen.append(
                    (datetime.fromisoformat(f"{day} {clock.replace(',', '.')}"), int(step["step"]))
                )
            except ValueError:
                continue
    times = []
    for (before, first), (after, last) in pairwise(seen):
        took = (after - before) % timedelta(days=1) if after < before else after - before
        if last > first:
            times.append(took.total_seconds() * 1000 / (last - first))
    return times if any(times) else []
