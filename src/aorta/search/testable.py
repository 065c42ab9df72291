"""How likely is a state to build and run, given which others did not?

Broken states come in runs, and how long the runs are differs from project to project. So the chance is learned as it
goes, apart for each distance to the nearest broken state: where one breakage lasts, the search soon jumps far; where
each commit breaks on its own, it tries the next one.
"""

from collections.abc import Iterable

from aorta.search.timeline import Timeline, Vector

GIVE_UP_BELOW = 0.06  # a state less likely to run than this is not worth a build

_PRIOR = ((1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (6.0, 1.0))  # at distance 1, 2-3, 4-7, further
_PRIOR_SEEN = (6.0, 1.0)  # every version of the state ran before, in another combination


class Testability:
    def __init__(self) -> None:
        self.untestable: set[Vector] = set()
        self._tries: dict[object, tuple[int, int]] = {}
        self._seen: set[tuple[int, int]] = set()

    def learn(self, timeline: Timeline, vector: Vector, *, ran: bool) -> None:
        kind = self._kind(timeline, vector)
        good, bad = self._tries.get(kind, (0, 0))
        self._tries[kind] = (good + ran, bad + (not ran))
        if ran:
            self._seen.update(enumerate(vector))
        else:
            self.untestable.add(vector)

    def chance(self, timeline: Timeline, vector: Vector) -> float:
        if vector in self.untestable:
            return 0.0
        if not self.untestable:
            return 1.0
        kind = self._kind(timeline, vector)
        good, bad = self._tries.get(kind, (0, 0))
        prior_good, prior_bad = _PRIOR_SEEN if kind == "seen" else _PRIOR[int(str(kind))]
        return (prior_good + good) / (prior_good + prior_bad + good + bad)

    def _kind(self, timeline: Timeline, vector: Vector) -> object:
        if all(version in self._seen for version in enumerate(vector)):
            return "seen"
        here = timeline.position(vector)
        broken = (timeline.position(other) for other in self.untestable)
        return _bucket(here, (position for position in broken if position is not None))


def _bucket(here: int | None, broken: Iterable[int]) -> int:
    if here is None:
        return len(_PRIOR) - 1
    distance = min((abs(here - position) for position in broken), default=1 << 30)
    return min(max(distance, 1).bit_length() - 1, len(_PRIOR) - 1)
