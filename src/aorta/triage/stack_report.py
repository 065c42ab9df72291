"""optimize.json and optimize.md: the sets that were found, why none of one can be left out, and how
sure that is.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.axis import as_indexes
from aorta.core.durations import show_duration
from aorta.core.errors import Exit
from aorta.core.failure import Failure, failure_to_json
from aorta.core.stats import rate_to_json
from aorta.core.trial import Tally, Verdict
from aorta.engine.events import Ending, Reason
from aorta.search.cure import AXIS, Cure, CureSearch
from aorta.triage.cells import CellStats
from aorta.triage.markdown import aligned, different_lines
from aorta.triage.recipe import SCHEMA_VERSION
from aorta.triage.stacks import GoneJudges, StackPlan, failures

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
class StackReport:
    """The smallest stacks of a run, smallest first and the cheapest in step time among equals, and
    where the run lies.
    """

    plan: StackPlan
    search: CureSearch
    ending: Ending
    created: str
    run_dir: Path
    stacks: Sequence[Stack]
    warnings: Sequence[str] = ()
    failed_differently: Sequence[str] = ()
    failure: Failure | None = None  # the original's

    @property
    def original(self) -> Tally:
        return self.search.verdicts.get(self.search.without_any, Verdict(None)).tally

    @property
    def undecided(self) -> list[tuple[tuple[str, ...], int]]:
        """Sets that did not fail once, in too few trials to tell that from luck."""
        return [] if self.stacks else _undecided(self.search)

    @property
    def candidates(self) -> list[str]:
        return [entry.name for entry in self.plan.candidates]

    @property
    def status(self) -> str:
        if self.ending.reason is not Reason.DONE:
            return "partial"
        if not self.search.fails_at_all:
            return "did_not_reproduce"
        return "found" if self.stacks else "not_found"

    @property
    def exit_code(self) -> Exit:
        if self.ending.reason is not Reason.DONE:
            return self.ending.exit_code
        return Exit.NO_ANSWER if self.no_answer else Exit.OK

    @property
    def no_answer(self) -> str | None:
        """Why a run that went to its end has no answer."""
        if self.status == "did_not_reproduce":
            return "the failure did not show without mitigations: there is nothing to mend"
        if self.status != "not_found":
            return None
        if not self.undecided:
            return "no stack of these mitigations makes the failure go away"
        names, trials = self.undecided[0]
        return (
            f"not known: with {' + '.join(names)} it failed in 0 of {trials} trials, too few to "
            "tell from luck; more --trials would tell"
        )

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
        return {**self.content(), "run_dir": str(self.run_dir)}

    def content(self) -> dict[str, Any]:
        """Of optimize.json, which may be moved."""
        content, search = self.plan.plan.recipe.content, self.search
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "workload": content.workload,
            "ticket": content.ticket,
            "environment": self.plan.original.environment.name,
            "run_timestamp": self.created,
            "original": rate_to_json(self.original.reproduced, self.original.evidence),
            "candidates": self.candidates,
            "left_out": dict(self.plan.left_out),
            "recommended": self.recommended.to_json() if self.recommended else None,
            "environment_lines": self.lines,
            "sets": [stack.to_json() for stack in self.stacks],
            "unconfirmed": [[search.names[i] for i in items] for items in search.unconfirmed],
            "undecided": [
                {"mitigations": list(names), "failed": 0, "of": trials}
                for names, trials in self.undecided
            ],
            "why": self.no_answer,
            "trials": self.ending.trials,
            "resumed_trials": self.ending.resumed_trials,
            "warm": self.ending.warm_to_json(),
            "stacks_judged": len(search.verdicts),
            "warnings": list(self.warnings),
            "signature": self.failure.text if self.failure else None,
            "failure": failure_to_json(self.failure),
            "failed_differently": list(self.failed_differently),
        }


def found_stacks(
    search: CureSearch, judges: GoneJudges, stats: Callable[[Sequence[int]], CellStats]
) -> list[Stack]:
    stacks = [_stack(cure, search, judges, stats(cure.items)) for cure in search.cures]
    return sorted(stacks, key=lambda stack: stack.cost)


def _undecided(search: CureSearch) -> list[tuple[tuple[str, ...], int]]:
    """Smallest first, and of each how many trials there were."""
    trials: Counter[tuple[int, ...]] = Counter()
    failed: set[tuple[int, ...]] = set()
    for point, verdict in search.verdicts.items():
        items, seen = as_indexes(point[AXIS]), failures(verdict.tally)
        trials[items] += seen.trials
        failed |= {items} if seen.hits or not items else set()
    clean = [(items, of) for items, of in trials.items() if of and items not in failed]
    ranked = sorted(clean, key=lambda found: (len(found[0]), -found[1]))
    return [(tuple(search.names[item] for item in items), of) for items, of in ranked]


def _stack(cure: Cure, search: CureSearch, judges: GoneJudges, measured: CellStats) -> Stack:
    times = measured.step_times
    return Stack(
        mitigations=tuple(search.names[item] for item in cure.items),
        tally=cure.confirmed.tally,
        luck=judges.chance_of_luck(cure.confirmed.tally),
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


def optimize_markdown(found: StackReport) -> str:
    content = found.plan.plan.recipe.content
    rate = f"{found.original.reproduced} of {found.original.evidence}"
    sections = [
        [f"# The smallest stack that works - {content.workload}"],
        *(["> [!WARNING]", f"> {' '.join(warning.split())}"] for warning in found.warnings),
        [
            *([f"- Ticket: {content.ticket}"] if content.ticket else []),
            f"- Environment: {found.plan.original.environment.name}",
            f"- Without mitigations: {rate} trials failed",
            f"- Candidates: {len(found.candidates)} ({', '.join(found.candidates)})",
            f"- Trials: {found.ending.trials} for {len(found.search.verdicts)} stacks, "
            + show_duration(found.ending.seconds),
            *([f"- **Not finished**: {found.ending.detail}"] if found.ending.detail else []),
        ],
        _answer(found),
        _sets(found),
        different_lines(found.failed_differently),
        [f"- left out `{name}`: {reason}" for name, reason in found.plan.left_out.items()],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _answer(found: StackReport) -> list[str]:
    best = found.recommended
    if best is None:
        why = found.no_answer or "stopped before an answer"
        return ["## Answer", "", f"{why[:1].upper()}{why[1:]}."]
    return [
        "## Recommended",
        "",
        "```sh",
        *found.lines,
        "```",
        "",
        (
            f"With {' + '.join(best.mitigations)}, {failures(best.tally).hits} of "
            f"{best.tally.evidence} fresh trials failed: the rate is below "
            f"{100 * best.rate_below:.0f} % (95 % sure), and luck alone would do this with a "
            f"chance of {best.luck:.1g}."
        ),
    ]


def _sets(found: StackReport) -> list[str]:
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
