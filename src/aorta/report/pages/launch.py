"""`aorta launch`: the lives of a job, who failed first in each, and what was decided."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from aorta.core.errors import Exit
from aorta.core.stats import counted
from aorta.report.page import FactRows, Headline, Page, Section, Tone
from aorta.report.pages import attribution as findings
from aorta.report.pages.common import listed, seconds, state_words, table_section
from aorta.report.run_reader import (
    Document,
    OpenedRun,
    count,
    items,
    number,
    read_json,
    rows,
    section,
    words,
)

_CYCLE = re.compile(r"cycle_(\d+)\Z")
_MOST_CYCLES, _MOST_DRAWN = 200, 8


def gather(root: Path) -> dict[str, Any]:
    """Of a log directory, of one cycle in it, or of a case."""
    folders = [entry for entry in root.glob("cycle_*/") if _CYCLE.match(entry.name)]
    folders.sort(key=lambda folder: int(folder.name.removeprefix("cycle_")))
    places = folders[-_MOST_CYCLES:] or [root]
    infos = [read_json(folder / "cycle_info.json") for folder in places]
    case = read_json(root / "finding.json") or read_json(root / "case" / "finding.json")
    return {
        "cycles": [info for info in infos if info],
        "finding": section(case, "finding"),
        "decision": section(case, "decision"),
        "ending": section(case, "ending"),
    }


def page(run: OpenedRun) -> Page:
    infos = rows(run.documents, "cycles")
    last = infos[-1] if infos else {}
    # While a job runs, a case in its directory is an earlier job's.
    case = {} if run.running else run.documents
    finding = section(case, "finding") or section(last, "finding")
    decision = section(case, "decision") or section(last, "decision")
    return Page(
        verb="launch",
        title=words(last, "job_id") or run.name,
        answer=_answer(run, infos, finding, decision),
        facts=FactRows([*_facts(run, infos), *findings.facts(finding)]),
        picture=findings.picture_of(
            "How each rank ended, and what was decided after each cycle",
            {_column(info): _ends_of(info) for info in infos[-_MOST_DRAWN:]},
        ),
        sections=[*findings.sections(finding, decision), *_cycles(infos), *_ranks(last)],
        missing=[] if infos else ["cycle_info.json: no cycle has been written down yet"],
    )


def _column(info: Document) -> str:
    action = words(section(info, "decision"), "action")
    return f"cycle {words(info, 'cycle')}" + (f", {action}" if action else "")


def _ends_of(info: Document) -> dict[int, str]:
    known = findings.ends_of(section(info, "finding"))
    return {
        rank: known.get(rank) or _end_of(row)
        for row in rows(info, "ranks")
        for rank in [count(row, "rank")]
    }


def _end_of(row: Document) -> str:
    if _failed(row):
        return "failed"
    return "finished" if row.get("exit_code") == 0 else "stopped"


def _answer(
    run: OpenedRun, infos: Sequence[Document], finding: Document, decision: Document
) -> Headline:
    ended = section(run.documents, "ending") or section(infos[-1] if infos else {}, "ending")
    ending = words(ended, "reason")
    job_end = _job_end(run, count(ended, "exit_code"))
    lives = counted(len(infos), "cycle")
    if run.state != "done" and not finding:
        sentence = f"{state_words(run).capitalize()}, in its {_ordinal(len(infos) or 1)} cycle"
        return Headline(sentence, Tone.RUNNING if run.running else Tone.UNSURE, _before(infos))
    if finding:
        why = words(decision, "reason")
        known = words(decision, "action") == "STOP" and why in ending
        told = f"After {lives}" + ("" if known or not ending else f". {ending}")
        return findings.answer(finding, decision, told, job_end)
    last = infos[-1] if infos else {}
    failed = [row for row in rows(last, "ranks") if _failed(row)]
    if not infos:
        return Headline("No cycle has been written down", Tone.UNSURE)
    if failed:
        action = job_end or words(decision, "action").lower()
        said = f": {action}" if action else ""
        sentence = f"{counted(len(failed), 'rank')} failed in cycle {words(last, 'cycle')}{said}"
        return Headline(sentence, Tone.FAILED, ending or words(decision, "reason"))
    return Headline(f"The job finished after {lives}", Tone.FINE, ending)


def _job_end(run: OpenedRun, exit_code: int) -> str:
    """What became of a job that ended, whatever was decided about its last cycle; empty while it
    runs. A decision to restart may come to nothing: no progress for too long, no restart left.
    """
    if run.running or not exit_code:
        return ""
    return "stop" if exit_code == Exit.STOP else f"the job ended with exit code {exit_code}"


def _before(infos: Sequence[Document]) -> str:
    """Why the job is no longer in the cycle before this one."""
    if len(infos) < 2:
        return ""
    decision = section(infos[-2], "decision")
    action, reason = words(decision, "action"), words(decision, "reason")
    return f"{action} after cycle {words(infos[-2], 'cycle')}: {reason}" if action else ""


def _ordinal(number_: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number_, f"{number_}th")


def _failed(row: Document) -> bool:
    if row.get("stopped_by_agent") is True:
        return False
    return row.get("signal") is not None or row.get("exit_code") not in (0, None)


def _facts(run: OpenedRun, infos: Sequence[Document]) -> list[tuple[str, object]]:
    last = infos[-1] if infos else {}
    found: list[tuple[str, object]] = [
        ("State", "ended" if run.state == "done" else state_words(run))
    ]
    if infos:
        found += [("Cycles", len(infos)), ("Nodes", len(items(last, "nodes")) or "")]
    by, took = words(last, "decided_by"), number(last, "decided_in_ms")
    if by:
        found.append(("Decided by", f"{by} in {took:.0f} ms" if took is not None else by))
    return [(name, value) for name, value in found if value != ""]


def _end_words(row: Document) -> str:
    if row.get("stopped_by_agent") is True:
        return "stopped by the launcher"
    signal = words(row, "signal")
    return f"signal {signal}" if signal else f"exit {words(row, 'exit_code', 'not known')}"


def _cycles(infos: Sequence[Document]) -> list[Section]:
    return table_section(
        "Every cycle",
        ["cycle", "took", "failed ranks", "decision", "reason", "decided by"],
        [
            [
                words(info, "cycle"),
                _took(info),
                listed([words(row, "rank") for row in rows(info, "ranks") if _failed(row)], 24),
                words(section(info, "decision"), "action"),
                words(section(info, "decision"), "reason"),
                words(info, "decided_by"),
            ]
            for info in infos
        ],
        frozenset({0, 1}),
    )


def _took(info: Document) -> str:
    try:
        start, end = (datetime.fromisoformat(words(info, key)) for key in ("started", "ended"))
    except ValueError:
        return ""
    return seconds((end - start).total_seconds())


def _ranks(last: Document) -> list[Section]:
    ranks = rows(last, "ranks")
    return table_section(
        "Ranks of the last cycle",
        ["rank", "node", "how it ended"],
        [[words(row, "rank"), words(row, "node"), _end_words(row)] for row in ranks],
        frozenset({0}),
        open=False,
    )
