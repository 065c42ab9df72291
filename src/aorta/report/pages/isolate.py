"""`aorta isolate`: the answer, every node coloured by how likely it is guilty, and the
placements.
"""

from functools import partial
from pathlib import Path
from typing import Any

from aorta.report.charts import GridCell, draw_grid
from aorta.report.page import FactRows, Figure, Headline, Page, Section, Table, Tone
from aorta.report.pages.common import (
    list_section,
    missing_result,
    next_section,
    percent,
    table_section,
    usual_facts,
)
from aorta.report.run_reader import (
    Document,
    OpenedRun,
    items,
    number,
    read_json,
    rows,
    section,
    words,
)


def gather(root: Path) -> dict[str, Any]:
    return {"result": read_json(root / "result.json")}


def page(run: OpenedRun) -> Page:
    result = section(run.documents, "result")
    lost = [f"{name} was lost in each of its placements" for name in items(result, "lost")]
    known = [f"Known before: {text}" for text in items(result, "priors")]
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
    status, guilty = words(result, "status"), rows(result, "guilty")
    if not status:
        sentence = "Which part is guilty is not known yet"
        return Headline(sentence, Tone.RUNNING if run.running else Tone.UNSURE)
    if status == "software":
        sure = percent(number(result, "software") or 0)
        failed = [p for p in rows(result, "placements") if words(p, "outcome") == "reproduced"]
        sets = "nodes"
        # A background rate: smaller sets never fail.
        if failed and number(section(result, "rates"), "background") is not None:
            sets = f"{min(len(items(p, 'nodes')) for p in failed)} or more nodes"
        return Headline(f"The software: every set of {sets} fails alike ({sure})", Tone.FOUND)
    if status in {"found", "several"} and guilty:
        names = " and ".join(words(each, "name") for each in guilty)
        sure = percent(number(guilty[0], "probability") or 0)
        what = words(guilty[0], "kind") if status == "found" else "more than one"
        return Headline(f"It is {what}: {names} ({sure})", Tone.FOUND)
    return Headline("No explanation is likely enough", Tone.UNSURE)


def _facts(result: Document) -> list[tuple[str, object]]:
    rates = section(result, "rates")
    facts: list[tuple[str, object]] = []
    for title, key in (("Fails with it", "guilty"), ("Fails without it", "background")):
        if (rate := number(rates, key)) is not None:
            facts.append((title, f"{percent(rate)} of runs"))
    if (hours := number(result, "node_hours")) is not None:
        facts.append(("Spent", f"{hours:.2g} node-hours"))
    return facts


def _picture(result: Document) -> Figure | None:
    nodes = [(words(n, "name"), number(n, "probability") or 0.0) for n in rows(result, "nodes")]
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
    table = [[name, percent(share)] for name, share in nodes]
    return Figure(
        "How likely each node is guilty",
        partial(draw_grid, cells),
        f"{len(nodes)} nodes; the likeliest is {worst} with {percent(sure)}",
        Table(["node", "probability"], table, frozenset({1})),
    )


def _placements(result: Document) -> list[Section]:
    found = []
    for at, each in enumerate(rows(result, "placements"), 1):
        nodes = [str(node) for node in items(each, "nodes")]
        found.append((at, words(each, "outcome"), len(nodes), ", ".join(nodes)))
    heads = ["#", "outcome", "nodes", "which"]
    return table_section("Every placement", heads, found, frozenset({0, 2}), open=False)
