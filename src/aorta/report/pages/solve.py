"""`aorta solve`: what fails, what makes it stop, what brought it, and what each stage came to."""

from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.report.charts.drawing import CHARACTER, canvas, fitted, label, rect
from aorta.report.documents import Document, items, number, rows, section, words
from aorta.report.markup import Markup
from aorta.report.model import (
    Command,
    FactRows,
    Figure,
    Headline,
    Page,
    Section,
    Table,
    Tone,
    Words,
)
from aorta.report.pages.common import rate, seconds, table_section, usual_facts
from aorta.report.run_reader import OpenedRun, read_json, read_json_lines

_BAR, _ROW = 14, 24
_MARKS = {"done": "reproduced", "no_answer": "clean", "budget": "other", "failed": "error"}


def gather(root: Path) -> dict[str, Any]:
    """While it runs there is no answer yet: the stages that are over say what is known."""
    lines = read_json_lines(root / ".aorta" / "stages.jsonl")
    stages = [{key: value for key, value in line.items() if key != "answer"} for line in lines]
    return {"result": read_json(root / "solve.json"), "stages": stages}


def page(run: OpenedRun) -> Page:
    result = section(run.material, "result")
    stages = rows(result, "stages") or rows(run.material, "stages")
    return Page(
        verb="solve",
        title=run.name,
        answer=_answer(run, result, stages),
        facts=FactRows([*usual_facts(run), *_facts(result)]),
        picture=_picture(stages),
        sections=[
            *_reproducer(result),
            *_cure(result),
            *_culprits(result),
            *_divergence(result),
            *_open_questions(result),
            *_next(result),
            *_stages(stages),
        ],
        missing=[] if result else ["solve.json: not every stage is over yet"],
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
    if not parts and section(result, "reproducer"):
        parts.append("it has a small reproducer")
    said = f"{words(failure, 'class')}: {' and '.join(parts) or 'no cause was found'}"
    found = bool(cure or culprits)
    return Headline(said, Tone.FOUND if found else Tone.UNSURE, words(failure, "summary"))


def _facts(result: Document) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    failure = section(result, "failure")
    seen = section(failure, "rate")
    if seen:
        hits, of = int(number(seen, "reproduced") or 0), int(number(seen, "of") or 0)
        found.append(("Fails in", rate(hits, of, "trial")))
    for name, key in (("Trials", "trials"), ("Known already", "shared_trials")):
        if (count := number(result, key)) is not None:
            found.append((name, int(count)))
    if (spent := number(result, "seconds")) is not None:
        found.append(("Time", seconds(spent)))
    return found


def _picture(stages: list[Document]) -> Figure | None:
    timed = [(words(s, "name"), words(s, "status"), number(s, "seconds") or 0.0) for s in stages]
    timed = [row for row in timed if row[2] > 0]
    if not timed:
        return None
    says = "; ".join(f"{name}: {status} after {seconds(spent)}" for name, status, spent in timed)
    seen = dict.fromkeys(status for _, status, _ in timed)
    return Figure(
        "How long each stage took, and what became of it",
        lambda width: _draw(timed, width, says),
        says,
        legend=[(_MARKS[status], status.replace("_", " ")) for status in seen if status in _MARKS],
    )


def _draw(timed: list[tuple[str, str, float]], width: int, says: str) -> Markup:
    left = 12 * CHARACTER
    longest = max(spent for _, _, spent in timed)
    parts = []
    for at, (name, status, spent) in enumerate(timed):
        y = at * _ROW + 4
        long = (width - left - 9 * CHARACTER) * spent / longest
        parts += [
            label(0, y + _BAR - 3, fitted(name, left)),
            rect(left, y, max(2.0, long), _BAR, class_=f"bar {_MARKS.get(status, 'clean')}"),
            label(left + max(2.0, long) + 6, y + _BAR - 3, seconds(spent), "tick"),
        ]
    return canvas(width, len(timed) * _ROW + 8, says, *parts)


def _reproducer(result: Document) -> list[Section]:
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
    return [Section("The smallest reproducer", [table, Words(said)])]


def _cure(result: Document) -> list[Section]:
    cure = section(result, "cure")
    if not cure:
        return []
    names = " + ".join(map(str, items(cure, "mitigations")))
    chance = number(cure, "p")
    luck = f" The chance that this is luck: {chance:.2g}." if chance is not None else ""
    said = f"{names}, seen to work on the {words(cure, 'verified_on')} workload.{luck}"
    return [Section("What makes it stop", [Words([said])])]


def _culprits(result: Document) -> list[Section]:
    listed = [
        [
            words(c, "package"),
            words(c, "bad"),
            words(c, "title"),
            words(c, "author"),
            words(c, "date"),
        ]
        for c in rows(result, "culprits")
    ]
    sure = number(result, "confidence")
    is_range = words(result, "bisect_status") == "range"
    one = f": one of {len(listed)} changes" if is_range else ""
    title = f"What brought it{one}" + (f" ({100 * sure:.0f} % sure)" if sure is not None else "")
    return table_section(title, ["package", "change", "title", "author", "date"], listed)


def _divergence(result: Document) -> list[Section]:
    found = section(result, "divergence")
    first = section(found, "first") or section(found, "first_nonfinite")
    if not first:
        return []
    place = f" at {words(first, 'file')}:{words(first, 'line')}" if words(first, "file") else ""
    said = f"{words(first, 'op')}{place}, step {words(first, 'step')}"
    return [Section("Where the numbers part", [Words([said])])]


def _open_questions(result: Document) -> list[Section]:
    said = [str(one) for one in items(result, "not_found_out")]
    return [Section("What was not found out", [Words(said, is_list=True)])] if said else []


def _next(result: Document) -> list[Section]:
    commands = [Command(str(one)) for one in items(result, "next")]
    return [Section("What to do now", commands)] if commands else []


def _stages(stages: list[Document]) -> list[Section]:
    listed = [
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
    return table_section("The stages", heads, listed, frozenset({2, 3}))
