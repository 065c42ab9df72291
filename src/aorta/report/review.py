"""What `aorta bundle --review` shows before anything is written, in lines and as a page: every file
that would leave, every replacement where it stands.

The page shows what stays here, so it is for the eyes of this site alone: the caller keeps it
private and removes it afterwards.
"""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from aorta.bundle.pack import PackedFile, Prepared
from aorta.bundle.ship import UNKNOWN
from aorta.report.markup import Markup, el
from aorta.scrub.findings import Kind
from aorta.scrub.scrubber import LOOKED_FOR, Replacement


def review_lines(prepared: Prepared) -> Iterator[str]:
    yield f"{len(prepared.files) + 1} files for {prepared.ticket}:"
    for file in prepared.files:
        yield f"  {file.path}  {file.size} bytes{_note(file)}"
    yield "  SHIP.md"
    if prepared.left_out:
        yield f"{len(prepared.left_out)} files stay here:"
        yield from (f"  {path}" for path in prepared.left_out)
    for file in prepared.files:
        if file.account.spans:
            yield f"{file.path}:"
            yield from (f"  {_shown(span)}" for span in file.account.spans)


def shown_value(span: Replacement) -> str:
    """A secret by its first characters only: a review may be seen by others."""
    value = span.value.replace("\n", "\\n")
    if span.kind is Kind.CREDENTIAL:
        return f"{value[:3]}... ({len(span.value)} characters)"
    return value


def _note(file: PackedFile) -> str:
    if file.unscrubbed:
        return "  NOT SCRUBBED (binary)"
    replaced = sum(file.account.counts.values())
    return f"  {replaced} replaced" if replaced else ""


def _shown(span: Replacement) -> str:
    value = _plain(shown_value(span))
    return f"{span.where}: {_plain(span.before)}[{value} -> {span.placeholder}]{_plain(span.after)}"


def _plain(text: str) -> str:
    """Control characters would move the reviewer's cursor and hide what is shown."""
    return "".join(char if char.isprintable() else "?" for char in text)


_SHUT = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MARKS = Markup(
    "del { background: var(--gone, #fbe3de); color: var(--reproduced); } "
    "ins { background: var(--kept, #e3f1ea); color: var(--accent); text-decoration: none; "
    "font-weight: 600; }"
)


def review_page(prepared: Prepared) -> str:
    removed = ", ".join(f"{count} {group}" for group, count in prepared.scrubbed.items() if count)
    style = files("aorta.report").joinpath("style.css").read_text("utf-8")
    head = [
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_SHUT),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{prepared.ticket} · aorta bundle"),
        el("style", Markup(style), _MARKS),
    ]
    changed = [file for file in prepared.files if file.account.spans]
    main = [
        el(
            "p",
            el("span", "aorta bundle", class_="verb"),
            el("span", prepared.ticket),
            class_="over",
        ),
        el(
            "div",
            el(
                "h1",
                f"{len(prepared.files) + 1} files would leave; taken out: {removed or 'nothing'}",
            ),
            el(
                "p",
                "This page shows what stays here. It is gone once you have answered.",
                class_="more",
            ),
            class_="answer unsure",
        ),
        el("h2", "What was looked for"),
        el("ul", [el("li", line) for line in LOOKED_FOR]),
        el("h2", "What no scrubbing can know"),
        el("ul", [el("li", line.removeprefix("- ")) for line in UNKNOWN if line.startswith("- ")]),
        el("h2", "What was replaced"),
        [_file(file) for file in changed] or el("p", "Nothing."),
        el("h2", "Every file"),
        _table(prepared.files),
        el("h2", f"{len(prepared.left_out)} files stay here"),
        el("ul", [el("li", path) for path in prepared.left_out]),
    ]
    return (
        "<!doctype html>\n<html "
        f'lang="en">{el("head", head)}{el("body", el("main", main))}</html>\n'
    )


def _file(file: PackedFile) -> Markup:
    count = sum(file.account.counts.values())
    more = count - len(file.account.spans)
    rows = [_span(span) for span in file.account.spans]
    if more > 0:
        rows.append(el("div", el("b", ""), el("i", ""), el("span", f"and {more} more like these")))
    return el(
        "details",
        el("summary", f"{file.path}: {count} replaced"),
        el("div", rows, class_="log"),
        open=True,
    )


def _span(span: Replacement) -> Markup:
    return el(
        "div",
        el("b", span.where.removeprefix("line ")),
        el("i", ""),
        el(
            "span",
            span.before,
            el("del", shown_value(span)),
            " ",
            el("ins", span.placeholder),
            span.after,
        ),
    )


def _table(packed: Sequence[PackedFile]) -> Markup:
    rows = [
        el(
            "tr",
            el("td", file.path),
            el("td", str(file.size), class_="number"),
            el("td", "NOT SCRUBBED (binary)" if file.unscrubbed else ""),
        )
        for file in packed
    ]
    head = el("tr", el("th", "file"), el("th", "bytes"), el("th", ""))
    return el("div", el("table", el("thead", head), el("tbody", rows)), class_="scroll")
