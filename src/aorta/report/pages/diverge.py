"""`aorta diverge`: the operation at which the numbers part."""

import linecache
from pathlib import Path
from typing import Any

from aorta.report.charts import Curve
from aorta.report.page import Figure, Listing, Page, Section, TextLine
from aorta.report.pages.common import own_words_page
from aorta.report.run_reader import Document, OpenedRun, read_json


def gather(root: Path) -> dict[str, Any]:
    result = Document(read_json(root / "result.json"))
    named = (("first",), ("first", "apart"), ("first", "good"), ("first_nonfinite",))
    sections = [result.section(*path) for path in (*named, ("self_difference",))]
    places = dict.fromkeys((at.text("file"), at.count("line")) for at in sections)
    lines = [[file, n, linecache.getline(file, n).strip()] for file, n in places if _is_shown(file)]
    return {"result": result, "lines": lines}


def _is_shown(file: str) -> bool:
    """What can be read on this machine. On a page for others a path is no longer one."""
    return file.endswith(".py") and Path(file).is_absolute()


def page(run: OpenedRun) -> Page:
    result, lines = run.documents.section("result"), run.documents.array("lines")
    shown = [
        Listing(file, [TextLine(text, number, "evidence")])
        for file, number, text in lines
        if text and _is_shown(file)
    ]
    lead = [Section("In the program", shown)] if shown else []
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
