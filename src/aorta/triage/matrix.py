"""The matrix: which trial is next, and every cell with its counts and speed (matrix.json, .md)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.core.axis import Point
from aorta.core.durations import show_duration
from aorta.core.stats import wilson
from aorta.core.trial import TrialSpec
from aorta.engine.events import PointDecided, TrialRecord
from aorta.engine.judge import EveryTrial, SameJudge
from aorta.engine.question import Answer, Budget, of_independent_starts
from aorta.registry.mitigations import shown_env
from aorta.scrub.secrets import safe_value
from aorta.search.repeated import Interleaved, cell_of
from aorta.triage.cells import CellStats, Speed, aggregate_cell, speed_of
from aorta.triage.plan import Plan, PlannedCell, Schedule, TriageReport
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
from aorta.workloads.results import TrialLabel, read_trial
from aorta.workloads.trial import WorkloadRequest, describe_environment


class MatrixRun:
    """The experiment of a matrix: a point names a cell, and the cell knows what it runs."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.fingerprint = plan, plan.fingerprint
        self.oracle = plan.baseline.experiment.deciding
        self.judges = SameJudge(EveryTrial(1))
        self.search = self.cells = Interleaved(
            plan.names, place=Schedule(plan).place, is_open=Stopping(plan).is_open
        )

    def rules(self, budget: Budget) -> dict[str, Any]:
        """A trial that could not be told is another trial of its cell."""
        return {
            "budget": replace(budget, retries=0),
            "must_tell": True,
            "tolerant": True,
            "shows_it": lambda point: cell_of(point) == self.plan.baseline.name,
        }

    def describe(self) -> Iterator[str]:
        plan = self.plan
        workload = plan.recipe.content.workload
        yield f"{len(plan.cells)} cells of {workload}, baseline {plan.baseline.name}"
        for cell in plan.cells:
            place = cell.environment
            kind = " ".join(filter(None, (place.kind.value, place.image or place.venv)))
            yield f"{cell.name}: at most {cell.trials} trials in {place.name} ({kind})"
            if cell.env:
                yield f"  sets       {shown_env(cell.env)}"
            if cell.inert is not None:
                yield f"  inert      {cell.inert}"
        most = sum(cell.trials for cell in plan.cells)
        yield f"at most {most} trials; a cell stops earlier once its answer is decided"

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        experiment = self.plan.by_name[cell_of(point)].experiment
        return experiment.trial(Point.of({}), point.replica + index, trial_dir)

    def place(self, record: TrialRecord) -> tuple[PlannedCell, WorkloadRequest, TrialLabel, Path]:
        cell, number = self.plan.by_name[cell_of(record.point)], record.point.replica
        return cell, cell.request, cell.label(number), cell.trial_file(number)

    def decided(self, event: PointDecided) -> None:
        """Every trial decides its own point; saying so would repeat its outcome."""

    def report(
        self, answer: Answer, run_dir: Path, created: str, warnings: Sequence[str]
    ) -> "MatrixReport":
        rows = self._rows(answer, run_dir)
        return MatrixReport(
            plan=self.plan,
            rows=rows,
            ending=answer.ending,
            created=created,
            run_dir=run_dir,
            warnings=[
                *_doubts_of_baseline(self.plan.baseline.name, rows),
                *_too_few_trials(self.plan),
                *warnings,
            ],
            failure=answer.expected,
        )

    def _rows(self, answer: Answer, run_dir: Path) -> list["Row"]:
        """What tests rest on are independent starts: forks of one server are one."""
        plan, base = self.plan, self.plan.baseline.name
        records: dict[str, list[TrialRecord]] = {name: [] for name in plan.names}
        for record in answer.records:
            records[cell_of(record.point)].append(record)
        used = {cell.name: sorted(self.cells.recorded(cell.name)) for cell in plan.cells}
        measured = {
            cell.name: aggregate_cell(
                (read_trial(run_dir / cell.trial_file(number)) for number in used[cell.name]),
                cell.request.steps,
                expected=answer.expected,
            )
            for cell in plan.cells
        }
        independent = {
            name: of_independent_starts(stats.tally, records[name])
            for name, stats in measured.items()
        }
        comparisons = compare_all(independent, base, plan.inert)
        resumed = Counter(
            cell_of(record.point) for record in answer.records[: answer.ending.resumed_trials]
        )
        threshold = plan.recipe.content.confound.threshold
        return [
            Row(
                cell=cell,
                stats=stats,
                comparison=comparisons[cell.name],
                speed=speed_of(stats, measured[base], threshold, is_baseline=cell.name == base),
                numbers=used[cell.name],
                resumed=resumed[cell.name],
            )
            for cell in plan.cells
            for stats in [measured[cell.name]]
        ]


