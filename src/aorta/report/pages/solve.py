"""`aorta solve`: what fails, what makes it stop, what brought it, and what each stage came to."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.report.charts import draw_strip
from aorta.report.page import (
    Block,
    FactRows,
    Figure,
    Headline,
    Listing,
    Page,
    Section,
    Table,
    TextLine,
    Tone,
    Words,
)
from aorta.report.pages import reduce
from aorta.report.pages.common import (
    culprits_section,
    list_section,
    listed,
    next_section,
    rate,
    seconds,
    table_section,
    usual_facts,
    words_section,
)
from aorta.report.run_reader import Document, OpenedRun, read_json, read_json_lines, read_tail

_MOST_LINES, _MOST_PATCH = 30, 120
_OUTCOMES = {"reproduced": "failed", "clean": "ended well", "error": "could not be run"}


def gather(root: Path) -> dict[str, Any]:
    """While it runs: the stages that are over, and what the reduction has found so far."""
    lines = read_json_lines(root / ".aorta" / "stages.jsonl")
    plain = root / "2-reduce-plain"
    reduced = plain if (plain / "result.json").is_file() else root / "2-reduce"
    script = read_tail(reduced / "shrunken" / "run_repro.sh")
    return {
        "result": read_json(root / "solve.json"),
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
    said = next((lines for log in logs if any(lines := read_tail(log))), [])
    begins = [n for n, line in enumerate(said) if "Traceback (most recent call last)" in line]
    return said[begins[-1] if begins else 0 :][-_MOST_LINES:]


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    stages = result.rows("stages") or run.documents.rows("stages")
    reduced = replace(run, documents=run.documents.section("reduced"), trials=())
    moved = [track for track in reduce.tracks_of(reduced) if track.final < track.initial]
    shrinking, strip = reduce.picture_of(moved), _strip(run)
    said = {row.text("head"): row.text("text") for row in result.rows("summary")}
    has_cure = bool(result.section("cure")) and "makes it stop" in said
    return Page(
        verb="solve",
        title=run.name,
        answer=_answer(run, result, stages),
        facts=FactRows([*usual_facts(run), *_facts(result)]),
        sections=[
            *_listing("What fails", "What it said last", run.documents.array("failure")),
            *_reproducer(result, run),
            *reduce.remaining(reduced),
            *_culprits(result, run),
            *(words_section("What makes it stop", said["makes it stop"]) if has_cure else []),
            *words_section("Where the numbers part", said.get("numbers part", "")),
            *words_section("A node or the job", said.get("node or job", "")),
            *next_section(result, "What to do now"),
            *list_section("What was not found out", result.array("not_found_out")),
            *([Section("How it shrank", [shrinking])] if shrinking else []),
            *([Section("Every trial", [strip])] if strip else []),
            *_stages(stages),
        ],
        missing=[] if result else ["solve.json: not every stage is over yet"],
    )


def _listing(title: str, name: str, lines: Sequence[object]) -> list[Section]:
    shown = [TextLine(str(line)) for line in lines]
    return [Section(title, [Listing(name, shown)])] if shown else []


def _strip(run: OpenedRun) -> Figure | None:
    """One mark a trial."""
    trials = run.documents.rows("trials")
    if not trials:
        return None
    counts = Counter(trial.text("stage") for trial in trials)
    said = ", ".join(f"{stage} {times}" for stage, times in counts.items())
    says = f"{counted(len(trials), 'trial')}: {said}"
    kinds = [trial.text("kind") for trial in trials]
    legend = [(kind, _OUTCOMES[kind]) for kind in dict.fromkeys(kinds) if kind in _OUTCOMES]
    return Figure(says, partial(draw_strip, kinds), says, legend=legend)


def _answer(run: OpenedRun, result: Document, stages: list[Document]) -> Headline:
    status = result.text("status")
    failure = result.section("failure")
    if not status:
        last = f"{stages[-1].text('name')} is over" if stages else "nothing is over yet"
        tone = Tone.RUNNING if run.running else Tone.UNSURE
        return Headline(f"Still at work: {last}" if run.running else f"Stopped: {last}", tone)
    if status == "user_error":
        return Headline(f"A mistake in the command: {failure.text('summary')}", Tone.FAILED)
    if status == "did_not_reproduce":
        tried = counted(failure.section("rate").count("of"), "trial")
        return Headline(f"It did not fail in {tried}", Tone.UNSURE)
    parts = []
    cure, culprits = result.section("cure"), result.rows("culprits")
    if cure:
        parts.append(f"{' + '.join(map(str, cure.array('mitigations')))} makes it stop")
    if culprits:
        changes = [f"{c.text('package')} {c.text('bad')[:12]}" for c in culprits]
        is_range = result.text("bisect_status") == "range"
        which = f"one of {len(changes)} changes" if is_range else " with ".join(changes)
        parts.append(f"{which} brought it")
    if broken := result.section("isolation").text("broken"):
        parts.append(f"it is the hardware: {broken}")
    axes = result.rows("reproducer", "axes")
    if axes := [axis for axis in axes if axis.get("final") != axis.get("initial")]:
        shown = [f"{a.text('name')} {a.get('initial')} → {a.get('final')}" for a in axes]
        parts.append(f"it still fails with {listed(shown)}")
    elif not parts and result.section("reproducer"):
        parts.append("it has a reproducer")
    said = f"{failure.text('class')}: {' and '.join(parts) or 'no cause was found'}"
    found = bool(cure or culprits or broken)
    if status == "partial":
        before = "So far" if run.running else "Stopped"
        tone = Tone.RUNNING if run.running else Tone.UNSURE
        return Headline(f"{before}: {said}", tone, failure.text("summary"))
    return Headline(said, Tone.FOUND if found else Tone.UNSURE, failure.text("summary"))


def _facts(result: Document) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    if seen := result.section("failure", "rate"):
        found.append(("Fails in", rate(seen.count("reproduced"), seen.count("of"), "trial")))
    if result.number("trials") is not None:
        found.append(("Trials of all stages", result.count("trials")))
    if (spent := result.number("seconds")) is not None:
        found.append(("Time", seconds(spent)))
    return found


def _reproducer(result: Document, run: OpenedRun) -> list[Section]:
    found = result.section("reproducer")
    if not found:
        return []
    axes = [reduce.axis_words(axis) for axis in found.rows("axes")]
    blocks: list[Block] = [Table(["what", "kind", "from", "to"], axes, frozenset({2, 3}))]
    if script := [TextLine(str(line)) for line in run.documents.array("command")]:
        blocks.append(Listing("run_repro.sh", script))
    said = []
    if (cheaper := found.number("cheaper")) is not None and cheaper > 1:
        said.append(f"One run is {cheaper:g} times shorter than one of the original.")
    if elsewhere := found.section("elsewhere"):
        hits, of = elsewhere.count("reproduced"), elsewhere.count("of")
        said.append(
            f"Unpacked into an empty directory under another home it failed {hits} of {of} times."
        )
    return [Section("The smallest reproducer", [*blocks, Words(said)])]


def _culprits(result: Document, run: OpenedRun) -> list[Section]:
    culprits, sure = result.rows("culprits"), result.number("confidence")
    is_range = result.text("bisect_status") == "range"
    one = f": one of {len(culprits)} changes" if is_range else ""
    title = f"What brought it{one}" + (f" ({100 * sure:.0f} % sure)" if sure is not None else "")
    marks = {"+": "added", "-": "removed"}
    patch = [
        TextLine(line, mark="" if line[:3] in {"+++", "---"} else marks.get(line[:1], ""))
        for line in map(str, run.documents.array("patch") if culprits else ())
    ]
    shown = [Section("What it changed", [Listing("culprit.diff", patch)])] if patch else []
    return [*culprits_section(title, culprits), *shown]


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
