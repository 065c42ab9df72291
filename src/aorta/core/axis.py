"""An axis: one thing about a workload that may be made smaller, as plain data.

An axis says what values it has, which one it starts from and which one it would like best. Where its values end up in
a trial (a variable, a file, a launcher's option) is the business of the verb that declares it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from aorta.core.errors import UsageError
from aorta.core.point import Value

Number = int | float
DEFAULT_TOLERANCE = 0.1
"""Relative, for numbers without a step: an exact minimum of a real number has no end."""


class AxisKind(StrEnum):
    ENV = "env"
    FILE_SUBSET = "file_subset"
    DIR_SUBSET = "dir_subset"
    LIST = "list"
    WINDOW = "window"
    WORLD_SIZE = "world_size"
    RANKS = "ranks"


class Shape(StrEnum):
    """What the values are; it decides which search an axis gets. Cheap ones first."""

    NUMBER = "number"
    WINDOW = "window"
    CHOICE = "choice"
    SUBSET = "subset"


class Strategy(StrEnum):
    AUTO = "auto"
    BINARY = "binary"
    LINEAR = "linear"
    DD_MIN = "dd-min"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Made by `number`, `choice`, `subset` and `window`, which check what they are given."""

    name: str
    kind: AxisKind
    shape: Shape
    initial: Value
    floor: Number = (
        0  # numbers: the least value; windows: the least length; subsets: the fewest items
    )
    step: Number | None = None
    tolerance: float = 0.0
    strategy: Strategy = Strategy.AUTO
    monotone: bool | None = None  # True: a promise of the user; None: a guess to be verified
    priority: int | None = None  # lower goes first
    items: tuple[str, ...] = ()  # subsets: what the indexes of a value stand for
    choices: tuple[str | Number, ...] = ()  # the original first, the most wanted last

    @property
    def smallest(self) -> Value | None:
        """The one value that cannot be made smaller; None where there are many, as in a subset of one item."""
        if self.shape is Shape.NUMBER:
            return self.floor
        if self.shape is Shape.CHOICE:
            return self.choices[-1]
        if self.shape is Shape.WINDOW:
            return (self._window()[0], int(self.floor))
        return () if self.floor == 0 else None

    @property
    def size_at_floor(self) -> Number:
        return 0 if self.shape is Shape.CHOICE else self.floor

    def size(self, value: Value) -> Number:
        """How much of the axis a value uses: the number itself, or a count."""
        if self.shape is Shape.CHOICE:
            return len(self.choices) - 1 - self.choices.index(_scalar(value))
        if isinstance(value, tuple):
            return value[1] if self.shape is Shape.WINDOW else len(value)
        return _number(value)

    def _window(self) -> tuple[int, int]:
        start, length = self.initial if isinstance(self.initial, tuple) else (0, 0)
        return start, length


def number(
    name: str,
    initial: Number,
    floor: Number,
    *,
    kind: AxisKind = AxisKind.ENV,
    step: Number | None = None,
    tolerance: float | None = None,
    strategy: Strategy = Strategy.AUTO,
    monotone: bool | None = None,
    priority: int | None = None,
) -> Axis:
    """A whole number moves in steps of 1 unless told otherwise; a real one to within a relative tolerance."""
    where = f"axis {name}"
    _require(all(map(math.isfinite, (initial, floor))), where, "initial and floor must be finite")
    _require(floor <= initial, where, f"floor {floor} is above initial {initial}")
    _require(step is None or step > 0, where, f"step {step} is not above 0")
    _require(strategy is not Strategy.DD_MIN, where, "dd-min is for subsets; use binary or linear")
    whole = all(isinstance(v, int) for v in (initial, floor))
    if step is None and whole:
        step = 1
    if tolerance is None:
        tolerance = 0.0 if step is not None else DEFAULT_TOLERANCE
    _require(0 <= tolerance < 1, where, f"tolerance {tolerance} is not in 0 to 1 (0.1 means 10 %)")
    _require(
        step is not None or (tolerance > 0 and strategy is not Strategy.LINEAR),
        where,
        "a real number needs a step here; add step, or a tolerance above 0 with strategy binary",
    )
    return Axis(
        name=name,
        kind=kind,
        shape=Shape.NUMBER,
        initial=initial,
        floor=floor,
        step=step,
        tolerance=tolerance,
        strategy=strategy,
        monotone=monotone,
        priority=priority,
    )


def choice(name: str, choices: tuple[str | Number, ...], *, priority: int | None = None) -> Axis:
    """The original first, the most wanted last."""
    where = f"axis {name}"
    _require(len(choices) > 1, where, "a choice needs at least two values, the original first")
    _require(len(set(choices)) == len(choices), where, "a choice names the same value twice")
    return Axis(
        name=name,
        kind=AxisKind.ENV,
        shape=Shape.CHOICE,
        initial=choices[0],
        choices=choices,
        strategy=Strategy.LINEAR,
        priority=priority,
    )


def subset(
    name: str,
    items: tuple[str, ...],
    *,
    kind: AxisKind = AxisKind.FILE_SUBSET,
    floor: int = 1,
    monotone: bool | None = None,
    priority: int | None = None,
) -> Axis:
    """Which of these items are needed? The least number kept is 1: an empty input is rarely the same workload."""
    where = f"axis {name}"
    _require(len(items) > 0, where, "there are no items to choose from")
    _require(0 <= floor <= len(items), where, f"floor {floor} is not in 0 to {len(items)} items")
    return Axis(
        name=name,
        kind=kind,
        shape=Shape.SUBSET,
        initial=tuple(range(len(items))),
        floor=floor,
        strategy=Strategy.DD_MIN,
        monotone=monotone,
        priority=priority,
        items=items,
    )


def window(
    name: str,
    start: int,
    length: int,
    *,
    floor: int = 1,
    tolerance: float = 0.0,
    monotone: bool | None = None,
    priority: int | None = None,
) -> Axis:
    """A range of steps; both of its ends move inwards."""
    where = f"axis {name}"
    _require(start >= 0, where, f"start {start} is below 0")
    _require(1 <= floor <= length, where, f"floor {floor} is not in 1 to length {length}")
    _require(0 <= tolerance < 1, where, f"tolerance {tolerance} is not in 0 to 1 (0.1 means 10 %)")
    return Axis(
        name=name,
        kind=AxisKind.WINDOW,
        shape=Shape.WINDOW,
        initial=(start, length),
        floor=floor,
        step=1,
        tolerance=tolerance,
        monotone=monotone,
        priority=priority,
    )


def _require(holds: bool, where: str, message: str) -> None:
    if not holds:
        raise UsageError(message, where=where)


def _scalar(value: Value) -> str | Number:
    if isinstance(value, tuple):
        raise TypeError(f"expected a single value, found {value!r}")
    return value


def _number(value: Value) -> Number:
    if isinstance(value, (str, tuple)):
        raise TypeError(f"expected a number, found {value!r}")
    return value
