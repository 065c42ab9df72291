"""How far a job came: steps in the forms people log them, and the one rule of progress.

A step is a number that grows within a cycle under one name. Being before the first step must be
seen too: silence says nothing. Attribution, service and launcher share the rule (`JobProgress`).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from aorta.attribution.documents import FailureClass, Finding, PastCycle
from aorta.attribution.logs import ReadableLog, ends_of

# Seconds a cycle must live to count as progress where it reported no step.
LONG_CYCLE = 300.0
# Seconds after which a failure is no part of a loop, though the job came no further than before.
_NO_LOOP = 86_400.0
_OF_A_NODE = {FailureClass.HARDWARE_FAULT, FailureClass.LINK_FAULT}

HEAD = 24 << 10
TAIL = 64 << 10
_METRIC = re.compile(
    r"loss|\blr\b|learning_rate|grad|\bppl\b|perplexity|\bacc\b|accuracy|throughput|"
    r"tok(?:en)?s?[/_ ]|tflop|elapsed|consumed|samples|sec\b|"
    r"s/it|it/s|\bmfu\b|\bmae\b|reward|\bms\b|seconds|complet|finish|\bdone\b|\bok\b",
    re.IGNORECASE,
)
_COUNTER = re.compile(
    r"(?:(?<![\w./-])|(?<=/)(?=global_step=))(?P<word>global[_ ]?step|num_updates|"
    r"training_iteration|step|iteration|iter|update|batch)(?P<many>s?)[\"']?"
    r"[ \t]*(?:\(train\))?[:=#]?[ \t]*\[?[ \t]*[\"']?(?P<step>\d{1,12})(?![\d.]*%|\.\d|\w)",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"\b(?:epoch|train)\w*(?:\(train\))?:?\s*\[?(?P<epoch>\d+)(?:/\d+)?\]?"
    r"\s*\[\s*(?P<at>\d+)\s*/\s*(?P<of>\d+)"
    r"|\bepoch\s*\[?(?P<epoch2>\d+)\]?(?:/\d+)?\]?:?"
    r"\s[^\n]{0,120}?\|\s*(?P<at2>\d+)/(?P<of2>\d+)\s*\["
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
_BEFORE = 40  # characters before a step that may say it is something else
# What stands before a number that is no step of this run, or none at all.
_NO_STEP = re.compile(
    r"load|resum|restor|checkpoint found|max_|total|CANCELLED|srun|StepId|"
    r"\b(?:max|num|number of|warm-?up|every|per|of|from|until|for|at|skip\w*|in)[ _=:]*\(?\s*$",
    re.IGNORECASE,
)
_OTHER_WORK = re.compile(
    r"load|shard|\bmap\b|map:|num_proc|token|download|fetch|filter|generat|\bsav|eval|valid|\btest|"
    r"predict|sanity|check|extract|index|cach|pack|process|read|warm|captur|compil|prompt|resolv|"
    r"upload|convert|quant|calibrat|build|split|copy|hash|scan|infer|sampling|dequant|flatten|"
    r"group|channel|nccl|worker|init|graph|attempt|retr",
    re.IGNORECASE,
)
_OF_TRAINING = re.compile(r"train|epoch|step|iter", re.IGNORECASE)
_OF_A_STACK = re.compile(
    r'File "[^"]+", line \d+|[❱└│]|^\s*#\d+ |NCCL INFO|\bframe #\d+'
)  # frames, and variables drawn beside them
_WORLD = re.compile(
    r"\bworld[_ -]?size\W{1,3}(\d{1,6})\b|\bStarting with (\d{1,6}) processes|"
    r"\bMEMBER: \d+/(\d{1,6})\b|\bnranks (\d{1,6})\b",
    re.IGNORECASE,
)
_RANK = re.compile(r"(?<!local )(?<!\w)rank[ _:=#]{0,2}(\d{1,6})\b", re.IGNORECASE)
_COUNTED = ("step", "iter", "update", "batch")
_LONGEST = 1000


@dataclass(frozen=True)
class JobProgress:
    """How far a job has come, and how many failed cycles in a row have brought it no further.

    `best_step` is the furthest step; None where none was reported, or none since a cycle that
    lived long without one. `idle` counts failed cycles without progress. The cycle that first came
    to the best step is one of them as soon as a second one ends at that same step. `after` is
    itself again where a cycle says nothing: one that was preempted, or ran for a day.

        >>> JobProgress().after(10, None).after(10, None)
        JobProgress(best_step=10, idle=2)
    """

    best_step: int | None = None
    idle: int = 0

    def after(
        self, step: int | None, failure_class: str | None, lived_sec: float | None = None
    ) -> "JobProgress":
        """After one more failed cycle: its furthest step, the seconds it lived (None: unknown)."""
        best = self.best_step
        if step is not None and (best is None or step > best):
            return JobProgress(step, 0)
        if failure_class == FailureClass.PREEMPTED:
            return self
        if step is None:
            if lived_sec is None:
                return JobProgress(best, 0)
            idle = lived_sec < LONG_CYCLE
            return JobProgress(best, self.idle + 1) if idle else JobProgress(None, 0)
        enough = LONG_CYCLE if failure_class in _OF_A_NODE else _NO_LOOP
        if lived_sec is not None and lived_sec >= enough:
            return self
        first_came_here = step == best and self.idle == 0
        return JobProgress(best, 2 if first_came_here else self.idle + 1)


def progress_over(cycles: Iterable[PastCycle | Finding]) -> JobProgress:
    """The progress of a job after these failed cycles, oldest first."""
    job = JobProgress()
    for cycle in cycles:
        job = job.after(reached(cycle), cycle.failure_class, cycle.lived_sec)
    return job


def since_progress(cycles: Iterable[PastCycle]) -> list[PastCycle]:
    """The last of these failed cycles that made progress, and those after it that made none."""
    job, found = JobProgress(), list[PastCycle]()
    for cycle in cycles:
        now = job.after(reached(cycle), cycle.failure_class, cycle.lived_sec)
        if now is not job and not now.idle:
            found = []
        found.append(cycle)
        job = now
    return found


def reached(cycle: PastCycle | Finding) -> int | None:
    """The furthest step a cycle reported, by its log or its heartbeats."""
    steps = (cycle.last_step, cycle.heartbeat_step)
    return max((step for step in steps if step is not None), default=None)


def made_progress(cycle: PastCycle) -> bool:
    """Whether a cycle by itself came past its start-up: it made steps, or it lived long."""
    lived_long = cycle.lived_sec is not None and cycle.lived_sec >= LONG_CYCLE
    return lived_long or (reached(cycle) or 0) > 0


@dataclass(frozen=True)
class Progress:
    first: int | None = None
    last: int | None = None
    made: bool = False  # whether a step was seen, counted or not
    at_zero: bool = False  # whether a count was seen before its first step, and nothing after it
    ranks: frozenset[int] = frozenset()  # those known to have made a step
    spoken: frozenset[int] = frozenset()  # those whose lines stand in a log that ranks share
    named: frozenset[int] = frozenset()  # those that such a log speaks of


class _Count(NamedTuple):
    """What one line tells of steps."""

    wording: str
    step: int
    sure: bool  # a loss or a rate stands beside it, or a bar draws it
    made: bool  # a step was made


def progress_of(sources: Iterable[ReadableLog]) -> Progress:
    """The first and the furthest step any of these logs tells of, and which ranks made any."""
    firsts, lasts = [], []
    made = zero = False
    ranks: set[int] = set()
    spoken: set[int] = set()
    named: set[int] = set()
    for source in sources:
        for rank, text in _texts(source):
            if source.rank is None:
                spoken |= {rank} if rank is not None else set()
                named |= {int(number) for number in _RANK.findall(text)}
            counts = _counts_in(text)
            steps = _most_often(filter(_grows, _by_wording(counts)))  # what never moved is none
            here = bool(steps) or any(count.made for count in counts)
            if rank is not None and here:
                ranks.add(rank)
            made |= here
            zero |= not here and any(count.sure and count.step == 0 for count in counts)
            firsts += steps[:1]
            lasts += [max(steps)] if steps else []
    first, last = min(firsts, default=None), max(lasts, default=None)
    who = (frozenset(each) for each in (ranks, spoken, named))
    return Progress(first, last, made, zero and not made, *who)


def _texts(source: ReadableLog) -> Iterator[tuple[int | None, str]]:
    """Both ends of a log; where several ranks share it, what each of them wrote."""
    if not source.size:
        return
    head, tail = ends_of(source, HEAD, TAIL)
    whole = tail if source.size <= TAIL else f"{head}\n{tail}"
    if source.rank is not None:
        yield source.rank, whole
        return
    by_rank: dict[int | None, list[str]] = {}
    for raw in re.split(r"[\r\n]+", whole):
        line = source.format.read(raw[:_LONGEST])
        by_rank.setdefault(line.rank, []).append(raw if line.rank is None else line.text)
    yield from ((rank, "\n".join(lines)) for rank, lines in by_rank.items())


def world_size(sources: Iterable[ReadableLog]) -> int | None:
    """How many ranks the logs say there are, at their beginning; None where they do not agree."""
    sizes = {
        int(next(filter(None, found.groups())))
        for source in sources
        if source.size
        for found in _WORLD.finditer(ends_of(source, HEAD, 0)[0])
    }
    return sizes.pop() if len(sizes) == 1 else None


def steps_in(text: str) -> list[int]:
    """The steps reported in `text`, in order, of the wording used most often."""
    counts = _counts_in(text)
    return _most_often(filter(_grows, _by_wording(counts))) or _most_often(
        _by_wording(count for count in counts if count.sure)
    )


def _counts_in(text: str) -> list[_Count]:
    lines = (line[:_LONGEST] for line in re.split(r"[\r\n]+", text))
    counts = (_count_in(line) for line in lines if line and not _OF_A_STACK.search(line))
    return [count for count in counts if count is not None]


def _by_wording(counts: Iterable[_Count]) -> Iterable[list[int]]:
    steps: dict[str, list[int]] = {}
    for count in counts:
        steps.setdefault(count.wording, []).append(count.step)
    return steps.values()


def _most_often(steps: Iterable[list[int]]) -> list[int]:
    return max(steps, key=len, default=[])


def _grows(steps: list[int]) -> bool:
    return any(later > earlier for earlier, later in pairwise(steps))


def _count_in(line: str) -> _Count | None:
    low = line.lower()  # a word that is not there costs less to miss than an expression
    drawn = "%|" in line or "[=" in line or "[>" in line
    counts_epochs = "/" in line and (drawn or "epoch" in low or "train" in low)
    epoch = _EPOCH.search(line) if counts_epochs else None
    if epoch is not None and not _OTHER_WORK.search(line[: epoch.start()]):
        number, at, of = (int(value) for value in epoch.groups() if value is not None)
        return _Count("epoch", number * of + at, True, at > 0)
    bar = _BAR.search(line) if drawn else None
    if bar is not None:
        return _drawn(bar)
    saved = _SAVED.search(line) if "sav" in low else None
    if saved is not None:
        return _Count("saved", int(saved["step"]), False, True)
    if not any(word in low for word in _COUNTED):
        return _Count("loss", 1, True, True) if _HF.match(line) else None
    metric = _METRIC.search(line) is not None
    for found in _COUNTER.finditer(line):
        if _NO_STEP.search(line[max(0, found.start() - _BEFORE) : found.start()]):
            continue
        if (found["many"] or found["word"].lower() == "batch") and not metric:
            continue
        step = int(found["step"])
        wording = line[found.start() : found.start("step")].lower().strip()
        return _Count(wording, step, metric, metric and step > 0 and not found["many"])
    return None


def _drawn(bar: re.Match[str]) -> _Count | None:
    what, rest = bar["what"] or "", bar["rest"] or ""
    if _OTHER_WORK.search(what):
        return None
    at = int(bar["at"] or bar["keras"])
    sure = bool(at == 0 or bar["keras"] or "loss" in rest or _OF_TRAINING.search(what))
    return _Count("bar", at, sure, sure and at > 0)
