"""What counts say about a cell beside its baseline, and when they have said enough. Pure arithmetic on tallies.

The test is Fisher's, two-sided, with Holm's correction over the cells compared. A cell is left early only where that
cannot raise the error rate: when no outcome of its remaining trials could make it significant, when none could undo it,
or when it is significant far beyond the level (Haybittle and Peto's rule), which costs next to nothing of the 5 %.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from aorta.core.outcome import Tally
from aorta.core.stats import fisher_exact, holm

ALPHA = 0.05
INTERIM_ALPHA = 0.001
_MOST_NEEDED = 1000  # beyond this, "trials still needed" is no plan but a shrug


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
    """`needed` is how many more trials each of the cell and the baseline would settle an open question, at these rates."""

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
def p_value(hits: int, trials: int, base_hits: int, base_trials: int) -> float:
    """Two-sided; 1 where one side has nothing to say."""
    if not trials or not base_trials:
        return 1.0
    return fisher_exact(hits, trials, base_hits, base_trials)


def rate(tally: Tally) -> float:
    """The failure rate; errors are no evidence and leave the denominator."""
    return tally.reproduced / tally.evidence if tally.evidence else 0.0


def is_settled(cell: Tally, baseline: Tally, caps: Caps) -> bool:
    """Whether the cell has all its trials, or further ones could no longer change what is said of it."""
    return cell.evidence >= caps.cell or is_decided(cell, baseline, caps)


def is_decided(cell: Tally, baseline: Tally, caps: Caps) -> bool:
    """Whether no outcome of the trials that are left, the baseline's among them, could change the answer."""
    if not _can_settle(caps):
        return False  # so few trials settle nothing; they still measure a rate
    if _p_of(cell, baseline) * caps.comparisons <= INTERIM_ALPHA:
        return True
    left = max(0, caps.cell - cell.evidence)
    base_left = max(0, caps.baseline - baseline.evidence)
    for_it = p_value(cell.reproduced, caps.cell, baseline.reproduced + base_left, caps.baseline)
    against_it = p_value(cell.reproduced + left, caps.cell, baseline.reproduced, caps.baseline)
    if for_it > ALPHA and against_it > ALPHA:
        return True
    locked = against_it * caps.comparisons <= ALPHA
    return locked and (cell.reproduced + left) * caps.baseline < baseline.reproduced * caps.cell


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
    p_values = [_p_of(tallies[name], base) for name in family]
    adjusted = dict(zip(family, holm(p_values), strict=True))
    found: dict[str, Comparison] = {}
    for name, tally in tallies.items():
        if tally.evidence == 0:
            found[name] = Comparison(Call.DID_NOT_RUN)
        elif name == baseline:
            found[name] = Comparison(Call.BASELINE)
        elif name in inert:
            found[name] = Comparison(Call.INERT, why=inert[name])
        elif name not in adjusted:
            found[name] = Comparison(Call.OPEN, why="the baseline did not run")
        else:
            found[name] = _compared(tally, base, adjusted[name], len(family))
    return found


def beats(cell: Tally, control: Tally) -> bool:
    """Whether the cell fails significantly less often than one that was only slowed."""
    return rate(cell) < rate(control) and _p_of(cell, control) <= ALPHA


def trials_needed(cell: Tally, baseline: Tally, comparisons: int = 1) -> int | None:
    """How many more trials, of the cell and where needed of the baseline, settle it if the rates stay as they are."""
    if rate(cell) == rate(baseline):
        return None

    def settles(more: int) -> bool:
        trials = cell.evidence + more
        base_trials = max(baseline.evidence, trials)
        hits, base_hits = round(rate(cell) * trials), round(rate(baseline) * base_trials)
        return p_value(hits, trials, base_hits, base_trials) * comparisons <= ALPHA

    enough = 1
    while not settles(enough):
        enough *= 2
        if enough > _MOST_NEEDED:
            return None
    return next(more for more in range(enough // 2, enough + 1) if settles(more))


def _compared(cell: Tally, base: Tally, p_holm: float, comparisons: int) -> Comparison:
    p = _p_of(cell, base)
    if cell.other and cell.other == cell.evidence:
        return Comparison(Call.OTHER_FAILURE, p, p_holm, why="every trial failed in another way")
    if p_holm <= ALPHA and rate(cell) > rate(base):
        return Comparison(Call.WORSE, p, p_holm)
    if p_holm <= ALPHA:
        failed = p_value(
            cell.reproduced + cell.other, cell.evidence, base.reproduced + base.other, base.evidence
        )
        if cell.other and failed > ALPHA:
            why = f"{cell.other} of {cell.evidence} trials failed in another way"
            return Comparison(Call.OTHER_FAILURE, p, p_holm, why=why)
        return Comparison(Call.WORKS, p, p_holm)
    if base.reproduced == 0 and cell.reproduced == 0:
        return Comparison(Call.OPEN, p, p_holm, why="the baseline never failed")
    if rate(cell) >= rate(base) and base.reproduced:
        return Comparison(Call.NO_EFFECT, p, p_holm)
    return Comparison(Call.OPEN, p, p_holm, trials_needed(cell, base, comparisons))


def _can_settle(caps: Caps) -> bool:
    """Whether the clearest outcome there is would be significant: 3 of 3 against 0 of 3 is not."""
    return p_value(0, caps.cell, caps.baseline, caps.baseline) <= ALPHA


def _p_of(cell: Tally, baseline: Tally) -> float:
    return p_value(cell.reproduced, cell.evidence, baseline.reproduced, baseline.evidence)
