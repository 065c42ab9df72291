"""Ranks over time: a lane a rank, a bar a cycle, and on them who failed first, who only followed,
and what was decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aorta.core.durations import show_duration
from aorta.report.charts.drawing import CHARACTER, PixelScale, canvas, fitted, label, line
from aorta.report.markup import Markup, el

_MOST_LANES = 64
_HEAD = 58


class Fate(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    ROOT = "root"  # failed first, or is blamed
    FAILED = "failed"
    CASCADE = "cascade"  # failed because another did
    STOPPED = "stopped"  # ended by its launcher
    HUNG = "hung"


_SIGNS = {
    Fate.ROOT: "✕", Fate.FAILED: "✕", Fate.CASCADE: "↯", Fate.HUNG: "‖", Fate.STOPPED: "▪",
    Fate.FINISHED: "✓", Fate.RUNNING: "▸",
}  # fmt: skip
LEGEND = (
    ("life root", "✕ failed first"),
    ("life failed", "✕ failed"),
    ("life cascade", "↯ only followed"),
    ("life hung", "‖ hung"),
    ("life stopped", "▪ stopped by the launcher"),
    ("life finished", "✓ finished"),
)
"""(class of a mark, its meaning)"""


@dataclass(frozen=True)
class Cycle:
    """One life of the job: seconds from the start, each rank's fate, and the decision."""

    number: int
    start: float
    end: float
    fates: Mapping[int, Fate]
    decision: str = ""
    says: Mapping[int, str] = field(default_factory=dict)
    signs: Mapping[int, float] = field(default_factory=dict)  # when each rank last wrote something


def draw_gantt(cycles: Sequence[Cycle], width: int, says: str, unit: str = "") -> Markup:
    """`unit`: what is counted where no clock is known."""
    ranks = _shown_ranks(cycles)
    left, right = 62, width - 16
    across = PixelScale(
        min(cycle.start for cycle in cycles), max(cycle.end for cycle in cycles), left, right
    )
    step = min(22.0, max(7.0, 360 / max(1, len(ranks))))
    foot = _HEAD + len(ranks) * step
    parts: list[object] = []
    every = max(1, round(14 / step))
    for row, rank in enumerate(ranks):
        y = _HEAD + row * step + step / 2
        if row % every == 0:
            parts.append(label(left - 10, y + 4, f"rank {rank}", "tick", "end"))
        parts += [_bar(cycle, rank, across, y, step) for cycle in cycles if rank in cycle.fates]
    for cycle in cycles:
        parts += _flag(cycle, across, foot)
    parts += _clock(across, foot, unit)
    return canvas(width, foot + 40, says, parts)


def _shown_ranks(cycles: Sequence[Cycle]) -> list[int]:
    """All of them, or where there are too many the ones with a story and the first of the rest."""
    everyone = sorted({rank for cycle in cycles for rank in cycle.fates})
    if len(everyone) <= _MOST_LANES:
        return everyone
    dull = {Fate.FINISHED, Fate.STOPPED, Fate.RUNNING, Fate.CASCADE}
    telling = [r for r in everyone if any(c.fates.get(r, Fate.RUNNING) not in dull for c in cycles)]
    rest = [rank for rank in everyone if rank not in set(telling)]
    return sorted([*telling[:_MOST_LANES], *rest[: max(0, _MOST_LANES - len(telling))]])


def _bar(cycle: Cycle, rank: int, across: PixelScale, y: float, step: float) -> Markup:
    fate = cycle.fates[rank]
    x, end = across(cycle.start), across(cycle.end)
    last = across(min(cycle.end, cycle.signs.get(rank, cycle.end)))  # silent from here to the end
    height = min(12.0, step - 3)
    said = cycle.says.get(rank, fate.value)
    parts: list[object] = [
        el("title", f"cycle {cycle.number}, rank {rank}: {said}"),
        line(last, y, end - 1, y, "silence"),
        el(
            "rect", x=x + 1, y=y - height / 2, width=max(2.0, last - x - 2), height=height,
            rx=min(3.0, height / 2), class_=f"life {fate.value}",
        ),
    ]  # fmt: skip
    if step >= 10 or fate is Fate.ROOT:
        parts.append(
            el(
                "text",
                _SIGNS[fate],
                x=last - 4,
                y=y + 4,
                class_=f"fate {fate.value}",
                text_anchor="end",
            )
        )
    return el("g", parts)


def _flag(cycle: Cycle, across: PixelScale, foot: float) -> list[object]:
    x, end = across(cycle.start), across(cycle.end)
    room = end - x
    parts: list[object] = [line(end, 44, end, foot, "rule")]
    name = f"cycle {cycle.number}"
    if room >= len(str(cycle.number)) * CHARACTER + 4:
        short_name = name if room > len(name) * CHARACTER else str(cycle.number)
        parts.append(label(x + 2, 16, short_name, "name"))
    if cycle.decision and room > 4 * CHARACTER:
        parts.append(
            el(
                "text",
                el("title", cycle.decision),
                fitted(cycle.decision, room - 4),
                x=x + 2,
                y=34,
                class_="value",
            )
        )
    return parts


def _clock(across: PixelScale, foot: float, unit: str) -> list[object]:
    parts: list[object] = [line(across.start, foot + 6, across.end, foot + 6, "rule")]
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        at = across.low + share * (across.high - across.low)
        said = f"{unit} {at:.0f}" if unit else show_duration(at - across.low)
        parts.append(label(across(at), foot + 22, said, "tick", anchor))
    return parts
