"""One merged timeline of changes, and every probe where it was made."""

from collections.abc import Sequence
from dataclasses import dataclass

from aorta.core.trial import Outcome
from aorta.report.charts.drawing import PixelScale, canvas, fitted, label, marks, rect, x_axis
from aorta.report.markup import Markup, el

_LANE = 30


@dataclass(frozen=True)
class Probe:
    position: int  # how many changes are applied; 0 is the good end
    outcome: Outcome
    says: str


@dataclass(frozen=True)
class Strip:
    """The changes of the merged path, each one's package, and the culprit's place if known."""

    packages: Sequence[str]
    order: Sequence[int]
    culprit: tuple[int, int] | None = None

    @property
    def changes(self) -> int:
        return len(self.order)


def draw_timeline(strip: Strip, probes: Sequence[Probe], width: int, says: str) -> Markup:
    left, right = 10, width - 10
    across = PixelScale(0, max(1, strip.changes), left, right, whole=True)
    rows = max(1, len(probes))
    step = min(16.0, max(3.0, 320 / rows))
    top = 20 + len(strip.packages) * _LANE
    foot = top + rows * step + 10
    parts: list[object] = [_culprit(strip, across, foot), *_lanes(strip, across, width)]
    for outcome in Outcome:
        places = [
            (across(probe.position), top + number * step + step / 2)
            for number, probe in enumerate(probes)
            if probe.outcome is outcome
        ]
        parts.append(marks(outcome.value, places))
    parts += [_hover(probes, across, top, step) if len(probes) <= 200 else None]
    parts += x_axis(across, foot, most=4 if width < 500 else 8)
    parts.append(label(right, foot + 30, "changes applied, oldest first", "tick", "end"))
    return canvas(width, foot + 38, says, parts)


def _lanes(strip: Strip, across: PixelScale, width: int) -> list[object]:
    parts: list[object] = []
    for lane, package in enumerate(strip.packages):
        y = 12 + lane * _LANE
        ticks = [across(i + 1) for i, owner in enumerate(strip.order) if owner == lane]
        every = max(1, len(ticks) // 600)
        path = "".join(f"M{x:.1f} {y + 4:.1f}v7" for x in ticks[::every])
        parts += [
            label(across.start, y, fitted(f"{package}, {len(ticks)} changes", width - 20), "name"),
            el("path", d=path, class_="tickmark") if path else None,
        ]
    return parts


def _culprit(strip: Strip, across: PixelScale, foot: float) -> Markup | None:
    if strip.culprit is None:
        return None
    first, last = strip.culprit
    x, end = across(first), across(last)
    return rect(x, 0, max(2.0, end - x), foot, class_="culprit")


def _hover(probes: Sequence[Probe], across: PixelScale, top: float, step: float) -> list[Markup]:
    return [
        el(
            "circle", el("title", probe.says), cx=across(probe.position),
            cy=top + number * step + step / 2, r=7, class_="hover",
        )
        for number, probe in enumerate(probes)
    ]  # fmt: skip
