"""Which lines of a file are left: the whole file as a strip, a tick for each kept line."""

from collections.abc import Sequence

from aorta.report.charts.drawing import canvas, label, rect
from aorta.report.charts.scales import PixelScale
from aorta.report.markup import Markup, el


def draw_kept(numbers: Sequence[int], total: int, width: int, says: str) -> Markup:
    """`numbers` count from 1."""
    across = PixelScale(0, max(1, total), 0, width)
    least = max(2.0, width / max(1, total) - 1)
    path = "".join(
        f"M{x:.1f} 2h{least:.1f}v20h-{least:.1f}z"
        for x in dict.fromkeys(round(across(number - 1), 1) for number in numbers)
    )
    return canvas(
        width,
        40,
        says,
        rect(0, 2, width, 20, class_="cell", rx=3),
        el("path", d=path, class_="bar on"),
        label(0, 37, "1", "tick"),
        label(width, 37, total, "tick", "end"),
    )
