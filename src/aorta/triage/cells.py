"""What the trials of one cell amount to, and how fast it is beside its baseline.

Cells are compared by their steps where both report them in the same way, else by how long clean
trials took. A cell is flagged as slower, since that hides races, if it is above the threshold and
the 95 % interval of the ratio lies above 1.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from aorta.core.failure import PATTERN, Failure, failure_from_json, same_failure
from aorta.core.oracle import ANOTHER_FAILURE
from aorta.core.stats import percentile, student_t
from aorta.core.templates import template
from aorta.core.trial import Outcome, Tally
from aorta.workloads.results import STEP_TIMES_SOURCE, TrialDocument

StepTimeSource = Literal["per_step", "printed", "elapsed_per_iter", "wall_clock_total", "missing"]
_BEST_FIRST: tuple[StepTimeSource, ...] = get_args(StepTimeSource)
_TRUSTED: tuple[StepTimeSource, ...] = ("per_step", "printed")
_MOST_STEPS_KEPT = 1000
_MOST_HINTS = 3
_DIGITS = 6


@dataclass(frozen=True)
class StepTimes:
    """As in matrix.json. Cells are compared by `per_trial`: steps of one trial are dependent."""

    per_trial: Sequence[float] = ()
    step_time_source: StepTimeSource = "missing"
    mean_step_time_ms: float = 0.0
    std_step_time_ms: float = 0.0
    min_step_time_ms: float = 0.0
    max_step_time_ms: float = 0.0
    p50_step_time_ms: float = 0.0
    p90_step_time_ms: float = 0.0
    p99_step_time_ms: float = 0.0
    steps_counted: int = 0
    step_times_ms: Sequence[float] = ()  # thinned out evenly when there are very many

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "per_trial"}


@dataclass(frozen=True)
class CellStats:
    tally: Tally = field(default_factory=Tally)
    step_times: StepTimes = field(default_factory=StepTimes)
    mean_wall_clock_sec: float = 0.0
    clean_seconds: Sequence[float] = ()
    exit_status_counts: dict[str, int] = field(default_factory=dict)
    hints: list[tuple[str, int]] = field(default_factory=list)
    first_error: str | None = None

    @property
    def failure_rate(self) -> float:
        """Reproductions among what is evidence; 0 for a cell that never ran."""
        return self.tally.reproduced / self.tally.evidence if self.tally.evidence else 0.0

    @property
    def error(self) -> str | None:
        """Why the cell never ran, in one line; None for one that did."""
        return None if self.tally.evidence else self.first_error or "no trial was run"


def aggregate_cell(
    documents: Iterable[TrialDocument], steps: int | None = None, *, expected: Failure | None = None
) -> CellStats:
    """What the trials of a cell amount to; `expected`: the baseline's failure, as last known."""
    trials = [(document, outcome_of(document, expected)) for document in documents]
    errors = [document for document, outcome in trials if outcome is Outcome.ERROR]
    hints = Counter(hint_of(d) for d, outcome in trials if outcome is not Outcome.CLEAN)
    walls = [document.wall_clock_sec for document, _ in trials]
    statuses = Counter(document.exit_status for document, _ in trials)
    return CellStats(
        tally=Tally.of(outcome for _, outcome in trials),
        step_times=_summary(
            [step_times_of(d, steps) for d, outcome in trials if outcome is not Outcome.ERROR]
        ),
        mean_wall_clock_sec=statistics.fmean(walls) if walls else 0.0,
        clean_seconds=[d.wall_clock_sec for d, outcome in trials if outcome is Outcome.CLEAN],
        exit_status_counts=dict(sorted(statuses.items())),
        hints=hints.most_common(_MOST_HINTS),
        first_error=next((line for d in errors if (line := first_line(d.why))), None),
    )


def outcome_of(document: TrialDocument, expected: Failure | None) -> Outcome:
    """The outcome by the failure as last known; one not fired, or named by a pattern, stays."""
    outcome, failure = Outcome(document.outcome), failure_from_json(document.failure)
    fired = outcome is Outcome.REPRODUCED or document.why.startswith(ANOTHER_FAILURE)
    if not fired or expected is None or failure is None or failure.told_by == PATTERN:
        return outcome
    return Outcome.REPRODUCED if same_failure(expected, failure) else Outcome.OTHER


