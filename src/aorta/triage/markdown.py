"""matrix.md: what a person pastes into a ticket. Columns that would be empty are left out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aorta.core.durations import show_duration
from aorta.triage.statistics import STATEMENT, Call

if TYPE_CHECKING:
    from aorta.triage.matrix import MatrixReport, Row


def matrix_markdown(matrix: "MatrixReport") -> str:
    return in_sections(
        f"Triage Matrix - {matrix.plan.recipe.content.workload}",
        matrix.warnings,
        _header(matrix),
        ["## Reproduction Summary", "", *_table(matrix.rows)],
        _hints(matrix.rows),
        _notes(matrix),
    )


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


def _header(matrix: "MatrixReport") -> list[str]:
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


def _table(rows: Sequence["Row"]) -> list[str]:
    found = [_columns(row) for row in rows]
    titles = [title for title in found[0] if any(row[title] for row in found)]
    return aligned([titles, *([row[title] for title in titles] for row in found)])


def _hints(rows: Sequence["Row"]) -> list[str]:
    """The error line seen most in each cell, without what differs from run to run."""
    lines = [
        f"- `{row.name}`: {_one_line(hint)} ({times} of {row.stats.tally.trials})"
        for row in rows
        for hint, times in row.stats.hints[:1]
    ]
    return ["## Failure hints", "", *lines] if lines else []


def _notes(matrix: "MatrixReport") -> list[str]:
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


def _columns(row: "Row") -> dict[str, str]:
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
