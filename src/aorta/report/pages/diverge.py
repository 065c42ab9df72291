"""`aorta diverge`: the operation at which the numbers part."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aorta.core.stats import counted
from aorta.report.charts import Curve
from aorta.report.page import (
    Block,
    FactRows,
    Figure,
    Headline,
    Page,
    Section,
    Table,
    Tone,
    Words,
)
from aorta.report.pages.common import list_section, usual_facts
from aorta.report.run_reader import Document, OpenedRun, read_json

_TENSOR = ["", "shape", "type", "rms", "least", "most"]


def gather(root: Path) -> dict[str, Any]:
    return {"result": read_json(root / "result.json")}


def page(run: OpenedRun) -> Page:
    result = run.documents.section("result")
    first = result.section("first")
    return Page(
        verb="diverge",
        title=run.name,
        answer=_answer(run, result, first),
        facts=FactRows([*usual_facts(run), *_facts(result)]),
        sections=[
            *_operation(first),
            *_nonfinite(result),
            *_history(result),
            *list_section("Notes", result.array("notes")),
        ],
        missing=[] if result else ["no comparison has ended yet"],
    )


def _answer(run: OpenedRun, result: Document, first: Document) -> Headline:
    status = result.text("status")
    if not status:
        return Headline("Nothing is compared yet", Tone.RUNNING if run.running else Tone.UNSURE)
    if first:
        return Headline(f"The numbers part at {_place(first)}", Tone.FOUND, _how_far(first))
    if nonfinite := result.section("first_nonfinite"):
        return Headline(f"The first NaN or infinity comes from {_place(nonfinite)}", Tone.FOUND)
    if own := result.section("self_difference"):
        sentence = f"The program does not repeat its own numbers: two runs part at {_place(own)}"
        return Headline(sentence, Tone.UNSURE)
    if status == "not_aligned" and result.number("recorded_ops") == 0:
        return Headline("Nothing was recorded, so there is nothing to compare", Tone.UNSURE)
    said = {
        "same": ("No operation differs by more than rounding explains", Tone.FINE),
        "not_aligned": ("The two runs do not do the same operations", Tone.UNSURE),
    }
    sentence, tone = said.get(status, ("The comparison was cut short", Tone.UNSURE))
    return Headline(sentence, tone)


def _place(at: Document) -> str:
    module, file, step = at.text("module"), at.text("file"), at.number("step")
    parts = [
        at.text("op"),
        f"in {module}" if module else "",
        f"at {file}:{int(at.number('line') or 0)}" if file else "",
        f"step {int(step)}" if step is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _how_far(first: Document) -> str:
    said = first.text("sentence")
    if said:
        return f"{said[0].upper()}{said[1:]}."
    return f"It differs by {_shown(first.get('difference'))}."  # of ranks


def _shown(value: object) -> str:
    return (
        f"{value:.3g}" if isinstance(value, (int, float)) else str("" if value is None else value)
    )


def _facts(result: Document) -> list[tuple[str, object]]:
    compared, unmatched = result.number("compared_ops"), result.number("unmatched")
    found: list[tuple[str, object]] = [
        (f"The {name} run", said or "as it is") for name, said in result.section("sides").items()
    ]
    if compared:
        found.append(("Compared", counted(int(compared), "operation")))
        found.append(("Without a partner", int(unmatched or 0)))
    return found


def _operation(first: Document) -> list[Section]:
    if not first:
        return []
    seen = [
        [name, *_tensor(tensor)]
        for name in ("bad", "good")
        for tensor in first.rows(name, "outputs")
    ]
    seen += [[f"read from {t.text('from')}", *_tensor(t)] for t in first.rows("inputs")]
    ranks = first.section("by_rank")
    seen += [[f"rank {rank}", *_tensor(ranks.section(rank))] for rank in ranks]
    return [Section("The operation", [_tensors(seen)])]


def _tensors(seen: Sequence[Sequence[object]]) -> Table:
    return Table(_TENSOR, seen, frozenset({3, 4, 5}))


def _tensor(tensor: Document) -> list[object]:
    stats, shape = tensor.section("stats"), tensor.array("shape")
    numbers = (_shown(stats.get(name)) for name in ("rms", "min", "max"))
    return ["x".join(map(str, shape)), tensor.text("dtype"), *numbers]


def _nonfinite(result: Document) -> list[Section]:
    found = result.section("first_nonfinite")
    seen = [["it gave", *_tensor(t)] for t in found.rows("outputs")]
    seen += [[f"it read {t.text('op')}", *_tensor(t)] for t in found.rows("inputs")]
    blocks: list[Block] = [Words([_place(found)]), _tensors(seen)]
    return [Section("The first NaN or infinity", blocks)] if found else []


def _history(result: Document) -> list[Section]:
    """The steps before the first NaN or infinity: largest value and norm, by module."""
    kinds = ("activation", "gradient")
    history = [
        [
            one.text("module") or "(no module)",
            int(one.number("step") or 0),
            *(_shown(one.section(kind).get(of)) for kind in kinds for of in ("max", "norm")),
        ]
        for one in result.rows("history")
    ]
    if not history:
        return []
    heads = ["module", "step", "activation", "its norm", "gradient", "its norm"]
    marks = [
        (
            mark,
            [
                (one.number("step") or 0.0, size.number("max") or 0.0)
                for one in result.rows("history")
                if (size := one.section(kind))
            ],
        )
        for kind, mark in zip(kinds, ("clean", "other"), strict=True)
    ]
    figure = Figure(
        "The largest activation and gradient of each module, on a logarithmic scale",
        Curve(marks, "step", log=True).draw,
        "the largest activation and gradient of each module, step by step",
        legend=[("clean", "an activation"), ("other", "a gradient")],
    )
    table = Table(heads, history, frozenset(range(1, 6)))
    return [Section("How large the numbers were before", [figure, table])]