def step_times_of(
    document: TrialDocument, steps: int | None
) -> tuple[StepTimeSource, Sequence[float]]:
    """The step times of one trial in ms, by the best of four ways to know them."""
    result = document.workload_result
    if result.step_times_ms:
        printed = result.metrics.get(STEP_TIMES_SOURCE) == "output"
        return "printed" if printed else "per_step", result.step_times_ms
    if result.total_iterations and result.elapsed_sec:
        return "elapsed_per_iter", [1000 * result.elapsed_sec / result.total_iterations]
    if steps:
        return "wall_clock_total", [1000 * document.wall_clock_sec / steps]
    return "missing", []


def hint_of(document: TrialDocument) -> str:
    """The failure in one line, without what differs from run to run."""
    if document.signature and " | " in document.signature:
        return document.signature.removeprefix("workload | ")
    return template(first_line(document.why)) or document.signature or ""


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _summary(samples: Sequence[tuple[StepTimeSource, Sequence[float]]]) -> StepTimes:
    used = [(source, values) for source, values in samples if values]
    if not used:
        return StepTimes()
    ordered = sorted(value for _, values in used for value in values)
    every = math.ceil(len(ordered) / _MOST_STEPS_KEPT)
    figures = {
        "mean": statistics.fmean(ordered),
        "std": statistics.pstdev(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        **{f"p{share}": percentile(ordered, share / 100) for share in (50, 90, 99)},
    }
    return StepTimes(
        per_trial=[statistics.fmean(values) for _, values in used],
        step_time_source=max((source for source, _ in used), key=_BEST_FIRST.index),
        steps_counted=len(ordered),
        step_times_ms=[round(value, _DIGITS) for value in ordered[::every]],
        **{f"{name}_step_time_ms": round(value, _DIGITS) for name, value in figures.items()},
    )


CONFIDENCE = 0.95


@dataclass(frozen=True)
class Speed:
    """The tag of the matrix, and the ratio behind it where there is one."""

    tag: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    by: Literal["steps", "clean trials"] | None = None


def speed_of(
    cell: CellStats, baseline: CellStats, threshold: float, *, is_baseline: bool = False
) -> Speed:
    """`n/a` where the ratio cannot be known, never the `-` of "no reason to doubt"."""
    if cell.error is not None:
        return Speed("error")
    if is_baseline:
        return Speed("(baseline)")
    compared = _comparable(cell, baseline)
    if compared is None:
        return Speed("n/a")
    ratio, interval = compared.ratio or 0.0, compared.interval
    if ratio > threshold and interval is None:
        return compared
    if ratio > threshold and interval is not None and interval[0] > 1:
        return replace(compared, tag=f"speed (+{round((ratio - 1) * 100)}%)")
    tag = "no effect" if cell.failure_rate >= baseline.failure_rate else "-"
    return replace(compared, tag=tag)


def ratio_interval(cell: Sequence[float], baseline: Sequence[float]) -> tuple[float, float] | None:
    """Welch's interval of the ratio, on logarithms of trial means; None without spread."""
    if min(len(cell), len(baseline)) < 2 or min(*cell, *baseline) <= 0:
        return None
    logs = [[math.log(value) for value in side] for side in (cell, baseline)]
    difference = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    errors = [statistics.variance(side) / len(side) for side in logs]
    # Welch and Satterthwaite's degrees of freedom, rounded down.
    most = len(cell) + len(baseline) - 2
    parts = sum(error**2 / (len(side) - 1) for error, side in zip(errors, logs, strict=True))
    freedom = min(most, math.floor(sum(errors) ** 2 / parts)) if parts else most
    half = student_t(CONFIDENCE, max(1, freedom)) * math.sqrt(sum(errors))
    return math.exp(difference - half), math.exp(difference + half)


def _comparable(cell: CellStats, baseline: CellStats) -> Speed | None:
    """The ratio by what both sides tell in the same way; None where there is no such thing."""
    if baseline.error is not None:
        return None
    mine, others = cell.step_times, baseline.step_times
    source, means = mine.step_time_source, (mine.mean_step_time_ms, others.mean_step_time_ms)
    if source == others.step_time_source and source in _TRUSTED and all(means):
        interval = ratio_interval(mine.per_trial, others.per_trial)
        return Speed("n/a", means[0] / means[1], interval, "steps")
    if not cell.clean_seconds or not baseline.clean_seconds:
        return None
    seconds = statistics.fmean(cell.clean_seconds), statistics.fmean(baseline.clean_seconds)
    if min(seconds) <= 0:
        return None
    interval = ratio_interval(cell.clean_seconds, baseline.clean_seconds)
    return Speed("n/a", seconds[0] / seconds[1], interval, "clean trials")
