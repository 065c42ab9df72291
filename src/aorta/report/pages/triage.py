"""`aorta triage run`: which mitigation, in which environment, makes it stop?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aorta.core.stats import counted, wilson
from aorta.core.trial import Tally
from aorta.report.charts.matrix import CellAnswer, HeatCell, draw_heat
from aorta.report.documents import Document, count, items, number, rows, section, words
from aorta.report.model import FactRows, Figure, Headline, Page, Section, Table, Tone, Words
from aorta.report.pages import optimize
from aorta.report.pages.common import (
    listed,
    rate,
    seconds,
    state_words,
    table_section,
    trials_section,
    usual_facts,
    warnings_section,
)
from aorta.report.run_reader import OpenedRun, read_json

_CELL = "cell"
_STANDINGS = {
    "(baseline)": CellAnswer.BASELINE,
    "works": CellAnswer.PROVED,
    "worse": CellAnswer.PROVED,
    "inert": CellAnswer.INERT,
    "did not run": CellAnswer.ABSENT,
}
_LEGEND = (
    ("heat", "the redder, the more often it fails"),
    ("hatched", "hatched: no proved difference from the baseline"),
    ("outline", "outlined: the baseline"),
    ("cell inert", "∅ dotted: cannot differ here"),
    ("cell error", "✕ framed: its trials ended in errors"),
    ("cell absent", "— dashed: did not run"),
)


def gather(root: Path) -> dict[str, Any]:
    return {
        "matrix": _without_paths(read_json(root / "matrix.json")),
        "optimize": read_json(root / "optimize.json"),
    }


def _without_paths(matrix: Document) -> dict[str, Any]:
    dropped = {"trial_paths", "resolved_environment"}
    cells = [
        {key: value for key, value in cell.items() if key not in dropped}
        for cell in rows(matrix, "cells")
    ]
    return {**matrix, "cells": cells} if matrix else {}


def page(run: OpenedRun) -> Page:
    if section(run.documents, "optimize"):
        return optimize.page(run)
    matrix = section(run.documents, "matrix")
    cells = rows(matrix, "cells") or _cells_so_far(run)
    return Page(
        verb="triage",
        title=run.name,
        answer=_answer(run, matrix, cells),
        facts=FactRows([*usual_facts(run), *_settings(matrix)]),
        picture=_heat_map(cells),
        sections=[
            *warnings_section(matrix),
            *_step_times(cells),
            *_table(cells),
            *_try_next(cells),
            *trials_section(run),
        ],
        missing=[] if matrix else ["matrix.json: the run has not written its matrix yet"],
    )


def _cells_so_far(run: OpenedRun) -> list[Document]:
    """A matrix that is still filling, from the trials that have ended."""
    tallies: dict[str, Tally] = {}
    for trial in run.trials:
        name = str(trial.values.get(_CELL, ""))
        tallies[name] = tallies.get(name, Tally()) + trial.outcome
    return [_cell_so_far(name, tally) for name, tally in tallies.items() if name]


def _cell_so_far(name: str, tally: Tally) -> Document:
    low, high = wilson(tally.reproduced, tally.evidence)
    return {
        "name": name,
        "trials": tally.trials,
        "failed_count": tally.reproduced,
        "passed_count": tally.clean,
        "other_count": tally.other,
        "error_count": tally.error,
        "interval": {"low": low, "high": high},
        "call": "not known",
    }


def _answer(run: OpenedRun, matrix: Document, cells: Sequence[Document]) -> Headline:
    tone = Tone.RUNNING if run.running else None
    name = words(matrix, "workload") or run.name
    more = "" if run.state == "done" else f"The run is {state_words(run)}."
    working = [cell for cell in cells if words(cell, "call") == "works"]
    if working:
        best = min(working, key=lambda cell: (_rate(cell), number(cell, "step_time_ratio") or 1.0))
        base = next((cell for cell in cells if words(cell, "call") == "(baseline)"), {})
        chance = number(best, "p_value_holm")
        luck = f"; luck would do this with probability {chance:.1g}" if chance is not None else ""
        sentence = (
            f"{words(best, 'name')} makes it stop: {_failures(best)} failed, "
            f"against {_failures(base)} of the baseline{luck}"
        )
        others = [words(cell, "name") for cell in working if cell is not best]
        also = f"So {'does' if len(others) == 1 else 'do'} {listed(others)}. " if others else ""
        return Headline(sentence, tone or Tone.FOUND, also + more)
    if not any(_evidence(cell) for cell in cells):
        return Headline(f"{name}: no cell has run yet", tone or Tone.UNSURE, more)
    baseline = next((cell for cell in cells if words(cell, "call") == "(baseline)"), None)
    if baseline is not None and not count(baseline, "failed_count"):
        seen = counted(_evidence(baseline), "trial")
        sentence = f"The baseline never failed in {seen}: nothing can be seen to help"
        return Headline(sentence, tone or Tone.UNSURE, more)
    open_ = sum(words(cell, "call") == "not known" for cell in cells)
    sentence = f"Nothing of what was tried is proved to help {name}"
    if open_:
        sentence += f"; {counted(open_, 'cell')} not known"
    return Headline(sentence, tone or Tone.UNSURE, more)


def _evidence(cell: Document) -> int:
    return sum(count(cell, key) for key in ("failed_count", "passed_count", "other_count"))


def _rate(cell: Document) -> float:
    return count(cell, "failed_count") / max(1, _evidence(cell))


def _failures(cell: Document) -> str:
    return f"{count(cell, 'failed_count')} of {_evidence(cell)}"


def _settings(matrix: Document) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, key in (("Trials a cell", "trials_per_cell"), ("Steps a trial", "steps_per_trial")):
        if value := words(matrix, key):
            found.append((name, value))
    if stated := words(section(matrix, "significance"), "statement"):
        found.append(("How sure", stated.replace("`", "")))
    return found


def _heat_map(cells: Sequence[Document]) -> Figure | None:
    if not cells:
        return None
    drawn = [_heat_cell(cell) for cell in cells]
    says = "; ".join(cell.says for cell in drawn)
    table = Table(
        ["cell", "failed", "what it means"],
        [[words(cell, "name"), _rate_words(cell), _call(cell)] for cell in cells],
    )
    return Figure(
        "How often each cell fails, with its 95 % interval",
        lambda width: draw_heat(drawn, width, says),
        says,
        table,
        _LEGEND,
    )


def _heat_cell(cell: Document) -> HeatCell:
    mitigations = [str(name) for name in items(cell, "mitigations")]
    environment = words(cell, "environment")
    name = words(cell, "name")
    evidence, interval = _evidence(cell), section(cell, "interval")
    return HeatCell(
        row=_row_name(name, mitigations, environment),
        column=environment or "failure rate",
        answer=_cell_answer(cell, evidence),
        hits=count(cell, "failed_count"),
        trials=evidence,
        low=number(interval, "low") or 0.0,
        high=1.0 if (high := number(interval, "high")) is None else high,
        call=words(cell, "call"),
    )


def _row_name(name: str, mitigations: Sequence[str], environment: str) -> str:
    """The mitigations, where the cell is named after them; else its own name."""
    stack = "+".join(mitigations)
    usual = {
        f"{stack}-{environment}",
        f"{stack or 'none'}_{environment}",
        f"baseline-{environment}",
    }
    return stack if stack and name in usual else name


def _cell_answer(cell: Document, evidence: int) -> CellAnswer:
    if not evidence:
        return CellAnswer.ERROR if count(cell, "error_count") else CellAnswer.ABSENT
    return _STANDINGS.get(words(cell, "call"), CellAnswer.UNPROVED)


def _rate_words(cell: Document) -> str:
    evidence = _evidence(cell)
    if not evidence:
        return f"{counted(count(cell, 'error_count'), 'error')}, no evidence"
    return rate(count(cell, "failed_count"), evidence)


def _call(cell: Document) -> str:
    why = words(cell, "why")
    return f"{words(cell, 'call')}: {why}" if why else words(cell, "call")


def _step_times(cells: Sequence[Document]) -> list[Section]:
    return table_section(
        "Does it mend, or only slow? Milliseconds a step",
        ["cell", "min", "median", "p90", "max", "beside the baseline"],
        [
            [
                words(cell, "name"),
                *(_ms(cell, key) for key in ("min", "p50", "p90", "max")),
                words(cell, "confound"),
            ]
            for cell in cells
            if count(cell, "steps_counted")
        ],
        frozenset({1, 2, 3, 4}),
    )


def _ms(cell: Document, key: str) -> str:
    value = number(cell, f"{key}_step_time_ms")
    return "" if value is None else f"{value:.4g}"


def _table(cells: Sequence[Document]) -> list[Section]:
    return table_section(
        "Every cell",
        ["cell", "failed", "p (Holm)", "what it means", "step time", "trial time", "hint"],
        [
            [
                words(cell, "name"),
                _rate_words(cell),
                _p(cell),
                _call(cell),
                words(cell, "confound"),
                seconds(number(cell, "mean_wall_clock_sec")),
                _hint(cell),
            ]
            for cell in cells
        ],
        frozenset({2, 5}),
    )


def _p(cell: Document) -> str:
    value = number(cell, "p_value_holm")
    return "" if value is None else f"{value:.2g}"


def _hint(cell: Document) -> str:
    hints = items(cell, "failure_hints")
    first = hints[0] if hints else None
    return str(first[0]) if isinstance(first, list) and first else words(cell, "error")


def _try_next(cells: Sequence[Document]) -> list[Section]:
    needed = {
        words(c, "name"): count(c, "trials_needed") for c in cells if count(c, "trials_needed")
    }
    if not needed:
        return []
    said = [
        f"{name}: about {counted(more, 'more trial')} would settle it"
        for name, more in needed.items()
    ]
    return [Section("What is not known", [Words(said, is_list=True)])]
