"""Back in growing steps from a state that fails to one that does not, then bisection between the two.

The states carry a place on a line (a day), have holes, and nobody knows how far back the failure began. Each step is
twice as far back as the last; a state is left behind as soon as it fails once, and believed good only when a failing
one would hardly have stayed silent as often.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum

from aorta.core.outcome import Verdict
from aorta.core.point import Point, Purpose
from aorta.search.belief import Counts
from aorta.search.bisection import Settings, TimelineBisection
from aorta.search.ends import SILENT, BAD_RUNS, UNSTEADY
from aorta.search.timeline import History, Timeline

_HARDLY = 0.015
_ASTRAY = 3  # trials of a state that told nothing, before it is asked no more


class GallopVerdict(StrEnum):
    OPEN = "open"
    BRACKETED = "bracketed"
    DOES_NOT_FAIL = "the newest does not fail"
    NEVER_GOOD = "none does not fail"
    UNTESTABLE = "the newest cannot be tested"


class GallopBack:
    """`names` oldest first, `places` of each on the line; `first` is the place tried first, by default one back."""

    def __init__(
        self,
        axis: str,
        names: Sequence[str],
        places: Sequence[float],
        *,
        first: float | None = None,
        settings: Settings | None = None,
        known_bad: bool = False,
        known_good: bool = False,
    ) -> None:
        self.axis, self.names, self.places = axis, tuple(names), tuple(places)
        self.settings = settings or Settings()
        self._first = places[-1] - 1 if first is None else first
        self._runs: dict[int, Counts] = {}
        self._untestable: set[int] = set()
        self._astray: Counter[int] = Counter()
        self._told: dict[Point, Verdict] = {}
        self.bisection: TimelineBisection | None = None
        if known_bad:
            self._runs[self._newest] = (BAD_RUNS, 0)
        if known_good and (start := self._at_or_before(self._first, self._newest)) is not None:
            self._runs[start] = (0, UNSTEADY)
        self._advance()

    @property
    def verdict(self) -> GallopVerdict:
        if self.bisection is not None:
            return GallopVerdict.BRACKETED
        hits, misses = self._runs.get(self._newest, (0, 0))
        if self._newest in self._untestable:
            return GallopVerdict.UNTESTABLE
        if not hits and misses >= SILENT:
            return GallopVerdict.DOES_NOT_FAIL
        if self._newest_is_known and next(self._open_targets(), None) is None:
            return GallopVerdict.NEVER_GOOD
        return GallopVerdict.OPEN

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        if self.bisection is not None:
            return self.bisection.ask(n, [point for point in pending if self._inside(point)])
        if self.verdict is not GallopVerdict.OPEN:
            return []
        taken = {*self._told, *pending}
        waiting = Counter(self._index(point) for point in pending)
        asked: list[Point] = []
        while len(asked) < n and (index := self._wanted(waiting)) is not None:
            waiting[index] += 1
            point = self._fresh(index, taken)
            taken.add(point)
            asked.append(point)
        return asked

    def tell(self, point: Point, verdict: Verdict) -> None:
        if point in self._told:
            return
        self._told[point] = verdict
        if self.bisection is not None:
            if self._inside(point):
                self.bisection.tell(point, verdict)
            return
        index = self._index(point)
        hits, misses = self._runs.get(index, (0, 0))
        if verdict.reproduces is None:
            self._astray[index] += 1
            if self._astray[index] > min(hits + misses, _ASTRAY):
                self._untestable.add(index)
        else:
            self._runs[index] = (hits + verdict.reproduces, misses + (not verdict.reproduces))
        self._advance()

    def wants(self, point: Point) -> bool:
        if self.bisection is not None:
            return self._inside(point) and self.bisection.wants(point)
        index = self._index(point)
        return index == self._newest or not self._runs.get(index, (0, 0))[0]

    @property
    def done(self) -> bool:
        if self.bisection is not None:
            return self.bisection.done
        return self.verdict is not GallopVerdict.OPEN

    @property
    def best(self) -> Point | None:
        return self.bisection.best if self.bisection else None

    # -- the way back ---------------------------------------------------------------------------------------------

    @property
    def _newest(self) -> int:
        return len(self.names) - 1

    @property
    def _newest_is_known(self) -> bool:
        return self._wanted_of_newest() <= sum(self._runs.get(self._newest, (0, 0)))

    def _wanted_of_newest(self) -> int:
        hits, misses = self._runs.get(self._newest, (0, 0))
        if misses == 0:
            return BAD_RUNS
        return UNSTEADY if hits else SILENT

    def _wanted(self, waiting: Counter[int]) -> int | None:
        newest = self._newest
        if sum(self._runs.get(newest, (0, 0))) + waiting[newest] < self._wanted_of_newest():
            return newest
        if not self._newest_is_known:
            return None
        return next((i for i in self._open_targets() if waiting[i] < self._silence_wanted(i)), None)

    def _open_targets(self) -> Iterator[int]:
        """The states of the way back that may still turn out good, nearest first."""
        for index in self._way_back():
            if index not in self._untestable and not self._runs.get(index, (0, 0))[0]:
                yield index

    def _way_back(self) -> Iterator[int]:
        """1, 2, 4 ... days back, each moved to a state that exists and that can be tested."""
        newest, target, before = self.places[-1], self._first, self._newest
        while (index := self._at_or_before(target, before)) is not None:
            yield index
            before = index
            if index not in self._untestable:
                target = newest - 2 * (newest - self.places[index])

    def _at_or_before(self, target: float, before: int) -> int | None:
        """The state nearest to `target` among those older than `before`."""
        older = range(before)
        return min(older, key=lambda i: (abs(self.places[i] - target), -i)) if older else None

    def _silence_wanted(self, index: int) -> int:
        """How many more clean trials make it unlikely that this state fails as often as the newest."""
        hits, misses = self._failing_rate_counts()
        _, silent = self._runs.get(index, (0, 0))
        rate = self.settings.rates.bad
        chance, more = 1.0, 0
        for run in range(silent):
            chance *= 1 - rate.mean(hits, misses + run)
        while chance >= _HARDLY and more < SILENT:
            chance *= 1 - rate.mean(hits, misses + silent + more)
            more += 1
        return more

    def _failing_rate_counts(self) -> Counts:
        return self._runs.get(self._newest, (0, 0))

    def _advance(self) -> None:
        if not self._newest_is_known or not self._runs.get(self._newest, (0, 0))[0]:
            return
        for index in self._way_back():
            hits, misses = self._runs.get(index, (0, 0))
            if misses and not hits and self._silence_wanted(index) == 0:
                self._bisect_from(index)
                return
            if index not in self._untestable and not hits:
                return

    def _bisect_from(self, good: int) -> None:
        """Everything told about states between the two ends counts; the ends themselves are known by now."""
        history = History(self.axis, self.names[good:], self.places[good:])
        self.bisection = TimelineBisection(Timeline([history]), self.settings)
        for index, counts in self._runs.items():
            if index >= good:
                self.bisection.assume((index - good,), counts)
        for point, verdict in self._told.items():
            if self._inside(point):
                self.bisection.remember(point, verdict)

    # -- names and indexes ----------------------------------------------------------------------------------------

    def _index(self, point: Point) -> int:
        return self.names.index(str(point[self.axis]))

    def _inside(self, point: Point) -> bool:
        history = self.bisection.timeline.histories[0] if self.bisection else None
        return history is not None and str(point[self.axis]) in history.versions

    def _fresh(self, index: int, taken: Collection[Point]) -> Point:
        purpose = Purpose.CALIBRATE if index == self._newest else Purpose.PROBE
        replica = 0
        while (point := Point.of({self.axis: self.names[index]}, purpose, replica)) in taken:
            replica += 1
        return point