@dataclass(frozen=True)
class Row:
    """One cell of the matrix."""

    cell: PlannedCell
    stats: CellStats
    comparison: CellComparison
    speed: Speed
    numbers: Sequence[int]
    resumed: int = 0

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def interval(self) -> tuple[float, float]:
        """Of the failure rate, 95 %."""
        return wilson(self.stats.tally.reproduced, self.stats.tally.evidence)

    @property
    def confound(self) -> str:
        """What its speed says of it; of its rate, nothing that the call does not."""
        if self.comparison.call is Call.DID_NOT_RUN:
            return "did_not_run"
        said_of_rate = self.speed.tag == Call.NO_EFFECT
        return (
            "-" if said_of_rate and self.comparison.call is not Call.NO_EFFECT else self.speed.tag
        )

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
            "failure_rate": round(tally.rate, 4),
            "interval": {"low": round(low, 4), "high": round(high, 4), "confidence": 0.95},
            "call": self.comparison.call.value,
            "why": self.comparison.why,
            "p_value": _rounded(self.comparison.p),
            "p_value_holm": _rounded(self.comparison.p_adjusted),
            "p_value_no_cure": _rounded(self.comparison.p_no_cure),
            "inert": cell.inert,
            **stats.step_times.to_json(),
            "step_time_ratio": _rounded(self.speed.ratio),
            "step_time_ratio_by": self.speed.by,
            "confound": self.confound,
            "mean_wall_clock_sec": round(stats.mean_wall_clock_sec, 6),
            "exit_status_counts": dict(stats.exit_status_counts),
            "failure_hints": [list(hint) for hint in stats.hints],
            "trial_paths": [str(cell.trial_file(number)) for number in self.numbers],
            "error": stats.error,
            "resumed": self.resumed > 0,
            "resumed_trials": self.resumed,
        }


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
    def no_answer(self) -> str | None:
        if self.baseline.comparison.call is not Call.DID_NOT_RUN:
            return None
        return f"the baseline {self.baseline.name} did not run: {self.baseline.stats.error}"

    def markdown(self) -> str:
        return in_sections(
            f"Triage Matrix - {self.plan.recipe.content.workload}",
            self.warnings,
            _header(self),
            ["## Reproduction Summary", "", *_table(self.rows)],
            _hints(self.rows),
            _notes(self),
        )

    def answer(self) -> dict[str, Any]:
        recipe = self.plan.recipe
        content = recipe.content
        return {
            "trials_per_cell": content.trials,
            "steps_per_trial": content.steps,
            "baseline_cell": self.plan.baseline.name,
            "confound": {
                "threshold": content.confound.threshold,
                "baseline_cell_configured": content.confound.baseline_cell,
            },
            "significance": {
                "alpha": SIDE_ALPHA,
                "any_wrong_call": ANY_WRONG_CALL,
                "statement": STATEMENT,
            },
            "recipe_source": {
                "path": str(recipe.source) if recipe.source else None,
                "sha256": recipe.sha256,
            },
            "resumed_trials": sum(row.resumed for row in self.rows),
            "cells": [row.to_json() for row in self.rows],
        }


def _doubts_of_baseline(baseline: str, rows: Sequence[Row]) -> Iterator[str]:
    tally = next(row.stats.tally for row in rows if row.name == baseline)
    if not tally.evidence:
        yield f"the baseline {baseline} did not run: nothing can be compared with it"
    elif not tally.reproduced:
        never = "showed this failure" if tally.other else "failed"
        otherwise = f", and failed in another way in {tally.other}" if tally.other else ""
        yield (
            f"the baseline {baseline} never {never} in {tally.evidence} trials{otherwise}: "
            "no mitigation can be seen to work"
        )


def _too_few_trials(plan: Plan) -> Iterator[str]:
    """Of cells that could not be called `works` however clear it was; `no effect` takes fewer."""
    compared = [
        cell for cell in plan.cells if cell is not plan.baseline and cell.name not in plan.inert
    ]
    caps = {cell.name: Caps(cell.trials, plan.baseline.trials, len(compared)) for cell in compared}
    few = [name for name, cap in caps.items() if not can_decide(cap)]
    if not few:
        return
    most = max((caps[name] for name in few), key=lambda cap: cap.cell)
    which = "anything works" if len(few) == len(compared) else f"{' or '.join(few)} works"
    yield (
        f"{most.cell} trials a cell cannot show that {which}: {most.baseline} of {most.baseline} "
        f"against 0 of {most.cell} may be luck; with {len(compared)} compared "
        f"cell{'s' if len(compared) > 1 else ''} at least {most.floor + 1} are needed"
    )


