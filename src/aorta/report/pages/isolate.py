"""`aorta isolate`: the answer, every node coloured by how likely it is guilty, and the
placements.
"""

from functools import partial
from pathlib import Path
from typing import Any

from aorta.report.charts import GridCell, draw_grid
from aorta.report.page import FactRows, Figure, Headline, Page, Section, Tone
from aorta.report.pages.common import (
    list_section,
    missing_result,
    next_section,
    percent,
    table_section,
    usual_facts,
)
from aorta.report.run_reader import Document, OpenedRun, read_json


def gather(root: Path) -> dict[str, Any]:
    return {"result": read_json(root / "result.json")}


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    lost = [f"{name} was lost in each of its placements" for name in result.array("lost")]
    known = [f"Known before: {text}" for text in result.array("priors")]
    return Page(
        verb="isolate",
        title=run.name,
        answer=_answer(run, result),
        facts=FactRows([*usual_facts(run), *_facts(result)]),
        picture=_picture(result),
        sections=[
            *next_section(result, "What to do now"),
            *list_section("Know this too", [*lost, *known]),
            *_placements(result),
        ],
        missing=missing_result(result),
    )


def _answer(run: OpenedRun, result: Document) -> Headline:
    status, guilty = result.text("status"), result.rows("guilty")
    if not status:
        sentence = "Which part is guilty is not known yet"
        return Headline(sentence, Tone.RUNNING if run.running else Tone.UNSURE)
    if status == "software":
        sure = percent(result.number("software") or 0)
        failed = [p for p in result.rows("placements") if p.text("outcome") == "reproduced"]
        sets = "nodes"
        # A background rate: smaller sets never fail.
        if failed and result.section("rates").number("background") is not None:
            sets = f"{min(len(p.array('nodes')) for p in failed)} or more nodes"
        return Headline(f"The software: every set of {sets} fails alike ({sure})", Tone.FOUND)
    if status in {"found", "several"} and guilty:
        names = " and ".join(each.text("name") for each in guilty)
        sure = percent(guilty[0].number("probability") or 0)
        what = guilty[0].text("kind") if status == "found" else "more than one"
        return Headline(f"It is {what}: {names} ({sure})", Tone.FOUND)
    return Headline("No explanation is likely enough", Tone.UNSURE)


def _facts(result: Document) -> list[tuple[str, object]]:
    rates = result.section("rates")
    facts: list[tuple[str, object]] = []
    for title, key in (("Fails with it", "guilty"), ("Fails without it", "background")):
        if (rate := rates.number(key)) is not None:
            facts.append((title, f"{percent(rate)} of runs"))
    if (hours := result.number("node_hours")) is not None:
        facts.append(("Spent", f"{hours:.2g} node-hours"))
    return facts


def _picture(result: Document) -> Figure | None:
    nodes = [(n.text("name"), n.number("probability") or 0.0) for n in result.rows("nodes")]
    if not nodes:
        return None
    worst, sure = max(nodes, key=lambda node: node[1])
    cells = [
        GridCell(
            row="",
            column="",
            text=name,
            says=f"{name}: {percent(share)}",
            note=percent(share) if share >= 0.005 else "",
            share=share,
        )
        for name, share in nodes
    ]
    return Figure(
        "How likely each node is guilty",
        partial(draw_grid, cells),
        f"{len(nodes)} nodes; the likeliest is {worst} with {percent(sure)}",
    )


def _placements(result: Document) -> list[Section]:
    found = []
    for at, each in enumerate(result.rows("placements"), 1):
        nodes = [str(node) for node in each.array("nodes")]
        found.append((at, each.text("outcome"), len(nodes), ", ".join(nodes)))
    heads = ["#", "outcome", "nodes", "which"]
    return table_section("Every placement", heads, found, frozenset({0, 2}), open=False)
