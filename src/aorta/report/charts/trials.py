"""Trials of one thing in the order they ended: how long each took and how it ended, and the rate they amount to."""

from collections.abc import Sequence
from dataclasses import dataclass

from aorta.core.stats import wilson
from aorta.core.trial import Outcome
from aorta.report.charts.drawing import canvas, label, line, marks, rect, x_axis, y_axis
from aorta.report.charts.scales import PixelScale, linear_scale
from aorta.report.markup import Markup


@dataclass(frozen=True)
class Ended:
    outcome: Outcome
    seconds: float


def draw_trials(trials: Sequence[Ended], width: int, says: str) -> Markup:
    left, right, top, bottom = 52, width - 14, 14, 190
    across = PixelScale(0.5, len(trials) + 0.5, left, right, whole=True)
    up = linear_scale([trial.seconds for trial in trials], bottom, top)
    parts: list[Markup | None] = [*y_axis(up, left, right, "s"), *x_axis(across, bottom + 8)]
    for outcome in Outcome:
        places = [
            (across(number), up(trial.seconds))
            for number, trial in enumerate(trials, 1)
            if trial.outcome is outcome
        ]
        parts.append(marks(outcome.value, places))
    parts.append(label(right, bottom + 40, "trial", "tick", "end"))
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
