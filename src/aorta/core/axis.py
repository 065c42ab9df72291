"""Axes and points: an axis is one thing about a workload that may be made smaller, with its values,
where it starts and what is best; a point is one value for each axis. Where values end up in a trial
is the business of the verb.
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from aorta.core.errors import UsageError

Number = int | float
Indexes = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A range of steps: the first of them, and how many there are."""

    start: int
    length: int

    def __str__(self) -> str:
        return f"{self.start}+{self.length}"


Value = Number | str | Indexes | Window
"""A number, a text, the indexes of the items that a subset keeps, or a range of steps."""


def value_to_json(value: Value) -> Any:
    match value:
        case Window(start, length):
            return {"start": start, "length": length}
        case tuple():
            return list(value)
        case _:
            return value


def value_from_json(said: Any) -> Value:
    match said:
        case {"start": int(start), "length": int(length)}:
            return Window(start, length)
        case list():
            return tuple(said)
        case int() | float() | str():
            return said
    raise TypeError(f"found {said!r}, expected a number, a text, indexes or a range")


def show_value(value: Value) -> str:
    """As a person reads it: `137`, `3 items`, `0+137`."""
    return f"{len(value)} items" if isinstance(value, tuple) else str(value)


class Purpose(StrEnum):
    """What a verdict is wanted for; it decides how strict the judge is."""

    CALIBRATE = "calibrate"  # the original: does it fail, and how often?
    PROBE = "probe"  # a candidate
    REPLAY = "replay"  # an accepted candidate again, to see that it was no luck
    RATE = "rate"  # one that is known to fail: about as often as the original, or far less often?
    CONFIRM = "confirm"  # the answer, with fresh trials at a strict level
    WARM = "warm"  # the original again, to compare warm starts with cold ones; counts for no more


@dataclass(frozen=True, eq=False)
class Point:
    """One value for each axis; `replica` asks the same question for fresh evidence."""

    values: tuple[tuple[str, Value], ...]
    purpose: Purpose = Purpose.PROBE
    replica: int = 0

    @classmethod
    def of(
        cls, values: Mapping[str, Value], purpose: Purpose = Purpose.PROBE, replica: int = 0
    ) -> "Point":
        return cls(tuple(sorted(values.items())), purpose, replica)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __getitem__(self, name: str) -> Value:
        return dict(self.values)[name]

    def with_value(self, name: str, value: Value) -> "Point":
        return Point.of({**dict(self.values), name: value}, self.purpose, self.replica)

    def asked_for(self, purpose: Purpose, replica: int = 0) -> "Point":
        if (purpose, replica) == (self.purpose, self.replica):
            return self
        other = Point(self.values, purpose, replica)
        vars(other)["config_key"] = self.config_key  # of the same values
        return other

    def fresh(self, taken: Collection["Point"]) -> "Point":
        """This question, or the first replica after it that is not among those."""
        point = self
        while point in taken:
            point = point.asked_for(self.purpose, point.replica + 1)
        return point

    @cached_property
    def config_key(self) -> str:
        """Names the configuration alone: equal values have one key in every run and process."""
        values = [[name, value_to_json(value)] for name, value in self.values]
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @cached_property
    def key(self) -> str:
        """Names the question: configuration, purpose and replica."""
        return f"{self.config_key}.{self.purpose.value}.{self.replica}"


DEFAULT_TOLERANCE = 0.01
"""Relative, for numbers without a step: an exact minimum of a real number has no end. A number with
a step, such as a whole one, is found to the step.
"""


class AxisKind(StrEnum):
    ENV = "env"
    FILE_SUBSET = "file_subset"
    DIR_SUBSET = "dir_subset"
    LIST = "list"
    WINDOW = "window"
    WORLD_SIZE = "world_size"
    RANKS = "ranks"


class Strategy(StrEnum):
    AUTO = "auto"
    BINARY = "binary"
    LINEAR = "linear"
    DD_MIN = "dd-min"


@dataclass(frozen=True)
class _Axis:
    name: str
    _: KW_ONLY
    kind: AxisKind = AxisKind.ENV
    strategy: Strategy = Strategy.AUTO
    monotone: bool | None = None  # True: a promise of the user; None: a guess to be verified
    priority: int | None = None  # lower goes first

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise UsageError(message, where=f"axis {self.name}")

    def _check_tolerance(self, tolerance: float) -> None:
        words = f"tolerance {tolerance} is not in 0 to 1 (0.1 means 10 %)"
        self._require(0 <= tolerance < 1, words)


