"""The picture of a run in characters: what a page draws, for a terminal. Pictures listen to events
and draw lines.

A line never has more characters than it is given, holds no control characters, and has an ASCII
form for terminals that know nothing else.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from aorta.core.axis import Purpose, Value, Window, show_value
from aorta.core.stats import percent_range, wilson
from aorta.core.trial import Outcome, Tally
from aorta.engine import events
from aorta.engine.events import Event
from aorta.search.belief import Weights

_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_MARKS = {Outcome.REPRODUCED: "●", Outcome.CLEAN: "○", Outcome.OTHER: "◇", Outcome.ERROR: "✕"}
_ASCII_MARKS = {
    Outcome.REPRODUCED: "#",
    Outcome.CLEAN: "o",
    Outcome.OTHER: "?",
    Outcome.ERROR: "x",
}
_LONGEST_NAME = 24
_MOST_ROWS = 12
_NEGLIGIBLE = 0.002


class Picture(Protocol):
    def __call__(self, event: Event) -> None:
        """See what happened."""

    def lines(self, width: int, *, ascii_only: bool) -> list[str]:
        """What is known, in lines of at most `width` characters."""


class TrialsPicture:
    """Every trial as a mark, and the rate with its interval as a bar."""

    def __init__(self) -> None:
        self._seen: list[Outcome] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.TrialEnded):
            self._seen.append(event.record.outcome)

    def lines(self, width: int, *, ascii_only: bool) -> list[str]:
        if not self._seen:
            return []
        marks = _marks(self._seen[-width:], ascii_only)
        return [marks, fitted(_rate(Tally.of(self._seen), width, ascii_only), width)]


class AxesPicture:
    """Each axis as it shrinks: a column for every accepted step, and where it stands."""

    def __init__(self) -> None:
        self._steps: dict[str, list[Value]] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case events.PointSettled(point, verdict, _) if point.purpose is Purpose.CALIBRATE:
                if verdict.reproduces:
                    self._steps = {name: [value] for name, value in point.values}
            case events.PointSettled(_, _, best) if best is not None:
                for name, value in best.values:
                    steps = self._steps.setdefault(name, [value])
                    if steps[-1] != value:
                        steps.append(value)

    def lines(self, width: int, *, ascii_only: bool) -> list[str]:
        names = list(self._steps)[:_MOST_ROWS]
        room = min(_LONGEST_NAME, max((len(name) for name in names), default=0))
        arrow = "->" if ascii_only else "→"
        found = []
        for name in names:
            steps = self._steps[name]
            said = f"{show_value(steps[0])} {arrow} {show_value(steps[-1])}"
            columns = max(0, min(30, width - room - len(said) - 2))
            drawn = _columns([_size(step) for step in steps][-columns:], ascii_only)
            found.append(fitted(f"{fitted(name, room):<{room}} {said} {drawn}".rstrip(), width))
        return found


class CellsPicture:
    """A matrix as it fills: a row a cell, a mark a trial, the rate so far."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Outcome]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.TrialEnded):
            values = dict(event.record.point.values)
            name = _plain(str(values.get("cell", "")))
            self._rows.setdefault(name, []).append(event.record.outcome)

    def lines(self, width: int, *, ascii_only: bool) -> list[str]:
        shown = dict(list(self._rows.items())[:_MOST_ROWS])
        room = min(_LONGEST_NAME, width // 3, max(map(len, shown), default=0))
        found = []
        for name, outcomes in shown.items():
            tally = Tally.of(outcomes)
            said = f"{tally.reproduced}/{tally.evidence}"
            marks = _marks(outcomes[-max(1, width - room - len(said) - 2) :], ascii_only)
            found.append(fitted(f"{fitted(name, room):<{room}} {said} {marks}", width))
        if len(self._rows) > len(shown):
            found.append(fitted(f"and {len(self._rows) - len(shown)} more cells", width))
        return found


class StacksPicture:
    """A search for the smallest stack: how many were tried of each size, and work."""

    def __init__(self) -> None:
        self._judged: dict[int, list[bool | None]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.PointSettled):
            size = sum(len(value) for _, value in event.point.values if isinstance(value, tuple))
            if size:  # without any it is the original
                self._judged.setdefault(size, []).append(event.verdict.reproduces)

    def lines(self, width: int, *, ascii_only: bool) -> list[str]:
        marks = (
            {True: "+", False: "-", None: "?"} if ascii_only else {True: "●", False: "○", None: "?"}
        )
        return [
            fitted(f"{size:>3} together {''.join(marks[works] for works in judged)}", width)
            for size, judged in sorted(self._judged.items())[:_MOST_ROWS]
        ]


class BeliefPicture:
    """The belief about the culprit along the timeline, as it narrows; the darker, the likelier."""

    def __init__(self, weights: Weights | None = None) -> None:
        self._weights = weights
        self._atoms: Sequence[tuple[int, int, float]] = ()

    def follow(self, weights: Weights) -> None:
        """From now on of this search: a run may have several."""
        self._weights = weights

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.PointSettled) and self._weights is not None:
            self._atoms = tuple(self._weights())

    def lines(self, width: int, *, ascii_only: bool) -> list[str]:
        if not self._atoms or width < 12:
            return []
        last = max(stop for _, stop, _ in self._atoms)
        masses = _spread_over(self._atoms, last, min(width, last))
        blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
        most = max(masses) or 1.0
        drawn = "".join(
            " " if mass < _NEGLIGIBLE else blocks[min(7, int(8 * mass / most))] for mass in masses
        )
        left = sum(stop - start for start, stop, weight in self._atoms if weight > _NEGLIGIBLE)
        ends = f"good{'bad':>{max(4, len(masses) - 4)}}"
        return [
            drawn,
            fitted(ends, width),
            fitted(f"{left} of {last} changes are plausible", width),
        ]


