"""How far a job came, by what its logs say of steps."""

from collections.abc import Iterable
from dataclasses import dataclass

from aorta.attribution.reading import Source, ends_of
from aorta.core.progress import steps_in

HEAD = 64 << 10
TAIL = 192 << 10
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
