"""`aorta triage run`: which mitigation, in which environment, or which smallest stack cures it?"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.stats import counted, wilson
from aorta.core.trial import Tally
from aorta.report.charts import GridCell, draw_grid
from aorta.report.page import Figure, Headline, Page, TextLine, Tone
from aorta.report.pages.common import (
    listed,
    listing_section,
    percent,
    rate,
    trials_section,
    unfinished,
    usual_facts,
)
from aorta.report.run_reader import Document, OpenedRun, read_json, read_tail

_LOOKS = {
    "(baseline)": "baseline",
    "works": "proved",
    "worse": "proved",
    "inert": "inert",
    "did not run": "absent",
}
_SIGNS = {"inert": "∅ inert", "error": "✕ error", "absent": "— did not run"}
_LEGEND = (
    ("heat", "the redder, the more often it fails"),
    ("hatched", "hatched: no proved difference from the baseline"),
    ("outline", "outlined: the baseline"),
    ("cell inert", "∅ dotted: cannot differ here"),
    ("cell error", "✕ framed: its trials ended in errors"),
    ("cell absent", "— dashed: did not run"),
)


def gather(root: Path) -> dict[str, Any]:
    documents = {name: read_json(root / f"{name}.json") for name in ("matrix", "optimize")}
    written = next((name for name in reversed(documents) if documents[name]), "matrix")
    return {**documents, "text": read_tail(root / f"{written}.md")}


def page(run: OpenedRun) -> Page:
    matrix, stack = run.documents.section("matrix"), run.documents.section("optimize")
    cells = matrix.rows("cells") or _cells_so_far(run)
    text = [TextLine(str(line)) for line in run.documents.array("text")]
    return Page(
        verb="triage",
        title=run.name,
        answer=_stack_answer(run, stack) if stack else _answer(run, matrix, cells),
        facts=usual_facts(run),
        picture=_stacks_picture(stack) if stack else _matrix_picture(cells),
        sections=[
            *listing_section("In its own words", "As in the ticket", text),
            *trials_section(run),
        ],
        missing=[] if matrix or stack else ["matrix.json: the run has not written its matrix yet"],
    )


def _cells_so_far(run: OpenedRun) -> list[Document]:
    """A matrix that is still filling, from the trials that have ended."""
    tallies: dict[str, Tally] = {}
    for trial in run.trials:
        name = str(trial.values.get("cell", ""))
        tallies[name] = tallies.get(name, Tally()) + trial.outcome
    return [_cell_so_far(name, tally) for name, tally in tallies.items() if name]


def _cell_so_far(name: str, tally: Tally) -> Document:
    low, high = wilson(tally.reproduced, tally.evidence)
    return Document(
        name=name,
        trials=tally.trials,
        failed_count=tally.reproduced,
        passed_count=tally.clean,
        other_count=tally.other,
        error_count=tally.error,
        interval={"low": low, "high": high},
        call="not known",
    )


def _answer(run: OpenedRun, matrix: Document, cells: Sequence[Document]) -> Headline:
    tone = Tone.RUNNING if run.running else Tone.UNSURE
    name = matrix.text("workload") or run.name
    more = unfinished(run)
    baseline = next((cell for cell in cells if cell.text("call") == "(baseline)"), Document())
    working = [cell for cell in cells if cell.text("call") == "works"]
    if working:
        best = min(working, key=lambda cell: (_rate(cell), cell.number("step_time_ratio") or 1.0))
        chance = best.number("p_value_holm")
        luck = f"; luck would do this with probability {chance:.1g}" if chance is not None else ""
        sentence = (
            f"{best.text('name')} makes it {_becomes(best)}: {_failures(best)} failed, "
            f"against {_failures(baseline)} of the baseline{luck}"
        )
        others = [f"{c.text('name')} ({_becomes(c)})" for c in working if c is not best]
        also = f"Also proved to help: {listed(others)}. " if others else ""
        return Headline(sentence, Tone.RUNNING if run.running else Tone.FOUND, also + more)
    if not any(_evidence(cell) for cell in cells):
        return Headline(f"{name}: no cell has run yet", tone, more)
    if baseline and not baseline.count("failed_count"):
        seen = counted(_evidence(baseline), "trial")
        sentence = f"The baseline never failed in {seen}: nothing can be seen to help"
        return Headline(sentence, tone, more)
    open_ = sum(cell.text("call") == "not known" for cell in cells)
    unknown = f"; {counted(open_, 'cell')} not known" if open_ else ""
    sentence = f"Nothing of what was tried is proved to help {name}{unknown}"
    return Headline(sentence, tone, more)


def _becomes(cell: Document) -> str:
    """What becomes of the failure in a cell that fails less often than the baseline."""
    return "rarer" if cell.count("failed_count") else "stop"


def _evidence(cell: Document) -> int:
    return sum(cell.count(key) for key in ("failed_count", "passed_count", "other_count"))


def _rate(cell: Document) -> float:
    return cell.count("failed_count") / max(1, _evidence(cell))


def _failures(cell: Document) -> str:
    return f"{cell.count('failed_count')} of {_evidence(cell)}"


def _matrix_picture(cells: Sequence[Document]) -> Figure | None:
    title = "How often each cell fails, with its 95 % interval"
    return _rates(title, [_matrix_cell(cell) for cell in cells], _LEGEND)


def _rates(
    title: str, cells: Sequence[GridCell], legend: Sequence[tuple[str, str]] = ()
) -> Figure | None:
    if not cells:
        return None
    says = "; ".join(cell.says for cell in cells)
    return Figure(title, partial(draw_grid, cells), says, legend=legend)


def _matrix_cell(cell: Document) -> GridCell:
    environment = cell.text("environment")
    mitigations = [str(name) for name in cell.array("mitigations")]
    look = _LOOKS.get(cell.text("call"), "unproved")
    if not _evidence(cell):
        look = "error" if cell.count("error_count") else "absent"
    bounds = cell.section("interval")
    low, high = bounds.number("low") or 0.0, bounds.number("high")
    return _rate_cell(
        _row_name(cell.text("name"), mitigations, environment),
        environment or "failure rate",
        (cell.count("failed_count"), _evidence(cell)),
        (low, 1.0 if high is None else high),
        look,
        cell.text("call"),
    )


def _rate_cell(
    row: str,
    column: str,
    failed: tuple[int, int],
    interval: tuple[float, float],
    look: str,
    call: str = "",
) -> GridCell:
    """A cell of a picture: its rate and interval, or in a word why there is none."""
    hits, of = failed
    sign = _SIGNS.get(look, "")
    if not of:
        says = f"{row} in {column}: {sign.partition(' ')[2]}"
        return GridCell(row, column, sign or "no trial yet", says, look)
    low, high = interval
    says = (
        f"{row} in {column}: {hits} of {of} failed, 95 % interval {low:.0%} to {high:.0%}; "
        f"{call or look}"
    )
    share = hits / of
    note = sign or f"{hits}/{of}"
    return GridCell(row, column, f"{share:.0%}", says, look, note, share, interval)


def _row_name(name: str, mitigations: Sequence[str], environment: str) -> str:
    """The mitigations, where the cell is named after them; else its own name."""
    stack = "+".join(mitigations)
    usual = {
        f"{stack}-{environment}",
        f"{stack or 'none'}_{environment}",
        f"baseline-{environment}",
    }
    return stack if stack and name in usual else name


# -- the smallest stack


def _stack_answer(run: OpenedRun, found: Document) -> Headline:
    best, original = found.section("recommended"), found.section("original")
    without = rate(original.count("reproduced"), original.count("of"))
    if best:
        names = [str(name) for name in best.array("mitigations")]
        failed, of = _counts(best)
        below = best.number("rate_below")
        sure = f": the rate is below {percent(below)} (95 % sure)" if below is not None else ""
        who = f"Together, {listed(names)} make" if len(names) > 1 else f"{listed(names)} makes"
        sentence = f"{who} it stop: {failed} of {of} fresh trials failed{sure}"
        return Headline(sentence, Tone.FOUND, f"Without mitigations {without} failed.")
    why = found.text("why")
    sentence = f"{why[:1].upper()}{why[1:]}" if why else "No stack is known to work yet"
    if found.text("status") == "did_not_reproduce":
        sentence = f"The failure did not show without mitigations: {without}"
    more = unfinished(run)
    return Headline(sentence, Tone.RUNNING if run.running else Tone.UNSURE, more)


def _counts(entry: Document) -> tuple[int, int]:
    """Failed, and of how many; of the original and of a stack."""
    return entry.count("failed") or entry.count("reproduced"), entry.count("of")


def _stacks_picture(found: Document) -> Figure | None:
    named = [("no mitigation", found.section("original"), "baseline")]
    if best := found.section("recommended"):
        named.append((" + ".join(map(str, best.array("mitigations"))), best, "proved"))
        named += [
            (f"… without {part}", best.section("without", part), "unproved")
            for part in best.section("without")
        ]
    cells = [
        _rate_cell(name, "failure rate", _counts(entry), wilson(*_counts(entry)), look)
        if entry.count("of")
        else GridCell(name, "failure rate", "— did not run", f"{name}: not tried", "absent")
        for name, entry, look in named
    ]
    title = "How often it fails: without anything, with the stack, and with each part left out"
    return _rates(title, cells)
