"""Which of these items are needed? Generalised binary splitting, checked for 1-minimality.

Leaving out a chunk asks "does the chunk hold a needed item?", which is adaptive group testing: chunks are as large as
makes the answer even odds, a chunk that cannot go is halved down to one needed item, and what can go is gone at once.
Within a third of the information bound log2 C(N, k), without knowing k. Every acceptance is a set that was seen to
reproduce; monotonicity only guides, so input that breaks it costs size and never truth.

Side by side, disjoint chunks are judged against one assumed set, the verified one less all that was found clean so far.
The assumed set is itself asked about; if it turns out wrong, the search goes on with one acceptance at a time.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from aorta.core.axis import Axis
from aorta.core.outcome import Verdict
from aorta.core.point import Point

Items = frozenset[int]


class SubsetSearch:
    """`all_expected` says that every item is believed needed, as after an earlier search: each is tried alone."""

    def __init__(self, base: Point, axis: Axis, *, all_expected: bool = False) -> None:
        self._base = base
        self._axis = axis
        start = _items(base, axis.name)
        self._start_size = len(start)
        self._all_expected = all_expected
        self._verified = start  # the smallest set seen to reproduce
        self._assumed = start  # always inside the verified set; equal to it when one slot is used
        self._bad: list[Items] = []  # none inside another: each holds an item that cannot go
        self._rejected: set[Items] = set()
        self._unresolved: set[Items] = set()
        self._one_at_a_time = False

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        if n <= 0:
            return []
        waiting = {_items(p, self._axis.name) for p in pending}
        found: list[Items] = []
        for kept in self._questions(n + len(waiting), waiting):
            if len(found) == n:
                break
            if kept not in waiting and kept not in found:
                found.append(kept)
        return [self._point(kept) for kept in found]

    def tell(self, point: Point, verdict: Verdict) -> None:
        kept = _items(point, self._axis.name)
        if verdict.reproduces:
            self._accept(kept)
            return
        self._rejected.add(kept)
        if verdict.reproduces is None:
            self._unresolved.add(kept)
        removed = self._assumed - kept
        if removed:
            self._bad = _minimal([*self._bad, removed])
        elif self._assumed != self._verified:
            self._fall_back()

    def wants(self, point: Point) -> bool:
        kept = _items(point, self._axis.name)
        removed = self._assumed - kept
        if not removed:
            return kept == self._assumed != self._verified
        if kept - self._assumed and self._one_at_a_time:
            return False
        if any(bad <= removed for bad in self._bad):
            return self._is_settled and kept in set(self._checks())
        return True

    @property
    def done(self) -> bool:
        return not self.ask(1)

    @property
    def best(self) -> Point:
        return self._point(self._verified)

    @property
    def monotone(self) -> bool | None:
        """False when removing more brought the failure back; True is never claimed without a promise."""
        return False if self.doubts() else self._axis.monotone

    def doubts(self) -> list[Point]:
        """The rejected sets that hold all of the answer and more."""
        larger = [kept for kept in self._rejected - self._unresolved if kept > self._verified]
        return [
            self._point(kept) for kept in sorted(larger, key=lambda kept: (len(kept), sorted(kept)))
        ]

    def proofs(self) -> list[Point]:
        """The rejected points on which 1-minimality rests."""
        kept = self._verified
        singles = (kept - {item} for item in sorted(kept))
        return [self._point(without) for without in singles if without in self._rejected]

    @property
    def unresolved(self) -> int:
        return len(self._unresolved)

    def _accept(self, kept: Items) -> None:
        if len(kept) < len(self._verified):
            self._verified = kept
        if self._one_at_a_time:
            self._assumed = self._verified
        else:
            self._assumed &= kept
        self._bad = _minimal(bad & self._assumed for bad in self._bad)

    def _fall_back(self) -> None:
        """What was clean side by side does not go together: trust only what was seen."""
        self._one_at_a_time = True
        self._assumed = self._verified
        self._bad = _minimal(
            self._verified - kept for kept in self._rejected if kept < self._verified
        )

    @property
    def _is_settled(self) -> bool:
        """Every kept item was found needed on the way; what is left is to check that."""
        singles = sum(len(bad) == 1 for bad in self._bad)
        return singles == len(self._assumed)

    @property
    def _removable(self) -> int:
        return len(self._assumed) - int(self._axis.floor)

    def _questions(self, slots: int, waiting: Collection[Items]) -> Iterator[Items]:
        assumed = self._assumed
        verify = assumed != self._verified
        if self._is_settled or self._removable <= 0:
            yield from [assumed] if verify else self._checks()
            return
        chunks = [removed for kept in waiting if (removed := assumed - kept)]
        room = self._removable - len(frozenset().union(*chunks))
        for chunk in self._chunks(slots, chunks):
            if len(chunk) <= room:  # if all of them can go, the floor still stands
                room -= len(chunk)
                yield assumed - chunk
        if verify:
            yield assumed

    def _checks(self) -> Iterator[Items]:
        """Each item alone, then neighbours that may only go together, such as an opening and a closing line."""
        kept = self._assumed
        if self._axis.monotone or self._removable <= 0:
            return
        ordered = sorted(kept)
        pairs = [{a, b} for a, b in pairwise(ordered) if b == a + 1]
        for out in ({item} for item in ordered):
            if kept - out not in self._rejected:
                yield kept - out
        for out in pairs:
            if kept - out not in self._rejected and self._removable >= len(out):
                yield kept - out

    def _chunks(self, slots: int, in_flight: Sequence[Items]) -> Iterator[Items]:
        """Chunks to leave out, disjoint from each other and from those in flight."""
        busy = frozenset().union(*in_flight)
        open_bad = sorted((bad for bad in self._bad if len(bad) > 1), key=len, reverse=True)
        for rank, bad in enumerate(open_bad):
            probes = max(1, (slots + len(open_bad) - 1 - rank) // len(open_bad))
            probes = min(probes, len(bad) - 1)
            slots_left = probes - sum(chunk <= bad for chunk in in_flight)
            size = min(len(bad) // (probes + 1), self._removable)
            free = sorted(bad - busy)
            for start in range(0, size * slots_left, size):
                if start + size < len(
                    free
                ):  # the last part needs no probe: it is bad if no other is
                    yield frozenset(free[start : start + size])
        unknown = sorted(self._assumed.difference(busy, *self._bad))
        yield from self._unknown_chunks(unknown, max(1, slots - len(open_bad)))

    def _unknown_chunks(self, unknown: list[int], slots: int) -> Iterator[Items]:
        size = min(self._even_odds(len(unknown)), math.ceil(len(unknown) / slots))
        size = max(1, min(size, self._removable))
        for start in range(0, len(unknown), size):
            yield frozenset(unknown[start : start + size])

    def _even_odds(self, most: int) -> int:
        """The chunk that is as likely to hold a needed item as not, by what was found so far."""
        if self._all_expected:
            return 1
        needed, cleared = len(self._bad), self._start_size - len(self._assumed)
        density = (needed + 1) / (needed + cleared + self._start_size)
        if density >= 0.5:
            return 1
        return max(1, min(most, round(-math.log(2) / math.log1p(-density))))

    def _point(self, kept: Items) -> Point:
        return self._base.with_value(self._axis.name, tuple(sorted(kept)))


def _items(point: Point, name: str) -> Items:
    value = point[name]
    if not isinstance(value, tuple):
        raise TypeError(f"axis {name} holds {value!r}, expected indexes")
    return frozenset(value)


def _minimal(sets: Iterable[Items]) -> list[Items]:
    """The sets that hold no other of them, smallest first."""
    kept: list[Items] = []
    for candidate in sorted(filter(None, sets), key=lambda items: (len(items), min(items))):
        if not any(smaller <= candidate for smaller in kept):
            kept.append(candidate)
    return kept
