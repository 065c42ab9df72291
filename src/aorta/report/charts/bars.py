"""Before and after: two lengths that can be compared at a glance."""

from collections.abc import Sequence

from aorta.report.charts.drawing import canvas, fitted, label, rect
from aorta.report.charts.scales import linear_scale
from aorta.report.markup import Markup

_ROW = 34


def draw_bars(
    bars: Sequence[tuple[str, float, str]], width: int, says: str, emphasis: int = -1
) -> Markup:
    """`(name, value, how the value is written)`, one row each; the emphasised one in the accent colour."""
    across = linear_scale([value for _, value, _ in bars], 0, width - 110)
    parts: list[Markup] = []
    chosen = emphasis % len(bars) if bars else 0
    for number, (name, value, said) in enumerate(bars):
        y = number * _ROW
        parts += [
            label(0, y + 11, fitted(name, width), "label"),
            rect(
                0,
                y + 16,
                max(2.0, across(value)),
                9,
                class_="bar on" if number == chosen else "bar",
                rx=2,
            ),
            label(max(2.0, across(value)) + 8, y + 25, said, "value"),
        ]
    return canvas(width, len(bars) * _ROW + 4, says, parts)
