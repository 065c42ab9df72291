"""What a descent has found: plain data for reports."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from aorta.core.axis import Axis, Point, Value
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
    ignored: bool = False  # it fails the same with nonsense in its place

    @property
    def moved(self) -> bool:
        return self.final != self.axis.initial

    @property
    def at_floor(self) -> bool:
        return self.axis.size(self.final) <= self.axis.size_at_floor


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

    def without(self, ignored: Collection[str]) -> "Reduction":
        """The same with these axes as they were: whatever their value, it fails the same, so they
        were not reduced.
        """
        if not ignored:
            return self
        best = self.best
        for facts in self.axes:
            if facts.axis.name in ignored:
                best = best.with_value(facts.axis.name, facts.axis.initial)
        axes = tuple(
            replace(facts, final=facts.axis.initial, ignored=True)
            if facts.axis.name in ignored
            else facts
            for facts in self.axes
        )
        names = ", ".join(sorted(ignored))
        if best == self.original:
            why = f"nothing smaller was tried: the command does not read {names}"
            return replace(self, best=best, axes=axes, status=Status.NOT_REDUCED, why=why)
        return replace(self, best=best, axes=axes)
