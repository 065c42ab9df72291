"""What counts say about a cell beside its baseline, and when they have said enough. Pure arithmetic
on tallies.

Three things may be said of a cell, and each needs evidence: it `works` (fails less often than the
baseline), it is `worse` (fails more often), or it has `no effect` (it is no useful cure: its rate
is more than half of the baseline's). Whatever has no evidence is `not known`. Both rates are
compared by Fisher's exact test, the half by an exact test of the ratio. `STATEMENT` says how often
a matrix is wrong; `worse` and `no effect` share their part, as at most one of them can be wrong of
one cell.

A cell is left early where no outcome of its remaining trials, and of the baseline's, could change
what is said of it; or where the evidence is far beyond the level (Haybittle and Peto's rule), which
costs next to nothing of the 5 %; or where it has been seen to have no effect. It is never left for
want of hope before it has as many trials as the smallest matrix that could say anything would give
it: asking for more trials never gives fewer.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from itertools import count

from aorta.core.stats import fisher_fewer, holm, ratio_above
from aorta.core.trial import Tally
from aorta.triage.plan import Plan

ANY_WRONG_CALL = 0.05
SIDE_ALPHA = ANY_WRONG_CALL / 2
INTERIM_ALPHA = 0.001
EARLY_NO_EFFECT = 0.5  # of the level, while trials are left: looks are many and the error is one
USEFUL_RATIO = 0.5  # of the baseline's rate; a cell above it is no useful cure

STATEMENT = (
    "at most 5 % of matrices say anything wrong of any cell: each answer is one-sided, 2.5 % for "
    "`works` (Fisher, Holm over the cells) and 2.5 % for `worse` (Fisher) and `no effect` (exact "
    "test that the rate is more than half of the baseline's) together"
)

Test = Callable[[int, int, int, int], float]


class Call(StrEnum):
    """The answer for one cell, in the words of the matrix."""

    BASELINE = "(baseline)"
    WORKS = "works"
    WORSE = "worse"
    NO_EFFECT = "no effect"
    NOT_KNOWN = "not known"
    OTHER_FAILURE = "other failure"  # the failure went, and another came
    INERT = "inert"
    DID_NOT_RUN = "did not run"


@dataclass(frozen=True)
class CellComparison:
    """`p` is of the direction that was seen, `p_no_cure` of `no effect`; `p_adjusted` is `p`
    adjusted for the number of cells, as `p_no_cure` is, and held against `SIDE_ALPHA`.
    """

    call: Call
    p: float | None = None
    p_adjusted: float | None = None
    p_no_cure: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Caps:
    """The most evidence a cell and its baseline may collect, and how many are compared."""

    cell: int
    baseline: int
    comparisons: int = 1

    @property
    def level(self) -> float:
        return SIDE_ALPHA / self.comparisons

    @property
    def floor(self) -> int:
        """As many trials as cannot yet say anything in a matrix of this size."""
        return next(n for n in count() if p_fewer(0, n + 1, n + 1, n + 1) < self.level)


@functools.cache
def p_fewer(hits: int, trials: int, base_hits: int, base_trials: int) -> float:
    """How likely so few failures beside the baseline's are by chance; 1 without data."""
    if not trials or not base_trials:
        return 1.0
    return fisher_fewer(hits, trials, base_hits, base_trials)


def p_more(hits: int, trials: int, base_hits: int, base_trials: int) -> float:
    return p_fewer(base_hits, base_trials, hits, trials)


@functools.cache
def p_no_cure(hits: int, trials: int, base_hits: int, base_trials: int) -> float:
    """How likely so many failures are if the cell at least halved the rate."""
    if not trials or not base_trials or not base_hits:
        return 1.0
    return ratio_above(hits, trials, base_hits, base_trials, USEFUL_RATIO)


# -- when a cell has enough ------------------------------------------------------------------------


def is_decided(cell: Tally, baseline: Tally, caps: Caps) -> bool:
    """Whether the trials left, the baseline's too, are not worth this cell's answer."""
    if not can_decide(caps):
        return False  # so few trials decide nothing; they still measure a rate
    far_beyond = INTERIM_ALPHA / caps.comparisons
    if any(_of(test, cell, baseline) <= far_beyond for test in (p_fewer, p_more)):
        return True
    # The most failures that the cell, and the baseline, can end with.
    most = cell.reproduced + max(0, caps.cell - cell.evidence)
    base_most = baseline.reproduced + max(0, caps.baseline - baseline.evidence)
    best = (cell.reproduced, caps.cell, base_most, caps.baseline)
    worst = (most, caps.cell, baseline.reproduced, caps.baseline)
    if p_fewer(*worst) < caps.level:
        return True
    if p_fewer(*best) < SIDE_ALPHA or p_more(*worst) < caps.level:
        return False
    if _of(p_no_cure, cell, baseline) < caps.level * EARLY_NO_EFFECT:
        return True
    enough = min(caps.floor, caps.cell), min(caps.floor, caps.baseline)
    tried = cell.evidence >= enough[0] and baseline.evidence >= enough[1]
    fewest = max(1, baseline.reproduced)
    return tried and p_no_cure(most, caps.cell, fewest, caps.baseline) >= caps.level


