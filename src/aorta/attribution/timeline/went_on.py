"""Compare before you match: what the job also wrote while it was healthy is noise, whatever it
shouts.

Healthy is what a rank outlived: lines after which it made further steps, lines of ranks that ended
well, and lines that the cycle before outlived. It needs no pattern, so it works for frameworks that
no rule file knows. Many a traceback in a log was caught and survived: whether an event was the
end of its rank is asked here too.
"""

from collections.abc import Iterable, Sequence

from aorta.attribution.events.event import Event, stable
from aorta.attribution.logs.reading import lines_after, pieces
from aorta.attribution.progress import steps_in
from aorta.attribution.rank_end import RankEnd
from aorta.attribution.taxonomy import FailureClass, Role

_CAUSES = {Role.ROOT, Role.CONFIRM}
_QUIET = {"DEBUG", "TRACE", "INFO", "NOTICE"}
_LONGEST = 160
LOOK_AROUND = 64 << 10  # bytes
_LINES_OF_A_MESSAGE = 4
_MANY_STEPS = 20  # without a step before it, fewer may be another stream that was flushed late

Words = tuple[str, str]


def without_noise(
    events: Sequence[Event], ends: Iterable[RankEnd], earlier: Iterable[Event] = ()
) -> tuple[Event, ...]:
    """The events that were not seen in a healthy job too."""
    well = {end.rank for end in ends if end.exit_code == 0 and not end.failed}
    lines = [event for event in events if event.role in _CAUSES and not event.is_exception]
    outlived = {_words(event) for event in lines if went_on(event)}
    elsewhere = {_words(event) for event in events if event.rank in well and event.rank is not None}
    elsewhere |= {_words(event) for event in earlier if event.role in _CAUSES and went_on(event)}
    return tuple(event for event in events if not _is_noise(event, outlived, elsewhere))


def _is_noise(event: Event, outlived: set[Words], elsewhere: set[Words]) -> bool:
    if event.role not in _CAUSES:
        return False
    if event.level in _QUIET and not event.is_exception:
        return True
    words = _words(event)
    if words in elsewhere:
        return event.is_exception is False or not is_last_word(event)
    return words in outlived and not event.is_exception and not is_last_word(event)


def _words(event: Event) -> Words:
    return event.pattern, stable(event.text)[:_LONGEST]


def is_fatal(event: Event) -> bool:
    """Whether a rank may have ended with this exception: it did not go on."""
    return not went_on(event) and (not event.survived or is_last_word(event))


def is_last_word(event: Event) -> bool:
    return len(_own_lines_after(event)) <= _LINES_OF_A_MESSAGE


def went_on(event: Event) -> bool:
    """Whether the same rank came further, in the same log, after this: then it tells of another
    time. A scheduler's or a driver's own statement is no line of a rank: those who are left may
    print a step or two before they are ended. A link may come back, and ranks tell of it.
    """
    stated = event.is_outside and event.failure_class is not FailureClass.LINK_FAULT
    before = steps_in(_text(event, max(0, event.offset - LOOK_AROUND), event.offset))
    many = not before or (stated and not event.is_exception)
    ends = event.source.size - LOOK_AROUND
    for begin in (None, ends) if ends > event.offset + LOOK_AROUND else (None,):
        after = steps_in("\n".join(_own_lines_after(event, begin)))
        if len(after) >= _MANY_STEPS if many else len(after) > 1 and max(after) > max(before):
            return True
    return False


def _own_lines_after(event: Event, begin: int | None = None) -> list[str]:
    """What the same rank wrote to the same log in the moment after, or from `begin` on."""
    if begin is None:
        begin = event.offset if event.ends is None else event.ends
    data = _bytes(event, begin, begin + LOOK_AROUND)
    data = data[data.find(b"\n") + 1 :] if b"\n" in data else b""
    lines: list[str] = []
    is_own = True
    for line in lines_after(data, 0, event.source):
        if line.who != (None, ""):
            is_own = line.who == event.who
        if is_own and line.text.strip():
            lines.append(line.text)
    return lines


def _text(event: Event, begin: int, stop: int) -> str:
    return _bytes(event, begin, stop).decode("utf-8", "replace")


def _bytes(event: Event, begin: int, stop: int) -> bytes:
    return b"".join(
        piece.data[piece.start : piece.end] for piece in pieces(event.source, begin, stop)
    )
