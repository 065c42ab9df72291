"""The result of a reduction, which JSON, table, SHIP.md and exit code all read."""

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aorta.core.axis import Point, SubsetAxis
from aorta.core.durations import show_duration
from aorta.core.errors import Exit
from aorta.core.failure import Failure, failure_to_json
from aorta.core.stats import counted
from aorta.core.trial import Outcome, Tally, Verdict
from aorta.engine.events import Ending, Reason, TrialRecord, failed_differently
from aorta.engine.judge import HitCount, log_chance
from aorta.engine.question import Answer
from aorta.reduce.bindings import NONSENSE
from aorta.reduce.trace import items_of, size_of
from aorta.search.reduction import AxisFacts, Reduction, Status

SCHEMA = "aorta.reduce/1"
_STATUSES = {
    Status.REDUCED: "reduced",
    Status.NOT_REDUCED: "not_reduced",
    Status.DID_NOT_REPRODUCE: "did_not_reproduce",
}
PARTIAL = "partial"
BROKEN = "shrunken/run_repro.sh does not fail by itself"
_TAKEN = "scrubbing took {} out of it: if that is why, let --scrub spare it"
COPY_REPLICA = 1_000_000  # of the trials of what ships: a number that no search reaches


@dataclass(frozen=True)
class Shipped:
    """Whether the copy that ships was seen to fail. None: it was not tried."""

    reproduces: bool | None = None
    tally: Tally = field(default_factory=Tally)
    why: str = ""  # of the last trial that did not fail the same way
    failure: Failure | None = None  # as its process shows it
    alone: bool = True  # it needs no file of the original directory
    taken: int = 0  # values that scrubbing took out of it


