"""The few shapes every picture is made of, and from values to pixels: linear and logarithmic scales
with ticks at round numbers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aorta.report.markup import Markup, el

_TINY = 1e-9  # nothing that is drawn is smaller and not 0


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


def log_scale(values: Sequence[float], start: float, end: float) -> PixelScale:
    """From the smallest positive value; a 0 is drawn half a decade below it."""
    positive = [value for value in values if value > _TINY] or [1.0]
    low, high = min(positive), max(positive)
    if min(values, default=1.0) <= _TINY:
        low /= 3
    if high <= low:
        low, high = low / 2, high * 2
    return PixelScale(low, high, start, end, log=True)


def linear_scale(values: Sequence[float], start: float, end: float) -> PixelScale:
    """From 0, so that lengths can be compared."""
    high = max(values, default=1.0)
    return PixelScale(min((0.0, *values)), high if high > _TINY else 1.0, start, end)


def short(value: float) -> str:
    """`5000`, `12k`, `0.4`, `1.2M`: as few characters as tell it."""
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            divisor = 1e3 if unit == "k" else limit
            return f"{value / divisor:.3g}{unit}"
    return f"{value:.0f}" if size >= 100 else f"{value:.3g}"


def _decades(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / most))
    found = [10.0**power for power in range(first, last + 1, stride) if low <= 10.0**power <= high]
    if len(found) < 2:
        found = sorted({low, high})
    return found


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


NARROW, WIDE = 340, 920
CHARACTER = 6.4  # pixels of one, at the size of labels

_SHAPES = {
    "reproduced": "M{x:.1f} {y:.1f}m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0",
    "clean": "M{x:.1f} {y:.1f}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "other": "M{x:.1f} {y:.1f}m-4 0l4-4l4 4l-4 4z",
    "error": "M{x:.1f} {y:.1f}m-3-3l6 6m0-6l-6 6",
    "accepted": "M{x:.1f} {y:.1f}m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0",
    "rejected": "M{x:.1f} {y:.1f}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
}
_SPOKEN = 1200  # characters that somebody may want to hear of a picture
_MANY = 400  # beyond this a dot a mark: shapes would only hide one another


def canvas(width: int, height: float, says: str, *content: object) -> Markup:
    return el(
        "svg",
        *content,
        viewBox=f"0 0 {width} {height:.0f}",
        width=width,
        height=round(height),
        role="img",
        aria_label=fitted(says, _SPOKEN * CHARACTER),
    )


def rect(x: float, y: float, width: float, height: float, **more: object) -> Markup:
    return el("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), **more)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "rule") -> Markup:
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def label(
    x: float, y: float, words: object, class_: str = "label", anchor: str = "start"
) -> Markup:
    return el("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def fitted(words: str, pixels: float) -> str:
    """As much as fits, with a sign that there was more."""
    most = max(1, int(pixels / CHARACTER))
    return words if len(words) <= most else words[: max(0, most - 1)] + "…"


def marks(kind: str, places: Iterable[tuple[float, float]]) -> Markup | None:
    """All marks of one kind as one path: a dozen bytes each, so that thousands fit a page."""
    found = list(places)
    if not found:
        return None
    if len(found) > _MANY:
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in dict.fromkeys(_rounded(found)))
        return el("path", d=dots, class_=f"dot {kind}")
    return el(
        "path", d="".join(_SHAPES[kind].format(x=x, y=y) for x, y in found), class_=f"mark {kind}"
    )


def step_line(places: Sequence[tuple[float, float]]) -> Markup | None:
    """A value that holds until the next one."""
    if not places:
        return None
    (x, y), *rest = places
    path = f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)
    return el("path", d=path, class_="step")


def y_axis(scale: PixelScale, left: float, right: float, unit: str = "") -> list[Markup]:
    parts: list[Markup] = []
    for tick in scale.ticks(4):
        y = scale(tick)
        parts += [
            line(left, y, right, y, "grid"),
            label(left - 6, y + 4, short(tick) + unit, "tick", "end"),
        ]
    return parts


def x_axis(scale: PixelScale, y: float, unit: str = "", most: int = 6) -> list[Markup]:
    ticks = [
        label(scale(tick), y + 15, short(tick) + unit, "tick", "middle")
        for tick in scale.ticks(most)
    ]
    return [line(scale.start, y, scale.end, y, "rule"), *ticks]


def _rounded(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(round(x, 1), round(y, 1)) for x, y in places]
