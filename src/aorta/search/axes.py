"""The right search for an axis of a reduction, and what such a search says beyond its answer.

A number: the floor first, which is often enough, then bisection by ratio between the largest
rejected and the smallest accepted value, down to the tolerance or one step. Unless the user
promised it, monotonicity is a guess: at the end rejected values must leave no large gap unseen, and
whatever reproduces there is taken and reported. Spare slots ask what either answer would ask next.

A range of steps first ends earlier, then starts later. Choices, and numbers to be tried one by one,
go from the most wanted on. Items of a list or lines of a file are split (`aorta.search.subset`).
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple, Protocol

from aorta.core.axis import (
    Axis,
    ChoiceAxis,
    Number,
    NumberAxis,
    Point,
    StepsAxis,
    Strategy,
    SubsetAxis,
    Value,
    Window,
    as_number,
    as_window,
)
from aorta.core.trial import Verdict
from aorta.search import Search
from aorta.search.repeated import SPECULATION_DEPTH, FirstThatReproduces, RankedSearch, StagedSearch
from aorta.search.subset import SubsetSearch

_LARGEST_UNSEEN_GAP = 0.25  # of the logarithmic distance between floor and initial
_LARGEST_GAP_OF_DOUBT = 0.1  # where the user says that it is not monotone
_UNDECIDED = 3  # values that could not be told, such as for time, and none that could: it is left
_FINEST = 1000  # a scale that begins at 0 resolves this part of itself


class AxisSearch(Search, Protocol):
    """A search along one axis of a base point that is known to reproduce."""

    @property
    def best(self) -> Point: ...

    @property
    def monotone(self) -> bool | None:
        """Whether smaller never reproduced more often; None where that was not seen."""

    @property
    def unresolved(self) -> int:
        """How many points could not be told."""

    def minimality_checks(self) -> Sequence[Point]:
        """The rejected points on which the claim rests that nothing smaller reproduces."""


def search_along(axis: Axis, base: Point, earlier: AxisSearch | None = None) -> AxisSearch:
    """The search for this axis; `earlier` searched it when other axes were larger."""
    value = base[axis.name]
    if isinstance(axis, SubsetAxis):
        return SubsetSearch(base, axis, all_expected=earlier is not None)
    if isinstance(axis, StepsAxis):
        if isinstance(earlier, WindowSearch):
            return WindowSearch(base, axis, suspects=earlier.largest_rejected)
        return WindowSearch(base, axis)
    if isinstance(axis, ChoiceAxis):
        better = axis.choices[axis.choices.index(value) + 1 :]
        return OrderedSearch(base, axis, better[::-1])  # the most wanted first
    number = as_number(value)
    if axis.strategy is Strategy.LINEAR:
        return OrderedSearch(base, axis, _steps_of(axis, number))
    suspect = earlier.largest_rejected if isinstance(earlier, NumericSearch) else None
    return NumericSearch(base, axis, number, suspect=suspect)


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
    # The user says it is monotone: nothing below a rejected value is worth a trial.
    promised: bool = False
    # The user says it is not: smaller gaps are left unseen.
    doubted: bool = False
    # Rejected before, when other axes were larger: if it still is, all is as it was.
    suspect: Number | None = None

    def question(self) -> Number | None:
        below = self.below
        if self.suspect is not None and self.suspect < self.accepted:
            return None if self.suspect in below else self.suspect
        if self.accepted <= self.scale.floor:
            return None
        if self.scale.floor not in below:
            return self.scale.floor
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

    def _unseen(self, below: list[Number]) -> Number | None:
        if self.promised or len(below) < 2:
            return None
        low, high = max(pairwise(below), key=lambda gap: self.scale.part(*gap))
        allowed = _LARGEST_GAP_OF_DOUBT if self.doubted else _LARGEST_UNSEEN_GAP
        return self.scale.inside(low, high, 0.5) if self.scale.part(low, high) > allowed else None


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
        nothing_decided = self._unresolved >= self._bracket.rejected
        if len(self._unresolved) >= _UNDECIDED and nothing_decided and self.best == self._base:
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
        if point != self._point(number):
            return  # of another search along this axis
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
        above = set(self._bracket.above) - self._unresolved
        if above or self._axis.monotone is False:
            return False
        return True if self.done and not self._unresolved else None

    def minimality_checks(self) -> list[Point]:
        """The rejected point just below the answer."""
        rejected = self.largest_rejected
        return [] if rejected is None else [self._point(rejected)]

    @property
    def unresolved(self) -> int:
        return len(self._unresolved)

    def _point(self, number: Number) -> Point:
        return self._base.with_value(self._axis.name, self._place(number))


def _number_in(value: Value) -> Number:
    """The number itself, or the length of a window."""
    return value.length if isinstance(value, Window) else as_number(value)


class WindowSearch(StagedSearch):
    """First the length with the start held, then with the end held.

    `suspects`: for each of the two, the length rejected in an earlier search of this axis.
    """

    def __init__(
        self,
        base: Point,
        axis: StepsAxis,
        *,
        suspects: tuple[Number | None, Number | None] = (None, None),
    ) -> None:
        self._base, self._axis, self._suspects = base, axis, suspects
        self._parts: list[NumericSearch] = []
        super().__init__()

    def stages(self) -> Iterator[NumericSearch]:
        span = as_window(self._base[self._axis.name])
        yield self._part(self._base, lambda n: Window(span.start, int(n)))
        base = self.best
        span = as_window(base[self._axis.name])
        end = span.start + span.length
        yield self._part(base, lambda n: Window(end - int(n), int(n)))

    def _part(self, base: Point, place: Callable[[Number], Window]) -> NumericSearch:
        length, suspect = as_window(base[self._axis.name]).length, self._suspects[len(self._parts)]
        part = NumericSearch(base, self._axis, length, place=place, suspect=suspect)
        self._parts.append(part)
        return part

    @property
    def best(self) -> Point:
        return self._parts[-1].best

    @property
    def monotone(self) -> bool | None:
        said = {part.monotone for part in self._parts}
        return False if False in said else None if None in said else True

    @property
    def largest_rejected(self) -> tuple[Number | None, Number | None]:
        first, last = self._parts[0], self._parts[-1]
        return first.largest_rejected, None if last is first else last.largest_rejected

    def minimality_checks(self) -> list[Point]:
        """The rejected windows just shorter than the answer at its start."""
        return self._parts[-1].minimality_checks()

    @property
    def unresolved(self) -> int:
        return sum(part.unresolved for part in self._parts)


class OrderedSearch(FirstThatReproduces):
    """Each value from the most wanted on, none assumed monotone; the first that reproduces wins."""

    monotone: bool | None = None

    def __init__(self, base: Point, axis: Axis, values: Sequence[Value]) -> None:
        super().__init__([base.with_value(axis.name, value) for value in values])
        self._base = base

    @property
    def best(self) -> Point:
        return super().best or self._base

    def minimality_checks(self) -> list[Point]:
        """The more wanted values, all rejected."""
        return list(self.more_wanted())

    @property
    def unresolved(self) -> int:
        return sum(verdict.reproduces is None for verdict in self.verdicts.values())


def _steps_of(axis: NumberAxis, current: Number) -> list[Value]:
    """Every step from the floor up to just below the current value."""
    step, values = axis.step or 1, list[Value]()
    value: Number = axis.floor
    while value < current:
        values.append(value)
        value = axis.floor + len(values) * step
    return values
