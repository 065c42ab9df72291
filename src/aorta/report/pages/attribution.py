"""The page of a saved `aorta attribute --json`: finding, decision, and the lines they rest on."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aorta.report.charts import GridCell, draw_grid
from aorta.report.page import Figure, Headline, Listing, Page, Section, TextLine, Tone
from aorta.report.pages.common import list_section, listed, percent, table_section
from aorta.report.run_reader import Document, OpenedRun, attribution_in

_HANGS = frozenset({"hang", "collective_timeout"})
_ACTIONS = {"STOP": "stop", "RESTART": "restart", "UNKNOWN": "not known; acts as restart"}
_MOST_RANKS = 64
ENDS = {
    "root": "✕ failed first",
    "hung": "‖ hung",
    "failed": "✕ failed",
    "cascade": "↯ only followed",
    "stopped": "▪ stopped by the launcher",
    "finished": "✓ finished",
}
"""How a rank ended, by its look in the picture; those with a story of their own first."""


def gather(root: Path) -> dict[str, Any]:
    document = attribution_in(root)
    return {"finding": document.section("finding"), "decision": document.section("decision")}


def page(run: OpenedRun) -> Page:
    finding, decision = run.documents.section("finding"), run.documents.section("decision")
    name = f"up to step {finding.text('last_step')}" if finding.text("last_step") else "ranks"
    return Page(
        verb="attribute",
        title=run.name,
        answer=answer(finding, decision),
        facts=facts(finding),
        picture=picture_of("Who began it, and who only followed", {name: ends_of(finding)}),
        sections=sections(finding, decision),
        missing=[] if finding else ["finding: the document holds none"],
    )


def ends_of(finding: Document) -> dict[int, str]:
    """How each rank ended that the finding speaks of."""
    known: dict[int, str] = {}
    for row in finding.rows("cascade"):
        known |= {r: "cascade" for r in row.array("ranks") if isinstance(r, int)}
    known |= {r: "failed" for r in finding.array("suspect_ranks") if isinstance(r, int)}
    root = finding.section("root").number("rank")
    if root is not None:
        known[int(root)] = "hung" if finding.text("class") in _HANGS else "root"
    return dict(sorted(known.items()))


def picture_of(title: str, columns: Mapping[str, Mapping[int, str]]) -> Figure | None:
    """A row a rank, a column a cycle: how each rank ended."""
    ranks = _shown_ranks(columns)
    cells = [
        GridCell(
            f"rank {rank}", name, ENDS[end], f"rank {rank}, {name}: {ENDS[end][2:]}", f"life {end}"
        )
        for rank in ranks
        for name, ends in columns.items()
        if (end := ends.get(rank, ""))
    ]
    if not cells:
        return None
    counted = {name: Counter(ends.values()) for name, ends in columns.items()}
    counts = [
        f"{name}: " + ", ".join(f"{ends[end]} {ENDS[end][2:]}" for end in ENDS if ends[end])
        for name, ends in counted.items()
    ]
    seen = {end for ends in columns.values() for end in ends.values()}
    legend = [(f"cell life {end}", words_) for end, words_ in ENDS.items() if end in seen]
    return Figure(title, partial(draw_grid, cells), "; ".join(counts), legend=legend)


def _shown_ranks(columns: Mapping[str, Mapping[int, str]]) -> list[int]:
    """All of them, or where there are too many first those with a story of their own."""
    order = list(ENDS)
    story: dict[int, int] = {}
    for ends in columns.values():
        for rank, end in ends.items():
            story[rank] = min(order.index(end), story.get(rank, len(order)))
    return sorted(sorted(story, key=lambda rank: (story[rank], rank))[:_MOST_RANKS])


def answer(finding: Document, decision: Document, after: str = "", ended: str = "") -> Headline:
    """`Rank 3 on node-7 began it: hardware fault (probability 94 %): restart`, or as it `ended`."""
    if finding.text("state", "failed") != "failed":
        summary = finding.text("summary")
        return Headline(f"{summary[:1].upper()}{summary[1:]}", Tone.FINE, after)
    kind = finding.text("class", "unknown")
    confidence = finding.number("confidence")
    sure = f" (probability {percent(confidence)})" if confidence is not None else ""
    action = decision.text("action")
    outcome = ended or _ACTIONS.get(action, action.lower())
    then = f": {outcome}" if outcome else ""
    root = finding.section("root")
    where = f" on {root.text('node')}" if root.text("node") else ""
    who = f"Rank {root.text('rank')}{where} began it:" if root.text("rank") else f"It began{where}:"
    sentence = f"{who} {kind.replace('_', ' ')}{sure}{then}"
    stopped = ended or action == "STOP"
    tone = Tone.UNSURE if kind == "unknown" else Tone.FAILED if stopped else Tone.FOUND
    more = [finding.text("summary"), decision.text("reason"), after]
    unique = [t for i, t in enumerate(more) if t and not any(t in other for other in more[i + 1 :])]
    return Headline(sentence, tone, " ".join(f"{each.strip().rstrip('.')}." for each in unique))


def facts(finding: Document) -> list[tuple[str, object]]:
    root = finding.section("root")
    failed = finding.text("state", "failed") == "failed"
    candidates = [
        ("Class", finding.text("class") if failed else ""),
        ("First failure", f"rank {root.text('rank')}" if root.text("rank") else ""),
        ("Node", root.text("node")),
        ("Device", root.text("device")),
        ("Last step", finding.text("last_step")),
        ("Fingerprint", finding.text("fingerprint")),
    ]
    return [(name, value) for name, value in candidates if value]


def sections(finding: Document, decision: Document) -> list[Section]:
    followers = [
        [row.text("class"), listed([str(rank) for rank in row.array("ranks")], 24)]
        for row in finding.rows("cascade")
    ]
    cascade = table_section("What only followed", ["what followed", "ranks"], followers)
    return [*_decision(decision), *_evidence(finding), *cascade]


def _decision(decision: Document) -> list[Section]:
    if not decision:
        return []
    rule = decision.text("rule")
    why = decision.text("reason") + (f" ({rule})" if rule else "")
    advice = [row.text("text") or row.text("kind") for row in decision.rows("advice")]
    return list_section("The decision", [f"{decision.text('action')}: {why}", *advice])


def _evidence(finding: Document) -> list[Section]:
    """The lines it rests on, by file."""
    lines: dict[str, list[TextLine]] = {}
    for row in finding.rows("evidence"):
        line = TextLine(row.text("text"), row.count("line") or None, "evidence")
        lines.setdefault(row.text("file"), []).append(line)
    listings = [Listing(file, found) for file, found in lines.items()]
    return [Section("The lines it rests on", listings)] if listings else []
