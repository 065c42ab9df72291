"""When does a cell have enough trials? The rule of the recipe, or that of the statistics, and never more than the cap."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from aorta.core.outcome import Tally
from aorta.core.stats import inverse_interval, wilson
from aorta.triage.comparing import Caps, is_decided, is_settled
from aorta.triage.plan import Plan
from aorta.triage.recipe import StopAfter

RETRIES = 2
"""A cell is given up once its errors outnumber its evidence by more than this."""


@dataclass(frozen=True)
class Stopping:
    plan: Plan

    def is_open(self, cell: str, tallies: Mapping[str, Tally]) -> bool:
        """Whether this cell of the plan wants another trial."""
        tally = tallies[cell]
        if is_hopeless(tally) or tally.evidence >= self.plan.by_name[cell].trials:
            return False
        rule = self.plan.recipe.content.stop_after
        if rule is not None:
            return events(tally, rule) < rule.events
        if cell != self.plan.baseline.name:
            return not is_settled(tally, tallies[self.plan.baseline.name], self._caps(cell))
        return self._baseline_is_needed(tallies)

    def _baseline_is_needed(self, tallies: Mapping[str, Tally]) -> bool:
        """A cell that has all its trials is still open while the baseline's could tip the scales."""
        baseline = tallies[self.plan.baseline.name]
        compared = [name for name in self._compared if not is_hopeless(tallies[name])]
        return not compared or any(
            not is_decided(tallies[name], baseline, self._caps(name)) for name in compared
        )

    def _caps(self, cell: str) -> Caps:
        plan = self.plan
        comparisons = max(1, len(self._compared))
        return Caps(plan.by_name[cell].trials, plan.baseline.trials, comparisons)

    @cached_property
    def _compared(self) -> tuple[str, ...]:
        """The cells that are hypotheses: not the baseline, and not those that cannot differ from it."""
        plan = self.plan
        return tuple(
            name for name in plan.names if name != plan.baseline.name and name not in plan.inert
        )

    def note(self, cell: str, tally: Tally) -> str:
        """Why the cell stopped where it did, if that was before its cap or by a rule; else nothing."""
        rule, cap = self.plan.recipe.content.stop_after, self.plan.by_name[cell].trials
        if rule is not None:
            seen = events(tally, rule)
            reached = "stopped early" if seen >= rule.events else "cap reached"
            return f"{reached}: {seen} {rule.event_verdict} event(s) in {tally.evidence + tally.error} trial(s)"
        if is_hopeless(tally):
            return f"given up after {tally.error} errors"
        return f"after {tally.evidence} of {cap}" if tally.evidence < cap else ""


def interval(tally: Tally, rule: StopAfter | None) -> tuple[float, float]:
    """Of the failure rate. A cell that went on until it had seen so many failures or passes is no sample of a fixed size."""
    if rule is not None and events(tally, rule) >= rule.events:
        if rule.event_verdict == "fail":
            return inverse_interval(tally.reproduced, tally.evidence)
        if rule.event_verdict == "pass" and not tally.other:
            low, high = inverse_interval(tally.clean, tally.evidence)
            return 1 - high, 1 - low
    return wilson(tally.reproduced, tally.evidence)


def is_hopeless(tally: Tally) -> bool:
    return tally.error > RETRIES + tally.evidence


def events(tally: Tally, rule: StopAfter) -> int:
    return {"fail": tally.reproduced, "pass": tally.clean, "error": tally.error}[rule.event_verdict]
