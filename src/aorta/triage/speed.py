"""Does a mitigation mend, or does it only slow? Races go away when things are slower, whatever made them so.

A ratio is trusted only if both sides counted steps: a wall clock measures crashes as well as work. It is flagged only if
it is above the threshold and its 95 % interval lies above 1; with two noisy trials a side nothing is flagged.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from aorta.core.stats import student_t
from aorta.triage.cells import CellStats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Speed:
    """The tag of the matrix, and the ratio behind it where there is one."""

    tag: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def is_flagged(self) -> bool:
        return self.tag.startswith("speed (")


def speed_of(
    cell: CellStats, baseline: CellStats, threshold: float, *, is_baseline: bool = False
) -> Speed:
    """`n/a` is said wherever the ratio cannot be known, never the `-` that means "no reason to doubt"."""
    if cell.error is not None:
        return Speed("error")
    if is_baseline:
        return Speed("(baseline)")
    ratio = _ratio(cell, baseline)
    if ratio is None:
        return Speed("n/a")
    interval = ratio_interval(cell.step_times.per_trial, baseline.step_times.per_trial)
    if ratio > threshold and interval is None:
        return Speed("n/a", ratio)
    if ratio > threshold and interval is not None and interval[0] > 1:
        return Speed(f"speed (+{round((ratio - 1) * 100)}%)", ratio, interval)
    tag = "no effect" if cell.failure_rate >= baseline.failure_rate else "-"
    return Speed(tag, ratio, interval)


def ratio_interval(cell: Sequence[float], baseline: Sequence[float]) -> tuple[float, float] | None:
    """Welch's interval of the ratio, on logarithms of the mean of each trial; None where no spread is known."""
    if len(cell) + len(baseline) < 3 or min(*cell, *baseline) <= 0:
        return None
    logs = [[math.log(value) for value in side] for side in (cell, baseline)]
    difference = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    # A side with one trial is taken to scatter like the other one.
    spreads = [statistics.variance(side) if len(side) > 1 else None for side in logs]
    known = [spread for spread in spreads if spread is not None]
    errors = [
        (spread if spread is not None else known[0]) / len(side)
        for spread, side in zip(spreads, logs, strict=True)
    ]
    half = student_t(CONFIDENCE, _freedom(errors, logs)) * math.sqrt(sum(errors))
    return math.exp(difference - half), math.exp(difference + half)


def _freedom(errors: Sequence[float], sides: Sequence[Sequence[float]]) -> int:
    """Welch and Satterthwaite's degrees of freedom, rounded down."""
    parts = [
        error**2 / (len(side) - 1)
        for error, side in zip(errors, sides, strict=True)
        if len(side) > 1
    ]
    most = sum(len(side) - 1 for side in sides)
    if not sum(parts):
        return max(1, most)
    return max(1, min(most, math.floor(sum(errors) ** 2 / sum(parts))))


def _ratio(cell: CellStats, baseline: CellStats) -> float | None:
    both = (cell.step_times, baseline.step_times)
    if baseline.error is not None or any(times.source != "per_step" for times in both):
        return None
    if any(times.mean <= 0 for times in both):
        return None
    return cell.step_times.mean / baseline.step_times.mean
