"""The matrix as data: every cell with its counts, its comparison and its speed; `content` is
matrix.json.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from aorta.core.errors import Exit
from aorta.core.failure import Failure, failure_to_json
from aorta.core.stats import wilson
from aorta.core.trial import Tally
from aorta.engine.events import Ending, Reason
from aorta.scrub.secrets import safe_value
from aorta.triage.cells import CellStats, Speed, speed_of
from aorta.triage.plan import Plan, PlannedCell
from aorta.triage.recipe import SCHEMA_VERSION
from aorta.triage.statistics import (
    ANY_WRONG_CALL,
    SIDE_ALPHA,
    STATEMENT,
    Call,
    Caps,
    CellComparison,
    Stopping,
    can_decide,
    compare_all,
)
from aorta.workloads.trial import describe_environment


@dataclass(frozen=True)
class Row:
    """One cell of the matrix."""

    cell: PlannedCell
    stats: CellStats
    comparison: CellComparison
    speed: Speed
    numbers: Sequence[int]
    resumed: int = 0
    note: str = ""
    interval: tuple[float, float] = (0.0, 1.0)  # of the failure rate

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def confound(self) -> str:
        """What its speed says of it; of its rate, nothing that the call does not."""
        if self.comparison.call is Call.DID_NOT_RUN:
            return "did_not_run"
        unknown = self.comparison.call is Call.NOT_KNOWN and self.speed.tag == Call.NO_EFFECT
        return "-" if unknown else self.speed.tag

    def to_json(self) -> dict[str, Any]:
        stats, tally, cell = self.stats, self.stats.tally, self.cell
        low, high = self.interval
        return {
            "name": self.name,
            "mitigations": list(cell.cell.mitigations),
            "environment": cell.environment.name,
            "extra_env": _shown(cell.cell.extra_env),
            "workload_config": dict(cell.cell.workload_config),
            "resolved_env_vars": _shown(cell.env),
            "resolved_environment": {
                **describe_environment(cell.environment),
                "inline": cell.environment.source == "inline",
            },
            "trials": tally.trials,
            "trials_allowed": cell.trials,
            "passed_count": tally.clean,
            "failed_count": tally.reproduced,
            "other_count": tally.other,
            "error_count": tally.error,
            "error_rate": round(tally.error / tally.trials, 4) if tally.trials else 0.0,
            "unreliable": stats.unreliable and tally.error > 0,
            "failure_rate": round(stats.failure_rate, 4),
            "interval": {"low": round(low, 4), "high": round(high, 4), "confidence": 0.95},
            "call": self.comparison.call.value,
            "why": self.comparison.why,
            "p_value": _rounded(self.comparison.p),
            "p_value_holm": _rounded(self.comparison.p_adjusted),
            "p_value_no_cure": _rounded(self.comparison.p_no_cure),
            "trials_needed": self.comparison.needed,
            "inert": cell.inert,
            **_step_times(stats),
            "step_time_ratio": _rounded(self.speed.ratio),
            "step_time_ratio_by": self.speed.by,
            "step_time_ratio_interval": _pair(self.speed.interval),
            "confound": self.confound,
            "mean_wall_clock_sec": round(stats.mean_wall_clock_sec, 6),
            "exit_status_counts": dict(stats.exit_status_counts),
            "outcome_counts": dict(stats.outcome_counts),
            "failure_hints": [list(hint) for hint in stats.hints],
            "trial_paths": [str(cell.trial_file(number)) for number in self.numbers],
            "error": stats.error,
            "stop_after_note": self.note or None,
            "resumed": self.resumed > 0,
            "resumed_trials": self.resumed,
        }


@dataclass(frozen=True, kw_only=True)
class TriageReport(ABC):
    """What a triage says in either mode, and where the run lies."""

    NAME: ClassVar[str]  # of its two files
    SCHEMA: ClassVar[str]

    plan: Plan
    ending: Ending
    created: str
    run_dir: Path
    warnings: Sequence[str] = ()
    failure: Failure | None = None  # of what runs without mitigations

    @property
    @abstractmethod
    def no_answer(self) -> str | None:
        """Why a run that went to its end has no answer."""

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not Reason.DONE:
            return self.ending.exit_code
        return Exit.NO_ANSWER if self.no_answer else Exit.OK

    @property
    def page(self) -> Path:
        return self.run_dir / f"{self.NAME}.md"

    def to_json(self) -> dict[str, Any]:
        return {**self.content(), "run_dir": str(self.run_dir)}

    def content(self) -> dict[str, Any]:
        """Of its JSON file, which may be moved."""
        recipe = self.plan.recipe.content
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.ending.reason.value,
            "warm": self.ending.warm_to_json(),
            "workload": recipe.workload,
            "ticket": recipe.ticket,
            "run_timestamp": self.created,
            "warnings": list(self.warnings),
            "signature": self.failure.text if self.failure else None,
            "failure": failure_to_json(self.failure),
            **self.answer(),
        }

    @abstractmethod
    def answer(self) -> dict[str, Any]:
        """What this mode alone says."""


@dataclass(frozen=True, kw_only=True)
class MatrixReport(TriageReport):
    """Every cell of a run beside its baseline."""

    NAME = "matrix"
    SCHEMA = "aorta.triage/1"

    rows: Sequence[Row]

    @property
    def baseline(self) -> Row:
        return next(row for row in self.rows if row.name == self.plan.baseline.name)

    @property
    def did_not_run(self) -> list[str]:
        return [row.name for row in self.rows if row.comparison.call is Call.DID_NOT_RUN]

    @property
    def resumed_trials(self) -> int:
        return sum(row.resumed for row in self.rows)

    @property
    def other_failures(self) -> Counter[str]:
        """What the trials of all cells said that failed, and not with the baseline's failure."""
        return sum((row.stats.others for row in self.rows), Counter[str]())

    @property
    def trials_saved(self) -> int:
        """Trials that were allowed and not run, because the answer of their cell was decided
        without them.
        """
        if self.ending.reason is not Reason.DONE:
            return 0
        ran = [row for row in self.rows if row.comparison.call is not Call.DID_NOT_RUN]
        return sum(max(0, row.cell.trials - row.stats.tally.evidence) for row in ran)

    @property
    def no_answer(self) -> str | None:
        if self.baseline.comparison.call is not Call.DID_NOT_RUN:
            return None
        return f"the baseline {self.baseline.name} did not run: {self.baseline.stats.error}"

    def answer(self) -> dict[str, Any]:
        recipe = self.plan.recipe
        content = recipe.content
        return {
            "trials_per_cell": content.trials,
            "exact_trials": content.exact_trials,
            "trials_saved": self.trials_saved,
            "steps_per_trial": content.steps,
            "baseline_cell": self.plan.baseline.name,
            "confound": {
                "threshold": content.confound.threshold,
                "baseline_cell_configured": content.confound.baseline_cell,
            },
            "significance": {
                "test": "fisher",
                "sides": 1,
                "correction": "holm",
                "alpha": SIDE_ALPHA,
                "any_wrong_call": ANY_WRONG_CALL,
                "statement": STATEMENT,
            },
            "other_failures": [list(kind) for kind in self.other_failures.most_common()],
            "recipe_source": {
                "path": str(recipe.source) if recipe.source else None,
                "sha256": recipe.sha256,
            },
            "resumed_trials": self.resumed_trials,
            "cells": [row.to_json() for row in self.rows],
        }