@dataclass(frozen=True)
class NumberAxis(_Axis):
    """Made by `number`. `floor` is the least value."""

    initial: Number
    floor: Number
    _: KW_ONLY
    step: Number | None
    tolerance: float

    def __post_init__(self) -> None:
        initial, floor, step = self.initial, self.floor, self.step
        is_linear = self.strategy is Strategy.LINEAR
        finite = all(map(math.isfinite, (initial, floor)))
        self._require(finite, "initial and floor must be finite")
        self._require(floor <= initial, f"floor {floor} is above initial {initial}")
        self._require(step is None or step > 0, f"step {step} is not above 0")
        for_subsets = self.strategy is Strategy.DD_MIN
        self._require(not for_subsets, "dd-min is for subsets; use binary or linear")
        self._check_tolerance(self.tolerance)
        self._require(
            step is not None or (self.tolerance > 0 and not is_linear),
            "a real number needs a step here; add step, or a tolerance above 0 with strategy "
            "binary",
        )

    @property
    def smallest(self) -> Number:
        return self.floor

    def size(self, value: Value) -> Number:
        return as_number(value)


@dataclass(frozen=True)
class StepsAxis(_Axis):
    """A range of steps; both of its ends move inwards. `floor` is the least length."""

    start: int
    length: int
    _: KW_ONLY
    kind: AxisKind = AxisKind.WINDOW
    floor: int = 1
    tolerance: float = 0.0
    step: int = 1

    def __post_init__(self) -> None:
        words = f"floor {self.floor} is not in 1 to length {self.length}"
        self._require(self.start >= 0, f"start {self.start} is below 0")
        self._require(1 <= self.floor <= self.length, words)
        self._check_tolerance(self.tolerance)

    @property
    def initial(self) -> Window:
        return Window(self.start, self.length)

    @property
    def smallest(self) -> Window:
        return Window(self.start, self.floor)

    def size(self, value: Value) -> Number:
        return as_window(value).length


@dataclass(frozen=True)
class ChoiceAxis(_Axis):
    """One of several values: the original first, the most wanted last."""

    choices: tuple[str | Number, ...]
    _: KW_ONLY
    strategy: Strategy = Strategy.LINEAR

    def __post_init__(self) -> None:
        values = self.choices
        self._require(len(values) > 1, "a choice needs at least two values, the original first")
        self._require(len(set(values)) == len(values), "a choice names the same value twice")

    @property
    def initial(self) -> str | Number:
        return self.choices[0]

    @property
    def floor(self) -> str | Number:
        return self.choices[-1]

    @property
    def smallest(self) -> str | Number:
        return self.choices[-1]

    def size(self, value: Value) -> Number:
        """How many choices are wanted more."""
        return len(self.choices) - 1 - self.choices.index(as_single(value))


@dataclass(frozen=True)
class SubsetAxis(_Axis):
    """Which of these items are needed? `floor` is the fewest that are kept."""

    items: tuple[str, ...]  # what the indexes of a value stand for
    _: KW_ONLY
    kind: AxisKind = AxisKind.FILE_SUBSET
    strategy: Strategy = Strategy.DD_MIN
    floor: int = 1

    def __post_init__(self) -> None:
        count = len(self.items)
        self._require(count > 0, "there are no items to choose from")
        self._require(0 <= self.floor <= count, f"floor {self.floor} is not in 0 to {count} items")

    @cached_property
    def initial(self) -> Indexes:
        return tuple(range(len(self.items)))

    @property
    def smallest(self) -> Indexes | None:
        """None where there are many, as in a subset of one item."""
        return () if self.floor == 0 else None

    def size(self, value: Value) -> Number:
        return len(as_indexes(value))


Axis = NumberAxis | StepsAxis | ChoiceAxis | SubsetAxis
"""`smallest` is the one value that cannot be made smaller, `size` how much of the axis a value
uses. Cheap ones first.
"""


def size_at_floor(axis: Axis) -> Number:
    return 0 if isinstance(axis, ChoiceAxis) else axis.floor


# What the declaration of an axis has, beside `number`.
choice, subset, window = ChoiceAxis, SubsetAxis, StepsAxis


def number(
    name: str,
    initial: Number,
    floor: Number,
    *,
    step: Number | None = None,
    tolerance: float | None = None,
    **of_any_axis: Any,
) -> NumberAxis:
    """A whole number moves in steps of 1 by default; a real one to a relative tolerance."""
    if step is None and all(isinstance(value, int) for value in (initial, floor)):
        step = 1
    if tolerance is None:
        tolerance = 0.0 if step is not None else DEFAULT_TOLERANCE
    return NumberAxis(name, initial, floor, step=step, tolerance=tolerance, **of_any_axis)


# -- a value as what its axis holds; anything else is a fault of the program


def as_number(value: Value) -> Number:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"found {value!r}, expected a number")


def as_single(value: Value) -> str | Number:
    if isinstance(value, (int, float, str)):
        return value
    raise TypeError(f"found {value!r}, expected a number or a text")


def as_indexes(value: Value) -> Indexes:
    if isinstance(value, tuple):
        return value
    raise TypeError(f"found {value!r}, expected indexes")


def as_window(value: Value) -> Window:
    if isinstance(value, Window):
        return value
    raise TypeError(f"found {value!r}, expected a range")