def can_decide(caps: Caps) -> bool:
    """Whether the clearest outcome there is would be significant: 3 of 3 against 0 of 3 is not."""
    return p_fewer(0, caps.cell, caps.baseline, caps.baseline) < caps.level


@dataclass(frozen=True)
class Stopping:
    """When a cell has enough trials: by the statistics, or the cap."""

    plan: Plan

    def is_open(self, cell: str, tallies: Mapping[str, Tally]) -> bool:
        """Whether this cell of the plan wants another trial."""
        plan, tally = self.plan, tallies[cell]
        if tally.is_hopeless() or tally.evidence >= plan.by_name[cell].trials:
            return False
        # The baseline is needed while its trials could tip the scales, also of a finished cell.
        waiting = [cell]
        if cell == plan.baseline.name:
            waiting = [name for name in self._compared if not tallies[name].is_hopeless()]
        base = tallies[plan.baseline.name]
        caps = partial(Caps, baseline=plan.baseline.trials, comparisons=max(1, len(self._compared)))
        decided = [is_decided(tallies[n], base, caps(plan.by_name[n].trials)) for n in waiting]
        return not decided or not all(decided)

    @cached_property
    def _compared(self) -> tuple[str, ...]:
        """The cells that are hypotheses: not the baseline, nor those that cannot differ."""
        plan = self.plan
        return tuple(
            name for name in plan.names if name != plan.baseline.name and name not in plan.inert
        )


# -- what is said of a cell ------------------------------------------------------------------------


def compare_all(
    tallies: Mapping[str, Tally], baseline: str, inert: Mapping[str, str] | None = None
) -> dict[str, CellComparison]:
    """Every cell beside the baseline; those that cannot differ cost no power."""
    inert = inert or {}
    base, others = tallies[baseline], tallies.keys() - {baseline, *inert}
    family = [name for name in tallies if name in others and tallies[name].evidence]
    family = family if base.evidence else []
    chances = [_of(p_fewer, tallies[name], base) for name in family]
    fewer = dict(zip(family, holm(chances), strict=True))
    found: dict[str, CellComparison] = {}
    for name, tally in tallies.items():
        if tally.evidence == 0:
            found[name] = CellComparison(Call.DID_NOT_RUN)
        elif name == baseline:
            found[name] = CellComparison(Call.BASELINE)
        elif name in inert:
            found[name] = CellComparison(Call.INERT, why=inert[name])
        elif name not in family:
            found[name] = CellComparison(Call.NOT_KNOWN, why="the baseline did not run")
        else:
            found[name] = _compared(tally, base, fewer[name], len(family))
    return found


def _compared(cell: Tally, base: Tally, fewer: float, comparisons: int) -> CellComparison:
    """`fewer` is the chance of so few failures, already adjusted for the cells."""
    if cell.rate < base.rate:
        p, adjusted = _of(p_fewer, cell, base), fewer
    else:
        p = _of(p_more, cell, base)
        adjusted = min(1.0, p * comparisons)
    no_cure = min(1.0, _of(p_no_cure, cell, base) * comparisons)

    def say(call: Call, why: str = "") -> CellComparison:
        return CellComparison(call, p, adjusted, no_cure, why)

    if cell.other and cell.other == cell.evidence:
        return say(Call.OTHER_FAILURE, "every trial failed in another way")
    if adjusted < SIDE_ALPHA and cell.rate > base.rate:
        return say(Call.WORSE)
    if adjusted < SIDE_ALPHA:
        failed = p_fewer(
            cell.reproduced + cell.other, cell.evidence, base.reproduced + base.other, base.evidence
        )
        if cell.other and failed >= SIDE_ALPHA:
            other = f"{cell.other} of {cell.evidence} trials failed in another way"
            return say(Call.OTHER_FAILURE, other)
        return say(Call.WORKS)
    if no_cure < SIDE_ALPHA:
        return say(Call.NO_EFFECT)
    if base.reproduced == 0 and cell.reproduced == 0:
        return say(Call.NOT_KNOWN, "the baseline never failed")
    return say(Call.NOT_KNOWN)


def _of(test: Test, cell: Tally, baseline: Tally) -> float:
    return test(cell.reproduced, cell.evidence, baseline.reproduced, baseline.evidence)
