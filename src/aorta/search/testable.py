"""How likely is a state to build and run, given which others did not?

Broken states come in runs, and how long the runs are differs from project to project. So the chance
is learned as it goes, apart for each distance to the nearest broken state: where one breakage
lasts, the search soon jumps far; where each commit breaks on its own, it tries the next one.
"""

from bisect import bisect_left
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


class Testability:
    def __init__(self) -> None:
        self.untestable: set[Vector] = set()
        self._ran: set[Vector] = set()
        self._tries: dict[_Kind, tuple[int, int]] = {}
        self._seen: set[tuple[int, int]] = set()
        self._placed: tuple[tuple[Timeline, int, int], list[int], set[int]] | None = None

    def learn(self, timeline: Timeline, vector: Vector, *, ran: bool) -> None:
        kind = self._kind(timeline, vector)
        good, bad = self._tries.get(kind, (0, 0))
        self._tries[kind] = (good + ran, bad + (not ran))
        if ran:
            self._ran.add(vector)
            self._seen.update(enumerate(vector))
        else:
            self.untestable.add(vector)

    def chance(self, timeline: Timeline, vector: Vector) -> float:
        """0 for a state not worth a build: broken itself, or deep inside a stretch where nothing
        ran.
        """
        if vector in self.untestable:
            return 0.0
        if not self.untestable:
            return 1.0
        kind = self._kind(timeline, vector)
        good, bad = self._tries.get(kind, (0, 0))
        prior_good, prior_bad = kind.prior
        chance = (prior_good + good) / (prior_good + prior_bad + good + bad)
        return chance if chance >= GIVE_UP_BELOW or kind.edge or kind.seen else 0.0

    def _kind(self, timeline: Timeline, vector: Vector) -> _Kind:
        if self._seen.issuperset(enumerate(vector)):
            return _Kind(seen=True)
        here = timeline.position(vector)
        if here is None:
            return _Kind(distance=len(_PRIOR) - 1)
        places, ran = self._tried(timeline)
        index = bisect_left(places, here)
        sides = places[max(0, index - 1) : index + 1]
        gaps = [abs(here - side) for side in sides if side not in ran]
        if len(gaps) == len(sides):
            return _Kind()
        gap = min(gaps, default=1 << 30)
        return _Kind(edge=True, distance=min(max(gap, 1).bit_length() - 1, len(_PRIOR) - 1))

    def _tried(self, timeline: Timeline) -> tuple[list[int], set[int]]:
        """The places on this path that were tried, in order, and those among them that ran."""
        state = (timeline, len(self._ran), len(self.untestable))
        if self._placed is None or self._placed[0] != state:
            ran = {timeline.position(vector) for vector in self._ran}
            broken = {timeline.position(vector) for vector in self.untestable}
            here = sorted(place for place in ran | broken if place is not None)
            self._placed = (state, here, {place for place in ran if place is not None})
        return self._placed[1], self._placed[2]
