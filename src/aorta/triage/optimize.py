"""`--mode optimize`: the smallest stack of mitigations that makes the failure go away, in one
environment.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.names import slug
from aorta.core.trial import TrialSpec
from aorta.engine.events import Note, PointSettled, TrialRecord, failed_differently
from aorta.engine.question import Answer
from aorta.search.cure import AXIS, CureSearch
from aorta.triage.cells import CellStats, aggregate_cell
from aorta.triage.plan import Plan, PlannedCell
from aorta.triage.running import TriageRun
from aorta.triage.stacks import (
    GoneJudges,
    StackPlan,
    StackReport,
    found_stacks,
    optimize_markdown,
    stack_plan,
)
from aorta.workloads.results import TrialLabel, read_trial
from aorta.workloads.trial import WorkloadRequest, workload_experiment


class StackRun(TriageRun[StackReport]):
    """A point says which candidates are on."""

    plan: StackPlan
    markdown = staticmethod(optimize_markdown)

    def __init__(self, plan: Plan, sets: int) -> None:
        super().__init__(stack_plan(plan, sets))
        self.search = self.cures = CureSearch([entry.name for entry in self.plan.candidates], sets)
        self.judges = self.gone = GoneJudges(plan.baseline.trials)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        return workload_experiment(self._request(point)).trial(Point.of({}), index, trial_dir)

    def place(self, record: TrialRecord) -> tuple[PlannedCell, WorkloadRequest, TrialLabel, Path]:
        point, request = record.point, self._request(record.point)
        label = TrialLabel(request.workload, record.index)
        asked = f"{point.purpose.value}{point.replica}"
        return self.plan.baseline, request, label, self._folder(point) / asked / label.relative_path

    def _request(self, point: Point) -> WorkloadRequest:
        stack = [(entry.name, entry.env) for entry in self.plan.stack(point)]
        return replace(self.plan.baseline.request, mitigations=stack)

    def _folder(self, point: Point) -> Path:
        return Path("cells", slug(self.plan.stack_name(point)))

    def report(
        self, answer: Answer, run_dir: Path, created: str, warnings: Sequence[str]
    ) -> StackReport:
        def stats(items: Sequence[int]) -> CellStats:
            """What the trials of one stack amount to, whatever they were asked for."""
            folder = run_dir / self._folder(Point.of({AXIS: tuple(items)}))
            documents = (read_trial(path) for path in sorted(folder.rglob("trial_*.json")))
            return aggregate_cell(documents, self.plan.baseline.request.steps)

        return StackReport(
            plan=self.plan,
            search=self.cures,
            ending=answer.ending,
            created=created,
            run_dir=run_dir,
            stacks=found_stacks(self.cures, self.gone, stats),
            warnings=warnings,
            failed_differently=failed_differently(answer.records),
            failure=answer.expected,
        )

    def settled(self, event: PointSettled) -> Note:
        """Here a verdict says "gone", where other searches say "reproduces"."""
        point, verdict = event.point, event.verdict
        if not self.plan.stack(point):
            word = {True: "it fails", False: "it does not fail", None: "cannot tell"}
        else:
            word = {True: "gone", False: "still fails", None: "cannot tell"}
        name = self.plan.stack_name(point)
        return Note(f"{name}: {word[verdict.reproduces]} ({verdict.why})")
