"""What an attribution says: the finding, the decision, and the lines of the logs they rest on; and
the page of a saved `aorta attribute --json`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aorta.report.charts import GridCell, draw_grid
from aorta.report.page import (
    Block,
    FactRows,
    Figure,
    Headline,
    Listing,
    Page,
    Section,
    TextLine,
    Tone,
    Words,
)
from aorta.report.pages.common import listed, percent, table_section
from aorta.report.run_reader import (
    Document,
    OpenedRun,
    attribution_in,
    count,
    items,
    number,
    rows,
    section,
    words,
)

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
    document = attribution_in(root) or {}
    return {"finding": section(document, "finding"), "decision": section(document, "decision")}


def page(run: OpenedRun) -> Page:
    finding, decision = section(run.documents, "finding"), section(run.documents, "decision")
    name = f"up to step {words(finding, 'last_step')}" if words(finding, "last_step") else "ranks"
    return Page(
        verb="attribute",
        title=run.name,
        answer=answer(finding, decision),
        facts=FactRows(facts(finding)),
        picture=picture_of("Who began it, and who only followed", {name: ends_of(finding)}),
        sections=sections(finding, decision),
        missing=[] if finding else ["finding: the document holds none"],
    )


def ends_of(finding: Document) -> dict[int, str]:
    """How each rank ended that the finding speaks of."""
    known: dict[int, str] = {}
    for row in rows(finding, "cascade"):
        known |= {r: "cascade" for r in items(row, "ranks") if isinstance(r, int)}
    known |= {r: "failed" for r in items(finding, "suspect_ranks") if isinstance(r, int)}
    root = number(section(finding, "root"), "rank")
    if root is not None:
        known[int(root)] = "hung" if words(finding, "class") in _HANGS else "root"
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
    said = [f"{name}: {_counted_ends(ends)}" for name, ends in columns.items()]
    seen = {end for ends in columns.values() for end in ends.values()}
    legend = [(f"cell life {end}", words_) for end, words_ in ENDS.items() if end in seen]
    return Figure(title, partial(draw_grid, cells), "; ".join(said), legend=legend)


def _counted_ends(ends: Mapping[int, str]) -> str:
    counted = {end: sum(value == end for value in ends.values()) for end in ENDS}
    return ", ".join(f"{n} {ENDS[end][2:]}" for end, n in counted.items() if n)


def _shown_ranks(columns: Mapping[str, Mapping[int, str]]) -> list[int]:
    """All of them, or where there are too many first those with a story of their own."""
    order = list(ENDS)
    story: dict[int, int] = {}
    for ends in columns.values():
        for rank, end in ends.items():
            story[rank] = min(order.index(end), story.get(rank, len(order)))
    return sorted(sorted(story, key=lambda rank: (story[rank], rank))[:_MOST_RANKS])


def answer(finding: Document, decision: Document, after: str = "", ended: str = "") -> Headline:
    """`Rank 3 on node-7 began it: hardware fault (probability 94 %): restart`. `ended`: what became
    of the job, where that is more than the decision.
    """
    if words(finding, "state", "failed") != "failed":
        summary = words(finding, "summary")
        return Headline(f"{summary[:1].upper()}{summary[1:]}", Tone.FINE, after)
    kind = words(finding, "class", "unknown")
    confidence = number(finding, "confidence")
    sure = f" (probability {percent(confidence)})" if confidence is not None else ""
    action = words(decision, "action")
    said = ended or _ACTIONS.get(action, action.lower())
    sentence = f"{_who(finding)} {kind.replace('_', ' ')}{sure}" + (f": {said}" if said else "")
    stopped = ended or action == "STOP"
    tone = Tone.UNSURE if kind == "unknown" else Tone.FAILED if stopped else Tone.FOUND
    told = [words(finding, "summary"), words(decision, "reason"), after]
    unique = [t for i, t in enumerate(told) if t and not any(t in other for other in told[i + 1 :])]
    return Headline(sentence, tone, " ".join(f"{each.strip().rstrip('.')}." for each in unique))


def _who(finding: Document) -> str:
    root = section(finding, "root")
    rank, node = words(root, "rank"), words(root, "node")
    where = f" on {node}" if node else ""
    return f"Rank {rank}{where} began it:" if rank else f"It began{where}:"


def facts(finding: Document) -> list[tuple[str, object]]:
    root = section(finding, "root")
    failed = words(finding, "state", "failed") == "failed"
    candidates = [
        ("Class", words(finding, "class") if failed else ""),
        ("First failure", f"rank {words(root, 'rank')}" if words(root, "rank") else ""),
        ("Node", words(root, "node")),
        ("Device", words(root, "device")),
        ("Last step", words(finding, "last_step")),
        ("Fingerprint", words(finding, "fingerprint")),
    ]
    return [(name, value) for name, value in candidates if value]


def sections(finding: Document, decision: Document) -> list[Section]:
    return [*_decision(decision), *_evidence(finding), *_cascade(finding)]


def _decision(decision: Document) -> list[Section]:
    if not decision:
        return []
    action = words(decision, "action")
    blocks: list[Block] = [FactRows([("Decision", action), ("Rule", words(decision, "rule"))])]
    if reason := words(decision, "reason"):
        blocks.append(Words([reason]))
    advice = [words(row, "text") or words(row, "kind") for row in rows(decision, "advice")]
    if advice:
        blocks.append(Words(advice, is_list=True))
    return [Section("The decision", blocks)]


def _evidence(finding: Document) -> list[Section]:
    """The lines it rests on, by file."""
    lines: dict[str, list[TextLine]] = {}
    for row in rows(finding, "evidence"):
        line = TextLine(words(row, "text"), count(row, "line") or None, "evidence")
        lines.setdefault(words(row, "file"), []).append(line)
    listings = [Listing(file, found) for file, found in lines.items()]
    return [Section("The lines it rests on", listings)] if listings else []


def _cascade(finding: Document) -> list[Section]:
    followers: Sequence[Sequence[object]] = [
        [words(row, "class"), listed([str(rank) for rank in items(row, "ranks")], 24)]
        for row in rows(finding, "cascade")
    ]
    return table_section("What only followed", ["what followed", "ranks"], followers)
