"""Charts of trials. Of one thing, in the order they ended: how long each took and how it ended, and
the rate they amount to. Of a reduction: how each axis shrank over the trials.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aorta.core.stats import wilson
from aorta.report.charts.drawing import (
    PixelScale,
    canvas,
    fitted,
    label,
    line,
    log_scale,
    marks,
    rect,
    short,
    step_line,
    x_axis,
    y_axis,
)
from aorta.report.markup import Markup

Places = Sequence[tuple[float, float]]
Up = Callable[[float, float], PixelScale]


def draw_dots(
    dots: Mapping[str, Places], up: Up, width: int, says: str, name: str, unit: str = ""
) -> Markup:
    """A mark at each place, by the kind of mark; `name` is of what is counted from left to right.
    `up` makes the scale of the heights from their pixels at the foot and at the head.
    """
    left, right, top, bottom = 52, width - 14, 14, 210
    counted = [x for places in dots.values() for x, _ in places]
    first = min(counted)
    across = PixelScale(first, max(*counted, first + 1), left, right, whole=True)
    height = up(bottom, top)
    parts: list[Markup | None] = [*y_axis(height, left, right, unit), *x_axis(across, bottom + 8)]
    for kind, places in dots.items():
        parts.append(marks(kind, [(across(x), height(y)) for x, y in places]))
    parts.append(label(right, bottom + 40, name, "tick", "end"))
    return canvas(width, bottom + 48, says, parts)


def draw_rate(hits: int, trials: int, width: int, says: str) -> Markup:
    """The rate as a dot on 0 to 100 %, its 95 % interval as a bar."""
    left, right, y = 14, width - 14, 18
    across = PixelScale(0, 1, left, right)
    low, high = wilson(hits, trials)
    parts: list[Markup | None] = [
        line(left, y, right, y, "rule"),
        rect(across(low), y - 5, across(high) - across(low), 10, class_="interval", rx=5),
        marks("reproduced", [(across(hits / trials), y)]) if trials else None,
    ]
    parts += [
        label(across(share), y + 22, f"{share:.0%}", "tick", anchor)
        for share, anchor in (
            (0, "start"),
            (0.25, "middle"),
            (0.5, "middle"),
            (0.75, "middle"),
            (1, "end"),
        )
    ]
    return canvas(width, 46, says, parts)


_PANEL, _GAP, _TOP = 104, 40, 22


@dataclass(frozen=True)
class CandidateTried:
    """A candidate: after which trial, its size along the axis, the mark of what became of it."""

    trial: int
    size: float
    mark: str

    @property
    def accepted(self) -> bool:
        return self.mark == "accepted"


@dataclass(frozen=True)
class AxisTrack:
    name: str
    initial: float
    floor: float | None
    tried: Sequence[CandidateTried]

    @property
    def final(self) -> float:
        return next((each.size for each in reversed(self.tried) if each.accepted), self.initial)


def draw_shrinking(tracks: Sequence[AxisTrack], trials: int, width: int, says: str) -> Markup:
    left, right = 52, width - 52
    across = PixelScale(0, max(1, trials), left, right, whole=True)
    parts: list[object] = []
    for number, track in enumerate(tracks):
        top = _TOP + number * (_PANEL + _GAP)
        parts.append(_panel(track, across, top, left, right))
    foot = _TOP + len(tracks) * (_PANEL + _GAP) - _GAP + 10
    parts += [*x_axis(across, foot), label(right, foot + 30, "trial", "tick", "end")]
    return canvas(width, foot + 38, says, parts)


def draw_strip(kinds: Sequence[str], width: int, says: str) -> Markup:
    """One mark a trial, in rows from left to right."""
    across = max(1, width // 9)
    parts = [
        marks(
            kind,
            [
                (6 + 9 * (at % across), 8 + 12 * (at // across))
                for at, one in enumerate(kinds)
                if one == kind
            ],
        )
        for kind in dict.fromkeys(kinds)
    ]
    return canvas(width, 12 * math.ceil(len(kinds) / across) + 8, says, parts)


def _panel(
    track: AxisTrack, across: PixelScale, top: float, left: float, right: float
) -> list[object]:
    sizes = [track.initial, *(each.size for each in track.tried)]
    if track.floor is not None:
        sizes.append(track.floor)
    up = log_scale(sizes, top + _PANEL, top + 8)
    kept = [(across(0), up(track.initial))]
    kept += [(across(each.trial), up(each.size)) for each in track.tried if each.accepted]
    end = (right, up(track.final))
    floor = up(track.floor) if track.floor is not None else None
    return [
        label(left - 40, top - 4, fitted(track.name, right - left), "name"),
        *y_axis(up, left, right),
        line(left, floor, right, floor, "floor") if floor is not None else None,
        step_line([*kept, end]),
        *(
            marks(kind, [(across(t.trial), up(t.size)) for t in track.tried if t.mark == kind])
            for kind in dict.fromkeys(t.mark for t in track.tried)
        ),
        label(right + 6, end[1] + 4, short(track.final), "value"),
    ]
