"""Steps as people log them: which were made, and how long each took. Texts in, numbers out.

A step is told in one of the usual wordings, by a progress bar, or by the one number that only grows from line to line.
Its time is printed beside it (`12.3 it/s`, `0.5s/it`, `step time: 16 ms`), or lies between the clocks of two lines that
tell of steps.
"""

import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

_STEP = re.compile(
    r"(?:iteration|iter|step|update)s?[\"']?[ \t]*[:=#]?[ \t]*\[?[ \t]*(?P<step>\d{1,12})(?![\d.]*%)"
    r"|\|[ \t]*(?P<bar>\d{1,12})/\d{1,12}[ \t]*\[\d",
    re.IGNORECASE,
)
_BEFORE = 40  # characters before a step that may say it is something else
_LINE = 300  # as much of a line as may show that it belongs to a stack
_INSIDE_A_WORD = re.compile(r"[A-Za-z0-9-]$")
_NOT_PROGRESS = re.compile(
    r"\b(?:max|total|num|number of|warm-?up|every|per|of|load\w*|resum\w*|restor\w*|from|until|for|at|skip\w*|in)"
    r"[ _=:]*\(?$",
    re.IGNORECASE,
)
_RESUMING = re.compile(r"load|resum|restor|checkpoint found|max_|total", re.IGNORECASE)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?|0x[0-9a-fA-F]+|\d+\.\d+\S*")
_NUMBER = re.compile(r"(?<![\w.])\d{1,12}(?![\w.])")
_OF_A_STACK = re.compile(
    r'File "[^"]+", line \d+|[❱└│]|^\s*#\d+ '
)  # frames, and variables drawn beside them
_ENOUGH_LINES = 5
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
        steps = steps_in(line) if stamp else []
        if stamp and steps:
            day, clock = stamp["date"] or "2000-01-01", stamp["clock"] or stamp["time"]
            try:
                seen.append((datetime.fromisoformat(f"{day} {clock.replace(',', '.')}"), steps[-1]))
            except ValueError:
                continue
    times = []
    for (before, first), (after, last) in pairwise(seen):
        took = (after - before) % timedelta(days=1) if after < before else after - before
        if last > first:
            times.append(took.total_seconds() * 1000 / (last - first))
    return times if any(times) else []


def steps_in(text: str) -> list[int]:
    """The steps reported in `text`, in order: of the wording used most often."""
    by_wording: dict[str, list[int]] = {}
    for found in _STEP.finditer(text):
        line = text[max(0, found.start() - _LINE) : found.start()].rpartition("\n")[2]
        if _OF_A_STACK.search(line) or (found["step"] and not _is_progress(line[-_BEFORE:])):
            continue
        wording = "bar" if found["bar"] else text[found.start() : found.start("step")].lower()
        by_wording.setdefault(wording.strip(), []).append(int(found["step"] or found["bar"]))
    if by_wording:
        return max(by_wording.values(), key=len)
    return growing_number(text)


def _is_progress(before: str) -> bool:
    return not (
        _INSIDE_A_WORD.search(before)
        or _NOT_PROGRESS.search(before.rstrip())
        or _RESUMING.search(before)
    )


def growing_number(text: str) -> list[int]:
    """The values of the one number that grows from line to line in lines that are otherwise alike."""
    columns: dict[str, list[tuple[int, ...]]] = {}
    for line in re.split(r"[\r\n]+", text):
        if _OF_A_STACK.search(line):
            continue
        plain = _CLOCK.sub("~", line)
        numbers = tuple(int(number) for number in _NUMBER.findall(plain))
        if numbers:
            shape = " ".join(_NUMBER.sub("#", plain).split())  # columns are padded
            columns.setdefault(shape, []).append(numbers)
    shapes = Counter({shape: len(rows) for shape, rows in columns.items()})
    for shape, count in shapes.most_common(5):
        if count < _ENOUGH_LINES:
            break
        for column in zip(*columns[shape], strict=True):
            if all(later > earlier for earlier, later in pairwise(column)):
                return list(column)
    return []
