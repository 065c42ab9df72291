"""The smallest sets of items that make a failure go away: all on, then split, then confirmed.

A point holds the items that are on. The verdict of the point without items says whether the failure
is there at all; every other verdict says whether it is gone. Several sets are found by asking again
without one item of each known set. What each stage asks is an ordinary search; here it is only said
which stage follows which.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from aorta.core.axis import AxisKind, Point, Purpose, as_indexes, subset
from aorta.core.trial import Verdict
from aorta.search.repeated import EveryPoint, SearchStage, StagedSearch
from aorta.search.subset import SubsetSearch

AXIS = "mitigations"
_ATTEMPTS = 3

Items = frozenset[int]


@dataclass(frozen=True)
class Cure:
    """A set that makes the failure go away, and the verdict that confirmed it with fresh trials."""

    items: tuple[int, ...]
    confirmed: Verdict


class CureSearch(StagedSearch):
    """Up to `sets` minimal sets out of `items`."""

    def __init__(self, items: Sequence[str], sets: int = 1) -> None:
        self.names = tuple(items)
        self.cures: list[Cure] = []
        self.unconfirmed: list[tuple[int, ...]] = []
        self._sets = sets
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
        return Point.of({AXIS: self.cures[0].items}) if self.cures else None

    def verdict_of(self, items: Collection[int]) -> Verdict | None:
        """The latest verdict of a set as a candidate."""
        wanted = Point.of({AXIS: tuple(sorted(items))}).config_key
        found = [
            verdict
            for point, verdict in self.verdicts.items()
            if point.config_key == wanted and point.purpose is Purpose.PROBE
        ]
        return found[-1] if found else None

    # -- what follows what -------------------------------------------------------------------------

    def stages(self) -> Iterator[SearchStage]:
        yield EveryPoint([self.without_any])
        if not self.fails_at_all:
            return
        blocked: list[Items] = [frozenset()]
        seen: set[Items] = set()
        while blocked and len(self.cures) < self._sets:
            left_out = blocked.pop(0)
            if left_out in seen:
                continue
            seen.add(left_out)
            found = self._known_cure_without(left_out)
            if found is None:
                yield from self._find(frozenset(range(len(self.names))) - left_out)
                found = self._known_cure_without(left_out)
            if found is not None:
                blocked += [left_out | {item} for item in found.items]

    def _find(self, universe: Items) -> Iterator[SearchStage]:
        """One minimal set inside `universe`, confirmed; else looked for anew."""
        if not universe:
            return
        for attempt in range(_ATTEMPTS):
            full = Point.of({AXIS: tuple(sorted(universe))}, replica=attempt)
            yield EveryPoint([full])
            gone = self.verdicts[full]
            if gone.reproduces:
                splitting = SubsetSearch(full, subset(AXIS, self.names, kind=AxisKind.LIST))
                yield splitting
                items = _items_of(splitting.best)
            else:
                # One item may hide another's cure where all on failed in another way.
                if gone.reproduces is False and not gone.tally.other:
                    return
                singles = [Point.of({AXIS: (item,)}, replica=attempt) for item in sorted(universe)]
                yield EveryPoint(singles)
                cured = [p for p in singles if self.verdicts[p].reproduces]
                if not cured:
                    return
                items = _items_of(cured[0])
            confirmation = Point.of({AXIS: items}, Purpose.CONFIRM, attempt)
            yield EveryPoint([confirmation])
            if self.verdicts[confirmation].reproduces:
                self.cures.append(Cure(items, self.verdicts[confirmation]))
                return
            self.unconfirmed.append(items)

    def _known_cure_without(self, left_out: Items) -> Cure | None:
        return next((cure for cure in self.cures if not left_out.intersection(cure.items)), None)


def _items_of(point: Point) -> tuple[int, ...]:
    return as_indexes(point[AXIS])
