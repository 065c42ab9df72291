"""What a rank said last before it left by itself without raising anything: a guard's own message, and never more than a hint."""

import re
from collections.abc import Iterable
from dataclasses import replace

from aorta.attribution.events import Event, event_of
from aorta.attribution.reading import Source, cleaned, ends_of
from aorta.attribution.registry import Registry
from aorta.attribution.taxonomy import Certainty, FailureClass, Role

_TAIL = 4 << 10
_LINES = 4
_STATEMENT = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|SEVERE)\b|^\W*(?:error|fatal|critical|abort\w*)\b|"
    r"\b(?:abort|stopp|exit|terminat|quit)(?:ed|ing|s)\b",
    re.IGNORECASE,
)


def last_words(
    sources: Iterable[Source], registry: Registry
) -> dict[tuple[int | None, str], Event]:
    """For each rank the last statement of a failure among its last few lines, where a pattern knows it."""
    told: dict[tuple[int | None, str], Event] = {}
    for source in sources:
        event = _told_by(source, registry) if source.size else None
        if event is not None:
            told.setdefault(event.who, event)
    return told


def _told_by(source: Source, registry: Registry) -> Event | None:
    text = ends_of(source, 0, _TAIL)[1]
    end = source.size
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()][-_LINES:]
    for raw in reversed(lines):
        line = cleaned(raw.encode(), source, max(0, end - len(raw.encode()) - 1))[-1]
        known = registry.exception(line.text) if _STATEMENT.search(line.text) else None
        if known is None or not _is_a_class_of_its_own(known[0].failure_class):
            continue
        event = event_of(known[0], known[1], line, source)
        if event is not None and event.role is Role.ROOT:
            return replace(event, certainty=Certainty.WEAK, survived=True)
    return None


def _is_a_class_of_its_own(failure_class: FailureClass) -> bool:
    return failure_class not in {FailureClass.USER_EXCEPTION, FailureClass.UNKNOWN}
