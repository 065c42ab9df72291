"""`aorta reduce`: what is the smallest workload that still fails?

The lines that were taken away are never shown: a page may ship, and what a reduction removes is
what nobody wanted to share.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta.core.stats import counted, wilson
from aorta.report.charts.trials import (
    AxisTrack,
    CandidateTried,
    draw_rate,
    draw_shrinking,
)
from aorta.report.documents import Document, count, items, number, rows, section, words
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
)
from aorta.report.pages.common import (
    factor,
    listed,
    missing_result,
    next_section,
    percent,
    rate,
    seconds,
    state_words,
    table_section,
    trials_section,
    usual_facts,
)
from aorta.report.run_reader import OpenedRun, read_json, read_json_lines

_MOST_LINES = 400
_MARKS = {
    "accepted": ("yes", "accepted: still fails"),
    "rejected": ("no", "rejected: no longer fails"),
    "other": ("overtaken", "overtaken: fails, but a smaller one had been accepted by then"),
    "error": ("not decided", "not decided: could not be told"),
}
"""What became of a candidate, by its mark: in the table, and in the legend."""


def gather(root: Path) -> dict[str, Any]:
    trace = [_slim(line) for line in read_json_lines(root / "reduction_trace.jsonl")]
    best = next((line for line in reversed(trace) if line["accepted"]), None)
    for line in trace:
        if line is not best:
            line["kept"] = {}
    return {"result": read_json(root / "result.json"), "trace": trace}


def _slim(line: Document) -> dict[str, Any]:
    """A line with what the page draws; a large subset is a count, its ranges apart."""
    values = section(line, "values")
    return {
        "purpose": words(line, "purpose"),
        "sizes": {
            name: size for name, value in values.items() if (size := _size(value)) is not None
        },
        "kept": {name: words(value, "kept") for name, value in values.items() if section(value)},
        "accepted": line.get("accepted") is True,
        "mark": _mark(line),
        "why": words(line, "why"),
        "trials": len(items(line, "outcomes")) or 1,
        "median_sec": number(line, "median_sec"),
    }


def _mark(line: Document) -> str:
    if line.get("accepted") is True:
        return "accepted"
    return {"reproduces": "other", "could not tell": "error"}.get(
        words(line, "verdict"), "rejected"
    )


def _size(value: object) -> float | None:
    """How much of an axis a value uses: the number, a subset's count, a window's length."""
    if isinstance(value, Mapping):
        return number(value, "count")
    if isinstance(value, list):
        return number({"length": value[-1]}, "length") if value else None
    return number({"value": value}, "value")


def page(run: OpenedRun) -> Page:
    result = section(run.documents, "result")
    tracks = tracks_of(run, result)
    return Page(
        verb="reduce",
        title=run.name,
        answer=_answer(run, result, tracks),
        facts=FactRows([*usual_facts(run), *_spent(result)]),
        picture=picture_of(tracks, len(run.trials)),
        sections=[
            *_axes(result),
            *remaining(run, result),
            *_confirmed(result),
            *next_section(result, "Next"),
            *trials_section(run),
        ],
        missing=missing_result(result),
    )


def _answer(run: OpenedRun, result: Document, tracks: Sequence[AxisTrack]) -> Headline:
    status, why = words(result, "status"), words(result, "why")
    shrunk = [
        f"{track.name} {_short(track.initial)} → {_short(track.final)}"
        for track in tracks
        if track.final < track.initial
    ]
    shrunk += [
        f"{count(axis, 'initial_lines')} → {count(axis, 'final_lines')} lines of source"
        for axis in rows(result, "axes")
        if count(axis, "final_lines") < count(axis, "initial_lines")
    ]
    if status == "reduced":
        sure = section(result, "confirmed")
        hits, of = count(sure, "reproduced"), count(sure, "of")
        least = f"; it fails at least {percent(wilson(hits, of)[0])} of the time" if of else ""
        sentence = f"It still fails with {listed(shrunk)}: confirmed {hits} of {of} times{least}"
        return Headline(sentence, Tone.FOUND, words(result, "signature"))
    if status == "not_reduced":
        return Headline(
            "Nothing could be made smaller: no smaller candidate was seen to fail",
            Tone.UNSURE,
            why,
        )
    if status == "did_not_reproduce":
        original = section(result, "original")
        seen = rate(count(original, "reproduced"), count(original, "of"))
        return Headline(f"The original did not fail: {seen}", Tone.UNSURE, why)
    so_far = (
        f"So far it still fails with {listed(shrunk)}" if shrunk else "Nothing smaller is known yet"
    )
    search = words(result, "search")
    if search == "lost":
        return Headline("Lost: what failed before no longer does", Tone.UNSURE, why)
    if search == "unconfirmed":
        so_far = f"Not confirmed: {so_far[0].lower()}{so_far[1:]}"
    more = why or f"The run is {state_words(run)}; this is not confirmed."
    return Headline(so_far, Tone.RUNNING if run.running else Tone.UNSURE, more)


def _short(value: float) -> str:
    return f"{value:g}"


def tracks_of(run: OpenedRun, result: Document) -> list[AxisTrack]:
    candidates = _from_trace(run)
    names = list(dict.fromkeys(name for _, sizes, _ in candidates for name in sizes))
    facts = {words(row, "name"): row for row in rows(result, "axes")}
    tracks = []
    for name in [*(n for n in facts if n in names), *(n for n in names if n not in facts)]:
        row = facts.get(name, {})
        initial = _size(row.get("initial"))
        if initial is None:
            initial = candidates[0][1].get(name, 0.0)
        moves = list(_moves(name, initial, candidates))
        tracks.append(AxisTrack(name, initial, _size(row.get("floor")), moves))
    return tracks


Candidate = tuple[int, Mapping[str, float], str]
"""After how many trials, the size of each axis, and the mark of what became of it."""


def _moves(name: str, initial: float, candidates: Sequence[Candidate]) -> Iterable[CandidateTried]:
    """Where this axis was tried at another size than the answer so far."""
    best = initial
    for trial, sizes, mark in candidates:
        size = sizes.get(name)
        if size is None or size == best:
            continue
        yield CandidateTried(trial, size, mark)
        if mark == "accepted":
            best = size


def _from_trace(run: OpenedRun) -> list[Candidate]:
    spent, found = 0, []
    for line in rows(run.documents, "trace"):
        spent += max(1, count(line, "trials"))
        found.append((spent, section(line, "sizes"), words(line, "mark")))
    return found


def picture_of(tracks: Sequence[AxisTrack], trials: int = 0) -> Figure | None:
    """Each axis over the trials; `trials` where more ran than the last candidate needed."""
    if not tracks:
        return None
    most = max([trials, *(tried.trial for track in tracks for tried in track.tried)])
    says = "; ".join(f"{t.name} from {_short(t.initial)} to {_short(t.final)}" for t in tracks)
    table = Table(
        ["axis", "after trial", "value", "accepted"],
        [[t.name, m.trial, _short(m.size), _MARKS[m.mark][0]] for t in tracks for m in t.tried],
        frozenset({1, 2}),
    )
    seen = {"accepted", "rejected", *(tried.mark for t in tracks for tried in t.tried)}
    return Figure(
        "How each axis shrank, on a logarithmic scale",
        lambda width: draw_shrinking(tracks, most, width, says),
        says,
        table,
        [(mark, says) for mark, (_, says) in _MARKS.items() if mark in seen],
    )


def _axes(result: Document) -> list[Section]:
    axes = rows(result, "axes")
    return table_section(
        "What became smaller",
        ["axis", "kind", "from", "to", "", "floor", "monotone"],
        [
            [
                words(row, "name"),
                words(row, "kind"),
                _value(row.get("initial")),
                _value(row.get("final")),
                factor(_size(row.get("initial")) or 0, _size(row.get("final")) or 0),
                _value(row.get("floor")),
                {"True": "yes", "False": "no"}.get(words(row, "monotone"), "not known"),
            ]
            for row in axes
        ],
        frozenset({2, 3}),
    )


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return "" if value is None else str(value)


def remaining(run: OpenedRun, result: Document) -> list[Section]:
    """What is left of each file or list, the kept lines at the numbers they had."""
    accepted = [line for line in rows(run.documents, "trace") if line.get("accepted") is True]
    ranges = section(accepted[-1], "kept") if accepted else {}
    blocks: list[Listing] = []
    for row in rows(result, "axes"):
        name, kept, total = words(row, "name"), items(row, "final_items"), count(row, "initial")
        if not kept or not total:
            continue
        numbers = _numbers(words(ranges, name), len(kept)) or _own_numbers(kept)
        blocks.append(_kept_lines(name, kept, numbers, total))
    return [Section("What remains", blocks)] if blocks else []


def _numbers(ranges: str, expected: int) -> list[int]:
    """The numbers in `1-4,7`, if they are as many as are kept."""
    found: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return []
        if int(last or first) - int(first) >= expected:
            return []
        found += range(int(first), int(last or first) + 1)
    return found if len(found) == expected else []


def _own_numbers(kept: Sequence[Any]) -> list[int]:
    return list(kept) if all(isinstance(item, int) for item in kept) else []


def _kept_lines(name: str, kept: Sequence[Any], numbers: Sequence[int], total: int) -> Listing:
    gone = total - len(kept)
    lines: list[TextLine] = []
    before = 0
    for index, item in enumerate(kept[:_MOST_LINES]):
        at = numbers[index] if index < len(numbers) else None
        if at is not None and at > before + 1:
            lines.append(TextLine(f"… {counted(at - before - 1, 'line')} gone …", mark="gone"))
        lines.append(TextLine("" if isinstance(item, int) else str(item), at, "kept"))
        before = at if at is not None else before
    if len(kept) > _MOST_LINES:
        lines.append(TextLine(f"… {len(kept) - _MOST_LINES} more kept …"))
    elif numbers and before < total:
        lines.append(TextLine(f"… {counted(total - before, 'line')} gone …", mark="gone"))
    return Listing(f"{name}: what is left", lines, f"{len(kept)} of {total} kept, {gone} gone")


def _confirmed(result: Document) -> list[Section]:
    sure = section(result, "confirmed")
    hits, of = count(sure, "reproduced"), count(sure, "of")
    if not of:
        return []
    original = section(result, "original")
    table = Table(
        ["", "failed"],
        [
            ["the original", rate(count(original, "reproduced"), count(original, "of"))],
            ["the reduced one, in fresh trials", rate(hits, of)],
        ],
    )
    says = f"confirmed: {rate(hits, of)}"
    figure = Figure(
        "The confirmed rate", lambda width: draw_rate(hits, of, width, says), says, table
    )
    return [Section("How sure", [figure])]


def _spent(result: Document) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    if candidates := count(result, "candidates"):
        found.append(("Candidates", candidates))
    before = number(section(result, "original"), "median_sec")
    after = number(section(result, "final"), "median_sec")
    if before is not None and after is not None:
        gain = factor(before, after)
        less = f": {gain}" if gain else ""
        found.append(("A trial takes", f"{seconds(after)}, was {seconds(before)}{less}"))
    return found
