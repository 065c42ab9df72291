"""`aorta triage run --mode optimize`: the smallest stack that works, and that every part of it is
needed.
"""

from aorta.core.stats import wilson
from aorta.report.charts.matrix import CellAnswer, HeatCell, draw_heat
from aorta.report.documents import Document, count, items, number, rows, section, words
from aorta.report.model import Command, FactRows, Figure, Headline, Page, Section, Tone, Words
from aorta.report.pages.common import (
    listed,
    percent,
    rate,
    state_words,
    table_section,
    trials_section,
    usual_facts,
)
from aorta.report.run_reader import OpenedRun


def page(run: OpenedRun) -> Page:
    found = section(run.documents, "optimize")
    return Page(
        verb="triage",
        title=run.name,
        answer=_answer(run, found),
        facts=FactRows([*usual_facts(run), ("Candidates", len(items(found, "candidates")))]),
        picture=_picture(found),
        sections=[
            *_recommended(found),
            *_sets(found),
            *_left_out(found),
            *trials_section(run),
        ],
    )


def _answer(run: OpenedRun, found: Document) -> Headline:
    best = section(found, "recommended")
    original = section(found, "original")
    without = rate(count(original, "reproduced"), count(original, "of"))
    if best:
        names = [str(name) for name in items(best, "mitigations")]
        failed, of = _counts(best)
        below = number(best, "rate_below")
        sure = f": the rate is below {percent(below)} (95 % sure)" if below is not None else ""
        who = f"Together, {listed(names)} make" if len(names) > 1 else f"{listed(names)} makes"
        sentence = f"{who} it stop: {failed} of {of} fresh trials failed{sure}"
        return Headline(sentence, Tone.FOUND, f"Without mitigations {without} failed.")
    why = words(found, "why")
    sentence = f"{why[:1].upper()}{why[1:]}" if why else "No stack is known to work yet"
    if words(found, "status") == "did_not_reproduce":
        sentence = f"The failure did not show without mitigations: {without}"
    tone = Tone.RUNNING if run.running else Tone.UNSURE
    return Headline(
        sentence, tone, "" if run.state == "done" else f"The run is {state_words(run)}."
    )


def _counts(entry: Document) -> tuple[int, int]:
    """Failed, and of how many; whichever of the two spellings is there."""
    return count(entry, "failed") or count(entry, "reproduced"), count(entry, "of")


def _picture(found: Document) -> Figure | None:
    original = section(found, "original")
    cells = [_cell("no mitigation", original, CellAnswer.BASELINE)] if count(original, "of") else []
    for entry in rows(found, "sets"):
        name = " + ".join(str(part) for part in items(entry, "mitigations"))
        cells.append(_cell(name, entry, CellAnswer.PROVED))
        cells += [
            _cell(f"… without {part}", section(without), CellAnswer.UNPROVED)
            for part, without in section(entry, "without").items()
        ]
    if not cells:
        return None
    says = "; ".join(cell.says for cell in cells)
    return Figure(
        "How often it fails: without anything, with the stack, and with each part of it left out",
        lambda width: draw_heat(cells, width, says),
        says,
    )


def _cell(name: str, entry: Document, answer: CellAnswer) -> HeatCell:
    failed, of = _counts(entry)
    low, high = wilson(failed, of)
    return HeatCell(
        name, "failure rate", answer if of else CellAnswer.ABSENT, failed, of, low, high
    )


def _recommended(found: Document) -> list[Section]:
    lines = [str(line) for line in items(found, "environment_lines")]
    return [Section("Recommended", [Command("\n".join(lines), "Set this:")])] if lines else []


def _sets(found: Document) -> list[Section]:
    sets = rows(found, "sets")
    return table_section(
        "Minimal stacks",
        ["stack", "failed", "rate below", "luck", "step time"],
        [
            [
                " + ".join(str(part) for part in items(entry, "mitigations")),
                "{} of {}".format(*_counts(entry)),
                _said(number(entry, "rate_below"), "{:.1%}"),
                _said(number(entry, "chance_of_luck"), "{:.1g}"),
                _said(number(entry, "step_time_ms"), "{:.4g} ms"),
            ]
            for entry in sets
        ],
        frozenset({2, 3, 4}),
    )


def _said(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _left_out(found: Document) -> list[Section]:
    said = [f"{name}: {why}" for name, why in section(found, "left_out").items()]
    said += [str(warning) for warning in items(found, "warnings")]
    return [Section("Left out, and warnings", [Words(said[:100], is_list=True)])] if said else []