def _shown(env: Mapping[str, str]) -> dict[str, str]:
    return {name: safe_value(name, env[name]) for name in sorted(env)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


# -- matrix.md: what a person pastes into a ticket; columns that would be empty are left out


def in_sections(title: str, warnings: Sequence[str], *sections: Sequence[str]) -> str:
    """One document; a section without lines is left out."""
    warned = [["> [!WARNING]", f"> {_one_line(warning)}"] for warning in warnings]
    parts = [[f"# {title}"], *warned, *sections]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def escaped(text: str) -> str:
    """As one cell of a table."""
    return _one_line(text).replace("\\", "\\\\").replace("|", "\\|")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table that is readable as plain text too; the first row is its head."""
    head, *others = [[escaped(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *others, strict=True)]
    rule = ["-" * width for width in widths]
    return [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in (head, rule, *others)]


def _header(matrix: MatrixReport) -> list[str]:
    recipe = matrix.plan.recipe
    content = recipe.content
    source = f"{recipe.source} (sha256 {(recipe.sha256 or '')[:10]})" if recipe.source else None
    trials = sum(row.stats.tally.trials for row in matrix.rows)
    lines = [
        *([f"- Ticket: {content.ticket}"] if content.ticket else []),
        f"- Workload: {content.workload}",
        f"- Recipe: {source or '(flag-mode; in-memory)'}",
        f"- Trials per cell: {content.trials} at most",
        f"- Baseline cell: {matrix.plan.baseline.name}",
        f"- Trials run: {trials} in {show_duration(matrix.ending.seconds)}",
    ]
    if matrix.ending.detail:
        lines.append(f"- **Not finished**: {_one_line(matrix.ending.detail)}")
    return lines


def _table(rows: Sequence[Row]) -> list[str]:
    found = [_columns(row) for row in rows]
    titles = [title for title in found[0] if any(row[title] for row in found)]
    return aligned([titles, *([row[title] for title in titles] for row in found)])


def _hints(rows: Sequence[Row]) -> list[str]:
    """The error line seen most in each cell, without what differs from run to run."""
    lines = [
        f"- `{row.name}`: {_one_line(hint)} ({times} of {row.stats.tally.trials})"
        for row in rows
        for hint, times in row.stats.hints[:1]
    ]
    return ["## Failure hints", "", *lines] if lines else []


def _notes(matrix: MatrixReport) -> list[str]:
    whys = [(row.name, row.comparison.why) for row in matrix.rows]
    return [
        "## Notes",
        "",
        (
            "- Rates are of trials that ran; failures other than this one (`Other`) and trials "
            "that could not be told (`Errors`) are never counted as reproductions. p is one-sided "
            "in the direction seen, and corrected for the number of cells."
        ),
        f"- Sure of all of it: {STATEMENT}.",
        "- `speed (+N%)`: slower than the baseline, and a race may hide behind that.",
        *(f"- `{name}`: {_one_line(why)}" for name, why in whys if why),
        (
            "- `recipe.resolved.yaml` (beside this file) runs this matrix again. Images named in "
            "it and copied sidecars stay what they are; names of built-in and plugin mitigations "
            "and environments mean what they mean then: compare `resolved_env_vars` in matrix.json."
        ),
    ]


def _columns(row: Row) -> dict[str, str]:
    tally, environment, ran = row.stats.tally, row.cell.environment, row.stats.tally.evidence
    (low, high), p = row.interval, row.comparison.p_adjusted
    mean = row.stats.step_times.mean_step_time_ms
    inline = environment.source == "inline"
    lost = row.comparison.call is Call.DID_NOT_RUN
    return {
        "Cell": row.name,
        "Mitigations": " + ".join(row.cell.cell.mitigations),
        "Environment": str(environment.image) if inline else environment.name,
        "Failure rate": f"{round(100 * tally.rate)}%" if ran else "n/a",
        "Failures": f"{tally.reproduced} / {ran}" if ran else "n/a",
        "95 %": f"{100 * low:.0f}-{100 * high:.0f}%" if ran else "n/a",
        "p": "" if p is None else f"{p:.2g}",
        "Mean step (ms)": f"{mean:.4g}" if mean else "n/a",
        "Confound": row.confound,
        "Answer": f"did not run: {row.stats.error}" if lost else row.comparison.call.value,
        "Other": str(tally.other or ""),
        "Errors": str(tally.error or ""),
        "Steps": str(row.cell.cell.steps or ""),
        "Resumed": str(row.resumed or ""),
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
