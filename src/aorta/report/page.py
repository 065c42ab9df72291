"""The parts of a page: `pages` writes the words, `html` the looks; all but `Markup` is escaped."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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
    given = ""
    for key, value in attributes.items():
        if value is not None and value is not False:
            # Coordinates need two decimals; more only make the page larger.
            short = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
            name = key.rstrip("_").replace("_", "-")
            given += f" {name}" if value is True else f' {name}="{text(short)}"'
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{joined(content)}</{tag}>")


Draw = Callable[[int, str], Markup]
"""A picture drawn for so many pixels of width, and what it says for who does not see it: one for a
phone, one for a desk, so that its words are never scaled.
"""


class Tone(StrEnum):
    FOUND = "found"
    FINE = "fine"
    UNSURE = "unsure"
    FAILED = "failed"
    RUNNING = "running"


@dataclass(frozen=True)
class Headline:
    """One sentence, with its probability."""

    sentence: str
    tone: Tone = Tone.FOUND
    more: str = ""


@dataclass(frozen=True)
class Table:
    """`numeric` columns are set to the right. At most `MOST_ROWS` are shown, from both ends."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """`says` is the picture in words."""

    title: str
    draw: Draw
    says: str
    legend: Sequence[tuple[str, str]] = ()  # (class of the mark, its meaning)


@dataclass(frozen=True)
class TextLine:
    """A line of a text or a log; `mark` is one of: kept, gone, evidence, added, removed."""

    text: str
    number: int | None = None
    mark: str = ""


@dataclass(frozen=True)
class Listing:
    title: str
    lines: Sequence[TextLine]
    note: str = ""


@dataclass(frozen=True)
class Words:
    """A list of points."""

    points: Sequence[str]


@dataclass(frozen=True)
class Command:
    """Something to type next."""

    text: str


Block = Table | Figure | Listing | Words | Command


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]
    open: bool = True


@dataclass(frozen=True)
class Page:
    verb: str
    title: str
    answer: Headline
    facts: Sequence[tuple[str, object]]  # short things worth knowing: (what, value)
    picture: Figure | None = None
    sections: Sequence[Section] = field(default_factory=tuple)
    missing: Sequence[str] = field(default_factory=tuple)  # what should be there and is not
    # what is not as the run wrote it
    hidden: str = "Secrets are replaced; a page for others is made with aorta report --share"
    running: bool = False
