"""`aorta solve`: what fails, what makes it stop, what brought it, and what each stage came to."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.report.charts import draw_strip
from aorta.report.page import Figure, Page, Section, TextLine
from aorta.report.pages import reduce
from aorta.report.pages.common import listing_section, own_words_page, seconds, table_section
from aorta.report.run_reader import Document, OpenedRun, read_json, read_json_lines, read_tail

_MOST_LINES, _MOST_PATCH = 30, 120
_OUTCOMES = {"reproduced": "failed", "clean": "ended well", "error": "could not be run"}


def gather(root: Path) -> dict[str, Any]:
    """While it runs: the stages that are over, and what the reduction has found so far."""
    lines = read_json_lines(root / ".aorta" / "stages.jsonl")
    plain = root / "2-reduce-plain"
    reduced = plain if (plain / "result.json").is_file() else root / "2-reduce"
    result = read_json(root / "solve.json")
    rows = [(row.text("head"), row.text("text")) for row in result.rows("summary")]
    summary = [f"{head}: {text}" for head, text in rows]
    script = read_tail(reduced / "shrunken" / "run_repro.sh")
    return {
        "result": {**result, "summary": summary},
        "stages": [{key: value for key, value in one.items() if key != "answer"} for one in lines],
        "reduced": reduce.gather(reduced),
        "trials": _trials(root),
        "failure": _failure_text(root, reduced),
        "command": [line for line in script if line.startswith(("export ", "cd ", "exec "))],
        "patch": _patch(root / "4-bisect" / "culprit.diff"),
    }


def _patch(place: Path) -> list[str]:
    """What the change that brought it changed, from its first line on."""
    lines = place.read_text("utf-8", "replace").splitlines() if place.is_file() else []
    more = [f"... and {len(lines) - _MOST_PATCH} lines more"] if len(lines) > _MOST_PATCH else []
    return [*lines[:_MOST_PATCH], *more]


def _trials(root: Path) -> list[dict[str, str]]:
    """Every trial of every stage, in order: its stage and outcome."""
    found = []
    for line in read_json_lines(root / ".aorta" / "trials.jsonl"):
        if end := line.section("end"):
            failed = bool(end.get("exit_code")) or end.get("signal") is not None
            kind = "error" if end.get("lost") else "reproduced" if failed else "clean"
            found.append({"stage": line.text("stage"), "kind": kind})
    return found


def _failure_text(root: Path, reduced: Path) -> list[str]:
    """What the failing run said last: from its last traceback on, where it has one."""
    logs = [reduced / "logs" / "stderr.log", *sorted((root / "1-reproduce").rglob("stderr.log"))]
    lines = next((lines for log in logs if any(lines := read_tail(log))), [])
    begins = [n for n, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    return lines[begins[-1] if begins else 0 :][-_MOST_LINES:]


def page(run: OpenedRun) -> Page:
    documents = run.documents
    result = documents.section("result")
    reduced = replace(run, documents=documents.section("reduced"), trials=())
    moved = [track for track in reduce.tracks_of(reduced) if track.final < track.initial]
    strip = _strip(run)
    return own_words_page(
        run,
        result,
        picture=reduce.picture_of(moved),
        lead=_texts(run, ("What fails", "What it printed last", "failure")),
        sections=[
            *_texts(run, ("The smallest reproducer", "run_repro.sh", "command")),
            *reduce.remaining(reduced),
            *_texts(run, ("What it changed", "culprit.diff", "patch")),
            *([Section("Every trial", [strip])] if strip else []),
            *_stages(result.rows("stages") or documents.rows("stages")),
        ],
    )


def _texts(run: OpenedRun, section: tuple[str, str, str]) -> list[Section]:
    title, name, key = section
    return listing_section(title, name, [TextLine(str(line)) for line in run.documents.array(key)])


def _strip(run: OpenedRun) -> Figure | None:
    """One mark a trial."""
    trials = run.documents.rows("trials")
    if not trials:
        return None
    counts = Counter(trial.text("stage") for trial in trials)
    by_stage = ", ".join(f"{stage} {times}" for stage, times in counts.items())
    says = f"{counted(len(trials), 'trial')}: {by_stage}"
    kinds = [trial.text("kind") for trial in trials]
    legend = [(kind, _OUTCOMES[kind]) for kind in dict.fromkeys(kinds) if kind in _OUTCOMES]
    return Figure(says, partial(draw_strip, kinds), says, legend=legend)


def _stages(stages: list[Document]) -> list[Section]:
    found = [
        [
            stage.text("name"),
            stage.text("status").replace("_", " "),
            stage.count("trials"),
            seconds(stage.number("seconds") or 0.0),
            stage.text("why"),
        ]
        for stage in stages
    ]
    heads = ["stage", "what became of it", "trials", "time", "why"]
    return table_section("The stages", heads, found, frozenset({2, 3}))
