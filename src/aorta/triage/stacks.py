"""What a search for the smallest stack found, as data: `to_json` is optimize.json."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aorta.core.outcome import Tally, Verdict
from aorta.core.stats import wilson
from aorta.engine.events import Ending, Reason
from aorta.search.cure import Cure, CureSearch
from aorta.triage.cells import CellStats
from aorta.triage.gone import GoneJudges, chance_of_luck, failures
from aorta.triage.recipe import SCHEMA_VERSION
from aorta.triage.stack_plan import StackPlan

SCHEMA = "aorta.optimize/1"
_SURE = 0.05  # bounds are 95 %


@dataclass(frozen=True)
class Stack:
    """One set that makes the failure go away, and why none of it can be left out."""

    mitigations: tuple[str, ...]
    tally: Tally
    luck: float
    step_time_ms: float | None
    seconds: float
    needed: Mapping[str, Verdict | None]  # by mitigation: the verdict without it

    @property
    def rate_below(self) -> float:
        return failures(self.tally).high(_SURE)

    @property
    def is_minimal(self) -> bool:
        return all(v is not None and v.reproduces is False for v in self.needed.values())

    @property
    def cost(self) -> tuple[int, float]:
        return len(self.mitigations), self.step_time_ms or self.seconds

    def to_json(self) -> dict[str, Any]:
        return {
            "mitigations": list(self.mitigations),
            "failed": failures(self.tally).hits,
            "of": self.tally.evidence,
            "rate_below": round(self.rate_below, 4),
            "confidence": 1 - _SURE,
            "chance_of_luck": float(f"{self.luck:.3g}"),
            "one_minimal": self.is_minimal,
            "step_time_ms": self.step_time_ms,
            "mean_wall_clock_sec": round(self.seconds, 6),
            "without": {
                name: None if verdict is None else _counts(verdict)
                for name, verdict in self.needed.items()
            },
        }


@dataclass(frozen=True)
class Optimized:
    plan: StackPlan
    ending: Ending
    created: str
    original: Tally
    original_fails: bool | None
    stacks: Sequence[Stack]
    unconfirmed: Sequence[tuple[str, ...]] = ()
    stacks_judged: int = 0
    warnings: Sequence[str] = ()

    @property
    def candidates(self) -> list[str]:
        return [entry.name for entry in self.plan.candidates]

    @property
    def status(self) -> str:
        if self.ending.reason is not Reason.DONE:
            return "partial"
        if not self.original_fails:
            return "did_not_reproduce"
        return "found" if self.stacks else "not_found"

    @property
    def recommended(self) -> Stack | None:
        return self.stacks[0] if self.stacks else None

    @property
    def lines(self) -> list[str]:
        """The recommended variables, ready for a shell."""
        if self.recommended is None:
            return []
        chosen: dict[str, str] = {}
        for entry in self.plan.candidates:
            if entry.name in self.recommended.mitigations:
                chosen |= entry.env
        return [f"export {name}={shlex.quote(chosen[name])}" for name in sorted(chosen)]

    def to_json(self) -> dict[str, Any]:
        content = self.plan.plan.recipe.content
        low, high = wilson(self.original.reproduced, self.original.evidence)
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "workload": content.workload,
            "ticket": content.ticket,
            "environment": self.plan.original.environment.name,
            "run_timestamp": self.created,
            "original": {
                "reproduced": self.original.reproduced,
                "of": self.original.evidence,
                "low": round(low, 4),
                "high": round(high, 4),
            },
            "candidates": self.candidates,
            "left_out": dict(self.plan.left_out),
            "recommended": self.recommended.to_json() if self.recommended else None,
            "environment_lines": self.lines,
            "sets": [stack.to_json() for stack in self.stacks],
            "unconfirmed": [list(names) for names in self.unconfirmed],
            "trials": self.ending.trials,
            "resumed_trials": self.ending.resumed_trials,
            "stacks_judged": self.stacks_judged,
            "warnings": list(self.warnings),
        }


def build_optimized(
    plan: StackPlan,
    search: CureSearch,
    judges: GoneJudges,
    stats: Callable[[Sequence[int]], CellStats],
    ending: Ending,
    created: str,
) -> Optimized:
    """The sets that were found, smallest first, and the cheapest in step time among equals."""
    original = search.verdicts.get(search.without_any, Verdict(None))
    stacks = [_stack(cure, search, judges, stats(cure.items)) for cure in search.cures]
    return Optimized(
        plan=plan,
        ending=ending,
        created=created,
        original=original.tally,
        original_fails=search.fails_at_all,
        stacks=sorted(stacks, key=lambda stack: stack.cost),
        unconfirmed=[tuple(search.names[i] for i in items) for items in search.unconfirmed],
        stacks_judged=len(search.verdicts),
    )


def _stack(cure: Cure, search: CureSearch, judges: GoneJudges, measured: CellStats) -> Stack:
    times = measured.step_times
    return Stack(
        mitigations=tuple(search.names[item] for item in cure.items),
        tally=cure.confirmed.tally,
        luck=chance_of_luck(judges.rate, cure.confirmed.tally),
        step_time_ms=round(times.mean, 6) if times.source == "per_step" else None,
        seconds=measured.mean_wall_clock_sec,
        needed={search.names[item]: _without(search, cure.items, item) for item in cure.items},
    )


def _without(search: CureSearch, items: Sequence[int], item: int) -> Verdict | None:
    rest = [other for other in items if other != item]
    if not rest:
        original = search.verdicts[search.without_any]
        return Verdict(False, original.tally, original.why)
    return search.verdict_of(rest)


def _counts(verdict: Verdict) -> dict[str, int]:
    seen = failures(verdict.tally)
    return {"failed": seen.hits, "of": seen.trials}
