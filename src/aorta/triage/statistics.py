"""What counts say about a cell beside its baseline, and when they have said enough. Pure arithmetic on tallies.

A mitigation is asked one thing: does the failure come less often? So the test is Fisher's, one-sided, with Holm's correction
over the cells compared; at most 5 % of matrices without an effect say "works". Whether a cell makes it worse is a question of
its own, with a 5 % of its own. 3 of 3 against 0 of 3 is a chance of exactly 5 %, and not below it.

A cell is left early only where that cannot raise the error rate: when no outcome of its remaining trials could make it
significant, when none could undo it, or when it is significant far beyond the level (Haybittle and Peto's rule), which costs
next to nothing of the 5 %.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from aorta.core.outcome import Tally
from aorta.core.stats import fisher_fewer, holm
from aorta.triage.plan import Plan
from aorta.triage.recipe import StopAfter

ALPHA = 0.05
INTERIM_ALPHA = 0.001
_MOST_NEEDED = 1000  # beyond this, "trials still needed" is no plan but a shrug


Test = Callable[[int, int, int, int], float]


class Call(StrEnum):
    """The answer for one cell, in the words of the matrix."""

    BASELINE = "(baseline)"
    CONTROL = "(control)"
    WORKS = "works"
    WORSE = "worse"
    NO_EFFECT = "no effect"
    OPEN = "open"
    OTHER_FAILURE = "other failure"  # the failure went, and another came
    ONLY_SLOWER = "only slower"  # so does the control that was merely slowed
    INERT = "inert"
    DID_NOT_RUN = "did not run"


@dataclass(frozen=True)
class Comparison:
    """`p` and `p_holm` are of the direction that was seen: less often than the baseline, or as often and more.

    `needed` is how many more trials each of the cell and the baseline would settle an open question, at these rates.
    """

    call: Call
    p: float | None = None
    p_holm: float | None = None
    needed: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Caps:
    """The most evidence that a cell and its baseline may collect, and how many cells are compared."""

    cell: int
    baseline: int
    comparisons: int = 1


@functools.cache
def p_fewer(hits: int, trials: int, base_hits: int, base_trials: int) -> float:
    """How likely so few failures beside the baseline's are if nothing differs; 1 where one side has nothing to say."""
    if not trials or not base_trials:
        return 1.0
    return fisher_fewer(hits, trials, base_hits, base_trials)


def p_more(hits: int, trials: int, base_hits: int, base_trials: int) -> float:
    return p_fewer(base_hits, base_trials, hits, trials)


def rate(tally: Tally) -> float:
    """The failure rate; errors are no evidence and leave the denominator."""
    return tally.reproduced / tally.evidence if tally.evidence else 0.0


def is_settled(cell: Tally, baseline: Tally, caps: Caps) -> bool:
    """Whether the cell has all its trials, or further ones could no longer change what is said of it."""
    return cell.evidence >= caps.cell or is_decided(cell, baseline, caps)


def is_decided(cell: Tally, baseline: Tally, caps: Caps) -> bool:
    """Whether no outcome of the trials that are left, the baseline's among them, could change the answer."""
    if not can_settle(caps):
        return False  # so few trials settle nothing; they still measure a rate
    if min(_of(p_fewer, cell, baseline), _of(p_more, cell, baseline)) <= (
        INTERIM_ALPHA / caps.comparisons
    ):
        return True
    most = cell.reproduced + max(0, caps.cell - cell.evidence)
    base_most = baseline.reproduced + max(0, caps.baseline - baseline.evidence)
    can_work = p_fewer(cell.reproduced, caps.cell, base_most, caps.baseline) < ALPHA
    can_be_worse = p_more(most, caps.cell, baseline.reproduced, caps.baseline) < ALPHA
    if not can_work and not can_be_worse:
        return True
    works_anyway = p_fewer(most, caps.cell, baseline.reproduced, caps.baseline)
    return works_anyway * caps.comparisons < ALPHA


