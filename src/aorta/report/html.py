"""A page as one HTML file: no network, no script; light, dark, print and screen readers."""

from collections.abc import Sequence
from importlib.resources import files

from aorta.report.charts import NARROW, WIDE, mark_sample
from aorta.report.page import (
    Block,
    Command,
    FactRows,
    Figure,
    Listing,
    Markup,
    Page,
    Section,
    Table,
    TextLine,
    Words,
    el,
    joined,
)
from aorta.version import __version__

MOST_ROWS = 300
_RELOAD_EVERY = 3  # seconds
_MARKS = {"kept": "+", "evidence": "▸"}
_SPOKEN = {"kept": "kept: ", "evidence": "evidence: "}
_SHUT = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
_HATCH = Markup(
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs><pattern '
    'id="hatch" width="7" height="7" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" '
    'y2="7" class="hatch-line"/>'
    "</pattern></defs></svg>"
)
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 "
    "8'%3E%3Ccircle cx='4' cy='4' r='3.4' fill='%23b93a22'/%3E%3C/svg%3E"
)


def document(page: Page, *, reload: bool = False) -> str:
    """The whole file. `reload`: a browser loads it again every few seconds."""
    head = [
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content=_SHUT),
        el("meta", http_equiv="refresh", content=_RELOAD_EVERY) if reload else None,
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href=_ICON),
        el("title", f"{page.title} · aorta {page.verb}"),
        el("style", Markup(files(__package__).joinpath("style.css").read_text("utf-8"))),
    ]
    body = el("body", _HATCH, el("main", _content(page)))
    return f'<!doctype html>\n<html lang="en">{el("head", head)}{body}</html>\n'


def _content(page: Page) -> Markup:
    answer = page.answer
    return joined(
        [
            el(
                "p",
                el("span", f"aorta {page.verb}", class_="verb"),
                el("span", page.title),
                class_="over",
            ),
            el(
                "div",
                el("h1", answer.sentence.replace(" %", "\N{NO-BREAK SPACE}%")),
                el("p", answer.more, class_="more") if answer.more else None,
                class_=f"answer {answer.tone.value}",
            ),
            _facts(page.facts),
            _figure(page.picture, class_="picture") if page.picture else None,
            [el("p", f"Missing: {line}", class_="missing") for line in page.missing],
            [_section(section) for section in page.sections],
            el("footer", f"aorta {__version__}. {page.hidden}; nothing is loaded from anywhere."),
        ]
    )


def _section(section: Section) -> Markup:
    inside = [_block(block) for block in section.blocks]
    if section.open:
        return el("section", el("h2", section.title), inside)
    return el("details", el("summary", section.title), inside)


def _block(block: Block) -> Markup:
    match block:
        case Table():
            return _table(block)
        case Figure():
            return _figure(block)
        case Listing():
            return _listing(block)
        case Words(points):
            return el("ul", [el("li", point) for point in points])
        case Command(words):
            return el("div", el("code", words), class_="command")


def _facts(facts: FactRows) -> Markup:
    return el("dl", [_fact(name, value) for name, value in facts.rows])


def _fact(name: str, value: object) -> Markup:
    is_long = not isinstance(value, Markup) and len(str(value)) > 32
    return el("div", el("dt", name), el("dd", value), class_="wide-fact" if is_long else None)


def _figure(figure: Figure, class_: str | None = None) -> Markup:
    samples = [el("li", mark_sample(kind), words) for kind, words in figure.legend]
    return el(
        "figure",
        el("figcaption", figure.title),
        el("div", figure.draw(WIDE, figure.says), class_="wide"),
        el("div", figure.draw(NARROW, figure.says), class_="narrow"),
        el("ul", samples, class_="legend") if samples else None,
        class_=class_,
    )


def _table(table: Table) -> Markup:
    heads = [
        el("th", head, scope="col", class_="number" if index in table.numeric else None)
        for index, head in enumerate(table.heads)
    ]
    left_out, half = len(table.rows) - MOST_ROWS, MOST_ROWS // 2
    rows = table.rows if left_out <= 0 else [*table.rows[:half], *table.rows[-half:]]
    shown = [_row(row, table) for row in rows]
    if left_out > 0:
        gap = el("td", f"… {left_out} more …", class_="gap", colspan=len(table.heads))
        shown.insert(half, el("tr", gap))
    return el(
        "div",
        el("table", el("thead", el("tr", heads)), el("tbody", shown)),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=", ".join(table.heads[:3]) or "table",
    )


def _row(row: Sequence[object], table: Table) -> Markup:
    return el(
        "tr",
        [
            el(
                "td",
                "" if cell is None else cell,
                class_="number" if index in table.numeric else None,
            )
            for index, cell in enumerate(row)
        ],
    )


def _listing(listing: Listing) -> Markup:
    numbered = any(line.number or line.mark for line in listing.lines)
    return el(
        "div",
        el("h3", listing.title),
        el("p", listing.note, class_="more") if listing.note else None,
        el(
            "div",
            [_line(line) for line in listing.lines],
            class_="log" if numbered else "log plain",
            tabindex=0,
            role="region",
            aria_label=listing.title,
        ),
    )


def _line(line: TextLine) -> Markup:
    spoken = _SPOKEN.get(line.mark)
    return el(
        "div",
        el("b", "" if line.number is None else line.number, aria_hidden="true"),
        el("i", _MARKS.get(line.mark, ""), aria_hidden="true"),
        el("span", el("span", spoken, class_="unseen") if spoken else None, line.text),
        class_=line.mark or None,
    )