def matrix_rows(
    plan: Plan,
    measured: Mapping[str, CellStats],
    independent: Mapping[str, Tally],
    resumed: Mapping[str, int],
    numbers: Callable[[str], Collection[int]],
) -> list[Row]:
    """The cells of a plan. `independent` is what tests may rest on: forks of one server are one
    start; `numbers` are those of a cell's trials."""
    base = plan.baseline.name
    comparisons = compare_all(independent, base, plan.inert)
    threshold = plan.recipe.content.confound.threshold
    return [
        Row(
            cell=cell,
            stats=stats,
            comparison=comparisons[cell.name],
            speed=speed_of(stats, measured[base], threshold, is_baseline=cell.name == base),
            numbers=sorted(numbers(cell.name)),
            resumed=resumed.get(cell.name, 0),
            note=Stopping(plan).note(cell.name, stats.tally),
            interval=wilson(stats.tally.reproduced, stats.tally.evidence),
        )
        for cell in plan.cells
        for stats in [measured[cell.name]]
    ]


def doubts(plan: Plan, rows: Sequence[Row]) -> list[str]:
    """What a reader must know before believing any row."""
    return [*_of_the_baseline(plan, rows), *_lost_cells(rows)]


def _of_the_baseline(plan: Plan, rows: Sequence[Row]) -> list[str]:
    baseline = next(row for row in rows if row.name == plan.baseline.name)
    tally, said = baseline.stats.tally, []
    if not tally.evidence:
        said.append(f"the baseline {baseline.name} did not run: nothing can be compared with it")
    elif not tally.reproduced:
        said.append(
            f"the baseline {baseline.name} never failed in {tally.evidence} trials: "
            "no mitigation can be seen to work"
        )
    trials = min((cell.trials for cell in plan.cells), default=0)
    compared = len(plan.cells) - 1 - len(plan.inert)
    caps = Caps(trials, plan.baseline.trials, max(1, compared))
    if compared and not can_decide(caps):
        said.append(
            f"{trials} trials a cell cannot settle anything: {trials} of {trials} against 0 of "
            f"{trials} may be luck; with {compared} compared cell{'s' if compared > 1 else ''} at "
            f"least {caps.floor + 1} are needed"
        )
    return said


def _lost_cells(rows: Sequence[Row]) -> list[str]:
    return [
        f"{row.name}: {row.stats.tally.error} of {row.stats.tally.trials} trials ended in an "
        "error and are no evidence"
        for row in rows
        if row.stats.tally.error and row.stats.tally.evidence and row.stats.unreliable
    ]


def _step_times(stats: CellStats) -> dict[str, Any]:
    times = stats.step_times
    return {
        "step_time_source": times.source,
        "mean_step_time_ms": round(times.mean, 6),
        "std_step_time_ms": round(times.std, 6),
        "min_step_time_ms": round(times.low, 6),
        "max_step_time_ms": round(times.high, 6),
        "p50_step_time_ms": round(times.p50, 6),
        "p90_step_time_ms": round(times.p90, 6),
        "p99_step_time_ms": round(times.p99, 6),
        "steps_counted": times.count,
        "step_times_ms": [round(value, 6) for value in times.steps],
    }


def _shown(env: Mapping[str, str]) -> dict[str, str]:
    return {name: safe_value(name, env[name]) for name in sorted(env)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _pair(interval: tuple[float, float] | None) -> list[float | None] | None:
    return None if interval is None else [_rounded(bound) for bound in interval]
