"""Bisection of a history with merges, whose trials may lie.

While no trial contradicts another, the next state is the one that cuts the changes left most nearly
in half, as in `git bisect`; as soon as one does, it is the one expected to say most. Every trial
counts for or against exactly the changes that its state contains, so what is said of the answer is
said of the whole way to it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from aorta.core.axis import Point, Purpose
from aorta.search.belief import Counts
from aorta.search.bisecting import (
    RATES_WITH_MERGES,
    SIDE_RUNS,
    WORTHLESS,
    Bisection,
    BisectionSettings,
    Question,
)
from aorta.search.contradiction import repaired_among
from aorta.search.ends import EndsVerdict
from aorta.search.graph import (
    GraphBelief,
    GraphHistory,
    GraphTimeline,
    changes_of,
    first_of,
)
from aorta.search.interval import Candidates
from aorta.search.timeline import Vector

_T = TypeVar("_T")

_LIKELY = 0.5  # to be testable: a state beside the answer that is not is no check of it
_NOISY_DOUBT = 0.15  # of the doubt that is allowed, for a test that is known to be noisy
_MOST_WEIGHED = 1500  # states weighed for one question: a sample of them where there are more


class GraphBisection(Bisection):
    """While every trial agrees, no state beside the answer is tried, so that a steady failure costs
    what it costs with `git bisect`. A noisy test that looks steady by luck uses up most of the
    doubt that is allowed (of 100 at .9 and .2 that may be wrong in 5, 4 were so); one that is seen
    through may leave hardly any.
    """

    timeline: GraphTimeline
    usual_rates = RATES_WITH_MERGES

    def __init__(self, graph: GraphHistory, settings: BisectionSettings | None = None) -> None:
        super().__init__(GraphTimeline(graph), settings)
        self.graph = graph
        self._among = (1 << graph.changes) - 1
        self._believe()

    def wants(self, point: Point) -> bool:
        if self.done:
            return False
        if not self._ends_known or point.purpose is not Purpose.PROBE:
            return True
        return self._is_open(self.timeline.vector(point))

    def _is_open(self, vector: Vector) -> bool:
        """Whether its trial would cut what is left."""
        left = self._left()
        return left is None or (self._held(vector) & left) not in (0, left)

    # -- what is known

    @property
    def answer(self) -> Candidates | None:
        if not self._ends_known:
            return None
        left = None if self.settings.confirm else self._left()
        return self._between(left or self._group)

    @property
    def is_sure(self) -> bool:
        if not self._ends_known:
            return False
        left = None if self.settings.confirm else self._left()
        closed = left is not None and left.bit_count() == 1
        return closed or (self._is_whole and self._mass >= self._wanted)

    @property
    def rates(self) -> tuple[float, float]:
        return self._belief.expected_rates()

    def atoms(self) -> Sequence[tuple[int, int, float]]:
        return list(self._belief.runs(self.graph.changes))

    def expected_questions(self) -> int:
        """About how many more trials: exact halving where nothing is flaky, by information
        otherwise.
        """
        if self.done:
            return 0
        if left := self._left():
            return (left.bit_count() - 1).bit_length() + SIDE_RUNS
        best = self._most_telling(Counter())
        gain = self._belief.gain(self._held(best)) if best else 0.0
        return min(self._trials_left, max(1, round(self._belief.entropy() / max(gain, WORTHLESS))))

    def _between(self, group: int) -> Candidates:
        good, bad = self._sides(group)
        return Candidates(changes_of(group), good, bad, self._belief.mass(group))

    def _sides(self, group: int) -> tuple[Vector, Vector]:
        """The states on both sides of one change; of several, the nearest ones that were tested."""
        if group.bit_count() == 1:
            rank = first_of(group)
            return (self.graph.before[rank],), (self.graph.after[rank],)
        good, bad = self.timeline.good_end, self.timeline.bad_end
        for vector, (hits, misses) in self.trials.items():
            held = self._held(vector)
            if misses >= hits and not held & group and self._size(held) > self._size(good):
                good = vector
            elif hits > misses and held & group == group and self._size(held) < self._size(bad):
                bad = vector
        return good, bad

    def _size(self, state: Vector | int) -> int:
        return (state if isinstance(state, int) else self._held(state)).bit_count()

    def _held(self, vector: Vector) -> int:
        return self.graph.holds[vector[0]]

    # -- choosing the next question

    def _question(self, waiting: Counter[Vector]) -> Question | None:
        if self.ends is EndsVerdict.OPEN:
            return self._wanted_end(waiting)
        if not self._ends_known or self._is_spent:
            return None
        stand_in = self._in_place_of_the_bad_end(lambda: self._nearest_to_the_bad_end)
        if stand_in is not None and not waiting[stand_in] and self._is_open(stand_in):
            return stand_in, Purpose.PROBE
        if self.is_sure:
            return self._confirmation(waiting) if self.settings.confirm else None
        left = self._left()
        if left is None:
            telling = self._most_telling(waiting)
            return (telling, Purpose.PROBE) if telling else None
        if halved := self._halving(left, waiting):
            return halved, Purpose.PROBE
        side = self._surer_side(left, waiting) if self.settings.confirm else None
        return (side, Purpose.CONFIRM) if side else None

    @cached_property
    def _nearest_to_the_bad_end(self) -> Sequence[Vector]:
        """Those that lack the fewest of its changes first."""
        end = self.timeline.bad_end
        others = (state for state in self.timeline.every_state() if state != end)
        return sorted(others, key=self._size, reverse=True)

    @property
    def _contradicted(self) -> bool:
        return self._left() is None

    @property
    def _doubt(self) -> float:
        return 1 - (1 - _NOISY_DOUBT) * self._belief.noisy()

    def _left(self) -> int | None:
        """The changes that every failing state has and no passing one; None once a trial
        contradicts another.
        """
        left = self._among
        for vector, (hits, misses) in self.trials.items():
            if hits and misses:
                return None
            held = self._held(vector)
            left &= held if hits else ~held if misses else left
        return left or None

    def _halving(self, left: int, waiting: Counter[Vector]) -> Vector | None:
        """The state nearest to half of the largest part that the running trials leave."""
        parts = [left]
        for vector in waiting:
            held = self._held(vector)
            parts = [side for part in parts for side in (part & held, part & ~held) if side]
        for part in sorted(parts, key=lambda one: -one.bit_count()):
            if best := max(self._cuts(part, waiting), default=None):
                return (-best[1],)
        return None

    def _cuts(self, part: int, waiting: Counter[Vector]) -> Iterator[tuple[float, int]]:
        """How evenly each state would cut these changes, where it can be tested; of equals the
        first is the best.
        """
        for state, held in enumerate(self.graph.holds):
            fewer = min((part & held).bit_count(), (part & ~held).bit_count())
            if fewer and (state,) not in waiting and (chance := self._chance_of((state,))):
                yield fewer * chance, -state

    def _surer_side(self, left: int, waiting: Counter[Vector]) -> Vector | None:
        """Nothing contradicts the answer, and only the rates are in question: one of its sides once
        more.
        """
        bad = self._sides(left)[1]
        if self._may_run(bad) and not self._fails_firmly(waiting):
            return bad
        belief = self._supposing(waiting)
        sides = [v for v in (*self._sides(left), *self.trials) if self._may_run(v)]
        return max(sides, key=lambda v: belief.gain(self._held(v)), default=None)

    def _supposing(self, waiting: Counter[Vector]) -> GraphBelief:
        belief = self._belief
        for vector in waiting.elements():
            belief = belief.supposing(self._held(vector))
        return belief

    def _most_telling(self, waiting: Counter[Vector]) -> Vector | None:
        belief = self._supposing(waiting)
        scores = {
            vector: belief.gain(self._held(vector)) * self._chance_of(vector)
            for vector in self._worth_weighing()
            if self._may_run(vector)
        }
        worth = [vector for vector in scores if scores[vector] >= WORTHLESS]
        return max(worth, key=lambda v: (scores[v], v in self.trials, -v[0]), default=None)

    def _worth_weighing(self) -> Iterator[Vector]:
        """The tested states, and those that cut what is believed at all; of very many, a sample
        along the history.
        """
        yield from self.trials
        plausible = sum(atom for atom, _ in self._belief.weighted())  # no two share a change
        seen: set[int] = set()
        states: list[Vector] = []
        for state, held in enumerate(self.graph.holds):
            if (cut := held & plausible) and cut not in seen and (state,) not in self.trials:
                seen.add(cut)
                states.append((state,))
        yield from _sample(states)

    def _may_run(self, vector: Vector) -> bool:
        trusted = vector in self.taken_on_trust and sum(self.trials[vector]) == 1
        return not trusted and not self.is_exhausted(vector) and bool(self._chance_of(vector))

    def _confirmation(self, waiting: Counter[Vector]) -> Question | None:
        runs = SIDE_RUNS if self._left() else 1
        good, bad = self._sides(self._group)
        for vector in (bad, good):
            tried = sum(self.trials.get(vector, (0, 0))) + waiting[vector]
            if self._may_run(vector) and tried < runs:
                return vector, Purpose.CONFIRM
        steady = self._left() is not None
        return None if steady else self._elsewhere(self._sentinel_states(), waiting)

    def _sentinel_states(self) -> Iterator[tuple[Vector, bool]]:
        """A state that contains the whole answer, and one that contains nothing of it, as unlike
        those tried as can be. While nothing contradicts anything they are left alone: `git bisect`
        looks at none of them.
        """
        tried = [self._held(vector) for vector in self.trials.keys() - self._sentinels]
        sample = _sample(range(len(self.graph.holds)))
        for fails in (True, False) if self.settings.sentinels else ():
            wanted = self._group if fails else 0
            beside = [
                (far, -state)
                for state in sample
                if (held := self.graph.holds[state]) & self._group == wanted
                and self._may_run((state,))
                and self._chance_of((state,)) > _LIKELY
                and (far := min((held ^ other).bit_count() for other in tried))
            ]
            if beside:
                state = -max(beside)[1]
                tried.append(self.graph.holds[state])
                yield (state,), fails

    # -- bookkeeping

    def _believe(self) -> None:
        self._take_in()
        if self._ends_known and (older := self._repaired()):
            self.fixed_before.append(older)
            self._among &= ~self._held(older[1])
            self._take_in()

    def _take_in(self) -> None:
        counted = {
            vector: counts
            for vector, counts in self.trials.items()
            if self._held(vector) & self._among or not self._held(vector)
        }
        self._belief = GraphBelief.after(self.prior_rates, self.graph, counted, self._among)
        self._group, self._mass = self._likeliest()
        self._is_whole = not self._can_be_cut(self._group)

    def _likeliest(self) -> tuple[int, float]:
        """The fewest changes that together hold the wanted probability; those that nothing tells
        apart go together.
        """
        group, mass, wanted = 0, 0.0, self._wanted
        for atom, weight in self._belief.weighted():
            if mass >= wanted:
                break
            group |= atom
            mass += weight * atom.bit_count()
        return group, mass

    def _can_be_cut(self, group: int) -> bool:
        """Whether a state that can be tested has some of these changes and not the others."""
        return any(
            held & group not in (0, group) and self._chance_of((state,))
            for state, held in enumerate(self.graph.holds)
        )

    def _repaired(self) -> tuple[Vector, Vector] | None:
        """Two states between which an older break was repaired, along states that each contain the
        one before.
        """
        tried = sorted(self.trials, key=self._size)
        chain: list[tuple[Vector, Counts]] = []
        for vector in reversed(tried):
            held = self._held(vector)
            if held & self._among and (not chain or held & self._held(chain[-1][0]) == held):
                chain.append((vector, self.trials[vector]))
        chain.reverse()
        found = repaired_among([counts for _, counts in chain], self.prior_rates)
        return (chain[found.broken][0], chain[found.repaired][0]) if found else None


def _sample(states: Sequence[_T]) -> Sequence[_T]:
    """All of them, or every second, third and so on, so that fewer than can be weighed are left."""
    return states[:: len(states) // _MOST_WEIGHED + 1]
