"""Charts as inline SVG: functions of data and a width in pixels that know no run and no verb.

Marks differ by shape as well as colour, and colours come from the page's style: light, dark, print.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aorta.report.page import Markup, el

NARROW, WIDE = 340, 920
_CHARACTER = 6.4  # pixels of one, at the size of labels
_TINY = 1e-30  # nothing that is drawn is smaller and not 0
_SPOKEN = 1200  # characters that somebody may want to hear of a picture
_MANY = 400  # beyond this a dot a mark: shapes would only hide one another

Places = Sequence[tuple[float, float]]


# -- from values to pixels


@dataclass(frozen=True)
class PixelScale:
    """`low`..`high` of the data to `start`..`end` in pixels; a logarithmic one shows 0 too."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False  # counts: no tick between two of them

    def __call__(self, value: float) -> float:
        low, high = self._of(self.low), self._of(self.high)
        share = (self._of(value) - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def _of(self, value: float) -> float:
        return math.log10(max(value, self.low, _TINY / 10)) if self.log else value

    def ticks(self, most: int = 5) -> list[float]:
        return _decades(self.low, self.high, most) if self.log else _round_steps(self, most)


def log_scale(values: Iterable[float], start: float, end: float) -> PixelScale:
    """From the smallest positive value; a 0 is drawn half a decade below it."""
    found = list(values)
    positive = [value for value in found if value > _TINY] or [1.0]
    low, high = min(positive), max(positive)
    if min(found, default=1.0) <= _TINY:
        low /= 3
    if high <= low:
        low, high = low / 2, high * 2
    return PixelScale(low, high, start, end, log=True)


def linear_scale(values: Iterable[float], start: float, end: float) -> PixelScale:
    """From 0, so that lengths can be compared."""
    found = list(values)
    high = max(found, default=1.0)
    return PixelScale(min((0.0, *found)), high if high > _TINY else 1.0, start, end)


def short(value: float) -> str:
    """`5000`, `12k`, `0.4`, `1.2M`: as few characters as tell it."""
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / most))
    found = [10.0**power for power in range(first, last + 1, stride) if low <= 10.0**power <= high]
    return found if len(found) > 1 else sorted({low, high})


def _round_steps(scale: PixelScale, most: int) -> list[float]:
    span = scale.high - scale.low
    if span <= 0:
        return [scale.low]
    raw = span / most
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    if scale.whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(scale.low / step)
    count = int((scale.high - first * step) / step + 1e-9)
    return [(first + index) * step for index in range(count + 1)]


# -- the few shapes that every picture is made of

_DOT = "M{x:.1f} {y:.1f}m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0"
_RING = "M{x:.1f} {y:.1f}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0"
_SHAPES = {
    "reproduced": _DOT,
    "accepted": _DOT,
    "clean": _RING,
    "rejected": _RING,
    "other": "M{x:.1f} {y:.1f}m-4 0l4-4l4 4l-4 4z",
    "error": "M{x:.1f} {y:.1f}m-3-3l6 6m0-6l-6 6",
}


def marks(kind: str, places: Places) -> Markup | None:
    """All marks of one kind as one path: a dozen bytes each, so that thousands fit a page."""
    if not places:
        return None
    if len(places) > _MANY:
        rounded = dict.fromkeys((round(x, 1), round(y, 1)) for x, y in places)
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in rounded)
        return el("path", d=dots, class_=f"dot {kind}")
    path = "".join(_SHAPES[kind].format(x=x, y=y) for x, y in places)
    return el("path", d=path, class_=f"mark {kind}")


def mark_sample(kind: str) -> Markup:
    """A mark of a picture, as small as a letter, for its legend."""
    box = {"x": 0, "y": 2, "width": 14, "height": 10}
    inside: object = el("rect", class_=kind, **box)
    if kind in _SHAPES:
        inside = marks(kind, [(7, 7)])
    elif kind == "hatched":
        inside = [el("rect", class_="cell", **box), el("rect", fill="url(#hatch)", **box)]
    return el("svg", inside, width=14, height=14, viewBox="0 0 14 14", aria_hidden="true")