@dataclass(frozen=True)
class ReduceReport:
    run_dir: Path
    reduction: Reduction
    ending: Ending
    records: Sequence[TrialRecord]
    failure: Failure | None
    shipped: Shipped = field(default_factory=Shipped)
    mitigations: Sequence[str] = ()
    source: Mapping[str, Any] | None = None  # the row of the program itself, where it was reduced
    hint: str = ""  # what was found out about an original that did not fail
    is_kept: bool = True  # the run directory stays: it can be named, shipped and resumed

    def with_more(self, answer: Answer, **changes: Any) -> "ReduceReport":
        """With the trials of a further question, and what they changed."""
        return replace(
            self,
            records=[*self.records, *answer.records],
            ending=self.ending.followed_by(answer.ending),
            **changes,
        )

    @property
    def axis_rows(self) -> list[dict[str, Any]]:
        rows = [axis_row(facts) for facts in self.reduction.axes]
        return rows if self.source is None else [*rows, dict(self.source)]

    @property
    def status(self) -> str:
        if self.ending.reason is not Reason.DONE:
            untried = self.reduction.status is Status.REDUCED and not self.shipped.tally.trials
            if untried or self.reduction.status in {Status.RUNNING, Status.DID_NOT_REPRODUCE}:
                return PARTIAL
        if self.reduction.status is Status.REDUCED and self.shipped.reproduces is False:
            return PARTIAL  # smaller, and of no use to anybody
        return _STATUSES.get(self.reduction.status, PARTIAL)

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not Reason.DONE:
            return self.ending.exit_code
        return Exit.OK if self.status == "reduced" else Exit.NO_ANSWER

    @property
    def has_reproducer(self) -> bool:
        calibration = self.reduction.calibration
        return calibration is not None and bool(calibration.reproduces)

    @property
    def why(self) -> str:
        if self.ending.reason is not Reason.DONE:
            return self.ending.detail
        if self.reduction.status is Status.DID_NOT_REPRODUCE and self.records and not self.hint:
            why, last = self.reduction.why, self.records[-1].why
            return why if last in why else f"{why}; the last trial: {last}"
        broken = self.reduction.status is Status.REDUCED and self.shipped.reproduces is False
        why = self.reduction.why
        if self.reduction.status is Status.NOT_REDUCED:
            why = why or self._how_sure
        said = [why, BROKEN if broken else "", self.hint]
        if self.shipped.reproduces is False and self.shipped.taken:
            said.append(_TAKEN.format(counted(self.shipped.taken, "value")))
        return "; ".join(filter(None, said))

    @property
    def _how_sure(self) -> str:
        """Where nothing smaller was seen to fail: how often that is bad luck, if it is flaky."""
        tries: dict[str, Tally] = {}
        for record in self.records:
            key = record.point.config_key
            tries[key] = tries.get(key, Tally()) + record.outcome
        seen = HitCount.of(tries.pop(self.reduction.original.config_key, Tally()))
        silent = [tally.evidence for tally in tries.values() if not tally.reproduced]
        fewest = min(filter(None, silent), default=0)
        if not seen.misses or not fewest:
            return "nothing smaller was seen to fail"
        missed = math.exp(log_chance(HitCount(0, fewest), seen))
        return (
            f"nothing smaller was seen to fail; the original failed {seen.hits} of {seen.trials} "
            f"times, and what fails as often and is tried {fewest} times, the fewest here, goes "
            f"unseen with a chance of {missed:.1%}"
        )

    @property
    def next_commands(self) -> list[str]:
        if not (self.has_reproducer and self.is_kept):
            return []
        recipe = f"{self.run_dir}/shrunken/recipe.resolved.yaml"
        return [
            shlex.join(["aorta", "triage", "run", "--recipe", recipe]),
            shlex.join(["aorta", "bundle", str(self.run_dir), "--output", "."]),
        ]

    @property
    def resume_command(self) -> str | None:
        return self.ending.command_to_go_on("reduce", self.run_dir) if self.is_kept else None

    def last_failing(self, point: Point) -> TrialRecord | None:
        """The latest failing trial of this configuration, other than the shipped copy's."""
        fitting = [
            record
            for record in self.records
            if record.point.config_key == point.config_key
            and record.point.replica < COPY_REPLICA
            and record.outcome is Outcome.REPRODUCED
        ]
        return fitting[-1] if fitting else None

    @property
    def ends_well(self) -> bool:
        """Whether no trial that showed the failure was seen to end badly by itself."""
        shown = [r for r in self.records if r.outcome is Outcome.REPRODUCED]
        return not any(r.exit_code for r in shown)

    def median_seconds(self, point: Point) -> float | None:
        times = [
            record.duration
            for record in self.records
            if record.point.config_key == point.config_key and record.outcome is not Outcome.ERROR
        ]
        return round(statistics.median(times), 4) if times else None

    def to_json(self) -> dict[str, Any]:
        reduction = self.reduction
        return {
            "status": self.status,
            # tells "lost" from "unconfirmed", which are both partial
            "search": reduction.status.value,
            "why": self.why,
            "run_dir": str(self.run_dir) if self.is_kept else None,
            "axes": self.axis_rows,
            "trials": self.ending.trials,
            "candidates": self.reduction.candidates,
            "resumed_trials": self.ending.resumed_trials,
            "warm": self.ending.warm_to_json(),
            "confirmed": _rate(reduction.confirmation),
            "original": {
                **(_rate(reduction.calibration) or {"reproduced": 0, "of": 0}),
                "median_sec": self.median_seconds(reduction.original),
            },
            "final": {"median_sec": self.median_seconds(reduction.best)},
            "signature": self.failure.text if self.failure else None,
            "failure": failure_to_json(self.failure),
            "shipped_copy": {
                "self_contained": self.shipped.reproduces and self.shipped.alone,
                "in_original_directory": self.shipped.reproduces,
                "reproduced": self.shipped.tally.reproduced,
                "of": self.shipped.tally.evidence,
                "why": self.shipped.why or None,
            },
            "setbacks": reduction.setbacks,
            "mitigations": list(self.mitigations),
            "stopped_by": None if self.ending.reason is Reason.DONE else self.ending.reason.value,
            "seconds": round(self.ending.seconds, 3),
            "next": [*self.next_commands, *filter(None, [self.resume_command])],
            "summary": summary_lines(self),
        }


def axis_row(facts: AxisFacts) -> dict[str, Any]:
    axis = facts.axis
    row: dict[str, Any] = {
        "name": axis.name,
        "kind": axis.kind.value,
        "initial": size_of(axis.initial),
        "final": size_of(facts.final),
        "floor": axis.floor,
        "monotone": facts.monotone,
        "trials": facts.trials,
        "unresolved": facts.unresolved,
        "rarer": facts.rarer,
        "ignored": facts.ignored,
    }
    if isinstance(axis, SubsetAxis):
        row["final_items"] = items_of(axis, facts.final)
    return row


