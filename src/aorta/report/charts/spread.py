"""Distributions side by side, with the band of the one they are compared with behind all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from aorta.report.charts.drawing import canvas, fitted, label, line, marks, rect, x_axis
from aorta.report.charts.scales import PixelScale
from aorta.report.markup import Markup, el

_ROW = 40


@dataclass(frozen=True)
class Spread:
    """Five numbers and, where there are few, the values themselves."""

    name: str
    low: float
    q1: float
    middle: float
    q3: float
    high: float
    values: Sequence[float] = ()
    baseline: bool = False
    note: str = ""


def draw_spreads(spreads: Sequence[Spread], unit: str, width: int, says: str) -> Markup:
    left, right = 8, width - 10
    most = max((spread.high for spread in spreads), default=1.0)
    least = min((spread.low for spread in spreads), default=0.0)
    across = PixelScale(max(0.0, least - 0.06 * (most - least)), most, left, right)
    foot = 8 + len(spreads) * _ROW
    parts: list[object] = [_band(spreads, across, foot)]
    for number, spread in enumerate(spreads):
        parts += _row(spread, across, 8 + number * _ROW, width)
    parts += [*x_axis(across, foot + 4, unit, 4 if width < 500 else 8)]
    return canvas(width, foot + 28, says, parts)


def _band(spreads: Sequence[Spread], across: PixelScale, foot: float) -> Markup | None:
    base = next((spread for spread in spreads if spread.baseline), None)
    if base is None:
        return None
    return rect(
        across(base.q1), 0, max(1.5, across(base.q3) - across(base.q1)), foot, class_="band"
    )


def _row(spread: Spread, across: PixelScale, y: float, width: int) -> list[object]:
    middle = y + 24
    words = f"{spread.name}  {spread.note}".rstrip()
    shown = spread.values if len(spread.values) <= 200 else ()
    return [
        label(0, y + 10, fitted(words, width), "label"),
        line(across(spread.low), middle, across(spread.high), middle, "whisker"),
        rect(
            across(spread.q1), middle - 6, max(1.5, across(spread.q3) - across(spread.q1)), 12,
            class_="box", rx=2,
        ),
        marks("clean", ((across(value), middle) for value in shown)) if shown else None,
        el("path", d=f"M{across(spread.middle):.1f} {middle - 8:.1f}v16", class_="median"),
    ]  # fmt: skip
