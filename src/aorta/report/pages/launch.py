"""`aorta launch`: the lives of a job, who failed first in each, and what was decided."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aorta.attribution import cycles_in, lifetime
from aorta.core.errors import Exit
from aorta.core.stats import counted
from aorta.report.page import Headline, Page, Section, Tone
from aorta.report.pages import attribution as findings
from aorta.report.pages.common import listed, seconds, state_words, table_section
from aorta.report.run_reader import Document, OpenedRun, read_json

_MOST_CYCLES, _MOST_DRAWN = 200, 8


def gather(root: Path) -> dict[str, Any]:
    """Of a log directory, of one cycle in it, or of a case."""
    places = [folder for _, folder in cycles_in(root)][-_MOST_CYCLES:] or [root]
    infos = [read_json(folder / "cycle_info.json") for folder in places]
    case = read_json(root / "finding.json") or read_json(root / "case" / "finding.json")
    return {
        "cycles": [info for info in infos if info],
        "finding": case.section("finding"),
        "decision": case.section("decision"),
        "ending": case.section("ending"),
    }


def page(run: OpenedRun) -> Page:
    infos = run.documents.rows("cycles")
    last = infos[-1] if infos else Document()
    # While a job runs, a case in its directory is an earlier job's.
    case = Document() if run.running else run.documents
    finding = case.section("finding") or last.section("finding")
    decision = case.section("decision") or last.section("decision")
    return Page(
        verb="launch",
        title=last.text("job_id") or run.name,
        answer=_answer(run, infos, finding, decision),
        facts=[*_facts(run, infos), *findings.facts(finding)],
        picture=findings.picture_of(
            "How each rank ended, and what was decided after each cycle",
            {_column(info): _ends_of(info) for info in infos[-_MOST_DRAWN:]},
        ),
        sections=[*findings.sections(finding, decision), *_cycles(infos), *_ranks(last)],
        missing=[] if infos else ["cycle_info.json: no cycle has been written down yet"],
    )


def _column(info: Document) -> str:
    action = info.section("decision").text("action")
    return f"cycle {info.text('cycle')}" + (f", {action}" if action else "")


def _ends_of(info: Document) -> dict[int, str]:
    known = findings.ends_of(info.section("finding"))
    return {
        rank: known.get(rank) or _end_of(row)
        for row in info.rows("ranks")
        for rank in [row.count("rank")]
    }


def _end_of(row: Document) -> str:
    if _failed(row):
        return "failed"
    return "finished" if row.get("exit_code") == 0 else "stopped"


def _answer(
    run: OpenedRun, infos: Sequence[Document], finding: Document, decision: Document
) -> Headline:
    last = infos[-1] if infos else Document()
    ended = run.documents.section("ending") or last.section("ending")
    ending = ended.text("reason")
    job_end = _job_end(run, ended.count("exit_code"))
    lives = counted(len(infos), "cycle")
    if run.state != "done" and not finding:
        sentence = f"{state_words(run).capitalize()}, in cycle {max(0, len(infos) - 1)}"
        return Headline(sentence, Tone.RUNNING if run.running else Tone.UNSURE)
    if finding:
        why = decision.text("reason")
        known = decision.text("action") == "STOP" and why in ending
        more = f"After {lives}" + ("" if known or not ending else f". {ending}")
        return findings.answer(finding, decision, more, job_end)
    failed = [row for row in last.rows("ranks") if _failed(row)]
    if not infos:
        return Headline("No cycle has been written down", Tone.UNSURE)
    if failed:
        action = job_end or decision.text("action").lower()
        then = f": {action}" if action else ""
        sentence = f"{counted(len(failed), 'rank')} failed in cycle {last.text('cycle')}{then}"
        return Headline(sentence, Tone.FAILED, ending or decision.text("reason"))
    return Headline(f"The job finished after {lives}", Tone.FINE, ending)


def _job_end(run: OpenedRun, exit_code: int) -> str:
    """How a job ended, "" while it runs; a decision to restart may find no restart left."""
    if run.running or not exit_code:
        return ""
    return "stop" if exit_code == Exit.STOP else f"the job ended with exit code {exit_code}"


def _failed(row: Document) -> bool:
    if row.get("stopped_by_agent") is True:
        return False
    return row.get("signal") is not None or row.get("exit_code") not in (0, None)


def _facts(run: OpenedRun, infos: Sequence[Document]) -> list[tuple[str, object]]:
    state = "ended" if run.state == "done" else state_words(run)
    nodes = len(infos[-1].array("nodes")) if infos else 0
    return [("State", state), *([("Cycles", len(infos)), ("Nodes", nodes)] if infos else [])]


def _end_words(row: Document) -> str:
    if row.get("stopped_by_agent") is True:
        return "stopped by the launcher"
    signal = row.text("signal")
    return f"signal {signal}" if signal else f"exit {row.text('exit_code', 'not known')}"


def _cycles(infos: Sequence[Document]) -> list[Section]:
    return table_section(
        "Every cycle",
        ["cycle", "took", "failed ranks", "decision", "reason", "decided by"],
        [
            [
                info.text("cycle"),
                seconds(lifetime(info)),
                listed([row.text("rank") for row in info.rows("ranks") if _failed(row)], 24),
                info.section("decision").text("action"),
                info.section("decision").text("reason"),
                info.text("decided_by"),
            ]
            for info in infos
        ],
        frozenset({0, 1}),
    )


def _ranks(last: Document) -> list[Section]:
    ranks = last.rows("ranks")
    return table_section(
        "Ranks of the last cycle",
        ["rank", "node", "how it ended"],
        [[row.text("rank"), row.text("node"), _end_words(row)] for row in ranks],
        frozenset({0}),
        open=False,
    )
