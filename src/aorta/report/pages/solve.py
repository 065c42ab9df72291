"""`aorta solve`: what fails, what makes it stop, what brought it, and what each stage came to."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.executors.evidence import read_end
from aorta.report.charts.trials import draw_strip
from aorta.report.documents import Document, items, number, rows, section, words
from aorta.report.model import (
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
    listed,
    next_section,
    rate,
    seconds,
    table_section,
    usual_facts,
)
from aorta.report.run_reader import OpenedRun, read_json, read_json_lines

_TAIL, _MOST_LINES, _MOST_PATCH = 16 << 10, 30, 120


def gather(root: Path) -> dict[str, Any]:
    """While it runs: the stages that are over, and what the reduction has found so far."""
    lines = read_json_lines(root / ".aorta" / "stages.jsonl")
    stages = [{key: value for key, value in line.items() if key != "answer"} for line in lines]
    plain = root / "2-reduce-plain"
    reduced = plain if (plain / "result.json").is_file() else root / "2-reduce"
    return {
        "result": read_json(root / "solve.json"),
        "stages": stages,
        "reduced": reduce.gather(reduced),
        "trials": _trials(root),
        "failure": _failure_text(root, reduced),
        "command": _command_of(reduced / "shrunken" / "run_repro.sh"),
        "patch": _patch(root / "4-bisect" / "culprit.diff"),
    }


def _patch(place: Path) -> list[str]:
    """What the change that brought it changed, from its first line on."""
    text = place.read_text("utf-8", "replace") if place.is_file() else ""
    lines = text.splitlines()
    more = [f"... and {len(lines) - _MOST_PATCH} lines more"] if len(lines) > _MOST_PATCH else []
    return [*lines[:_MOST_PATCH], *more]


def _trials(root: Path) -> list[dict[str, Any]]:
    """Every trial of every stage, in order: its stage, outcome and seconds."""
    found = []
    for line in read_json_lines(root / ".aorta" / "trials.jsonl"):
        end = section(line, "end")
        if end:
            failed = bool(end.get("exit_code")) or end.get("signal") is not None
            kind = "error" if end.get("lost") else "reproduced" if failed else "clean"
            found.append(
                {"stage": words(line, "stage"), "kind": kind, "seconds": number(end, "duration")}
            )
    return found


def _failure_text(root: Path, reduced: Path) -> list[str]:
    """What the failing run said last: from its traceback on, where it has one."""
    logs = [reduced / "logs" / "stderr.log", *sorted((root / "1-reproduce").rglob("stderr.log"))]
    for log in logs:
        text = read_end(log, _TAIL).decode("utf-8", "replace") if log.is_file() else ""
        if not text.strip():
            continue
        begins = text.rfind("Traceback (most recent call last)")
        return text[max(0, begins) :].rstrip().splitlines()[-_MOST_LINES:]
    return []


def _command_of(script: Path) -> list[str]:
    if not script.is_file():
        return []
    lines = script.read_text("utf-8", "replace").splitlines()
    return [line for line in lines if line.startswith(("export ", "cd ", "exec "))]


def page(run: OpenedRun) -> Page:
    result = section(run.documents, "result")
    stages = rows(result, "stages") or rows(run.documents, "stages")
    reduced = replace(run, documents=section(run.documents, "reduced"), trials=())
    tracks = reduce.tracks_of(reduced, section(reduced.documents, "result"))
    moved = [track for track in tracks if track.final < track.initial]
    strip = _strip(run)
    return Page(
        verb="solve",
        title=run.name,
        answer=_answer(run, result, stages),
        facts=FactRows([*usual_facts(run), *_facts(result)]),
        picture=reduce.picture_of(moved) or strip,
        sections=[
            *_failure(run),
            *_reproducer(result, run),
            *reduce.remaining(reduced, section(reduced.documents, "result")),
            *_culprits(result, run),
            *_cure(result),
            *_divergence(result),
            *_isolation(result),
            *next_section(result, "What to do now"),
            *_open_questions(result),
            *([Section("Every trial", [strip])] if strip and moved else []),
            *_stages(stages),
        ],
        missing=[] if result else ["solve.json: not every stage is over yet"],
    )


def _failure(run: OpenedRun) -> list[Section]:
    lines = [TextLine(str(line)) for line in items(run.documents, "failure")]
    return [Section("What fails", [Listing("What it said last", lines)])] if lines else []


def _strip(run: OpenedRun) -> Figure | None:
    """One mark a trial."""
    trials = rows(run.documents, "trials")
    if not trials:
        return None
    counts = Counter(words(trial, "stage") for trial in trials)
    said = ", ".join(f"{stage} {count}" for stage, count in counts.items())
    says = f"{counted(len(trials), 'trial')}: {said}"
    kinds = [words(trial, "kind") for trial in trials]
    meaning = {"reproduced": "failed", "clean": "ended well", "error": "could not be run"}
    return Figure(
        says,
        lambda width: draw_strip(kinds, width, says),
        says,
        legend=[(kind, meaning[kind]) for kind in dict.fromkeys(kinds) if kind in meaning],
    )


def _answer(run: OpenedRun, result: Document, stages: list[Document]) -> Headline:
    status = words(result, "status")
    failure = section(result, "failure")
    if not status:
        last = f"{words(stages[-1], 'name')} is over" if stages else "nothing is over yet"
        tone = Tone.RUNNING if run.running else Tone.UNSURE
        return Headline(f"Still at work: {last}" if run.running else f"Stopped: {last}", tone)
    if status == "user_error":
        return Headline(f"A mistake in the command: {words(failure, 'summary')}", Tone.FAILED)
    if status == "did_not_reproduce":
        seen = section(failure, "rate")
        tried = int(number(seen, "of") or 0)
        return Headline(f"It did not fail in {counted(tried, 'trial')}", Tone.UNSURE)
    parts = []
    cure, culprits = section(result, "cure"), rows(result, "culprits")
    if cure:
        parts.append(f"{' + '.join(map(str, items(cure, 'mitigations')))} makes it stop")
    if culprits:
        changes = [f"{words(c, 'package')} {words(c, 'bad')[:12]}" for c in culprits]
        is_range = words(result, "bisect_status") == "range"
        which = f"one of {len(changes)} changes" if is_range else " with ".join(changes)
        parts.append(f"{which} brought it")
    if broken := words(section(result, "isolation"), "broken"):
        parts.append(f"it is the hardware: {broken}")
    axes = [a for a in rows(section(result, "reproducer"), "axes") if _is_smaller(a)]
    if axes:
        shown = [f"{words(a, 'name')} {a.get('initial')} → {a.get('final')}" for a in axes]
        parts.append(f"it still fails with {listed(shown)}")
    elif not parts and section(result, "reproducer"):
        parts.append("it has a reproducer")
    said = f"{words(failure, 'class')}: {' and '.join(parts) or 'no cause was found'}"
    found = bool(cure or culprits or broken)
    if status == "partial":
        before = "So far" if run.running else "Stopped"
        tone = Tone.RUNNING if run.running else Tone.UNSURE
        return Headline(f"{before}: {said}", tone, words(failure, "summary"))
    return Headline(said, Tone.FOUND if found else Tone.UNSURE, words(failure, "summary"))


def _is_smaller(axis: Document) -> bool:
    return axis.get("final") != axis.get("initial")


def _facts(result: Document) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    failure = section(result, "failure")
    seen = section(failure, "rate")
    if seen:
        hits, of = int(number(seen, "reproduced") or 0), int(number(seen, "of") or 0)
        found.append(("Fails in", rate(hits, of, "trial")))
    for name, key in (("Trials of all stages", "trials"), ("Known already", "shared_trials")):
        if (count := number(result, key)) is not None:
            found.append((name, int(count)))
    if (spent := number(result, "seconds")) is not None:
        found.append(("Time", seconds(spent)))
    return found


def _reproducer(result: Document, run: OpenedRun) -> list[Section]:
    found = section(result, "reproducer")
    axes = [
        [words(axis, "name"), words(axis, "kind"), axis.get("initial"), axis.get("final")]
        for axis in rows(found, "axes")
    ]
    if not found:
        return []
    table = Table(["what", "kind", "from", "to"], axes, frozenset({2, 3}))
    said = []
    if (cheaper := number(found, "cheaper")) is not None and cheaper > 1:
        said.append(f"One run is {cheaper:g} times cheaper.")
    elsewhere = section(found, "elsewhere")
    if elsewhere:
        hits, of = int(number(elsewhere, "reproduced") or 0), int(number(elsewhere, "of") or 0)
        said.append(
            f"Unpacked into an empty directory under another home it failed {hits} of {of} times."
        )
    script = [TextLine(str(line)) for line in items(run.documents, "command")]
    shown = [Listing("run_repro.sh", script)] if script else []
    return [Section("The smallest reproducer", [table, *shown, Words(said)])]


def _cure(result: Document) -> list[Section]:
    cure = section(result, "cure")
    if not cure:
        return []
    names = " + ".join(map(str, items(cure, "mitigations")))
    chance = number(cure, "p")
    luck = f" The chance that this is luck: {chance:.2g}." if chance is not None else ""
    said = f"{names}, seen to work on the {words(cure, 'verified_on')} workload.{luck}"
    return [Section("What makes it stop", [Words([said])])]


def _culprits(result: Document, run: OpenedRun) -> list[Section]:
    found = [
        [words(c, key) for key in ("package", "bad", "title", "author", "date")]
        for c in rows(result, "culprits")
    ]
    sure = number(result, "confidence")
    is_range = words(result, "bisect_status") == "range"
    one = f": one of {len(found)} changes" if is_range else ""
    title = f"What brought it{one}" + (f" ({100 * sure:.0f} % sure)" if sure is not None else "")
    told = table_section(title, ["package", "change", "title", "author", "date"], found)
    marks = {"+": "kept", "-": "gone"}
    patch = [
        TextLine(str(line), mark="" if str(line)[:3] in {"+++", "---"} else marks.get(line[:1], ""))
        for line in items(run.documents, "patch")
    ]
    if not told or not patch:
        return told
    return [*told, Section("What it changed", [Listing("culprit.diff", patch)])]


def _divergence(result: Document) -> list[Section]:
    found = section(result, "divergence")
    first = section(found, "first") or section(found, "first_nonfinite")
    if not first:
        return []
    place = f" at {words(first, 'file')}:{words(first, 'line')}" if words(first, "file") else ""
    said = f"{words(first, 'op')}{place}, step {words(first, 'step')}"
    return [Section("Where the numbers part", [Words([said])])]


def _isolation(result: Document) -> list[Section]:
    said = words(section(result, "isolation"), "sentence")
    return [Section("A node or the job", [Words([said])])] if said else []


def _open_questions(result: Document) -> list[Section]:
    said = [str(one) for one in items(result, "not_found_out")]
    return [Section("What was not found out", [Words(said, is_list=True)])] if said else []


def _stages(stages: list[Document]) -> list[Section]:
    found = [
        [
            words(stage, "name"),
            words(stage, "status").replace("_", " "),
            int(number(stage, "trials") or 0),
            seconds(number(stage, "seconds") or 0.0),
            words(stage, "why"),
        ]
        for stage in stages
    ]
    heads = ["stage", "what became of it", "trials", "time", "why"]
    return table_section("The stages", heads, found, frozenset({2, 3}))
