"""The smallest set of items that makes a failure go away: all on, then split, then confirmed.

A point holds the items that are on; the one without items says whether there is a failure at all.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from aorta.core.axis import AxisKind, Point, Purpose, as_indexes, subset
from aorta.core.trial import Verdict
from aorta.search.repeated import EveryPoint, SearchStage, StagedSearch
from aorta.search.subset import SubsetSearch

AXIS = "mitigations"
_ATTEMPTS = 3


@dataclass(frozen=True)
class Cure:
    """A set that makes the failure go away, and the verdict that confirmed it with fresh trials."""

    items: tuple[int, ...]
    confirmed: Verdict


class CureSearch(StagedSearch):
    """One minimal set out of `items`."""

    def __init__(self, items: Sequence[str]) -> None:
        self.names = tuple(items)
        self.cure: Cure | None = None
        super().__init__()

    @property
    def without_any(self) -> Point:
        return Point.of({AXIS: ()}, Purpose.CALIBRATE)

    @property
    def fails_at_all(self) -> bool | None:
        verdict = self.verdicts.get(self.without_any)
        return verdict.reproduces if verdict else None

    def known(self, point: Point) -> Verdict | None:
        """Nothing on is the original, which fails."""
        if not _items_of(point) and point != self.without_any:
            return Verdict(False, why="nothing is on: the original fails")
        return super().known(point)

    @property
    def best(self) -> Point | None:
        return Point.of({AXIS: self.cure.items}) if self.cure else None

    def verdict_of(self, items: Collection[int]) -> Verdict | None:
        """The latest verdict of a set as a candidate."""
        wanted = Point.of({AXIS: tuple(sorted(items))}).config_key
        found = [
            verdict
            for point, verdict in self.verdicts.items()
            if point.config_key == wanted and point.purpose is Purpose.PROBE
        ]
        return found[-1] if found else None

    def stages(self) -> Iterator[SearchStage]:
        """Is it there; is it gone with all on; what of that is enough; is it, with fresh trials?"""
        yield EveryPoint([self.without_any])
        if not self.fails_at_all:
            return
        every = tuple(range(len(self.names)))
        for attempt in range(_ATTEMPTS):
            full = Point.of({AXIS: every}, replica=attempt)
            yield EveryPoint([full])
            gone = self.verdicts[full]
            if gone.reproduces:
                splitting = SubsetSearch(full, subset(AXIS, self.names, kind=AxisKind.LIST))
                yield splitting
                items = _items_of(splitting.best)
            # It failed in another way, or could not be told: one item may hide another's cure.
            elif gone.reproduces is None or gone.tally.other > 0:
                alone = EveryPoint([Point.of({AXIS: (n,)}, replica=attempt) for n in every])
                yield alone
                if alone.best is None:
                    return
                items = _items_of(alone.best)
            else:
                return
            confirmation = Point.of({AXIS: items}, Purpose.CONFIRM, attempt)
            yield EveryPoint([confirmation])
            if self.verdicts[confirmation].reproduces:
                self.cure = Cure(items, self.verdicts[confirmation])
                return


def _items_of(point: Point) -> tuple[int, ...]:
    return as_indexes(point[AXIS])
