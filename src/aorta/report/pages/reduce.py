"""`aorta reduce`: what is the smallest workload that still fails? Removed lines are never shown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.report.charts import Curve
from aorta.report.page import Figure, Listing, Page, Section, TextLine
from aorta.report.pages.common import own_words_page
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
    tracks = tracks_of(run)
    found = own_words_page(
        run, run.documents.section("result"), picture=picture_of(tracks), sections=remaining(run)
    )
    shrunk = ", ".join(track.says for track in tracks if track.final < track.initial)
    sentence = f"{found.answer.sentence}: {shrunk}" if shrunk else found.answer.sentence
    return replace(found, answer=replace(found.answer, sentence=sentence))


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


# -- what is left


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
