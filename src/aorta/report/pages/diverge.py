"""`aorta diverge`: the operation at which the numbers part."""

from pathlib import Path
from typing import Any

from aorta.report.charts import Curve
from aorta.report.page import Figure, Page
from aorta.report.pages.common import own_words_page
from aorta.report.run_reader import Document, OpenedRun, read_json


def gather(root: Path) -> dict[str, Any]:
    return {"result": read_json(root / "result.json")}


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    return own_words_page(run, result, picture=_history(result))


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
