"""`SHIP.md`: what is inside, what was taken out, and what to read before anything leaves."""

from collections.abc import Mapping, Sequence

from aorta.core.durations import show_duration
from aorta.reduce.report import PARTIAL, ReduceReport, axis_row
from aorta.search.reduction import Status

_HEADLINES = {
    "reduced": "Reduced, and confirmed with fresh trials.",
    "not_reduced": "Not reduced: nothing smaller fails. The reproducer is the original.",
    "did_not_reproduce": "The failure did not show, so there is nothing to ship.",
    PARTIAL: "Partial: the search was stopped before its answer was sure.",
}
_ABOUT = {
    "spec.yaml": "the reduction spec",
    "reduction_trace.jsonl": "every candidate with its outcomes, times and messages",
    "shrunken/run_repro.sh": "runs the failure by itself",
    "shrunken/aorta.yaml": "the spec with its final values",
    "shrunken/order.json": "what the script asks of the workload: its config, and what counts as its failure",
    "shrunken/env.json": "this machine: hardware, drivers, packages, known variables",
    "shrunken/recipe.resolved.yaml": "for `aorta triage run --recipe`",
    "result.json": "the answer for machines",
}
_UNFINISHED = """# Nothing to ship yet

This reduction is running, or was killed. `reduction_trace.jsonl` holds what is known so far.

Go on with: `aorta reduce --resume {run_dir}`
"""


def unfinished_ship(run_dir: str) -> str:
    return _UNFINISHED.format(run_dir=run_dir)


def ship_text(
    report: ReduceReport,
    files: Sequence[str],
    *,
    changed: Mapping[str, int],
    withheld: Sequence[str],
    patterns: int,
    needed: Sequence[str],
    secrets: Sequence[str],
    private: str | None,
) -> str:
    parts = [
        "# What is shared",
        "",
        f"{_headline(report)} Nothing leaves this machine by itself.",
    ]
    parts += ["", *_state_lines(report)]
    if report.has_reproducer:
        parts += ["", "## What it shrank to", "", *_axis_lines(report)]
        parts += ["", *_copy_lines(report, needed, secrets)]
    parts += ["", "## Inside", ""]
    parts += [f"- [ ] `{name}`{_about(name)}" for name in files]
    parts += ["", "## Scrubbed", "", *_scrub_lines(changed, withheld, patterns)]
    parts += ["", "## Before sending", ""]
    parts += ["- [ ] Read the files above, the logs and the trace first: they quote your program."]
    parts += ["- [ ] Values, names and paths that must not leave: run again with `--scrub`."]
    parts += [f"- [ ] Then: `{command}`" for command in report.next_commands[1:]]
    if private:
        parts += [
            "",
            f"The journal and the trials, which are not scrubbed, lie outside, in `{private}`.",
            "`.aorta` is a link to them, and `tar` takes the link alone.",
        ]
    return "\n".join(parts) + "\n"


def _headline(report: ReduceReport) -> str:
    if report.reduction.status is Status.REDUCED and report.shipped.is_broken:
        return "Smaller, but what is in here does not fail by itself."
    return _HEADLINES[report.status]


def _state_lines(report: ReduceReport) -> list[str]:
    lines = [f"- status: {report.status} ({report.why})"] if report.why else []
    original, confirmed = report.reduction.calibration, report.reduction.confirmation
    if original is not None:
        lines.append(
            f"- the original failed {original.tally.reproduced} of {original.tally.evidence} times"
        )
    if confirmed is not None:
        tally = confirmed.tally
        lines.append(f"- the answer failed {tally.reproduced} of {tally.evidence} fresh times")
    if report.signature is not None:
        lines.append(f"- failure: `{report.signature.text}`")
    if report.mitigations:
        lines.append(f"- with the mitigations {', '.join(report.mitigations)}")
    if report.resume_command:
        lines.append(f"- go on with: `{report.resume_command}`")
    if report.status == "not_reduced":
        lines.append("- tried: " + ", ".join(f.axis.name for f in report.reduction.axes))
        lines.append("- add axes that make it smaller: steps, sizes, data files, ranks, a window")
    return lines


def _axis_lines(report: ReduceReport) -> list[str]:
    lines = ["| axis | from | to | floor |", "|---|---|---|---|"]
    for facts in report.reduction.axes:
        row = axis_row(facts)
        note = " (not monotone)" if row["monotone"] is False else ""
        lines.append(
            f"| {row['name']}{note} | {row['initial']} | {row['final']} | {row['floor']} |"
        )
    before = report.median_seconds(report.reduction.original)
    after = report.median_seconds(report.reduction.best)
    if before is not None and after is not None:
        lines += ["", f"One run: {show_duration(before)} before, {show_duration(after)} after."]
    return lines


def _copy_lines(report: ReduceReport, needed: Sequence[str], secrets: Sequence[str]) -> list[str]:
    shipped = report.shipped
    said = f"{shipped.tally.reproduced} of {shipped.tally.evidence}"
    if shipped.reproduces:
        lines = [
            f"`shrunken/` as it is here was run from another directory and failed the same way {said} times."
        ]
    elif shipped.reproduces is None:
        lines = ["`shrunken/` was not tried by itself: try it before you send it."]
    else:
        why = f" (the last run: {shipped.why})" if shipped.why else ""
        lines = [f"`shrunken/` does not fail the same way by itself: {said} times{why}."]
        if shipped.in_place:
            lines += ["`run_repro.sh` fails in the original directory, where it goes by itself."]
        lines += ["Name what it needs in the spec, as `workload: {files: [...]}`."]
    lines += [f"- set `{name}` before running it: its value is a secret" for name in secrets]
    return lines + [f"- it needs {what}, which is not in here" for what in needed]


def _scrub_lines(changed: Mapping[str, int], withheld: Sequence[str], patterns: int) -> list[str]:
    if not patterns:
        return [
            "- no patterns were given; `aorta bundle` looks for secrets, paths and names itself"
        ]
    lines = [f"- patterns given: {patterns}; replaced: {sum(changed.values())}"]
    lines += [f"- `{name}`: {count}" for name, count in changed.items() if count]
    lines += [f"- `{name}` matches, is not text, and was left out" for name in withheld]
    scripts = [name for name in changed if changed[name] and name.startswith("shrunken/")]
    if scripts:
        lines.append(
            "- the reproducer itself was changed by this: see that it still runs before sending"
        )
    return lines


def _about(name: str) -> str:
    if name in _ABOUT:
        return f": {_ABOUT[name]}"
    if name.startswith("logs/"):
        return ": output of a failing run"
    if name.startswith("shrunken/workload/"):
        return ": a file of the workload, as it is"
    return ": reduced data" if name.startswith("shrunken/") else ""
