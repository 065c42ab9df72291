"""`aorta launch`: the lives of a job, who failed first in each, and what was decided."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from aorta.core.errors import Exit
from aorta.core.stats import counted
from aorta.report.charts.gantt import LEGEND, Cycle, Fate, draw_gantt
from aorta.report.documents import Document, count, items, number, rows, section, words
from aorta.report.model import FactRows, Figure, Headline, Page, Section, Tone
from aorta.report.pages import attribution as findings
from aorta.report.pages.common import seconds, state_words, table_section
from aorta.report.run_reader import OpenedRun, read_json

_CYCLE = re.compile(r"cycle_(\d+)\Z")
_MOST_CYCLES = 200


def gather(root: Path) -> dict[str, Any]:
    """Of a log directory, of one cycle in it, or of a case."""
    folders = [entry for entry in root.glob("cycle_*/") if _CYCLE.match(entry.name)]
    folders.sort(key=lambda folder: int(folder.name.removeprefix("cycle_")))
    cycles = [_cycle(folder) for folder in folders[-_MOST_CYCLES:] or [root]]
    case = read_json(root / "finding.json") or read_json(root / "case" / "finding.json")
    places = [root / "logs", root / "case" / "logs", *reversed(folders[-3:]), root]
    return {
        "cycles": [cycle for cycle in cycles if cycle["info"]],
        "finding": findings.with_context(section(case, "finding"), places),
        "decision": section(case, "decision"),
        "ending": section(case, "ending"),
        "case": (root / "case").is_dir() or (root / "aorta.yaml").is_file(),
    }


def _cycle(folder: Path) -> dict[str, Any]:
    info = dict(read_json(folder / "cycle_info.json"))
    found = section(info, "finding")
    if found:
        info["finding"] = findings.with_context(found, [folder])
    return {"info": info, "signs": _last_signs(folder)}


def _last_signs(folder: Path) -> list[list[float]]:
    """When each rank last wrote something: `[rank, seconds since the epoch]`."""
    latest: dict[int, float] = {}
    for file in folder.glob("rank_*.*"):
        number_, ending = file.stem.removeprefix("rank_"), file.suffix
        if number_.isdecimal() and ending in {".out", ".err", ".heartbeat"}:
            status = file.stat()
            if status.st_size:
                rank = int(number_)
                latest[rank] = max(latest.get(rank, 0.0), status.st_mtime)
    return [[rank, at] for rank, at in sorted(latest.items())]


def page(run: OpenedRun) -> Page:
    lives = [life for row in rows(run.documents, "cycles") if (life := _life(row))]
    infos = [section(row, "info") for row in rows(run.documents, "cycles")]
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
        picture=_picture(lives),
        sections=[*findings.sections(finding, decision), *_cycles(infos), *_ranks(last)],
        missing=[] if infos else ["cycle_info.json: no cycle has been written down yet"],
    )


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


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _life(row: Document) -> Cycle | None:
    info = section(row, "info")
    start = _moment(words(info, "started"))
    if start is None:
        return None
    signs = {int(rank): at for rank, at in items(row, "signs")}
    end = _moment(words(info, "ended")) or max([start + 1.0, *signs.values()])
    fates = _fates(info) or dict.fromkeys(signs, Fate.RUNNING)
    within = {r: at for r, at in signs.items() if start - 1 <= at <= end + 1}
    return Cycle(
        number=count(info, "cycle"),
        start=start,
        end=max(end, start + 0.001),
        fates=fates,
        decision=words(section(info, "decision"), "action"),
        says={count(r, "rank"): _end_words(r) for r in rows(info, "ranks")},
        signs=within,
    )


def _fates(info: Document) -> dict[int, Fate]:
    known = findings.fates(section(info, "finding"))
    ranks = {count(row, "rank"): row for row in rows(info, "ranks")}
    return {rank: known.get(rank) or _fate(row) for rank, row in ranks.items()}


def _fate(row: Document) -> Fate:
    if _failed(row):
        return Fate.FAILED
    return Fate.FINISHED if row.get("exit_code") == 0 else Fate.STOPPED


def _end_words(row: Document) -> str:
    if row.get("stopped_by_agent") is True:
        return "stopped by the launcher"
    signal = words(row, "signal")
    return f"signal {signal}" if signal else f"exit {words(row, 'exit_code', 'not known')}"


def _picture(lives: Sequence[Cycle]) -> Figure | None:
    if not lives:
        return None
    says = "; ".join(
        f"cycle {life.number} of {seconds(life.end - life.start)}: {_told(life.fates)}"
        + (f", decided {life.decision}" if life.decision else "")
        for life in lives
    )
    seen = {f"life {fate.value}" for life in lives for fate in life.fates.values()}
    return Figure(
        "Ranks over time, and what was decided after each cycle",
        lambda width: draw_gantt(lives, width, says),
        says,
        legend=[entry for entry in LEGEND if entry[0] in seen],
    )


def _told(fates: Mapping[int, Fate]) -> str:
    counted_ = {fate: sum(value is fate for value in fates.values()) for fate in Fate}
    return ", ".join(f"{count_} {fate.value}" for fate, count_ in counted_.items() if count_)


def _cycles(infos: Sequence[Document]) -> list[Section]:
    return table_section(
        "Every cycle",
        ["cycle", "took", "failed ranks", "decision", "reason", "decided by"],
        [
            [
                words(info, "cycle"),
                _took(info),
                ", ".join(words(row, "rank") for row in rows(info, "ranks") if _failed(row)),
                words(section(info, "decision"), "action"),
                words(section(info, "decision"), "reason"),
                words(info, "decided_by"),
            ]
            for info in infos
        ],
        frozenset({0, 1}),
    )


def _took(info: Document) -> str:
    start, end = _moment(words(info, "started")), _moment(words(info, "ended"))
    return seconds(end - start) if start is not None and end is not None else ""


def _ranks(last: Document) -> list[Section]:
    ranks = rows(last, "ranks")
    return table_section(
        "Ranks of the last cycle",
        ["rank", "node", "how it ended"],
        [[words(row, "rank"), words(row, "node"), _end_words(row)] for row in ranks],
        frozenset({0}),
        open=False,
    )
