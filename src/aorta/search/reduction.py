"""What a descent has found: plain data for reports."""

from dataclasses import dataclass
from enum import StrEnum

from aorta.core.axis import Axis
from aorta.core.outcome import Verdict
from aorta.core.point import Point, Value


class Status(StrEnum):
    RUNNING = "running"  # not finished: what is known is a partial result
    REDUCED = "reduced"  # smaller, and confirmed with fresh trials
    NOT_REDUCED = "not_reduced"  # nothing could be made smaller
    DID_NOT_REPRODUCE = "did_not_reproduce"  # the original does not fail
    UNCONFIRMED = "unconfirmed"  # smaller, but the confirmation could not be told
    LOST = "lost"  # what failed before no longer does: the evidence contradicts itself


@dataclass(frozen=True)
class AxisFacts:
    """One axis: where it began, where it ended, and what was noticed on the way."""

    axis: Axis
    final: Value
    monotone: bool | None = None  # None: not seen
    trials: int = 0
    candidates: int = 0
    unresolved: int = 0  # points that could not be told

    @property
    def moved(self) -> bool:
        return self.final != self.axis.initial

    @property
    def at_floor(self) -> bool:
        return self.final == self.axis.smallest


@dataclass(frozen=True)
class Reduction:
    status: Status
    why: str
    original: Point
    best: Point
    accepted: tuple[Point, ...]  # the original first, `best` last
    axes: tuple[AxisFacts, ...]
    calibration: Verdict | None
    confirmation: Verdict | None
    trials: int
    candidates: int
    setbacks: int  # how often an accepted point failed its replay or confirmation
