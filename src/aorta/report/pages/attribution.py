"""What an attribution says: the finding, the decision, and the lines of the logs they rest on; and
the page of a saved `aorta attribute --json`.
"""

import gzip
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from aorta.report.charts.gantt import LEGEND, Cycle, Fate, draw_gantt
from aorta.report.documents import Document, count, items, number, rows, section, words
from aorta.report.model import (
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
from aorta.report.run_reader import OpenedRun, attribution_in, clean_lines

_HANGS = frozenset({"hang", "collective_timeout"})
_AROUND = 4
_MOST_EXCERPTS = 12
_MOST_LINES = 2_000_000
_ACTIONS = {"STOP": "stop", "RESTART": "restart", "UNKNOWN": "not known; acts as restart"}


def with_context(finding: Document, folders: Sequence[Path]) -> dict[str, Any]:
    """The finding with the lines around each line of evidence, where the log can still be read."""
    evidence = [_with_its_log(line, folders) for line in rows(finding, "evidence")[:_MOST_EXCERPTS]]
    return {**finding, "evidence": evidence} if finding else {}


def _with_its_log(line: Document, folders: Sequence[Path]) -> dict[str, Any]:
    """A log that lies in the run is called by its name alone."""
    name = Path(words(line, "file")).name
    path = next((f / name for f in folders if name and (f / name).is_file()), None)
    if path is None:
        return dict(line)
    return {**line, "file": name, "context": _context(path, count(line, "line"))}


def _context(path: Path, at: int) -> list[dict[str, Any]]:
    if not 0 < at < _MOST_LINES:
        return []
    first = max(1, at - _AROUND)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            found = [
                bytes(raw).decode("utf-8", "replace")
                for raw in islice(file, first - 1, at + _AROUND)
            ]
    except (OSError, EOFError):
        return []
    return [
        {"line": first + offset, "text": clean_lines(said.rstrip("\n"))[0]}
        for offset, said in enumerate(found)
    ]


def answer(
    finding: Document, decision: Document, action_taken: str = "", ended: str = ""
) -> Headline:
    """`Rank 3 on node-7 began it: hardware fault (probability 94 %): restart`. `ended`: what became
    of the job, where that is more than the decision.
    """
    if words(finding, "state", "failed") != "failed":
        summary = words(finding, "summary")
        return Headline(f"{summary[:1].upper()}{summary[1:]}", Tone.FINE, action_taken)
    kind = words(finding, "class", "unknown")
    confidence = number(finding, "confidence")
    sure = f" (probability {percent(confidence)})" if confidence is not None else ""
    root = section(finding, "root")
    who = _who(root)
    action = words(decision, "action")
    said = ended or _ACTIONS.get(action, action.lower())
    sentence = f"{who} {kind.replace('_', ' ')}{sure}" + (f": {said}" if said else "")
    stopped = ended or action == "STOP"
    tone = Tone.UNSURE if kind == "unknown" else Tone.FAILED if stopped else Tone.FOUND
    told = [words(finding, "summary"), words(decision, "reason"), action_taken]
    unique = [t for i, t in enumerate(told) if t and not any(t in other for other in told[i + 1 :])]
    more = " ".join(f"{each.strip().rstrip('.')}." for each in unique)
    return Headline(sentence, tone, more)


def _who(root: Document) -> str:
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
    listings = list(_listings(rows(finding, "evidence")))
    return [Section("The lines it rests on", listings)] if listings else []


def _listings(evidence: Sequence[Document]) -> Iterator[Listing]:
    for line in evidence:
        at = count(line, "line")
        context = rows(line, "context")
        title = f"{words(line, 'file')}, line {at}" if at else words(line, "file")
        if not context:
            yield Listing(title, [TextLine(words(line, "text"), at or None, "evidence")])
            continue
        yield Listing(
            title,
            [
                TextLine(
                    words(near, "text"),
                    count(near, "line"),
                    "evidence" if count(near, "line") == at else "",
                )
                for near in context
            ],
        )


def _cascade(finding: Document) -> list[Section]:
    followers = rows(finding, "cascade")
    return table_section(
        "What only followed",
        ["what followed", "ranks"],
        [
            [words(row, "class"), listed([str(r) for r in items(row, "ranks")], 24)]
            for row in followers
        ],
    )


def gather(root: Path) -> dict[str, Any]:
    document = attribution_in(root) or {}
    return {
        "finding": with_context(section(document, "finding"), [root, root / "logs"]),
        "decision": section(document, "decision"),
        "elapsed_ms": number(document, "elapsed_ms"),
    }


def page(run: OpenedRun) -> Page:
    finding, decision = section(run.documents, "finding"), section(run.documents, "decision")
    return Page(
        verb="attribute",
        title=run.name,
        answer=answer(finding, decision),
        facts=FactRows(facts(finding)),
        picture=_picture(finding),
        sections=sections(finding, decision),
        missing=[] if finding else ["finding: the document holds none"],
    )


def _picture(finding: Document) -> Figure | None:
    """Ranks over steps: an attribution knows no clock, but it knows how far the job came."""
    known = fates(finding)
    if not known:
        return None
    first, last = count(finding, "first_step"), count(finding, "last_step")
    life = Cycle(0, float(first), float(max(last, first + 1)), known, words(finding, "class"))
    says = ", ".join(f"rank {rank}: {fate.value}" for rank, fate in known.items())
    seen = {f"life {fate.value}" for fate in known.values()}
    return Figure(
        "Who began it, and who only followed",
        lambda width: draw_gantt([life], width, says, unit="step"),
        says,
        legend=[entry for entry in LEGEND if entry[0] in seen],
    )


def fates(finding: Document) -> dict[int, Fate]:
    """Of each rank that the finding speaks of."""
    known: dict[int, Fate] = {}
    for row in rows(finding, "cascade"):
        known |= {r: Fate.CASCADE for r in items(row, "ranks") if isinstance(r, int)}
    known |= {r: Fate.FAILED for r in items(finding, "suspect_ranks") if isinstance(r, int)}
    root = number(section(finding, "root"), "rank")
    if root is not None:
        known[int(root)] = Fate.HUNG if words(finding, "class") in _HANGS else Fate.ROOT
    return dict(sorted(known.items()))