def _rate(verdict: Verdict | None) -> dict[str, int] | None:
    if verdict is None:
        return None
    return {"reproduced": verdict.tally.reproduced, "of": verdict.tally.evidence}


_HEAD = ("axis", "from", "to", "trials", "")
_HEADLINES = {
    "reduced": "reduced",
    "not_reduced": "not reduced",
    "did_not_reproduce": "the failure did not reproduce",
    "partial": "partial: stopped before the answer was sure",
}
_UNSURE = {
    Status.UNCONFIRMED: "unconfirmed: smaller, but it could not be made sure that this still fails",
    Status.LOST: "lost: what failed before no longer does, so nothing that was found is sure",
}


def summary_lines(report: ReduceReport, *, names_files: bool = True) -> list[str]:
    headline = _UNSURE.get(report.reduction.status) or _HEADLINES[report.status]
    if report.reduction.status is Status.REDUCED and report.shipped.reproduces is False:
        headline = "smaller, but of no use to others yet"
    lines = [f"{headline} ({report.why})" if report.why else headline]
    if report.shipped.reproduces is False and report.shipped.why:
        lines.append(f"what ships {report.shipped.why}")
    if report.has_reproducer:
        rows = [_HEAD, *map(_axis_cells, report.axis_rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = [map(str.ljust, row, widths) for row in rows]
        lines += [f"  {'  '.join(cells)}".rstrip() for cells in aligned]
    lines += _rate_lines(report)
    if report.failure:
        lines.append(f"failure    {report.failure.text}")
    # A trial with nonsense in the place of an axis is meant to fail in its own way.
    sought = [r for r in report.records if NONSENSE not in dict(r.point.values).values()]
    lines += [f"           {words}" for words in failed_differently(sought)]
    if names_files and report.is_kept:
        lines.append(f"results    {report.run_dir}")
        lines += [f"next       {command}" for command in report.next_commands[:1]]
    return lines


def _axis_cells(row: dict[str, Any]) -> tuple[str, ...]:
    unit = " items" if "final_items" in row else " lines" if "final_lines" in row else ""
    notes = []
    if row["ignored"]:
        notes.append("it fails the same with nonsense in its place")
    elif row["final"] == row["floor"]:
        notes.append("at its floor")
    if row.get("rarer"):
        notes.append("with less of it, it fails far more rarely")
    if row["monotone"] is False:
        more = ": more of it did not fail, so the cause may be another" if unit else ""
        notes.append(f"not monotone{more}")
    if row.get("beside"):
        notes.append(f"beside it: {', '.join(row['beside'])}")
    if row["unresolved"]:
        notes.append(f"{row['unresolved']} could not be told")
    sizes = [f"{_value(row[which])}{unit}" for which in ("initial", "final")]
    return row["name"], *sizes, str(row["trials"]), ", ".join(notes)


def _value(value: Any) -> str:
    return f"{value[0]}+{value[1]}" if isinstance(value, list) else str(value)


def _share(tally: Tally) -> str:
    share = f" ({tally.reproduced / tally.evidence:.0%})" if tally.against else ""
    return f"{tally.reproduced}/{tally.evidence}{share}"


def _rate_lines(report: ReduceReport) -> list[str]:
    reduction = report.reduction
    lines = []
    if reduction.calibration is not None:
        words = f"original failed {_share(reduction.calibration.tally)}"
        if reduction.confirmation is not None:
            words += f", confirmed {_share(reduction.confirmation.tally)}"
        lines.append(f"rate       {words}")
    before = report.median_seconds(reduction.original)
    after = report.median_seconds(reduction.best)
    if report.has_reproducer and before is not None and after is not None:
        lines.append(f"one trial  {show_duration(before)} -> {show_duration(after)}")
    spent = show_duration(report.ending.seconds)
    trials, played = report.ending.trials, report.ending.resumed_trials
    lines.append(
        f"spent      {trials} trials of {report.reduction.candidates} candidates in {spent}"
    )
    if played:
        said = "nothing was run: every trial was" if played == trials else f"{played} of them were"
        lines.append(f"           {said} in the journal")
    return lines
