"""The right search for an axis, and what every axis search can say beyond its answer. A range of
steps is shortened here: first it ends earlier, then it starts later.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

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
from aorta.search.numeric import NumericSearch
from aorta.search.repeated import FirstThatReproduces
from aorta.search.subset import SubsetSearch


class WindowSearch:
    """Two searches for a length, one after the other: with the start held, then with the end held.

    `suspects` are the lengths that were rejected in an earlier search of the same axis, one for
    each of the two.
    """

    def __init__(
        self,
        base: Point,
        axis: StepsAxis,
        *,
        suspects: tuple[Number | None, Number | None] = (None, None),
    ) -> None:
        self._axis = axis
        self._suspects = suspects
        span = as_window(base[axis.name])
        self._parts = [
            self._part(base, span.length, lambda n: Window(span.start, int(n)), suspects[0])
        ]
        self._turn()

    def ask(self, n: int, pending: Collection[Point] = ()) -> list[Point]:
        return self._parts[-1].ask(n, pending)

    def tell(self, point: Point, verdict: Verdict) -> None:
        if self._parts[-1].covers(point):
            self._parts[-1].tell(point, verdict)
        self._turn()

    def _turn(self) -> None:
        """From the end to the start, once the end is decided."""
        if len(self._parts) == 1 and self._parts[0].done:
            base = self._parts[0].best
            span = as_window(base[self._axis.name])
            end = span.start + span.length
            self._parts.append(
                self._part(
                    base, span.length, lambda n: Window(end - int(n), int(n)), self._suspects[1]
                )
            )

    def wants(self, point: Point) -> bool:
        return self._parts[-1].covers(point) and self._parts[-1].wants(point)

    @property
    def done(self) -> bool:
        return len(self._parts) == 2 and self._parts[-1].done

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

    def monotonicity_checks(self) -> list[Point]:
        return [point for part in self._parts for point in part.monotonicity_checks()]

    @property
    def unresolved(self) -> int:
        return sum(part.unresolved for part in self._parts)

    def _part(
        self, base: Point, length: int, place: Callable[[Number], Window], suspect: Number | None
    ) -> NumericSearch:
        return NumericSearch(base, self._axis, length, place=place, suspect=suspect)


class AxisSearch(Search, Protocol):
    """A search along one axis of a base point that is known to reproduce."""

    @property
    def best(self) -> Point: ...

    @property
    def monotone(self) -> bool | None:
        """Whether smaller never reproduced more often; None where that was not seen."""

    def monotonicity_checks(self) -> Sequence[Point]:
        """The rejected points larger than the answer: if they hold, the axis is not monotone."""

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
        return OrderedSearch(base, axis, _choices_of(axis, value))
    number = as_number(value)
    if axis.strategy is Strategy.LINEAR:
        return OrderedSearch(base, axis, _steps_of(axis, number))
    suspect = earlier.largest_rejected if isinstance(earlier, NumericSearch) else None
    return NumericSearch(base, axis, number, suspect=suspect)


class OrderedSearch(FirstThatReproduces):
    """Each value in order, so that nothing need be monotone, from the most wanted on; the first
    that reproduces is the answer, whatever the later ones say.
    """

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

    def monotonicity_checks(self) -> list[Point]:
        """None: the order of the values claims nothing about the failure."""
        return []

    @property
    def unresolved(self) -> int:
        return sum(verdict.reproduces is None for verdict in self.verdicts.values())


def _choices_of(axis: ChoiceAxis, current: Value) -> list[Value]:
    """The choices that are wanted more than the current one, the most wanted first."""
    position = next(i for i, v in enumerate(axis.choices) if v == current)
    return list(reversed(axis.choices[position + 1 :]))


def _steps_of(axis: NumberAxis, current: Number) -> list[Value]:
    """Every step from the floor up to just below the current value."""
    step, values = axis.step or 1, list[Value]()
    value: Number = axis.floor
    while value < current:
        values.append(value)
        value = axis.floor + len(values) * step
    return values