def _canvas(width: int, height: float, says: str, *content: object) -> Markup:
    return el(
        "svg",
        *content,
        viewBox=f"0 0 {width} {height:.0f}",
        width=width,
        height=round(height),
        role="img",
        aria_label=_fitted(says, _SPOKEN * _CHARACTER),
    )


def _line(x1: float, y1: float, x2: float, y2: float, class_: str = "rule") -> Markup:
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def _label(x: float, y: float, words: str, class_: str, anchor: str = "start") -> Markup:
    return el("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def _fitted(words: str, pixels: float) -> str:
    """As much as fits, with a sign that there was more."""
    most = max(1, int(pixels / _CHARACTER))
    return words if len(words) <= most else words[: max(0, most - 1)] + "…"


# -- strip


def draw_strip(kinds: Sequence[str], width: int, says: str) -> Markup:
    """One mark a trial, in rows from left to right."""
    across = max(1, width // 9)
    places: dict[str, list[tuple[float, float]]] = {}
    for at, kind in enumerate(kinds):
        places.setdefault(kind, []).append((6 + 9 * (at % across), 8 + 12 * (at // across)))
    height = 12 * math.ceil(len(kinds) / across) + 8
    return _canvas(width, height, says, [marks(kind, found) for kind, found in places.items()])


# -- curve

_LEFT, _TOP, _BOTTOM = 52, 14, 230
_BETWEEN_LABELS = 14


@dataclass(frozen=True)
class Curve:
    """Marks by kind, and step lines with labels at their ends. `downward`: the first on top."""

    dots: Sequence[tuple[str, Places]]
    x_name: str
    lines: Sequence[tuple[str, Places]] = ()
    unit: str = ""  # behind the heights
    log: bool = False
    downward: bool = False
    band: tuple[float, float] | None = None  # from left to right: where the answer lies

    @property
    def places(self) -> list[tuple[float, float]]:
        return [place for _, places in (*self.dots, *self.lines) for place in places]

    def draw(self, width: int, says: str) -> Markup:
        longest = max((len(name) for name, _ in self.lines), default=0)
        names = min(width * 0.36, _CHARACTER * longest)
        right = width - 14 - names
        counted, heights = ([place[i] for place in self.places] for i in (0, 1))
        first = min(counted)
        across = PixelScale(first, max(*counted, first + 1), _LEFT, right, whole=True)
        foot, head = (_TOP, _BOTTOM) if self.downward else (_BOTTOM, _TOP)
        up = (log_scale if self.log else linear_scale)(heights, foot, head)

        def drawn(places: Places) -> Places:
            return [(across(x), up(y)) for x, y in places]

        parts: list[object] = []
        if self.band is not None:
            x, end = map(across, self.band)
            size = {"width": max(2.0, end - x), "height": _BOTTOM + 8 - _TOP}
            parts.append(el("rect", x=x, y=_TOP, **size, class_="culprit"))
        parts += self._axes(across, up, right)
        for number, (_, places) in enumerate(self.lines):
            (x, y), *rest = drawn(places)
            path = f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)
            parts.append(el("path", d=path, class_=f"step step-{number % 4}"))
        parts += self._names(up, right, names)
        parts += [marks(kind, drawn(places)) for kind, places in self.dots]
        return _canvas(width, _BOTTOM + 48, says, parts)

    def _axes(self, across: PixelScale, up: PixelScale, right: float) -> list[Markup]:
        foot = _BOTTOM + 8
        name = _label(right, foot + 30, self.x_name, "tick", "end")
        parts = [_line(_LEFT, foot, right, foot), name]
        for tick in up.ticks(4):
            parts.append(_line(_LEFT, up(tick), right, up(tick), "grid"))
            words = short(tick) + self.unit
            parts.append(_label(_LEFT - 6, up(tick) + 4, words, "tick", "end"))
        ticks = ((across(tick), short(tick)) for tick in across.ticks(6))
        parts += [_label(x, foot + 15, words, "tick", "middle") for x, words in ticks]
        return parts

    def _names(self, up: PixelScale, right: float, room: float) -> list[Markup]:
        """Each line's words at its end; of two that would lie on one another, one is moved up."""
        ends = sorted((up(places[-1][1]), name) for name, places in self.lines)
        found, highest = [], math.inf
        for y, name in reversed(ends):
            highest = min(y, highest - _BETWEEN_LABELS)
            found.append(_label(right + 8, highest + 4, _fitted(name, room), "label"))
        return found


# -- grid


@dataclass(frozen=True)
class GridCell:
    """`kind`: its style. `share`: depth of colour; `interval`: drawn below. Both are 0 to 1."""

    row: str
    column: str
    text: str
    says: str
    kind: str = ""
    note: str = ""
    share: float | None = None
    interval: tuple[float, float] | None = None


def draw_grid(cells: Sequence[GridCell], width: int, says: str) -> Markup:
    """Rows by columns; cells without a row's name follow one another like words of a text."""
    tall = 54 if any(cell.interval for cell in cells) else 30
    rows = list(dict.fromkeys(cell.row for cell in cells))
    if rows == [""]:
        across = max(1, min(len(cells), width // 96))
        room = width / across
        placed = [(n % across * room, n // across * tall, cell) for n, cell in enumerate(cells)]
        height = math.ceil(len(cells) / across) * tall
        return _canvas(width, height, says, [_cell(*one, room - 4, tall - 4) for one in placed])
    columns = list(dict.fromkeys(cell.column for cell in cells))
    names = min(width * 0.34, max(60.0, 7.0 * max(map(len, rows)) + 12))
    room = (width - names) / len(columns)
    parts = []
    for index, column in enumerate(columns):
        parts.append(_label(names + index * room + 4, 18, _fitted(column, room - 8), "name"))
    for number, row in enumerate(rows):
        y, words = 30 + number * tall + tall / 2 + 3, _fitted(row, names - 10)
        parts.append(el("text", el("title", row), words, x=0, y=y, class_="label"))
    for cell in cells:
        x, y = names + columns.index(cell.column) * room, 30 + rows.index(cell.row) * tall
        parts.append(_cell(x, y, cell, room - 3, tall - 3))
    return _canvas(width, 30 + len(rows) * tall, says, parts)


def _cell(x: float, y: float, cell: GridCell, width: float, height: float) -> Markup:
    box = {"x": x, "y": y, "width": width, "height": height, "rx": 4}
    parts: list[object] = [el("title", cell.says), el("rect", class_=f"cell {cell.kind}", **box)]
    if cell.share is not None:
        opacity = f"opacity:{0.06 + 0.74 * cell.share:.2f}"
        parts.append(el("rect", class_="heat", style=opacity, **box))
    if cell.kind in {"unproved", "inert"}:
        parts.append(el("rect", fill="url(#hatch)", **box))
    if cell.kind == "baseline":
        parts.append(el("rect", class_="outline", **box))
    left, right, base = x + 8, x + width - 8, y + (21 if cell.interval else height / 2 + 4)
    text = _fitted(cell.text, width - 14)
    parts.append(_label(left, base, text, "rate" if cell.interval else "label"))
    if cell.note and width - 30 > _CHARACTER * (len(text) + len(cell.note)):
        parts.append(_label(right, base, cell.note, "label", "end"))
    if cell.interval:
        low, high = (left + (right - left) * bound for bound in cell.interval)
        at = left + (right - left) * (cell.share or 0.0)
        parts += [
            _line(left, y + 38, right, y + 38, "track"),
            _line(low, y + 38, high, y + 38, "whisker"),
            el("circle", cx=at, cy=y + 38, r=3.5, class_="pin"),
        ]
    return el("g", parts)
