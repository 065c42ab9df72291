"""`aorta diverge`: the operation at which the numbers part, and how the difference grows behind
it.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.report.charts.drawing import PixelScale, log_scale
from aorta.report.charts.trials import draw_dots
from aorta.report.documents import Document, number, rows, section, words
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
from aorta.report.pages.common import usual_facts
from aorta.report.run_reader import OpenedRun, read_json

_LEAST = -18.0  # of the exponent: a difference of nothing is drawn at the foot
_MOST_POINTS = 2000


def gather(root: Path) -> dict[str, Any]:
    curve = rows_of(read_json(root / "curve.json"))
    return {"result": read_json(root / "result.json"), "curve": _thinned(curve)}


def rows_of(document: Document) -> list[Any]:
    found = document.get("curve")
    return found if isinstance(found, list) else []


def _thinned(curve: Sequence[Any]) -> list[Any]:
    """As many points as can be seen; of each stretch the largest difference."""
    if len(curve) <= _MOST_POINTS:
        return list(curve)
    wide = math.ceil(len(curve) / _MOST_POINTS)
    return [
        max(curve[i : i + wide], key=lambda point: point[2]) for i in range(0, len(curve), wide)
    ]


def page(run: OpenedRun) -> Page:
    result = section(run.documents, "result")
    first = section(result, "first")
    return Page(
        verb="diverge",
        title=run.name,
        answer=_answer(run, result, first),
        facts=FactRows([*usual_facts(run), *_facts(result)]),
        picture=_picture(run.documents, first),
        sections=[
            *_operation(first),
            *_nonfinite(result),
            *_history(result),
            *_notes(result),
        ],
        missing=[] if result else ["no comparison has ended yet"],
    )


def _answer(run: OpenedRun, result: Document, first: Document) -> Headline:
    status = words(result, "status")
    if not status:
        return Headline("Nothing is compared yet", Tone.RUNNING if run.running else Tone.UNSURE)
    if first:
        return Headline(f"The numbers part at {_place(first)}", Tone.FOUND, _how_far(first))
    if nonfinite := section(result, "first_nonfinite"):
        return Headline(f"The first NaN or infinity comes from {_place(nonfinite)}", Tone.FOUND)
    if own := section(result, "self_difference"):
        sentence = f"The program does not repeat its own numbers: two runs part at {_place(own)}"
        return Headline(sentence, Tone.UNSURE)
    said = {
        "same": ("No operation differs by more than rounding explains", Tone.FINE),
        "not_aligned": ("The two sides do not do the same operations", Tone.UNSURE),
    }
    if status == "not_aligned" and number(result, "recorded_ops") == 0:
        return Headline("Nothing was recorded, so there is nothing to compare", Tone.UNSURE)
    sentence, tone = said.get(status, ("The comparison was cut short", Tone.UNSURE))
    return Headline(sentence, tone)


def _place(at: Document) -> str:
    module = words(at, "module")
    line = f"{words(at, 'file')}:{int(number(at, 'line') or 0)}" if words(at, "file") else ""
    parts = [words(at, "op"), f"in {module}" if module else "", f"at {line}" if line else ""]
    step = number(at, "step")
    parts.append(f"step {int(step)}" if step is not None else "")
    occurrence = int(number(at, "occurrence") or 1)
    parts.append(f"value {occurrence} of this name in it" if occurrence > 1 else "")
    return ", ".join(part for part in parts if part)


def _how_far(first: Document) -> str:
    said = words(first, "sentence")
    if said:
        return f"{said[0].upper()}{said[1:]}."
    return f"It differs by {_shown(first.get('difference'))}."  # of ranks


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else str(value)


def _facts(result: Document) -> list[tuple[str, object]]:
    sides = section(result, "sides")
    compared, unmatched = number(result, "compared_ops"), number(result, "unmatched")
    found: list[tuple[str, object]] = [
        (f"The {name} side", words(sides, name) or "as it is") for name in sides
    ]
    if compared:
        found.append(("Compared", counted(int(compared), "operation")))
        found.append(("Without a partner", int(unmatched or 0)))
    return found


def _picture(curve_of: Document, first: Document) -> Figure | None:
    curve = [
        (float(at), max(_LEAST, math.log10(apart)) if apart > 0 else _LEAST)
        for at, _, apart in rows_of(curve_of)
    ]
    if not curve:
        return None
    says = "how far the two sides are apart after each operation, in powers of ten"
    here = [point for point in curve if point[0] == number(first, "index")]
    most = max(1.0, *(height for _, height in curve))
    return Figure(
        "How far the two sides are apart, operation by operation",
        lambda width: draw_dots(
            {"clean": curve, "reproduced": here},
            partial(PixelScale, _LEAST, most),
            width,
            says,
            "operation",
            "10^",
        ),
        says,
        legend=[("clean", "an operation"), ("reproduced", "where they part")] if first else [],
    )


def _operation(first: Document) -> list[Section]:
    if not first:
        return []
    table_rows = [
        [name, *_tensor(tensor)]
        for name in ("bad", "good")
        for tensor in rows(section(first, name), "outputs")
    ]
    table_rows += [[f"read from {words(t, 'from')}", *_tensor(t)] for t in rows(first, "inputs")]
    ranks = section(first, "by_rank")
    table_rows += [[f"rank {rank}", *_tensor(section(ranks, rank))] for rank in ranks]
    heads = ["", "shape", "type", "rms", "least", "most"]
    script = Command("python reproduce.py", "the operation alone, with what it read")
    return [Section("The operation", [Table(heads, table_rows, frozenset({3, 4, 5})), script])]


def _tensor(tensor: Document) -> list[object]:
    stats = section(tensor, "stats")
    shape = tensor.get("shape")
    return [
        "x".join(map(str, shape)) if isinstance(shape, list) else "",
        words(tensor, "dtype"),
        *(_shown(stats.get(name)) for name in ("rms", "min", "max")),
    ]


def _nonfinite(result: Document) -> list[Section]:
    found = section(result, "first_nonfinite")
    if not found:
        return []
    table_rows = [["it gave", *_tensor(t)] for t in rows(found, "outputs")]
    table_rows += [[f"it read {words(t, 'op')}", *_tensor(t)] for t in rows(found, "inputs")]
    heads = ["", "shape", "type", "rms", "least", "most"]
    where = Words([_place(found)])
    return [
        Section(
            "The first NaN or infinity", [where, Table(heads, table_rows, frozenset({3, 4, 5}))]
        )
    ]


def _history(result: Document) -> list[Section]:
    """The steps before the first NaN or infinity: largest value and norm, by module."""
    history = rows(result, "history")
    if not history:
        return []
    kinds = ("activation", "gradient")
    table_rows = [
        [
            words(one, "module") or "(no module)",
            int(number(one, "step") or 0),
            *(_shown(section(one, kind).get(of)) for kind in kinds for of in ("max", "norm")),
        ]
        for one in history
    ]
    heads = ["module", "step", "activation", "its norm", "gradient", "its norm"]
    places = {
        mark: [
            (number(one, "step") or 0.0, number(size, "max") or 0.0)
            for one in history
            if (size := section(one, kind))
        ]
        for kind, mark in zip(kinds, ("clean", "other"), strict=True)
    }
    heights = [height for dots in places.values() for _, height in dots]
    title = "How large the numbers were before"
    says = "the largest activation and gradient of each module, step by step, in powers of ten"
    figure = Figure(
        title,
        lambda width: draw_dots(places, partial(log_scale, heights), width, says, "step"),
        says,
        Table(heads, table_rows, frozenset(range(1, 6))),
        legend=[("clean", "an activation"), ("other", "a gradient")],
    )
    return [Section(title, [figure])]


def _notes(result: Document) -> list[Section]:
    notes = result.get("notes")
    if not isinstance(notes, list) or not notes:
        return []
    return [Section("Notes", [Words([str(note) for note in notes], is_list=True)])]
