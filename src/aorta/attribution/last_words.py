"""What a process said last that it had never said before: for failures that no dialect knows, and
never more than a hint.

Lines that look like earlier ones of the same log are noise. Of the others near its end, the one
that says most in plain words counts.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from aorta.attribution.events import Event, event_of
from aorta.attribution.exceptions import spelled_out
from aorta.attribution.reading import LogLine, ReadableLog, cleaned, ends_of
from aorta.attribution.registry import Registry
from aorta.attribution.taxonomy import Certainty, FailureClass, Role

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
_NO_CLASS = {FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN, FailureClass.ASSERTION}


def last_words(
    sources: Iterable[ReadableLog], registry: Registry
) -> dict[tuple[int | None, str], Event]:
    """For each process the most telling of its last words, where plain words say what failed."""
    told: dict[tuple[int | None, str], Event] = {}
    for source in sources:
        event = _told_by(source, registry) if source.size else None
        if event is not None:
            told.setdefault(event.who, event)
    return told


def _told_by(source: ReadableLog, registry: Registry) -> Event | None:
    text = ends_of(source, 0, _TAIL)[1]
    rows = [row for row in re.split(r"[\r\n]+", text) if row.strip()]
    before = {_VARYING.sub("#", row) for row in rows[:-_LINES]}
    offset = source.size - len(text.encode())
    found: list[Event] = []
    for row in rows[-_LINES:]:
        if _VARYING.sub("#", row) in before:
            continue
        at = offset + len(text[: text.rfind(row)].encode())
        for line in cleaned(row.encode(), source, max(0, at)):
            event = _statement(line, source, registry)
            if event is not None:
                found.append(event)
    return max(found, key=lambda event: (event.certainty.weight, -event.offset), default=None)


def _statement(line: LogLine, source: ReadableLog, registry: Registry) -> Event | None:
    """The failure a line states in plain words. How sure its row is only orders such lines; none is
    ever more than a hint.
    """
    if line.level in _QUIET or _HARMLESS.search(line.text):
        return None
    inner = _INNER.search(line.text)
    if line.level not in _LOUD and not inner and _STATEMENT.search(line.text) is None:
        return None
    words = inner[0] if inner else f"RuntimeError: {line.text}"
    known = registry.exception(words)
    if known is None or known[0].failure_class in _NO_CLASS:
        known = registry.exception(spelled_out(words))
    if known is None or known[0].failure_class in _NO_CLASS:
        known = None
    said = registry.sentence(words)
    if said is not None and (known is None or known[0].says < said[0].says):
        known = said
    if known is None:
        return None
    event = event_of(*known, line, source)
    return event if event is not None and event.role is Role.ROOT else None


def states_a_failure(text: str) -> bool:
    """Whether a line says in plain words that something went wrong: what a healthy job writes tells
    nothing of its end.
    """
    return _STATEMENT.search(text) is not None and _WENT_ON.search(text) is None


def as_hint(event: Event) -> Event:
    return replace(event, certainty=Certainty.WEAK, survived=True)
