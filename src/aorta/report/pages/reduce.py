"""`aorta reduce`: what is the smallest workload that still fails?

The lines that were taken away are never shown: a page may ship, and what a reduction removes is
what nobody wanted to share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.stats import counted, wilson
from aorta.report.charts import Curve
from aorta.report.page import (
    FactRows,
    Figure,
    Headline,
    Listing,
    Page,
    Section,
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
from aorta.report.run_reader import Document, OpenedRun, read_json, read_json_lines

_MOST_LINES = 400
_MARKS = {
    "accepted": "accepted: still fails",
    "rejected": "rejected: no longer fails",
    "other": "overtaken: fails, but a smaller one had been accepted by then",
    "error": "not decided: could not be told",
}
"""What became of a candidate, by its mark."""


def gather(root: Path) -> dict[str, Any]:
    trace = [_slim(line) for line in read_json_lines(root / "reduction_trace.jsonl")]
    best = next((line for line in reversed(trace) if line["mark"] == "accepted"), None)
    for line in trace:
        if line is not best:
            line["kept"] = {}
    return {"result": read_json(root / "result.json"), "trace": trace}


def _slim(line: Document) -> dict[str, Any]:
    """A line with what the page draws; a large subset is a count, its ranges apart."""
    values = line.section("values")
    verdicts = {"reproduces": "other", "could not tell": "error"}
    mark = verdicts.get(line.text("verdict"), "rejected")
    return {
        "sizes": {name: size for name, v in values.items() if (size := _size(v)) is not None},
        "kept": {name: kept for name in values if (kept := values.section(name).text("kept"))},
        "mark": "accepted" if line.get("accepted") is True else mark,
        "trials": len(line.array("outcomes")) or 1,
    }


def _size(value: object) -> float | None:
    """How much of an axis a value uses: the number, a subset's count, a window's length."""
    if isinstance(value, Mapping):
        return Document(value).number("count")
    last = value[-1] if isinstance(value, list) and value else value
    return Document(value=last).number("value")


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    tracks = tracks_of(run)
    return Page(
        verb="reduce",
        title=run.name,
        answer=_answer(run, result, tracks),
        facts=FactRows([*usual_facts(run), *_spent(result)]),
        picture=picture_of(tracks),
        sections=[
            *_axes(result),
            *remaining(run),
            *next_section(result, "Next"),
            *trials_section(run),
        ],
        missing=missing_result(result),
    )


# -- how each axis shrank


@dataclass(frozen=True)
class AxisTrack:
    """An axis over the trials: `(after which trial, size, mark of what became of it)`."""

    name: str
    initial: float
    tried: Sequence[tuple[int, float, str]]

    @property
    def final(self) -> float:
        accepted = [size for _, size, mark in self.tried if mark == "accepted"]
        return accepted[-1] if accepted else self.initial

    @property
    def says(self) -> str:
        return f"{self.name} {self.initial:g} → {self.final:g}"


def tracks_of(run: OpenedRun) -> list[AxisTrack]:
    """Every axis with a size, in the order of the result."""
    axes = Document((row.text("name"), row) for row in run.documents.rows("result", "axes"))
    trace = run.documents.rows("trace")
    names = dict.fromkeys(name for line in trace for name in line.section("sizes"))
    ordered = [*(name for name in axes if name in names), *(n for n in names if n not in axes)]
    tracks = []
    for name in ordered:
        initial = _size(axes.section(name).get("initial"))
        if initial is None:
            initial = trace[0].section("sizes").number(name) or 0.0
        tracks.append(AxisTrack(name, initial, list(_moves(name, initial, trace))))
    return tracks


def _moves(
    name: str, initial: float, trace: Sequence[Document]
) -> Iterator[tuple[int, float, str]]:
    """Where this axis was tried at another size than the answer so far."""
    best, spent = initial, 0
    for line in trace:
        spent += max(1, line.count("trials"))
        size, mark = line.section("sizes").number(name), line.text("mark")
        if size is None or size == best:
            continue
        yield spent, size, mark
        if mark == "accepted":
            best = size


def picture_of(tracks: Sequence[AxisTrack]) -> Figure | None:
    """Every axis as a share of its start, over the trials."""
    drawn = [track for track in tracks if track.initial > 0]
    if not drawn:
        return None
    last = max([1, *(trial for track in drawn for trial, _, _ in track.tried)])
    lines, dots = [], []
    for track in drawn:
        share = [(n, 100 * size / track.initial, mark) for n, size, mark in track.tried]
        kept = [(0.0, 100.0), *((n, size) for n, size, mark in share if mark == "accepted")]
        lines.append((f"{track.name} {track.final:g}", [*kept, (last, kept[-1][1])]))
        dots += share
    marks = [mark for mark in _MARKS if mark in {"accepted", "rejected", *(m for *_, m in dots)}]
    placed = [(mark, [(n, size) for n, size, m in dots if m == mark]) for mark in marks]
    return Figure(
        "How each axis shrank, in percent of its start on a logarithmic scale",
        Curve(placed, "trial", lines, unit=" %", log=True).draw,
        "; ".join(track.says for track in drawn),
        [(mark, _MARKS[mark]) for mark in marks],
    )


# -- the answer


def _answer(run: OpenedRun, result: Document, tracks: Sequence[AxisTrack]) -> Headline:
    status, why = result.text("status"), result.text("why")
    shrunk = [track.says for track in tracks if track.final < track.initial]
    shrunk += [
        f"{axis.count('initial_lines')} → {axis.count('final_lines')} lines of source"
        for axis in result.rows("axes")
        if axis.count("final_lines") < axis.count("initial_lines")
    ]
    if status == "reduced":
        sure = result.section("confirmed")
        hits, of = sure.count("reproduced"), sure.count("of")
        least = f"; it fails at least {percent(wilson(hits, of)[0])} of the time" if of else ""
        sentence = f"It still fails with {listed(shrunk)}: confirmed {hits} of {of} times{least}"
        return Headline(sentence, Tone.FOUND, result.text("signature"))
    if status == "not_reduced":
        sentence = "Nothing could be made smaller: no smaller candidate was seen to fail"
        return Headline(sentence, Tone.UNSURE, why)
    if status == "did_not_reproduce":
        original = result.section("original")
        if not original.count("of"):
            return Headline("The original could not be tried", Tone.UNSURE, why)
        seen = rate(original.count("reproduced"), original.count("of"))
        return Headline(f"The original did not fail: {seen}", Tone.UNSURE, why)
    search = result.text("search")
    if search == "lost":
        return Headline("Lost: what failed before no longer does", Tone.UNSURE, why)
    so_far = (
        f"So far it still fails with {listed(shrunk)}" if shrunk else "Nothing smaller is known yet"
    )
    if search == "unconfirmed":
        so_far = f"Not confirmed: {so_far[0].lower()}{so_far[1:]}"
    more = why or f"The run is {state_words(run)}; this is not confirmed."
    return Headline(so_far, Tone.RUNNING if run.running else Tone.UNSURE, more)


def _axes(result: Document) -> list[Section]:
    axes = [
        [
            *axis_words(row),
            factor(_size(row.get("initial")) or 0, _size(row.get("final")) or 0),
            row.text("floor"),
            {"True": "yes", "False": "no"}.get(row.text("monotone"), "not known"),
        ]
        for row in result.rows("axes")
    ]
    heads = ["axis", "kind", "from", "to", "", "floor", "monotone"]
    return table_section("What became smaller", heads, axes, frozenset({2, 3}))


def axis_words(axis: Document) -> list[str]:
    """Its name and kind, where it began and where it ended."""
    ends = [", ".join(map(str, axis.array(key))) or axis.text(key) for key in ("initial", "final")]
    return [axis.text("name"), axis.text("kind"), *ends]


def remaining(run: OpenedRun) -> list[Section]:
    """What is left of each file or list, the kept lines at the numbers they had."""
    trace = run.documents.rows("trace")
    ranges = next((line.section("kept") for line in trace if line.section("kept")), Document())
    blocks: list[Listing] = []
    for row in run.documents.rows("result", "axes"):
        name, kept, total = row.text("name"), row.array("final_items"), row.count("initial")
        if not kept or not total:
            continue
        numbers = _numbers(ranges.text(name), len(kept))
        if not numbers and all(isinstance(item, int) for item in kept):
            numbers = list(kept)
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


def _kept_lines(name: str, kept: Sequence[Any], numbers: Sequence[int], total: int) -> Listing:
    lines: list[TextLine] = []
    before = 0
    for index, item in enumerate(kept[:_MOST_LINES]):
        at = numbers[index] if numbers else None
        if at is not None and at > before + 1:
            lines.append(TextLine(f"… {counted(at - before - 1, 'line')} gone …", mark="gone"))
        lines.append(TextLine("" if isinstance(item, int) else str(item), at, "kept"))
        before = at if at is not None else before
    if len(kept) > _MOST_LINES:
        lines.append(TextLine(f"… {len(kept) - _MOST_LINES} more kept …"))
    elif numbers and before < total:
        lines.append(TextLine(f"… {counted(total - before, 'line')} gone …", mark="gone"))
    note = f"{len(kept)} of {total} kept, {total - len(kept)} gone"
    return Listing(f"{name}: what is left", lines, note)


def _spent(result: Document) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    if candidates := result.count("candidates"):
        found.append(("Candidates", candidates))
    original = result.section("original")
    if of := original.count("of"):
        found.append(("The original fails", rate(original.count("reproduced"), of)))
    before = original.number("median_sec")
    after = result.section("final").number("median_sec")
    if before is not None and after is not None:
        gain = factor(before, after)
        less = f": {gain}" if gain else ""
        found.append(("A trial takes", f"{seconds(after)}, was {seconds(before)}{less}"))
    return found
