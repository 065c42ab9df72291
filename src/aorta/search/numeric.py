"""The smallest number that still reproduces: the floor first, then bisection on a logarithmic
scale.

One trial settles the common case that the floor itself reproduces. Otherwise the gap between the
largest rejected and the smallest accepted value is halved by ratio, until it is within the
tolerance or one step wide. Unless the user promised it, monotonicity is a guess: at the end the
rejected values must leave no large gap unseen, and whatever reproduces down there is taken and
reported. Spare slots ask what either answer would ask next.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

from aorta.core.axis import Number, NumberAxis, Point, StepsAxis, Value, Window, as_number
from aorta.core.trial import Verdict
from aorta.search.repeated import SPECULATION_DEPTH, RankedSearch

_LARGEST_UNSEEN_GAP = 0.25  # of the logarithmic distance between floor and initial
_LARGEST_GAP_OF_DOUBT = 0.1  # where the user says that it is not monotone
_SMALL_STEPS = 24  # from the floor up, each of them is tried there
_UNTOLD = 3  # values that could not be told, such as for time, and none that could: it is left
_FINEST = 1000  # a scale that begins at 0 resolves this part of itself


@dataclass(frozen=True)
class NumberScale:
    """The values between floor and initial, and their logarithmic order."""

    floor: Number
    initial: Number
    step: Number | None
    tolerance: float

    def between(self, low: Number, high: Number) -> Number | None:
        """The value that halves what is left; None when the rest is within the tolerance."""
        if high - low <= self.tolerance * abs(high) / (1 + self.tolerance):
            return None
        share = 0.5
        if self.tolerance:
            leaves = math.ceil(self._distance(low, high) / math.log1p(self.tolerance))
            share = max(1, leaves // 2) / max(2, leaves)  # whole leaves: no half is cut in vain
        return self.inside(low, high, share)

    def inside(self, low: Number, high: Number, share: float) -> Number | None:
        """The value strictly inside, this far up; None when there is none."""
        origin = self._origin
        aim = origin + (low - origin) * math.exp(share * self._distance(low, high))
        if self.step is None:
            return aim if low < aim < high else None
        first = math.floor((low - self.floor) / self.step + 1e-9) + 1
        last = math.ceil((high - self.floor) / self.step - 1e-9) - 1
        if first > last:
            return None
        return self.floor + min(last, max(first, round((aim - self.floor) / self.step))) * self.step

    def part(self, low: Number, high: Number) -> float:
        """How much of the whole scale lies between two values."""
        whole = self._distance(self.floor, self.initial)
        return self._distance(low, high) / whole if whole else 0.0

    def _distance(self, low: Number, high: Number) -> float:
        return math.log((high - self._origin) / (low - self._origin))

    @cached_property
    def _origin(self) -> Number:
        """Ratios are taken from 0, or from just below a floor that is not above 0."""
        if self.floor > 0:
            return 0
        return self.floor - (self.step or (self.initial - self.floor) / _FINEST)


class Bracket(NamedTuple):
    """What is known of one number: the smallest accepted value, and every rejected one."""

    scale: NumberScale
    accepted: Number
    rejected: frozenset[Number] = frozenset()
    promised: bool = (
        False  # the user says it is monotone: nothing below a rejected value is worth a trial
    )
    doubted: bool = (
        False  # the user says it is not monotone: small values are tried, whatever larger ones said
    )
    suspect: Number | None = (
        None  # rejected before, when other axes were larger: if it still is, all is as it was
    )

    def question(self) -> Number | None:
        below = self.below
        if self.suspect is not None and self.suspect < self.accepted:
            return None if self.suspect in below else self.suspect
        if self.accepted <= self.scale.floor:
            return None
        if self.scale.floor not in below:
            return self.scale.floor
        small = self._small(below) if self.doubted else None
        if small is not None:
            return small
        middle = self.scale.between(below[-1], self.accepted)
        return self._unseen(below) if middle is None else middle

    def answered(self, value: Number, reproduces: bool) -> "Bracket":
        if reproduces:
            return self._replace(accepted=min(self.accepted, value))
        return self._replace(rejected=self.rejected | {value})

    @property
    def below(self) -> list[Number]:
        """The rejected values below the answer, rising."""
        return sorted(value for value in self.rejected if value < self.accepted)

    @property
    def above(self) -> list[Number]:
        """The rejected values above the answer: a smaller value reproduces where they do not."""
        return sorted(value for value in self.rejected if value > self.accepted)

    def _small(self, below: list[Number]) -> Number | None:
        """The smallest of the first steps above the floor that nobody tried."""
        if self.scale.step is None:
            return None
        seen = set(below)
        steps = (self.scale.floor + n * self.scale.step for n in range(1, _SMALL_STEPS + 1))
        return next((value for value in steps if value < self.accepted and value not in seen), None)

    def _unseen(self, below: list[Number]) -> Number | None:
        if self.promised or len(below) < 2:
            return None
        low, high = max(pairwise(below), key=lambda gap: self.scale.part(*gap))
        if self.scale.part(low, high) <= (
            _LARGEST_GAP_OF_DOUBT if self.doubted else _LARGEST_UNSEEN_GAP
        ):
            return None
        return self.scale.inside(low, high, 0.5)


class NumericSearch(RankedSearch):
    """`place` turns a number into the axis's value: a window of that length, say."""

    def __init__(
        self,
        base: Point,
        axis: NumberAxis | StepsAxis,
        current: Number,
        *,
        place: Callable[[Number], Value] = lambda number: number,
        suspect: Number | None = None,
    ) -> None:
        self._base = base
        self._axis = axis
        self._place = place
        self._start = current
        scale = NumberScale(axis.floor, current, axis.step, axis.tolerance)
        self._bracket = Bracket(
            scale,
            current,
            promised=bool(axis.monotone),
            doubted=axis.monotone is False,
            suspect=suspect,
        )
        self._unresolved: set[Number] = set()

    def ranked(self, n: int) -> list[Point]:
        return [self._point(number) for number in self._numbers(n)]

    def wants(self, point: Point) -> bool:
        number = _number_in(point[self._axis.name])
        return number in self._numbers(SPECULATION_DEPTH) and point == self._point(number)

    def _numbers(self, n: int) -> Iterator[Number]:
        """Up to `n` of them: what is asked now, then what would be asked after either answer."""
        seen: set[Number] = set()
        in_vain = self._bracket.accepted == self._start and self._bracket.rejected
        if len(self._unresolved) >= _UNTOLD and in_vain == self._unresolved:
            return
        futures, looked = deque([lambda: self._bracket]), 0
        while futures and len(seen) < n and looked < 4 * n:
            bracket, looked = futures.popleft()(), looked + 1
            number = bracket.question()
            if number is not None:
                futures.extend(partial(bracket.answered, number, said) for said in (False, True))
                if number not in seen:
                    seen.add(number)
                    yield number

    def tell(self, point: Point, verdict: Verdict) -> None:
        number = _number_in(point[self._axis.name])
        if verdict.reproduces is None:
            self._unresolved.add(number)
        self._bracket = self._bracket.answered(number, verdict.reproduces is True)

    @property
    def best(self) -> Point:
        if self._bracket.accepted == self._start:
            return self._base
        return self._point(self._bracket.accepted)

    @property
    def largest_rejected(self) -> Number | None:
        """The value just below the answer that was rejected."""
        below = self._bracket.below
        return below[-1] if below else None

    @property
    def monotone(self) -> bool | None:
        """False where it was seen not to be; True where nothing seen speaks against it."""
        if self.monotonicity_checks() or self._axis.monotone is False:
            return False
        return True if self.done and not self._unresolved else None

    def minimality_checks(self) -> list[Point]:
        """The rejected point just below the answer."""
        rejected = self.largest_rejected
        return [] if rejected is None else [self._point(rejected)]

    def monotonicity_checks(self) -> list[Point]:
        """The rejected points above the answer."""
        return [self._point(n) for n in self._bracket.above if n not in self._unresolved]

    @property
    def unresolved(self) -> int:
        return len(self._unresolved)

    def covers(self, point: Point) -> bool:
        """Whether this is one of the points that the search could have asked about."""
        return point == self._point(_number_in(point[self._axis.name]))

    def _point(self, number: Number) -> Point:
        return self._base.with_value(self._axis.name, self._place(number))


def _number_in(value: Value) -> Number:
    """The number itself, or the length of a window."""
    return value.length if isinstance(value, Window) else as_number(value)
