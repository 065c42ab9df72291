"""The most wanted value that reproduces: each is tried in order, so nothing need be monotone."""

from collections.abc import Sequence

from aorta.core.axis import Axis, ChoiceAxis, NumberAxis
from aorta.core.point import Number, Point, Value
from aorta.search.repeated import FirstThatReproduces


class OrderedSearch(FirstThatReproduces):
    """Values from the most wanted on; the first that reproduces is the answer, whatever the later ones say."""

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


def choices_of(axis: ChoiceAxis, current: Value) -> list[Value]:
    """The choices that are wanted more than the current one, the most wanted first."""
    position = next(i for i, v in enumerate(axis.choices) if v == current)
    return list(reversed(axis.choices[position + 1 :]))


def steps_of(axis: NumberAxis, current: Number) -> list[Value]:
    """Every step from the floor up to just below the current value."""
    step, values = axis.step or 1, list[Value]()
    value: Number = axis.floor
    while value < current:
        values.append(value)
        value = axis.floor + len(values) * step
    return values
