"""`aorta isolate`: every node coloured by how likely it is guilty, and the placements."""

from functools import partial
from pathlib import Path
from typing import Any

from aorta.report.charts import GridCell, draw_grid
from aorta.report.page import Figure, Page
from aorta.report.pages.common import own_words_page, percent, table_section
from aorta.report.run_reader import Document, OpenedRun, read_json


def gather(root: Path) -> dict[str, Any]:
    return {"result": read_json(root / "result.json")}


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    rows = [
        (at, each.text("outcome"), len(nodes), ", ".join(map(str, nodes)))
        for at, each in enumerate(result.rows("placements"), 1)
        for nodes in [each.array("nodes")]
    ]
    heads = ["#", "outcome", "nodes", "which"]
    placements = table_section("Every placement", heads, rows, frozenset({0, 2}), open=False)
    return own_words_page(run, result, picture=_picture(result), sections=placements)


def _picture(result: Document) -> Figure | None:
    nodes = [(n.text("name"), n.number("probability") or 0.0) for n in result.rows("nodes")]
    if not nodes:
        return None
    worst, sure = max(nodes, key=lambda node: node[1])
    cells = [
        GridCell("", "", name, f"{name}: {told}", note=told * (share >= 0.005), share=share)
        for name, share in nodes
        for told in [percent(share)]
    ]
    return Figure(
        "How likely each node is guilty",
        partial(draw_grid, cells),
        f"{len(nodes)} nodes; the likeliest is {worst} with {percent(sure)}",
    )
