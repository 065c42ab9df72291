"""`aorta diverge`: the operation at which the numbers part."""

import linecache
from pathlib import Path
from typing import Any

from aorta.report.charts import Curve
from aorta.report.page import Figure, Listing, Page, Section, TextLine
from aorta.report.pages.common import own_words_page
from aorta.report.run_reader import Document, OpenedRun, read_json


def gather(root: Path) -> dict[str, Any]:
    result = read_json(root / "result.json")
    return {"result": result, "source": _source(Document(result))}


def _source(result: Document) -> list[dict[str, Any]]:
    """The lines that the answer names, where their files can be read on this machine."""
    named = (("first",), ("first", "apart"), ("first", "good"), ("first_nonfinite",))
    found = {}
    for place in (result.section(*path) for path in (*named, ("self_difference",))):
        file, line = place.text("file"), place.count("line")
        if file.endswith(".py") and _is_shown(file):
            found[file, line] = linecache.getline(file, line).strip()
    return [{"file": file, "line": n, "text": text} for (file, n), text in found.items() if text]


def _is_shown(file: str) -> bool:
    """Not on a page for others: there a path is no longer one."""
    return Path(file).is_absolute()


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    lines = [
        Listing(row.text("file"), [TextLine(row.text("text"), row.count("line"), "evidence")])
        for row in run.documents.rows("source")
        if _is_shown(row.text("file"))
    ]
    lead = [Section("In the program", lines)] if lines else []
    return own_words_page(run, result, picture=_history(result), lead=lead)


def _history(result: Document) -> Figure | None:
    """The steps before the first NaN or infinity: the largest value, by module."""
    history = result.rows("history")
    if not history:
        return None
    marks = [
        (
            mark,
            [
                (one.number("step") or 0.0, size.number("max") or 0.0)
                for one in history
                if (size := one.section(kind))
            ],
        )
        for kind, mark in (("activation", "clean"), ("gradient", "other"))
    ]
    return Figure(
        "The largest activation and gradient of each module, on a logarithmic scale",
        Curve(marks, "step", log=True).draw,
        "the largest activation and gradient of each module, step by step",
        legend=[("clean", "an activation"), ("other", "a gradient")],
    )
