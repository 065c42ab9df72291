"""How far a job came: steps in the dialects people log them, or else the number that only grows."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from aorta.attribution.reading import Source, ends_of

HEAD = 64 << 10
TAIL = 192 << 10
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
_ERROR_STREAMS = (".err", ".err.gz", "stderr.log")


@dataclass(frozen=True)
class Progress:
    first: int | None = None
    last: int | None = None
    would_show: bool = True  # whether any log was one that steps are written to
    ranks: frozenset[int] = frozenset()  # those known to have made a step


def progress_of(sources: Iterable[Source]) -> Progress:
    """The first and the furthest step any of these logs tells of."""
    firsts, lasts, would_show = [], [], False
    ranks: set[int] = set()
    for source in sources:
        would_show |= not source.name.endswith(_ERROR_STREAMS)
        if source.size:
            head, tail = ends_of(source, HEAD, TAIL)
            begun, ended = steps_in(head), steps_in(tail)
            if source.rank is not None and (begun or ended):
                ranks.add(source.rank)
            firsts += begun[:1] or ended[:1]
            lasts += [max(ended)] if ended else begun[-1:]
    return Progress(
        min(firsts, default=None), max(lasts, default=None), would_show, frozenset(ranks)
    )


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
