"""The few shapes every picture is made of."""

from collections.abc import Iterable, Sequence

from aorta.report.charts.scales import PixelScale, short
from aorta.report.markup import Markup, el

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
    """All marks of one kind as one path: a place costs a dozen bytes, so that thousands fit a page."""
    found = list(places)
    if not found:
        return None
    if len(found) > _MANY:
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in dict.fromkeys(_rounded(found)))
        return el("path", d=dots, class_=f"dot {kind}")
    return el(
        "path", d="".join(_SHAPES[kind].format(x=x, y=y) for x, y in found), class_=f"mark {kind}"
    )


def step_line(places: Sequence[tuple[float, float]], class_: str = "step") -> Markup | None:
    """A value that holds until the next one."""
    if not places:
        return None
    (x, y), *rest = places
    path = f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in rest)
    return el("path", d=path, class_=class_)


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
