"""What `--review` shows before anything is written: every file, and every replaced stretch where it stands."""

from collections.abc import Iterator

from aorta.bundle.pack import PackedFile, Prepared
from aorta.scrub.findings import Kind
from aorta.scrub.scrubber import Replacement


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
    """A secret is shown by its first characters only: a review may be seen by more than one pair of eyes."""
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
