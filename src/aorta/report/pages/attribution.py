"""A saved `aorta attribute --json`: what killed this cycle."""

from pathlib import Path
from typing import Any

from aorta.report.charts.gantt import LEGEND, Cycle, Fate, draw_gantt
from aorta.report.documents import Document, count, items, number, rows, section, words
from aorta.report.model import FactRows, Figure, Page
from aorta.report.pages import finding as findings
from aorta.report.run_reader import OpenedRun, attribution_in


def gather(root: Path) -> dict[str, Any]:
    document = attribution_in(root) or {}
    return {
        "finding": findings.with_context(section(document, "finding"), [root, root / "logs"]),
        "decision": section(document, "decision"),
        "elapsed_ms": number(document, "elapsed_ms"),
    }


def page(run: OpenedRun) -> Page:
    finding, decision = section(run.material, "finding"), section(run.material, "decision")
    return Page(
        verb="attribute",
        title=run.name,
        answer=findings.answer(finding, decision),
        facts=FactRows(findings.facts(finding)),
        picture=_picture(finding),
        sections=findings.sections(finding, decision),
        missing=[] if finding else ["finding: the document holds none"],
    )


def _picture(finding: Document) -> Figure | None:
    """Ranks over steps: an attribution knows no clock, but it knows how far the job came."""
    fates = _fates(finding)
    if not fates:
        return None
    first, last = count(finding, "first_step"), count(finding, "last_step")
    life = Cycle(0, float(first), float(max(last, first + 1)), fates, words(finding, "class"))
    says = ", ".join(f"rank {rank}: {fate.value}" for rank, fate in fates.items())
    seen = {f"life {fate.value}" for fate in fates.values()}
    return Figure(
        "Who began it, and who only followed",
        lambda width: draw_gantt([life], width, says, unit="step"),
        says,
        legend=[entry for entry in LEGEND if entry[0] in seen],
    )


def _fates(finding: Document) -> dict[int, Fate]:
    fates: dict[int, Fate] = {}
    for row in rows(finding, "cascade"):
        fates |= {r: Fate.CASCADE for r in items(row, "ranks") if isinstance(r, int)}
    fates |= {r: Fate.FAILED for r in items(finding, "suspect_ranks") if isinstance(r, int)}
    root = number(section(finding, "root"), "rank")
    if root is not None:
        fates[int(root)] = Fate.HUNG if words(finding, "class") == "hang" else Fate.ROOT
    return dict(sorted(fates.items()))
