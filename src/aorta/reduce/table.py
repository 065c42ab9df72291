"""The end of a reduction in a few lines for people."""

from collections.abc import Sequence
from typing import Any

from aorta.core.durations import show_duration
from aorta.engine.journal import failed_differently
from aorta.reduce.checks import IGNORED
from aorta.reduce.report import ReduceReport, axis_row
from aorta.search.reduction import Status

_HEAD = ("axis", "from", "to", "trials", "")
_HEADLINES = {
    "reduced": "reduced",
    "not_reduced": "not reduced: nothing smaller fails",
    "did_not_reproduce": "the failure did not reproduce",
    "partial": "partial: stopped before the answer was sure",
}

_UNSURE = {
    Status.UNCONFIRMED: "unconfirmed: smaller, but it could not be made sure that this still fails",
    Status.LOST: "lost: what failed before no longer does, so nothing that was found is sure",
}


def summary_lines(report: ReduceReport, *, kept: bool) -> list[str]:
    """`kept`: the run directory is still there to be named."""
    reduction = report.reduction
    headline = _UNSURE.get(reduction.status) or _headline(report)
    lines = [f"{headline} ({report.why})" if report.why else headline]
    if report.shipped.reproduces is False and report.shipped.why:
        lines.append(f"what ships {report.shipped.why}")
    if report.has_reproducer:
        rows = [_axis_cells(axis_row(facts)) for facts in reduction.axes]
        lines += _aligned([_HEAD, *rows])
    lines += _rate_lines(report)
    if report.signature:
        lines.append(f"failure    {report.signature.text}")
    # A trial with nonsense in the place of an axis is meant to fail in its own way.
    sought = [r for r in report.records if IGNORED not in dict(r.point.values)]
    lines += [f"           {words}" for words in failed_differently(sought)]
    if kept:
        lines.append(f"results    {report.run_dir}")
        lines += [f"next       {command}" for command in report.next_commands[:1]]
    return lines


def _headline(report: ReduceReport) -> str:
    """What was found smaller is of no use to others as long as what ships does not fail by itself."""
    if report.reduction.status is Status.REDUCED and report.shipped.is_broken:
        return "smaller, but of no use to others yet"
    if report.status == "reduced" and report.shipped.reproduces is False:
        return "smaller, but shrunken/run_repro.sh fails in the original directory alone"
    return _HEADLINES[report.status]


def _axis_cells(row: dict[str, Any]) -> tuple[str, ...]:
    unit = " items" if "final_items" in row else ""
    notes = []
    if row["ignored"]:
        notes.append(
            "left alone: it fails the same with nonsense in its place, so the command does not read it"
        )
    elif row["final"] == row["floor"]:
        notes.append("at its floor")
    if row["monotone"] is False:
        notes.append("not monotone: a local minimum" if row["local_minimum"] else "not monotone")
    if row["unresolved"]:
        notes.append(f"{row['unresolved']} could not be told")
    return (
        row["name"],
        f"{_value(row['initial'])}{unit}",
        f"{_value(row['final'])}{unit}",
        str(row["trials"]),
        ", ".join(notes),
    )


def _value(value: Any) -> str:
    return f"{value[0]}+{value[1]}" if isinstance(value, list) else str(value)


def _rate_lines(report: ReduceReport) -> list[str]:
    reduction = report.reduction
    lines = []
    if reduction.calibration is not None:
        tally = reduction.calibration.tally
        words = f"original failed {tally.reproduced}/{tally.evidence}"
        if reduction.confirmation is not None:
            tally = reduction.confirmation.tally
            words += f", confirmed {tally.reproduced}/{tally.evidence}"
        lines.append(f"rate       {words}")
    before = report.median_seconds(reduction.original)
    after = report.median_seconds(reduction.best)
    if report.has_reproducer and before is not None and after is not None:
        lines.append(f"one trial  {show_duration(before)} -> {show_duration(after)}")
    spent = show_duration(report.ending.seconds)
    trials, played = len(report.records), report.ending.resumed_trials
    lines.append(f"spent      {trials} trials of {report.candidates} candidates in {spent}")
    lines += [f"           {words}" for words in report.ending.warm_words]
    if played == trials > 0:
        lines.append("           nothing was run: every trial was in the journal")
    elif played:
        lines.append(f"           {played} of them came from the journal")
    return lines


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
