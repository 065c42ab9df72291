"""`aorta bundle --review`: every file that would leave, every replacement in its place.

It shows what stays on this site: the caller keeps the page private and removes it afterwards.
"""

from collections.abc import Iterator

from aorta.bundle.archive import Checked
from aorta.bundle.pack import UNKNOWN, PackedFile, Prepared, rehearsed
from aorta.report.html import document
from aorta.report.page import Headline, Listing, Page, Section, TextLine, Tone, Words
from aorta.scrub.findings import Kind
from aorta.scrub.scrubber import LOOKED_FOR, Replacement


def review_lines(prepared: Prepared, checked: Checked | None) -> Iterator[str]:
    if rehearsal := rehearsed(prepared, checked):
        yield rehearsal
    yield f"{len(prepared.files) + 1} files for {prepared.ticket}:"
    for file in prepared.files:
        yield f"  {file.path}  {file.entry.bytes} bytes{_note(file)}"
    yield "  SHIP.md"
    if prepared.left_out:
        yield f"{len(prepared.left_out)} files stay here:"
        yield from (f"  {path}" for path in prepared.left_out)
    for file in prepared.files:
        if file.account.spans:
            yield f"{file.path}:"
            yield from (f"  {_shown(span)}" for span in file.account.spans)


def _note(file: PackedFile) -> str:
    if file.entry.unscrubbed:
        return "  NOT SCRUBBED (binary)"
    taken = file.account.counts.total()
    return f"  {taken} replaced" if taken else ""


def _shown(span: Replacement) -> str:
    """A secret by its first characters only: a review may be seen by others. Control characters
    would move the reviewer's cursor and hide what is shown.
    """
    value = span.value.replace("\n", "\\n")
    if span.kind is Kind.CREDENTIAL:
        value = f"{value[:3]}... ({len(span.value)} characters)"
    plain = "".join(char if char.isprintable() else "?" for char in value)
    return f"{span.where}: {plain} -> {span.placeholder}"


def review_page(prepared: Prepared, checked: Checked | None) -> str:
    removed = ", ".join(f"{count} {group}" for group, count in prepared.scrubbed.items() if count)
    lines = [TextLine(line) for line in review_lines(prepared, checked)]
    page = Page(
        verb="bundle",
        title=prepared.ticket,
        answer=Headline(
            f"{len(prepared.files) + 1} files would leave; taken out: {removed or 'nothing'}",
            Tone.UNSURE,
            "This page shows what stays here. It is gone once you have answered.",
        ),
        facts=(),
        sections=[
            Section("Every file, and what was replaced in it", [Listing("The bundle", lines)]),
            Section("What was looked for", [Words(LOOKED_FOR)]),
            Section("What no scrubbing can know", [Words(UNKNOWN)]),
        ],
        hidden="Of secrets the first characters are shown",
    )
    return document(page)
