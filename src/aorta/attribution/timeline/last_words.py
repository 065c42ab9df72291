"""What a process said last that it had never said before: for failures that no rule file knows, and
never more than a hint.

Lines that look like earlier ones of the same log are noise. Of the others near its end, the one
that says most in plain words counts.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from aorta.attribution.classify import OF_THE_SCHEDULER, classified, said_of
from aorta.attribution.events.event import Event, stable
from aorta.attribution.logs.reading import LogLine, ReadableLog, cleaned, tail_of
from aorta.attribution.progress import steps_in
from aorta.attribution.taxonomy import HOW_IT_SHOWS, Certainty, Role

_TAIL = 32 << 10
_LINES = 15
_QUIET = {"DEBUG", "TRACE", "INFO", "NOTICE"}
_LOUD = {"ERROR", "CRITICAL", "FATAL", "ERR", "SEVERE"}
_STATEMENT = re.compile(
    r"\b(?:error|fatal|critical|fail\w*|abort\w*|exceeded|killed|evicted|preempt\w*|lost|halted|"
    r"refused|denied|unhealthy|terminat\w+|cannot|"
    r"insufficient|not enough|exhausted|unsatisfied|invalid|unrecogni[sz]ed|mismatch\w*|stuck|"
    r"hung|no progress|halt|unexpected\w*|"
    r"interrupt\w*|reclaim\w*|drain\w*|quota|missing|does not exist|unsupported|unknown|"
    r"not supported|unavailable|timed out|out of|time-?out|longer than|"
    r"(?:death|closing) signal|nans?|overflow\w*|unable|could not|exit(?:ed|ing)?|stopp(?:ed|ing)|"
    r"crash\w*|panic\w*|fault|not found|no such)\b",
    re.IGNORECASE,
)
_OUTLIVED = r"retry\w*|ignor\w+|skip\w*|optional|fall(?:ing)? ?back|deprecat\w+|attempt"
_HARMLESS = re.compile(rf"\b(?:{_OUTLIVED}|warn\w*(?!\s{{2,}}[A-Z]))\b", re.IGNORECASE)
_WENT_ON = re.compile(rf"\b(?:{_OUTLIVED})\b", re.IGNORECASE)
_INNER = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b:? .+")
_VARYING = re.compile(r"\d+|0x[0-9a-f]+")
_LAST_FEW = 5  # lines
_ENDED_WELL = re.compile(
    r"\b(?:training|job|run|all (?:epochs|steps|tasks))\b.{0,30}\b(?:complete[d]?|finished|done|"
    r"succeeded|successful(?:ly)?)\b|\b(?:finished|completed) (?:training|successfully)\b",
    re.IGNORECASE,
)
_TELLS = 0.4  # confidence below which a line says nothing worth a word


def last_words(
    sources: Iterable[ReadableLog], known: Iterable[Event] = ()
) -> dict[tuple[int | None, str], Event]:
    """For each process the most telling of its last words, where plain words say what failed."""
    told: dict[tuple[int | None, str], Event] = {}
    read = {(event.source, event.offset) for event in known}
    for source in sources:
        event = _told_by(source, read) if source.size else None
        if event is not None:
            told.setdefault(event.who, event)
    return told


def _told_by(source: ReadableLog, read: Collection[tuple[ReadableLog, int]]) -> Event | None:
    text = tail_of(source, _TAIL)
    rows = [row for row in re.split(r"[\r\n]+", text) if row.strip()]
    before = {_VARYING.sub("#", row) for row in rows[:-_LINES]}
    offset = source.size - len(text.encode())
    found: list[tuple[float, Event]] = []
    for row in rows[-_LINES:]:
        if _VARYING.sub("#", row) in before:
            continue
        at = offset + len(text[: text.rfind(row)].encode())
        if (source, at) in read or OF_THE_SCHEDULER.match(row):
            continue
        for line in cleaned(row.encode(), source, max(0, at)):
            told = _statement(line, source)
            if told is not None:
                found.append(told)
    best = max(found, key=lambda told: (told[0], -told[1].offset), default=None)
    return None if best is None else best[1]


def _statement(line: LogLine, source: ReadableLog) -> tuple[float, Event] | None:
    """The failure a line states in plain words, and how sure that is; never more than a hint."""
    if line.level in _QUIET or _HARMLESS.search(line.text):
        return None
    inner = _INNER.search(line.text)
    if line.level not in _LOUD and not inner and _STATEMENT.search(line.text) is None:
        return None
    guess = classified(said_of(inner[0] if inner else line.text, inner is not None))
    if guess.failure_class in HOW_IT_SHOWS or guess.confidence < _TELLS:
        return None
    event = Event(
        failure_class=guess.failure_class,
        role=Role.ROOT,
        certainty=Certainty.WEAK,
        pattern="last_words",
        text=line.text[:500],
        signature=stable(line.text),
        rank=line.rank,
        source=source,
        offset=line.offset,
        node=line.node,
        time=line.time,
        stream=line.stream,
        level=line.level,
    )
    return guess.confidence, event


def states_a_failure(text: str) -> bool:
    """Whether a line says in plain words that something went wrong."""
    return _STATEMENT.search(text) is not None and _WENT_ON.search(text) is None


def as_hint(event: Event) -> Event:
    return replace(event, certainty=Certainty.WEAK, survived=True)


def how_it_stands(sources: Iterable[ReadableLog]) -> str:
    """What is said of a job of whose failure nothing is known: that its log ends well, or in the
    middle of its steps; empty where it does not show, or a failure is stated after them.
    """
    ends = [tail_of(source, _TAIL).rstrip() for source in sources if source.size]
    last = [text.splitlines()[-_LAST_FEW:] for text in ends if text]
    if any(map(_fails_at_last, last)):
        return ""
    if any(_ENDED_WELL.search(line) for lines in last for line in lines):
        return "the log says that it ended well"
    if any(len(steps_in("\n".join(lines))) > 1 for lines in last):
        return "the log ends while steps are made: it may still be running"
    return ""


def _fails_at_last(lines: list[str]) -> bool:
    """Whether a failure is stated that neither a step nor a good end follows."""
    failures = [at for at, line in enumerate(lines) if states_a_failure(line)]
    after = lines[failures[-1] + 1 :] if failures else []
    return bool(failures) and not any(_ENDED_WELL.search(line) or steps_in(line) for line in after)