def _spread_over(atoms: Sequence[tuple[int, int, float]], last: int, columns: int) -> list[float]:
    """The mass in each of `columns` equal parts of the candidates."""
    wide = last / columns
    masses = [0.0] * columns
    for start, stop, weight in atoms:
        first, end = int(start / wide), math.ceil(stop / wide)
        for column in range(first, min(columns, end)):
            inside = min((column + 1) * wide, stop) - max(column * wide, start)
            masses[column] += max(0.0, inside) * weight
    return masses


def fitted(words: str, width: int) -> str:
    """At most `width` characters of one line."""
    words = _plain(words)
    return words if len(words) <= width else words[: max(0, width - 1)] + "~"[: max(0, width)]


def _plain(words: str) -> str:
    """No control characters: a cell's name must not move the cursor."""
    return "".join(c if c.isprintable() else " " for c in words)


def _marks(outcomes: Sequence[Outcome], ascii_only: bool) -> str:
    marks = _ASCII_MARKS if ascii_only else _MARKS
    return "".join(marks[outcome] for outcome in outcomes)


def _rate(tally: Tally, width: int, ascii_only: bool) -> str:
    low, high = wilson(tally.reproduced, tally.evidence)
    said = f"{tally.reproduced}/{tally.evidence} failed, {percent_range(low, high)} "
    columns = min(40, width - len(said) - 2)
    if columns < 8 or not tally.evidence:
        return said
    thin, thick = ("-", "#") if ascii_only else ("─", "━")
    first, last = int(low * (columns - 1)), math.ceil(high * (columns - 1))
    return said + "".join(thick if first <= i <= last else thin for i in range(columns))


def _columns(sizes: Sequence[float], ascii_only: bool) -> str:
    """Heights on a logarithmic scale, as far as there is more than one."""
    if len(sizes) < 2:
        return ""
    logs = [math.log10(max(size, 0.5)) for size in sizes]
    low, span = min(logs), (max(logs) - min(logs)) or 1.0
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    return "".join(blocks[min(7, int(7.99 * (value - low) / span))] for value in logs)


def _size(value: Value) -> float:
    match value:
        case Window(_, length):
            return float(length)
        case tuple():
            return float(len(value))
        case int() | float():
            return float(value)
        case _:
            return 1.0
