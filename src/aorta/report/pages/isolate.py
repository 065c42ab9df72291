"""`aorta isolate`: the answer, every node coloured by how likely it is guilty, and the
placements.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aorta.report.charts.drawing import canvas, fitted, label, rect
from aorta.report.documents import Document, items, number, section, words
from aorta.report.markup import Markup
from aorta.report.model import (
    Command,
    FactRows,
    Figure,
    Headline,
    Page,
    Section,
    Table,
    Tone,
    Words,
)
from aorta.report.pages.common import percent, table_section, usual_facts
from aorta.report.run_reader import OpenedRun, read_json

_TALL, _GAP = 34, 4


def gather(root: Path) -> dict[str, Any]:
    return {"result": read_json(root / "result.json")}


def page(run: OpenedRun) -> Page:
    result = section(run.documents, "result")
    return Page(
        verb="isolate",
        title=run.name,
        answer=_answer(run, result),
        facts=FactRows([*usual_facts(run), *_facts(result)]),
        picture=_picture(result),
        sections=[*_next(result), *_placements(result)],
        missing=[] if result else ["result.json: the run has not written a result yet"],
    )


def _answer(run: OpenedRun, result: Document) -> Headline:
    status = words(result, "status")
    if not status:
        sentence = "Which part is guilty is not known yet"
        return Headline(sentence, Tone.RUNNING if run.running else Tone.UNSURE)
    if status == "software":
        sure = percent(number(result, "software") or 0)
        return Headline(f"The software: every set of nodes fails alike ({sure})", Tone.FOUND)
    guilty = [each for each in items(result, "guilty") if isinstance(each, dict)]
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
    nodes = [each for each in items(result, "nodes") if isinstance(each, dict)]
    if not nodes:
        return None
    rows = [(words(each, "name"), number(each, "probability") or 0.0) for each in nodes]
    worst = max(rows, key=lambda row: row[1])
    return Figure(
        title="How likely each node is guilty",
        draw=lambda width: _grid(rows, width),
        says=f"{len(rows)} nodes; the likeliest is {worst[0]} with {percent(worst[1])}",
        table=Table(
            ["node", "probability"],
            [(name, percent(share)) for name, share in rows],
            frozenset({1}),
        ),
    )


def _grid(rows: Sequence[tuple[str, float]], width: int) -> Markup:
    """A square a node, the darker the likelier."""
    columns = max(1, min(len(rows), width // 88))
    wide = width / columns
    parts = []
    for at, (name, share) in enumerate(rows):
        x, y = (at % columns) * wide, (at // columns) * (_TALL + _GAP)
        parts += [
            rect(
                x, y, wide - _GAP, _TALL, class_="guilt", fill_opacity=round(0.06 + 0.9 * share, 3)
            ),
            label(x + 6, y + 14, fitted(name, wide - 14), "tick"),
            label(x + 6, y + 28, percent(share) if share >= 0.005 else "", "tick"),
        ]
    height = math.ceil(len(rows) / columns) * (_TALL + _GAP)
    return canvas(width, height, "nodes by how likely they are guilty", *parts)


def _next(result: Document) -> list[Section]:
    blocks = [Command(str(text)) for text in items(result, "next")]
    lost = [f"{name} was lost in each of its placements" for name in items(result, "lost")]
    priors = [f"Known before: {text}" for text in items(result, "priors")]
    said = [Words([*lost, *priors], is_list=True)] if lost or priors else []
    return [Section("What to do now", [*said, *blocks])] if said or blocks else []


def _placements(result: Document) -> list[Section]:
    rows = [
        (
            at,
            words(each, "outcome"),
            len(items(each, "nodes")),
            ", ".join(map(str, items(each, "nodes"))),
        )
        for at, each in enumerate(items(result, "placements"), 1)
        if isinstance(each, dict)
    ]
    return table_section(
        "Every placement", ["#", "outcome", "nodes", "which"], rows, frozenset({0, 2}), open=False
    )
