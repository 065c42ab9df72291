"""What a search for the smallest stack found, as data (`optimize.json`) and as a page to paste (`optimize.md`)."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aorta.core.durations import show_duration
from aorta.core.outcome import Tally, Verdict
from aorta.core.stats import wilson
from aorta.engine.events import Ending, Reason
from aorta.search.cure import Cure, CureSearch
from aorta.triage.cells import CellStats
from aorta.triage.gone import GoneJudges, chance_of_luck, failures
from aorta.triage.markdown import aligned
from aorta.triage.plan import Plan
from aorta.triage.recipe import SCHEMA_VERSION

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
    plan: Plan
    candidates: Sequence[str]
    ending: Ending
    original: Tally
    original_fails: bool | None
    stacks: Sequence[Stack]
    unconfirmed: Sequence[tuple[str, ...]] = ()
    candidates_judged: int = 0
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    created: str = ""

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
        for name in self.recommended.mitigations:
            chosen |= self.environments[name]
        return [f"export {name}={shlex.quote(chosen[name])}" for name in sorted(chosen)]

    def to_json(self) -> dict[str, Any]:
        content = self.plan.recipe.content
        low, high = wilson(self.original.reproduced, self.original.evidence)
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "workload": content.workload,
            "ticket": content.ticket,
            "environment": self.plan.baseline.environment.name,
            "run_timestamp": self.created,
            "original": {
                "reproduced": self.original.reproduced,
                "of": self.original.evidence,
                "low": round(low, 4),
                "high": round(high, 4),
            },
            "candidates": list(self.candidates),
            "left_out": dict(self.left_out),
            "recommended": self.recommended.to_json() if self.recommended else None,
            "environment_lines": self.lines,
            "sets": [stack.to_json() for stack in self.stacks],
            "unconfirmed": [list(names) for names in self.unconfirmed],
            "trials": self.ending.trials,
            "resumed_trials": self.ending.resumed_trials,
            "stacks_judged": self.candidates_judged,
            "warnings": list(self.warnings),
        }


def build_optimized(
    plan: Plan,
    candidates: Sequence[str],
    search: CureSearch,
    judges: GoneJudges,
    stats: Callable[[Sequence[int]], CellStats],
    ending: Ending,
) -> Optimized:
    """The sets that were found, smallest first, and the cheapest in step time among equals."""
    original = search.verdicts.get(search.without_any, Verdict(None))
    stacks = [_stack(cure, candidates, search, judges, stats) for cure in search.cures]
    return Optimized(
        plan=plan,
        candidates=candidates,
        ending=ending,
        original=original.tally,
        original_fails=search.fails_at_all,
        stacks=sorted(stacks, key=lambda stack: stack.cost),
        unconfirmed=[tuple(candidates[i] for i in items) for items in search.unconfirmed],
        candidates_judged=len(search.verdicts),
    )


def _stack(
    cure: Cure,
    candidates: Sequence[str],
    search: CureSearch,
    judges: GoneJudges,
    stats: Callable[[Sequence[int]], CellStats],
) -> Stack:
    measured = stats(cure.items)
    times = measured.step_times
    return Stack(
        mitigations=tuple(candidates[item] for item in cure.items),
        tally=cure.confirmed.tally,
        luck=chance_of_luck(judges.rate, cure.confirmed.tally),
        step_time_ms=round(times.mean, 6) if times.source == "per_step" else None,
        seconds=measured.mean_wall_clock_sec,
        needed={candidates[item]: _without(search, cure.items, item) for item in cure.items},
    )


def _without(search: CureSearch, items: Sequence[int], item: int) -> Verdict | None:
    rest = [other for other in items if other != item]
    if not rest:
        original = search.verdicts[search.without_any]
        return Verdict(False, original.tally, original.why)
    return search.verdict_of(rest)


def optimize_markdown(found: Optimized) -> str:
    content = found.plan.recipe.content
    rate = f"{found.original.reproduced} of {found.original.evidence}"
    sections = [
        [f"# The smallest stack that works - {content.workload}"],
        *(["> [!WARNING]", f"> {' '.join(warning.split())}"] for warning in found.warnings),
        [
            *([f"- Ticket: {content.ticket}"] if content.ticket else []),
            f"- Environment: {found.plan.baseline.environment.name}",
            f"- Without mitigations: {rate} trials failed",
            f"- Candidates: {len(found.candidates)} ({', '.join(found.candidates)})",
            f"- Trials: {found.ending.trials} for {found.candidates_judged} stacks, "
            + show_duration(found.ending.seconds),
            *([f"- **Not finished**: {found.ending.detail}"] if found.ending.detail else []),
        ],
        _answer(found),
        _sets(found),
        [f"- left out `{name}`: {reason}" for name, reason in found.left_out.items()],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _answer(found: Optimized) -> list[str]:
    best = found.recommended
    if best is None:
        words = {
            "did_not_reproduce": "The failure did not show without mitigations: there is nothing to mend.",
            "not_found": "No stack of these candidates makes the failure go away.",
            "partial": "Stopped before an answer.",
        }
        return ["## Answer", "", words.get(found.status, "")]
    return [
        "## Recommended",
        "",
        "```sh",
        *found.lines,
        "```",
        "",
        (
            f"With {' + '.join(best.mitigations)}, {failures(best.tally).hits} of {best.tally.evidence} fresh trials "
            f"failed: the rate is below {100 * best.rate_below:.0f} % (95 % sure), and luck alone would do this "
            f"with a chance of {best.luck:.1g}."
        ),
    ]


def _sets(found: Optimized) -> list[str]:
    if not found.stacks:
        return []
    head = ["Mitigations", "Failed", "Rate below", "Step (ms)", "Without each of them"]
    rows = [_set_row(stack) for stack in found.stacks]
    return ["## Minimal sets", "", *aligned([head, *rows])]


def _set_row(stack: Stack) -> list[str]:
    return [
        " + ".join(stack.mitigations),
        f"{failures(stack.tally).hits} / {stack.tally.evidence}",
        f"{100 * stack.rate_below:.0f}%",
        f"{stack.step_time_ms:.4g}" if stack.step_time_ms else "n/a",
        "; ".join(_proof(name, verdict) for name, verdict in stack.needed.items()),
    ]


def _proof(name: str, verdict: Verdict | None) -> str:
    if verdict is None:
        return f"{name}: not tried"
    seen = failures(verdict.tally)
    return f"{name}: {seen.hits} of {seen.trials} failed"


def _counts(verdict: Verdict) -> dict[str, int]:
    seen = failures(verdict.tally)
    return {"failed": seen.hits, "of": seen.trials}
