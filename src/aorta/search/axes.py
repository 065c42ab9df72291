"""The right search for an axis, and what every axis search can say beyond its answer."""

from collections.abc import Sequence
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
    as_number,
)
from aorta.search import Search
from aorta.search.numeric import NumericSearch
from aorta.search.repeated import FirstThatReproduces
from aorta.search.subset import SubsetSearch
from aorta.search.window import WindowSearch


class AxisSearch(Search, Protocol):
    """A search along one axis of a base point that is known to reproduce."""

    @property
    def best(self) -> Point: ...

    @property
    def monotone(self) -> bool | None:
        """Whether smaller was always at most as likely to reproduce; None where that was not seen."""

    def doubts(self) -> Sequence[Point]:
        """The rejected points that are larger than the answer: if they hold, the axis is not monotone."""

    @property
    def unresolved(self) -> int:
        """How many points could not be told."""

    def proofs(self) -> Sequence[Point]:
        """The rejected points on which the claim rests that nothing smaller reproduces."""


def search_along(axis: Axis, base: Point, earlier: AxisSearch | None = None) -> AxisSearch:
    """The search for this axis. `earlier` searched it when other axes were larger: most of it will still hold."""
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
    """Each value in order, so that nothing need be monotone, from the most wanted on; the first that reproduces is the answer, whatever the later ones say."""

    monotone: bool | None = None

    def __init__(self, base: Point, axis: Axis, values: Sequence[Value]) -> None:
        super().__init__([base.with_value(axis.name, value) for value in values])
        self._base = base

    @property
    def best(self) -> Point:
        return super().best or self._base

    def proofs(self) -> list[Point]:
        """The more wanted values, all rejected."""
        return list(self.more_wanted())

    def doubts(self) -> list[Point]:
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
