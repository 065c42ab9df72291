"""HTML and SVG elements as text that is safe by its type: whatever is not `Markup` is escaped."""

import re
from collections.abc import Iterable
from html import escape

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_VOID = frozenset({"br", "hr", "meta", "img", "link"})


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Any value as escaped text; what HTML cannot hold is made visible."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", str(value))))


def joined(parts: object) -> Markup:
    """One piece of markup from text, markup and nested lists of both; None is nothing."""
    if parts is None:
        return Markup()
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        return text(parts)
    return Markup("".join(joined(part) for part in parts))


def el(tag: str, /, *content: object, **attributes: object) -> Markup:
    """`el("td", "5", class_="number")`. None and False leave an attribute out."""
    given = "".join(
        _attribute(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{joined(content)}</{tag}>")


def _attribute(name: str, value: object) -> str:
    return f" {name}" if value is True else f' {name}="{text(_plain(value))}"'


def _plain(value: object) -> object:
    """Coordinates need two decimals; more only make the page larger."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
