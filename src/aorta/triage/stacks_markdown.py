"""optimize.md: the recommended variables first, then why to believe in them."""

from aorta.core.durations import show_duration
from aorta.core.outcome import Verdict
from aorta.triage.gone import failures
from aorta.triage.markdown import aligned
from aorta.triage.stacks import Optimized, Stack


def optimize_markdown(found: Optimized) -> str:
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
            f"- Trials: {found.ending.trials} for {found.stacks_judged} stacks, "
            + show_duration(found.ending.seconds),
            *([f"- **Not finished**: {found.ending.detail}"] if found.ending.detail else []),
        ],
        _answer(found),
        _sets(found),
        [f"- left out `{name}`: {reason}" for name, reason in found.plan.left_out.items()],
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
