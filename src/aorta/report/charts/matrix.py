"""A matrix of failure rates. What a cell is can be told without colour: a hatch where nothing is
proved, words where there is no rate at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aorta.report.charts.drawing import canvas, fitted, label, line
from aorta.report.markup import Markup, el

_HEAD, _ROW = 30, 54


class CellAnswer(StrEnum):
    """What a cell's rate is worth."""

    BASELINE = "baseline"
    PROVED = "proved"  # differs from the baseline beyond chance
    UNPROVED = "unproved"
    INERT = "inert"  # cannot differ from the baseline here
    ERROR = "error"  # its trials ended in errors
    ABSENT = "absent"  # did not run


_SIGNS = {
    CellAnswer.INERT: "∅ inert",
    CellAnswer.ERROR: "✕ error",
    CellAnswer.ABSENT: "— did not run",
}


@dataclass(frozen=True)
class HeatCell:
    row: str
    column: str
    answer: CellAnswer
    hits: int = 0
    trials: int = 0
    low: float = 0.0
    high: float = 1.0
    call: str = ""

    @property
    def rate(self) -> float:
        return self.hits / self.trials if self.trials else 0.0

    @property
    def says(self) -> str:
        where = f"{self.row} in {self.column}"
        if not self.trials:
            return f"{where}: {self.answer.value}"
        interval = f"95 % interval {self.low:.0%} to {self.high:.0%}"
        return (
            f"{where}: {self.hits} of {self.trials} failed, {interval}; "
            f"{self.call or self.answer.value}"
        )


def draw_heat(cells: Sequence[HeatCell], width: int, says: str) -> Markup:
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    names = min(width * 0.34, max(90.0, 7.0 * max(map(len, rows), default=0) + 12))
    room = (width - names) / max(1, len(columns))
    by_place: Mapping[tuple[str, str], HeatCell] = {(c.row, c.column): c for c in cells}
    parts: list[object] = []
    for index, column in enumerate(columns):
        parts.append(label(names + index * room + 4, 18, fitted(column, room - 8), "name"))
    for number, row in enumerate(rows):
        y = _HEAD + number * _ROW
        parts.append(
            el("text", el("title", row), fitted(row, names - 10), x=0, y=y + 30, class_="label")
        )
        for index, column in enumerate(columns):
            cell = by_place.get((row, column))
            if cell is not None:
                parts.append(_cell(cell, names + index * room, y, room - 3, _ROW - 3))
    return canvas(width, _HEAD + len(rows) * _ROW, says, parts)


def _cell(cell: HeatCell, x: float, y: float, width: float, height: float) -> Markup:
    answer = cell.answer
    box = {"x": x, "y": y, "width": width, "height": height, "rx": 4}
    tinted = answer in {CellAnswer.BASELINE, CellAnswer.PROVED, CellAnswer.UNPROVED}
    parts: list[object] = [
        el("title", cell.says),
        el("rect", class_=f"cell {answer.value}", **box),
    ]
    if tinted:
        parts.append(
            el("rect", class_="heat", style=f"opacity:{0.08 + 0.72 * cell.rate:.2f}", **box)
        )
    if answer in {CellAnswer.UNPROVED, CellAnswer.INERT}:
        parts.append(el("rect", fill="url(#hatch)", class_="hatch", **box))
    if answer is CellAnswer.BASELINE:
        parts.append(el("rect", class_="outline", **box))
    parts += _inside(cell, x, y, width) if cell.trials else [_sign(answer, x, y, width)]
    return el("g", parts)


def _inside(cell: HeatCell, x: float, y: float, width: float) -> list[Markup]:
    left, right = x + 10, x + width - 10
    span = right - left
    words = f"{cell.rate:.0%}"
    counts = _SIGNS.get(cell.answer, f"{cell.hits}/{cell.trials}")
    parts = [el("text", words, x=left, y=y + 22, class_="rate")]
    if span > 74:
        parts.append(label(right, y + 21, fitted(counts, span - 40), "tick plate", "end"))
    parts += [
        line(left, y + 38, right, y + 38, "track"),
        line(left + span * cell.low, y + 38, left + span * cell.high, y + 38, "whisker"),
        el("circle", cx=left + span * cell.rate, cy=y + 38, r=3.5, class_="pin"),
    ]
    return parts


def _sign(answer: CellAnswer, x: float, y: float, width: float) -> Markup:
    words = fitted(_SIGNS.get(answer, "no trial yet"), width - 12)
    return label(x + width / 2, y + 30, words, "sign", "middle")
