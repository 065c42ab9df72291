"""The right search for an axis, and what every axis search can say beyond its answer."""

from collections.abc import Sequence
from typing import Protocol

from aorta.core.axis import Axis, ChoiceAxis, SpanAxis, Strategy, SubsetAxis, as_number
from aorta.core.point import Point
from aorta.search import Search
from aorta.search.choice import OrderedSearch, choices_of, steps_of
from aorta.search.numeric import NumericSearch
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
    if isinstance(axis, SpanAxis):
        if isinstance(earlier, WindowSearch):
            return WindowSearch(base, axis, suspects=earlier.largest_rejected)
        return WindowSearch(base, axis)
    if isinstance(axis, ChoiceAxis):
        return OrderedSearch(base, axis, choices_of(axis, value))
    number = as_number(value)
    if axis.strategy is Strategy.LINEAR:
        return OrderedSearch(base, axis, steps_of(axis, number))
    suspect = earlier.largest_rejected if isinstance(earlier, NumericSearch) else None
    return NumericSearch(base, axis, number, suspect=suspect)
