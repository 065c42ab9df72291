"""What a page is made of, before it is HTML: an answer, a picture, evidence. The words of a page
are decided here and in `pages`; how they look is for `html`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aorta.report.markup import Markup

Draw = Callable[[int], Markup]
"""A picture drawn for so many pixels of width: one for a phone, one for a desk, so that its
words are never scaled.
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
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """`says` is the picture in words, for who does not see it; `table` holds its numbers."""

    title: str
    draw: Draw
    says: str
    table: Table | None = None
    legend: Sequence[tuple[str, str]] = ()  # (class of the mark, its meaning)


@dataclass(frozen=True)
class TextLine:
    """A line of a text or a log; `mark` is one of: kept, gone, evidence, only."""

    text: str
    number: int | None = None
    mark: str = ""


@dataclass(frozen=True)
class Listing:
    title: str
    lines: Sequence[TextLine]
    note: str = ""


@dataclass(frozen=True)
class Beside:
    """Two listings side by side, lines aligned."""

    left: Listing
    right: Listing


@dataclass(frozen=True)
class FactRows:
    """Short things worth knowing: (what, value)."""

    rows: Sequence[tuple[str, object]]


@dataclass(frozen=True)
class Words:
    paragraphs: Sequence[str]
    is_list: bool = False


@dataclass(frozen=True)
class Command:
    """Something to type next."""

    text: str
    why: str = ""


Block = Table | Figure | Listing | Beside | FactRows | Words | Command


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
    facts: FactRows
    picture: Figure | None = None
    sections: Sequence[Section] = field(default_factory=tuple)
    missing: Sequence[str] = field(default_factory=tuple)  # what should be there and is not
    # what is not as the run wrote it
    hidden: str = "Secrets are replaced; a page for others is made with aorta report --share"
