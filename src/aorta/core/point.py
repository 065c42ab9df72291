"""A point: one configuration, and what its verdict is wanted for."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

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
    CONFIRM = "confirm"  # the answer, with fresh trials at a strict level


@dataclass(frozen=True, eq=False)
class Point:
    """Two points with the same values ask about the same configuration; `replica` asks for fresh evidence.

    Compared by key, which is computed once: a point may hold the indexes of ten thousand lines.
    """

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
        return replace(self, purpose=purpose, replica=replica)

    @cached_property
    def config_key(self) -> str:
        """Names the configuration alone: the same values have the same key in every run and process."""
        values = [[name, value_to_json(value)] for name, value in self.values]
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @cached_property
    def key(self) -> str:
        """Names the question: configuration, purpose and replica."""
        return f"{self.config_key}.{self.purpose.value}.{self.replica}"
