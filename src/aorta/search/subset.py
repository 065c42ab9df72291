"""Which of these items are needed? Generalised binary splitting, of blocks first and then of lines,
checked for 1-minimality.

Leaving out a chunk asks "does the chunk hold a needed item?", which is adaptive group testing:
chunks are as large as makes the answer even odds, a chunk that cannot go is halved down to one
needed item, and what can go is gone at once. Within a third of the information bound log2 C(N, k),
without knowing k. Every acceptance is a set that was seen to reproduce; monotonicity only guides,
so input that breaks it costs size and never truth. Structured text breaks it at every bracket:
there blocks go first, the coarsest first, and at the end parts are tried alone, because one line
may fail by itself where no larger set without its neighbours does.

One at a time, half of the items is tried alone first, and half of what is left, as long as that
fails: mostly one item is needed, or a few neighbours, and a search that is stopped early then
leaves little (of 600 rows with one needed 5 instead of 261 after eight trials).

Side by side, disjoint chunks are judged against one assumed set, the verified one less all that was
found clean so far. The assumed set is itself asked about; if it turns out wrong, the search goes on
with one acceptance at a time.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from aorta.core.axis import Point, SubsetAxis, as_indexes
from aorta.core.trial import Verdict
from aorta.search.blocks import Items, levels_of
from aorta.search.repeated import FirstThatReproduces, SearchStage, StagedSearch

_PARTS = (2, 4, 8)  # of what is left, tried alone
_MISSES = 3  # in a row, before it is asked whether what is left of a belief holds
_levels_of = lru_cache(4)(levels_of)  # an axis is searched again whenever another one shrank


class Splitting:
    """Which of these numbers are needed? `floor`: how many stay; `checks`: each is asked last.

    `all_expected`: every one is believed needed, as after an earlier search; each is tried alone.
    """

    def __init__(self, start: Items, *, floor: int, all_expected: bool, checks: bool) -> None:
        self._start_size = len(start)
        self._floor = floor
        self._all_expected = all_expected
        self._with_checks = checks
        self.verified = start  # the smallest set seen to reproduce
        self._assumed = start  # always inside the verified set; equal to it when one slot is used
        self._bad: list[Items] = []  # none inside another: each holds an item that cannot go
        self._rejected: set[Items] = set()
        self._one_at_a_time = False
        # Where everything that is needed is believed to lie; None: nowhere in particular.
        self._belief = None if all_expected else sorted(start)
        self._missed = 0  # halves of it that did not do alone, since something smaller did

    def ask(self, n: int, waiting: Collection[Items] = ()) -> list[Items]:
        found: list[Items] = []
        for kept in self._questions(n + len(waiting), waiting):
            if len(found) >= n:
                break
            if kept not in waiting and kept not in found:
                found.append(kept)
        return found

    def tell(self, kept: Items, reproduces: bool) -> None:
        if reproduces:
            self._accept(kept)
            return
        if kept == self._narrowed:
            self._miss(kept)
        self._rejected.add(kept)
        removed = self._assumed - kept
        if removed:
            self._bad = _minimal([*self._bad, removed])
        elif self._assumed != self.verified:
            self._fall_back()

    def wants(self, kept: Items) -> bool:
        removed = self._assumed - kept
        if not removed:
            return kept == self._assumed != self.verified
        if kept - self._assumed and self._one_at_a_time:
            return False
        if any(bad <= removed for bad in self._bad):
            return self._is_decided and kept in set(self._checks())
        return True

    @property
    def _narrowed(self) -> Items | None:
        """Half of where the needed items may lie, to try alone: a hit leaves little at once."""
        belief = self._belief
        if belief is None or len(self.verified) <= max(1, self._floor):
            return None
        is_doubtful = self._missed >= (_MISSES if len(self.verified) < self._start_size else 1)
        whole = is_doubtful or len(belief) < 2
        narrowed = frozenset(belief if whole else belief[: len(belief) // 2])
        return narrowed if self._floor <= len(narrowed) < len(self.verified) else None

    def _miss(self, kept: Items) -> None:
        """If it is not in this half, it is in the other; if not in all of it, there are several."""
        assert self._belief is not None
        self._belief = self._belief[len(kept) :] or None
        self._missed += 1

    def _accept(self, kept: Items) -> None:
        if self._belief is not None:
            self._belief, self._missed = sorted(kept.intersection(self._belief)) or None, 0
        if len(kept) < len(self.verified):
            self.verified = kept
        if self._one_at_a_time:
            self._assumed = self.verified
        else:
            self._assumed &= kept
        self._bad = _minimal(bad & self._assumed for bad in self._bad)

    def _fall_back(self) -> None:
        """What was clean side by side does not go together: trust only what was seen."""
        self._one_at_a_time = True
        self._assumed = self.verified
        self._bad = _minimal(
            self.verified - kept for kept in self._rejected if kept < self.verified
        )

    @property
    def _is_decided(self) -> bool:
        """Every kept item was found needed on the way; what is left is to check that."""
        singles = sum(len(bad) == 1 for bad in self._bad)
        return singles == len(self._assumed)

    @property
    def _removable(self) -> int:
        return len(self._assumed) - self._floor

    def _questions(self, slots: int, waiting: Collection[Items]) -> Iterator[Items]:
        assumed = self._assumed
        verify = assumed != self.verified
        if self._is_decided or self._removable <= 0:
            yield from [assumed] if verify else self._checks()
            return
        narrowed = self._narrowed if slots == 1 else None
        if narrowed is not None and narrowed < assumed and narrowed not in self._rejected:
            yield narrowed
        chunks = [removed for kept in waiting if (removed := assumed - kept)]
        room = self._removable - len(frozenset().union(*chunks))
        for chunk in self._chunks(slots, chunks):
            if len(chunk) <= room:  # if all of them can go, the floor still stands
                room -= len(chunk)
                yield assumed - chunk
        if verify:
            yield assumed

    def _checks(self) -> Iterator[Items]:
        """Each item alone, then neighbours that may only go together, such as brackets."""
        kept = self._assumed
        if not self._with_checks or self._removable <= 0:
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
                if start + size < len(free):  # the last part is bad if no other is
                    yield frozenset(free[start : start + size])
        unknown = sorted(self._assumed.difference(busy, *self._bad))
        share = math.ceil(len(unknown) / max(1, slots - len(open_bad)))
        size = max(1, min(self._even_odds(), share, self._removable))
        for start in range(0, len(unknown), size):
            yield frozenset(unknown[start : start + size])

    def _even_odds(self) -> int:
        """The chunk that is as likely to hold a needed item as not, by what was found so far."""
        if self._all_expected:
            return 1
        needed, cleared = len(self._bad), self._start_size - len(self._assumed)
        density = (needed + 1) / (needed + cleared + self._start_size)
        return 1 if density >= 0.5 else max(1, round(-math.log(2) / math.log1p(-density)))


class _Pass:
    """A splitting of groups of items; what is in no group always stays."""

    def __init__(
        self,
        search: "SubsetSearch",
        groups: Iterable[Items],
        *,
        floor: int = 1,
        all_expected: bool = False,
        checks: bool = False,
    ) -> None:
        start = search.verified
        self._search = search
        self._groups = [group & start for group in groups if group & start]
        self._always = start.difference(*self._groups)
        self._splitting = Splitting(
            frozenset(range(len(self._groups))),
            floor=max(0, floor - len(self._always)),
            all_expected=all_expected,
            checks=checks,
        )

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        waiting = {self._numbers(self._search.items_of(point)) for point in pending}
        queried = self._splitting.ask(n, [numbers for numbers in waiting if numbers is not None])
        return [self._search.point_of(self._kept(numbers)) for numbers in queried]

    def tell(self, point: Point, verdict: Verdict) -> None:
        numbers = self._numbers(self._search.items_of(point))
        if numbers is not None:
            self._splitting.tell(numbers, bool(verdict.reproduces))

    def wants(self, point: Point) -> bool:
        numbers = self._numbers(self._search.items_of(point))
        return numbers is not None and self._splitting.wants(numbers)

    def _kept(self, numbers: Items) -> Items:
        return self._always.union(*[self._groups[number] for number in numbers])

    def _numbers(self, kept: Items) -> Items | None:
        """The numbers of the groups that make up these items; None where they do not."""
        numbers = frozenset([n for n, group in enumerate(self._groups) if group <= kept])
        return numbers if self._kept(numbers) == kept else None


class SubsetSearch(StagedSearch):
    """Blocks of lines, coarsest first, then lines; then whether a part of the rest fails alone.

    `all_expected`: every item is believed needed, as after an earlier search; each is tried alone.
    """

    def __init__(self, base: Point, axis: SubsetAxis, *, all_expected: bool = False) -> None:
        self._base = base
        self._axis = axis
        self.verified = self.items_of(base)  # the fewest that were seen to reproduce
        self._answers: dict[Items, bool | None] = {}
        self._all_expected = all_expected
        super().__init__()

    def tell(self, point: Point, verdict: Verdict) -> None:
        kept = self.items_of(point)
        self._answers[kept] = verdict.reproduces
        if verdict.reproduces and len(kept) < len(self.verified):
            self.verified = kept
        super().tell(point, verdict)

    def items_of(self, point: Point) -> Items:
        return frozenset(as_indexes(point[self._axis.name]))

    def point_of(self, kept: Items) -> Point:
        return self._base.with_value(self._axis.name, tuple(sorted(kept)))

    @property
    def best(self) -> Point:
        return self.point_of(self.verified)

    @property
    def monotone(self) -> bool | None:
        """False when removing more brought the failure back; True only where promised."""
        answers = self._answers.items()
        more = any(answer is False and kept > self.verified for kept, answer in answers)
        return False if more else self._axis.monotone

    def minimality_checks(self) -> list[Point]:
        """The rejected points on which 1-minimality rests."""
        kept = self.verified
        singles = (kept - {item} for item in sorted(kept))
        return [
            self.point_of(without)
            for without in singles
            if self._answers.get(without, True) is not True
        ]

    @property
    def unresolved(self) -> int:
        return sum(answer is None for answer in self._answers.values())

    # -- what follows what

    def stages(self) -> Iterator[SearchStage]:
        promised = bool(self._axis.monotone)
        floor = self._axis.floor
        levels: list[list[Items]] = []
        if not self._all_expected and not promised and floor <= 1:
            levels = _levels_of(self._axis.items)
            if levels:  # of structured text one line may be enough: a parser refuses most of them
                middle = sorted(self.verified)[len(self.verified) // 2]
                yield self._alone([{middle}])
            for groups in levels:
                yield _Pass(self, groups)
        while True:
            before = self.verified
            singles = [frozenset({item}) for item in sorted(before)]
            yield _Pass(
                self, singles, floor=floor, all_expected=self._all_expected, checks=not promised
            )
            if not levels:
                return
            yield from self._parts_alone()
            if self.verified == before or self._is_minimal():
                return

    def _parts_alone(self) -> Iterator[SearchStage]:
        """Halves of what is left, quarters and so on, and again of the part that fails."""
        while len(self.verified) > 2:
            before, ordered = self.verified, sorted(self.verified)
            for count in _PARTS:
                size = math.ceil(len(ordered) / count)
                starts = range(0, len(ordered), size)
                yield self._alone([ordered[at : at + size] for at in starts])
                if self.verified != before:
                    break
            else:
                return

    def _alone(self, parts: Iterable[Iterable[int]]) -> SearchStage:
        """Parts that may fail by themselves, one after the other, up to the first that does."""
        return FirstThatReproduces([self.point_of(frozenset(part)) for part in parts])

    def _is_minimal(self) -> bool:
        kept = self.verified
        return len(kept) == 1 or all(self._answers.get(kept - {item}) is False for item in kept)


def _minimal(sets: Iterable[Items]) -> list[Items]:
    """The sets that hold no other of them, smallest first."""
    kept: list[Items] = []
    for candidate in sorted(filter(None, sets), key=lambda items: (len(items), min(items))):
        if not any(smaller <= candidate for smaller in kept):
            kept.append(candidate)
    return kept
