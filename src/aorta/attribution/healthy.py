"""Compare before you match: what the job also wrote while it was healthy is noise, whatever it shouts.

Healthy is what a rank outlived: lines after which it made further steps, lines of ranks that ended well, and lines that the cycle before
outlived. It needs no pattern, so it works for frameworks that no dialect knows.
"""

from collections.abc import Iterable, Sequence

from aorta.attribution.endings import is_last_word, went_on
from aorta.attribution.events import Event, stable
from aorta.attribution.rank_end import RankEnd
from aorta.attribution.taxonomy import Role

_CAUSES = {Role.ROOT, Role.CONFIRM}
_QUIET = {"DEBUG", "TRACE", "INFO", "NOTICE"}
_LONGEST = 160

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