def can_settle(caps: Caps) -> bool:
    """Whether the clearest outcome there is would be significant: 3 of 3 against 0 of 3 is not."""
    return p_fewer(0, caps.cell, caps.baseline, caps.baseline) < ALPHA


def compare_all(
    tallies: Mapping[str, Tally], baseline: str, inert: Mapping[str, str] | None = None
) -> dict[str, Comparison]:
    """Every cell beside the baseline. Cells that cannot differ, or never ran, are no hypotheses and cost no power."""
    inert = inert or {}
    base = tallies[baseline]
    family = [
        name
        for name, tally in tallies.items()
        if name != baseline and name not in inert and tally.evidence and base.evidence
    ]
    chances = {
        test: dict(
            zip(family, holm([_of(test, tallies[name], base) for name in family]), strict=True)
        )
        for test in (p_fewer, p_more)
    }
    found: dict[str, Comparison] = {}
    for name, tally in tallies.items():
        if tally.evidence == 0:
            found[name] = Comparison(Call.DID_NOT_RUN)
        elif name == baseline:
            found[name] = Comparison(Call.BASELINE)
        elif name in inert:
            found[name] = Comparison(Call.INERT, why=inert[name])
        elif name not in family:
            found[name] = Comparison(Call.OPEN, why="the baseline did not run")
        else:
            test = p_fewer if rate(tally) < rate(base) else p_more
            found[name] = _compared(
                tally, base, _of(test, tally, base), chances[test][name], len(family)
            )
    return found


def beats(cell: Tally, control: Tally) -> bool:
    """Whether the cell fails significantly less often than one that was only slowed."""
    return _of(p_fewer, cell, control) < ALPHA


def trials_needed(cell: Tally, baseline: Tally, comparisons: int = 1) -> int | None:
    """How many more trials, of the cell and where needed of the baseline, settle it if the rates stay as they are."""
    if rate(cell) == rate(baseline):
        return None
    test = p_fewer if rate(cell) < rate(baseline) else p_more

    def settles(more: int) -> bool:
        trials = cell.evidence + more
        base_trials = max(baseline.evidence, trials)
        hits, base_hits = round(rate(cell) * trials), round(rate(baseline) * base_trials)
        return test(hits, trials, base_hits, base_trials) * comparisons < ALPHA

    enough = 1
    while not settles(enough):
        enough *= 2
        if enough > _MOST_NEEDED:
            return None
    return next(more for more in range(enough // 2, enough + 1) if settles(more))


def _compared(cell: Tally, base: Tally, p: float, p_holm: float, comparisons: int) -> Comparison:
    if cell.other and cell.other == cell.evidence:
        return Comparison(Call.OTHER_FAILURE, p, p_holm, why="every trial failed in another way")
    if p_holm < ALPHA and rate(cell) > rate(base):
        return Comparison(Call.WORSE, p, p_holm)
    if p_holm < ALPHA:
        failed = p_fewer(
            cell.reproduced + cell.other, cell.evidence, base.reproduced + base.other, base.evidence
        )
        if cell.other and failed >= ALPHA:
            why = f"{cell.other} of {cell.evidence} trials failed in another way"
            return Comparison(Call.OTHER_FAILURE, p, p_holm, why=why)
        return Comparison(Call.WORKS, p, p_holm)
    if base.reproduced == 0 and cell.reproduced == 0:
        return Comparison(Call.OPEN, p, p_holm, why="the baseline never failed")
    if rate(cell) >= rate(base) and base.reproduced:
        return Comparison(Call.NO_EFFECT, p, p_holm)
    return Comparison(Call.OPEN, p, p_holm, trials_needed(cell, base, comparisons))


def _of(test: Test, cell: Tally, baseline: Tally) -> float:
    return test(cell.reproduced, cell.evidence, baseline.reproduced, baseline.evidence)


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


def is_hopeless(tally: Tally) -> bool:
    return tally.error > RETRIES + tally.evidence


def events(tally: Tally, rule: StopAfter) -> int:
    return {"fail": tally.reproduced, "pass": tally.clean, "error": tally.error}[rule.event_verdict]
