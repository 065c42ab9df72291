"""The most wanted value that reproduces: each is tried in order, so nothing need be monotone."""

from collections.abc import Sequence

from aorta.core.axis import Axis, Number
from aorta.core.outcome import Verdict
from aorta.core.point import Point, Value
from aorta.search.ranked import RankedSearch


class OrderedSearch(RankedSearch):
    """Values from the most wanted on; the first that reproduces is the answer, whatever the later ones say."""

    monotone: bool | None = None

    def __init__(self, base: Point, axis: Axis, values: Sequence[Value]) -> None:
        self._base = base
        self._name = axis.name
        self._values = tuple(values)
        self._told: dict[Value, bool | None] = {}

    def ranked(self, n: int) -> list[Point]:
        open_values = (v for v in self._before_the_answer() if v not in self._told)
        return [self._base.with_value(self._name, v) for v, _ in zip(open_values, range(n))]

    def tell(self, point: Point, verdict: Verdict) -> None:
        self._told[point[self._name]] = verdict.reproduces

    @property
    def best(self) -> Point:
        accepted = next((v for v in self._values if self._told.get(v)), None)
        return self._base if accepted is None else self._base.with_value(self._name, accepted)

    def proofs(self) -> list[Point]:
        """The more wanted values that were rejected."""
        return [self._base.with_value(self._name, v) for v in self._before_the_answer()]

    @property
    def unresolved(self) -> int:
        return sum(said is None for said in self._told.values())

    def _before_the_answer(self) -> list[Value]:
        answer = next((i for i, v in enumerate(self._values) if self._told.get(v)), None)
        return list(self._values[:answer])


def choices_of(axis: Axis, current: Value) -> list[Value]:
    """The choices that are wanted more than the current one, the most wanted first."""
    position = next(i for i, v in enumerate(axis.choices) if v == current)
    return list(reversed(axis.choices[position + 1 :]))


def steps_of(axis: Axis, current: Number) -> list[Value]:
    """Every step from the floor up to just below the current value."""
    step, values = axis.step or 1, list[Value]()
    value: Number = axis.floor
    while value < current:
        values.append(value)
        value = axis.floor + len(values) * step
    return values
