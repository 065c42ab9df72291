"""How far a job came: steps in the forms people log them, and only where they are seen.

A number is a step if its line also tells of a loss, a rate or the like, or if it grows from line to
line. Being before the first step must be seen too: silence says nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from aorta.attribution.reading import ReadableLog, ends_of

HEAD = 24 << 10
TAIL = 64 << 10
_METRIC = re.compile(
    r"loss|\blr\b|learning_rate|grad|\bppl\b|perplexity|\bacc\b|accuracy|throughput|"
    r"tok(?:en)?s?[/_ ]|tflop|elapsed|consumed|samples|sec\b|"
    r"s/it|it/s|\bmfu\b|\bmae\b|reward|\bms\b|seconds|complet|finish|\bdone\b|\bok\b",
    re.IGNORECASE,
)
_COUNTER = re.compile(
    r"(?<![\w./-])(?P<word>global[_ ]?step|num_updates|training_iteration|step|iteration|iter|"
    r"update|batch)(?P<many>s?)[\"']?"
    r"[ \t]*(?:\(train\))?[:=#]?[ \t]*\[?[ \t]*[\"']?(?P<step>\d{1,12})(?![\d.]*%|\.\d|\w)",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"\b(?:epoch|train)\w*(?:\(train\))?:?\s*\[?(?P<epoch>\d+)(?:/\d+)?\]?\s*\[\s*(?P<at>\d+)\s*/\s*(?P<of>\d+)"
    r"|\bepoch\s*\[?(?P<epoch2>\d+)\]?(?:/\d+)?\]?:?\s[^\n]{0,120}?\|\s*(?P<at2>\d+)/(?P<of2>\d+)\s*\["
    r"|\bepoch (?P<epoch3>\d+):\s+(?P<at3>\d+) / (?P<of3>\d+)"
    r"|^\s+(?P<epoch4>\d+)/\d+\s+[\d.]+G\s[^\n]{0,160}?\|\s*(?P<at4>\d+)/(?P<of4>\d+)\s*\[",
    re.IGNORECASE,
)
_BAR = re.compile(
    r"(?P<what>[^|\r\n]{0,80}?)\d{1,3}%\|[^|"
    r"]{0,200}\|\s*(?P<at>\d{1,12})/(?P<of>\d{1,12})\s*\[(?P<rest>[^\]]*)"
    r"|^\s*(?P<keras>\d{1,9})/(?P<kof>\d{1,9}) \[[=>.]+\]"
)
_HF = re.compile(r"^\{'(?:loss|train_loss|grad_norm)': ")
_SAVED = re.compile(
    r"\bsav(?:ed|ing)\b[^\n]{0,120}?(?:checkpoint|step|iter(?:ation)?|"
    r"global_step)[-_ =:/]*(?P<step>\d{1,12})\b",
    re.IGNORECASE,
)
_COLLECTIVE = re.compile(
    r"(?:SeqNum=|last enqueued (?:NCCL )?work: |SequenceNumber=)(?P<number>\d{1,12})"
)
_MANY_COLLECTIVES = 1000  # building and loading a model takes some hundreds
_BEFORE = 40  # characters before a step that may say it is something else
_NOT_PROGRESS = re.compile(
    r"\b(?:max|total|num|number of|warm-?up|every|per|of|load\w*|resum\w*|restor\w*|from|until|"
    r"for|at|skip\w*|in)"
    r"[ _=:]*\(?$",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"load|resum|restor|checkpoint found|max_|total|CANCELLED|srun|StepId", re.IGNORECASE
)
_OTHER_WORK = re.compile(
    r"load|shard|\bmap\b|map:|num_proc|token|download|fetch|filter|generat|\bsav|eval|valid|"
    r"\btest|predict|sanity|check|extract|index|cach|"
    r"pack|process|read|warm|captur|compil|prompt|resolv|upload|convert|quant|calibrat|build|"
    r"split|copy|hash|scan|infer|sampling|dequant|"
    r"flatten|group|channel|nccl|worker|init|graph|attempt|retr",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?|0x[0-9a-fA-F]+|\d+\.\d+\S*")
_NUMBER = re.compile(r"(?<![\w.])\d{1,12}(?![\w.])")
_OF_A_STACK = re.compile(
    r'File "[^"]+", line \d+|[❱└│]|^\s*#\d+ |NCCL INFO|\bframe #\d+'
)  # frames, and variables drawn beside them
_ENOUGH_LINES = 5
_COUNTED = ("step", "iter", "update", "batch")
_LONGEST = 1000
_LOOKED_AT = 300  # lines


@dataclass(frozen=True)
class Progress:
    first: int | None = None
    last: int | None = None
    made: bool = False  # whether a step was seen, counted or not
    at_zero: bool = False  # whether a count was seen before its first step, and nothing after it
    ranks: frozenset[int] = frozenset()  # those known to have made a step


@dataclass
class _Seen:
    """What the lines of one text tell of steps, by the way they are worded."""

    by_wording: dict[str, list[int]] = field(default_factory=dict)
    sure: set[str] = field(default_factory=set)
    made: bool = False
    zero: bool = False

    def count(self, wording: str, step: int, sure: bool) -> None:
        self.by_wording.setdefault(wording, []).append(step)
        if sure:
            self.sure.add(wording)

    def steps(self) -> list[int]:
        """The steps of the wording used most often among those that are steps."""
        true = [
            steps
            for wording, steps in self.by_wording.items()
            if wording in self.sure or any(later > earlier for earlier, later in pairwise(steps))
        ]
        return max(true, key=len, default=[])


def progress_of(sources: Iterable[ReadableLog]) -> Progress:
    """The first and the furthest step any of these logs tells of."""
    firsts, lasts = [], []
    made = zero = False
    ranks: set[int] = set()
    for source in sources:
        if not source.size:
            continue
        head, tail = ends_of(source, HEAD, TAIL)
        begun = _seen(head)
        ended = begun if tail == head else _seen(tail)
        first = _steps(begun, head)
        last = first if tail == head else _steps(ended, tail)
        here = any(step > 0 for step in (*first, *last)) or begun.made or ended.made
        if source.rank is not None and here:
            ranks.add(source.rank)
        made |= here
        zero |= ended.zero and not here
        firsts += first[:1] or last[:1]
        lasts += [max(last)] if last else first[-1:]
    return Progress(
        min(firsts, default=None),
        max(lasts, default=None),
        made,
        zero and not made,
        frozenset(ranks),
    )


def steps_in(text: str) -> list[int]:
    """The steps reported in `text`, in order: of the wording used most often."""
    return _steps(_seen(text), text)


def _steps(seen: _Seen, text: str) -> list[int]:
    return seen.steps() or growing_number(text)


def _seen(text: str) -> _Seen:
    seen = _Seen()
    for line in re.split(r"[\r\n]+", text):
        if line and not _OF_A_STACK.search(line[:_LONGEST]):
            _look_at(line[:_LONGEST], seen)
    numbers = [int(found["number"]) for found in _COLLECTIVE.finditer(text)]
    seen.made |= max(numbers, default=0) > _MANY_COLLECTIVES
    return seen


def _look_at(line: str, seen: _Seen) -> None:
    if _HF.match(line):
        seen.made = True
    low = line.lower()  # a word that is not there costs less to miss than an expression
    drawn = "%|" in line or "[=" in line or "[>" in line
    epoch = (
        _EPOCH.search(line) if "/" in line and (drawn or "epoch" in low or "train" in low) else None
    )
    if epoch is not None and not _OTHER_WORK.search(line[: epoch.start()]):
        told = [int(value) for value in epoch.groups() if value is not None]
        seen.count("epoch", told[0] * told[2] + told[1], sure=True)
        return
    bar = _BAR.search(line) if drawn else None
    if bar is not None:
        _look_at_bar(bar, seen)
        return
    if "sav" in low and _SAVED.search(line) is not None:
        seen.made = True
    if not any(word in low for word in _COUNTED):
        return
    for found in _COUNTER.finditer(line):
        before = line[max(0, found.start() - _BEFORE) : found.start()]
        metric = _METRIC.search(line) is not None
        if _NOT_PROGRESS.search(before.rstrip()) or _ELSEWHERE.search(before):
            continue
        if (found["many"] or found["word"].lower() == "batch") and not metric:
            continue
        seen.count(
            line[found.start() : found.start("step")].lower().strip(), int(found["step"]), metric
        )
        return


def _look_at_bar(bar: re.Match[str], seen: _Seen) -> None:
    what = bar["what"] or ""
    if _OTHER_WORK.search(what):
        return
    at = int(bar["at"] or bar["keras"])
    if at == 0:
        seen.zero = True
    else:
        sure = bool(
            bar["keras"] or (_METRIC.search(bar["rest"] or "") and "loss" in (bar["rest"] or ""))
        )
        seen.count(
            "bar", at, sure or re.search(r"train|epoch|step|iter", what, re.IGNORECASE) is not None
        )


def growing_number(text: str) -> list[int]:
    """The values of the one number that grows from line to line in lines that are otherwise
    alike.
    """
    alike: dict[str, list[str]] = {}
    for line in re.split(r"[\r\n]+", text)[-_LOOKED_AT:]:
        if (shape := _shape_of(line)) is not None:
            alike.setdefault(shape, []).append(line)
    columns = {
        shape: [_numbers_of(line) for line in lines if not _tells_of_other_work(line)]
        for shape, lines in alike.items()
        if len(lines) >= _ENOUGH_LINES
    }
    shapes = Counter({shape: len(rows) for shape, rows in columns.items()})
    for shape, count in shapes.most_common(5):
        if count < _ENOUGH_LINES:
            break
        for column in zip(*columns[shape], strict=True):
            if all(later > earlier for earlier, later in pairwise(column)):
                return list(column)
    return []


def _shape_of(line: str) -> str | None:
    """A line without its numbers; None where it has none. Columns are padded."""
    plain = _CLOCK.sub("~", line)
    shape, numbers = _NUMBER.subn("#", plain)
    return " ".join(shape.split()) if numbers else None


def _numbers_of(line: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(_CLOCK.sub("~", line)))


def _tells_of_other_work(line: str) -> bool:
    others = (_OF_A_STACK, _OTHER_WORK, _ELSEWHERE)
    return any(other.search(line) is not None for other in others)
