"""How likely is a state to build and run, given which others did not?

Broken states come in runs, and how long the runs are differs from project to project. So the chance
is learned as it goes, apart for each distance to the nearest broken state; and the longer a stretch
in which nothing ran is known to be, the further from it the next state is looked for.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import ge, le
from typing import NamedTuple

from aorta.search.timeline import Timeline, Vector

GIVE_UP_BELOW = 0.08  # a state less likely to run than this is not worth a build

_PRIOR = ((1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (6.0, 1.0))  # at distance 1, 2-3, 4-7, further
_PRIOR_SEEN = (6.0, 1.0)


class _Kind(NamedTuple):
    """`seen`: every version of the state ran before, in another combination. `edge`: a state that
    ran is its nearest tried neighbour on one side, so that it may well run itself; then `distance`
    is that to the broken one on the other, in powers of two.
    """

    seen: bool = False
    edge: bool = False
    distance: int = 0

    @property
    def prior(self) -> tuple[float, float]:
        return _PRIOR_SEEN if self.seen else _PRIOR[self.distance]


class _Near(NamedTuple):
    """The nearest tried state on one side: how far it is, whether it ran, and if not, how long the
    stretch that begins with it is known to be.
    """

    gap: int
    ran: bool
    stretch: int = 1


class Testability:
    def __init__(self) -> None:
        self.untestable: set[Vector] = set()
        self._ran: set[Vector] = set()
        self._tries: dict[_Kind, tuple[int, int]] = {}
        self._seen: set[tuple[int, int]] = set()
        self._placed: tuple[tuple[Timeline, int, int], list[int], set[int]] | None = None

    def learn(self, timeline: Timeline, vector: Vector, *, ran: bool) -> None:
        kind = self._kind(timeline, vector, list(self._neighbours(timeline, vector)))
        good, bad = self._tries.get(kind, (0, 0))
        self._tries[kind] = (good + ran, bad + (not ran))
        if ran:
            self._ran.add(vector)
            self._seen.update(enumerate(vector))
        else:
            self.untestable.add(vector)

    def chance(self, timeline: Timeline, vector: Vector) -> float:
        """0 for a state not worth a build: broken, or deep in a stretch where nothing ran."""
        if vector in self.untestable:
            return 0.0
        if not self.untestable:
            return 1.0
        near = list(self._neighbours(timeline, vector))
        kind = self._kind(timeline, vector, near)
        good, bad = self._tries.get(kind, (0, 0))
        prior_good, prior_bad = kind.prior
        chance = (prior_good + good) / (prior_good + prior_bad + good + bad)
        if chance < GIVE_UP_BELOW and not kind.edge and not kind.seen:
            return 0.0
        return chance if kind.seen else chance * _beyond_the_stretch(near)

    def _kind(self, timeline: Timeline, vector: Vector, near: list[_Near]) -> _Kind:
        if self._seen.issuperset(enumerate(vector)):
            return _Kind(seen=True)
        broken = [side.gap for side in near if not side.ran]
        if len(broken) == len(near) and timeline.position(vector) is not None:
            return _Kind()
        gap = min(broken, default=1 << 30)
        return _Kind(edge=True, distance=min(max(gap, 1).bit_length() - 1, len(_PRIOR) - 1))

    def _neighbours(self, timeline: Timeline, vector: Vector) -> Iterator[_Near]:
        """Of a state off the path: among those that hold all of its changes, or none but them."""
        here = timeline.position(vector)
        if here is None:
            yield from self._comparable(vector)
            return
        places, ran = self._tried(timeline)
        index = bisect_left(places, here)
        for first, step in ((index - 1, -1), (index, 1)):
            last = first
            while 0 <= last < len(places) and places[last] not in ran:
                last += step
            if last != first:
                stretch = abs(places[last - step] - places[first]) + 1
                yield _Near(abs(here - places[first]), False, stretch)
            elif 0 <= first < len(places):
                yield _Near(abs(here - places[first]), True)

    def _comparable(self, vector: Vector) -> Iterator[_Near]:
        size = sum(vector)
        nearest: dict[bool, _Near] = {}
        for tried, ran in ((self._ran, True), (self.untestable, False)):
            for other in tried:
                apart = sum(other) - size
                if all(map(ge if apart > 0 else le, other, vector)):
                    side, near = apart > 0, _Near(abs(apart), ran)
                    nearest[side] = min(nearest.get(side, near), near)
        yield from nearest.values()

    def _tried(self, timeline: Timeline) -> tuple[list[int], set[int]]:
        """The places on this path that were tried, in order, and those among them that ran."""
        state = (timeline, len(self._ran), len(self.untestable))
        if self._placed is None or self._placed[0] != state:
            ran = {timeline.position(vector) for vector in self._ran}
            broken = {timeline.position(vector) for vector in self.untestable}
            here = sorted(place for place in ran | broken if place is not None)
            self._placed = (state, here, {place for place in ran if place is not None})
        return self._placed[1], self._placed[2]


def _beyond_the_stretch(near: list[_Near]) -> float:
    """That a stretch of this length ends before a state so far from it: one twice as long is half
    as likely. Between two broken states it is one stretch with both.
    """
    broken = [side for side in near if not side.ran]
    if not broken:
        return 1.0
    gap = min(side.gap for side in broken)
    known = sum(side.stretch for side in broken)
    if len(broken) > 1:
        known += sum(side.gap for side in broken) - 1
    return gap / (gap + known - 1)
