"""Slow-only controls: the baseline again, slowed as much as a mitigation that slows, and not
mitigated.

A mitigation that works and slows is credited only if it beats its control. Which controls are
needed is known when every cell of the matrix has its answer; told the same trials, the same
controls follow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from aorta.core.trial import Tally
from aorta.triage.cells import CellStats, speed_of
from aorta.triage.plan import CONTROL_SUFFIX, Plan, PlannedCell
from aorta.triage.statistics import (
    Call,
    Caps,
    CellComparison,
    beats,
    compare_all,
    is_rarer,
    is_settled,
    trials_needed,
)
from aorta.workloads.trial import slowed_experiment


@dataclass
class Controls:
    """`measure` gives what is known of a cell of the plan so far."""

    plan: Plan
    measure: Callable[[str], CellStats]
    cells: dict[str, PlannedCell] = field(default_factory=dict)
    controlled: dict[str, str] = field(default_factory=dict)  # control -> the cell it is for

    def wanted(self, tallies: Mapping[str, Tally]) -> list[str]:
        """The controls of the cells that work and are slower; each name once."""
        settings = self.plan.recipe.content.control
        if settings is None or self.cells:
            return []
        of_the_plan = {name: tallies[name] for name in self.plan.names}
        found = compare_all(of_the_plan, self.plan.baseline.name, self.plan.inert)
        threshold = self.plan.recipe.content.confound.threshold
        baseline = self.measure(self.plan.baseline.name)
        for name, comparison in found.items():
            if comparison.call is not Call.WORKS:
                continue
            speed = speed_of(self.measure(name), baseline, threshold)
            if speed.is_flagged and speed.ratio is not None:
                self._add(name, settings.slowdown or speed.ratio)
            elif settings.slowdown is not None and speed.ratio is None:
                self._add(name, settings.slowdown)
        return list(self.cells)

    def is_open(self, control: str, tallies: Mapping[str, Tally]) -> bool:
        planned, tally = self.cells[control], tallies[control]
        if tally.is_hopeless() or tally.evidence >= planned.trials:
            return False
        cell = self.controlled[control]
        caps = Caps(planned.trials, self.plan.by_name[cell].trials)
        return not is_settled(tally, tallies[cell], caps) or self._may_show_slowness(
            tally, tallies, planned.trials
        )

    def _may_show_slowness(self, control: Tally, tallies: Mapping[str, Tally], most: int) -> bool:
        """Whether it is open that slowing alone helps, and further trials, all of them clean, would
        show it.
        """
        if self._helps_alone(control, tallies):
            return False
        return self._helps_alone(
            replace(control, clean=control.clean + most - control.evidence), tallies
        )

    def _helps_alone(self, control: Tally, tallies: Mapping[str, Tally]) -> bool:
        baseline = tallies[self.plan.baseline.name]
        return is_rarer(control, baseline, max(1, len(self.plan.cells) - 1))

    def credited(
        self, cell: str, comparison: CellComparison, tallies: Mapping[str, Tally]
    ) -> CellComparison:
        """A mitigation that works is credited only if it beats its control, where it has one."""
        control = next((name for name, of in self.controlled.items() if of == cell), None)
        if comparison.call is not Call.WORKS or control is None:
            return comparison
        tally = tallies[control]
        if beats(tallies[cell], tally):
            return comparison
        if not tally.evidence:
            why = f"it works or only slows: its control {control} did not run"
            return replace(comparison, call=Call.NOT_KNOWN, why=why)
        seen = f"{control} failed {tally.reproduced} of {tally.evidence} without any mitigation"
        if self._helps_alone(tally, tallies):
            return replace(comparison, call=Call.ONLY_SLOWER, why=seen)
        why = f"it works or only slows: {seen}"
        needed = trials_needed(tallies[cell], tally)
        return replace(comparison, call=Call.NOT_KNOWN, why=why, needed=needed)

    def _add(self, cell: str, factor: float) -> None:
        baseline = self.plan.baseline
        name = f"{cell}{CONTROL_SUFFIX}"
        self.controlled[name] = cell
        self.cells[name] = PlannedCell(
            index=len(self.plan.cells) + len(self.cells),
            cell=baseline.cell.model_copy(update={"name": name}),
            experiment=slowed_experiment(baseline.experiment, factor),
            trials=self.plan.by_name[cell].trials,
        )
