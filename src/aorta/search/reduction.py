"""What a descent has found: plain data for reports."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from aorta.core.axis import Axis, ChoiceAxis, Point, Value, size_at_floor
from aorta.core.trial import Verdict


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
    rarer: bool = False  # with less of it the failure is far rarer than in the original
    ignored: bool = False  # it fails the same with nonsense in its place

    @property
    def moved(self) -> bool:
        return self.final != self.axis.initial

    @property
    def at_floor(self) -> bool:
        return self.axis.size(self.final) <= size_at_floor(self.axis)


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

    def with_ignored(self, ignored: Collection[str]) -> "Reduction":
        """With these axes marked as ignored; where nothing else is smaller, nothing was reduced.
        A choice counts all the same: what it does not know a program may take for the default.
        """
        if not ignored:
            return self
        axes = tuple(replace(f, ignored=f.axis.name in ignored) for f in self.axes)
        if any(f.moved and (not f.ignored or isinstance(f.axis, ChoiceAxis)) for f in axes):
            return replace(self, axes=axes)
        axes = tuple(replace(f, final=f.axis.initial) for f in axes)
        names = ", ".join(sorted(ignored))
        why = f"nothing was reduced: it fails the same with nonsense in the place of {names}"
        return replace(self, best=self.original, axes=axes, status=Status.NOT_REDUCED, why=why)
