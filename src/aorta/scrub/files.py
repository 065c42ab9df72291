"""Files on their way out: our own documents by field, everybody else's as text.

It is given bytes and gives bytes: it opens nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from aorta.core.documents import Dumper, Loader, doubled_key
from aorta.scrub.encodings import NotTextError, as_bytes, as_text, looks_like_text
from aorta.scrub.findings import Kind, with_quoted_placeholders
from aorta.scrub.scrubber import Replacement, Scrubbed, Scrubber, count_groups
from aorta.scrub.structure import learn_document, scrub_document

_JSON, _JSON_LINES, _YAML = (".json",), (".jsonl", ".ndjson"), (".yaml", ".yml")
_SHELL, _CODE = (".sh", ".bash"), (".py",)
_LONGEST_TEXT = 4 << 20  # a longer one is looked at in parts
_FARTHEST_BACK = 1 << 20
_MOST_SPANS = 500  # kept of one file for people; all are counted
# What belongs together with the next line: a name and its value, a folded value, wrapped base64.
_GOES_ON = re.compile(rb"[:=|>\\,({\[\-+][ \t\r]*\Z|[A-Za-z0-9+/=]{40,}\r?\Z")

__all__ = ["Account", "FileScrubber", "NotTextError", "ScrubbedFile", "scrub_bytes"]


@dataclass(frozen=True)
class ScrubbedFile:
    data: bytes
    spans: tuple[Replacement, ...]

    @property
    def counts(self) -> dict[str, int]:
        return count_groups(span.kind for span in self.spans)


def scrub_bytes(scrubber: Scrubber, name: str, data: bytes) -> ScrubbedFile | None:
    """A user's own file: its text is scrubbed, other bytes stay. None: it is not text."""
    if b"\0" in data:
        return None if scrubber.text(data.decode("latin-1")).taken else ScrubbedFile(data, ())
    scrubbed = scrubber.text(as_text(data), code=_is_code(name))
    if not scrubbed.taken:
        return ScrubbedFile(data, ())
    return ScrubbedFile(as_bytes(_as_file(name, scrubbed)), scrubbed.spans)


@dataclass
class Account:
    """What was taken out of one file."""

    counts: Counter[Kind] = field(default_factory=Counter)
    spans: list[Replacement] = field(default_factory=list)

    @property
    def room(self) -> int:
        """For so many more; the others are only counted."""
        return _MOST_SPANS - len(self.spans)

    def add(self, spans: Iterable[Replacement]) -> None:
        for span in spans:
            self.counts[span.kind] += 1
            if self.room:
                self.spans.append(span)

    def add_scrubbed(self, scrubbed: Scrubbed, line: int) -> None:
        """Of a text that begins at this line of the file."""
        self.counts.update(kind for _, _, kind, _ in scrubbed.taken)
        self.spans += scrubbed.first_spans(self.room, line)

    @property
    def groups(self) -> dict[str, int]:
        return count_groups(self.counts.elements())


class FileScrubber:
    """One bundle's files: all are learnt from, then all are scrubbed. `ours`: a document that we
    wrote. What cannot be read as text is a NotTextError.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self.scrubber = scrubber

    def learn(self, name: str, pieces: Iterable[bytes], *, ours: bool) -> None:
        for text, documents in _parts(name, pieces, ours):
            for document in documents or ():
                learn_document(self.scrubber, document, ours=ours)
            rest = _comments(name, text) if ours and documents is not None else text
            self.scrubber.learn(rest, code=_is_code(name))

    def scrub(
        self, name: str, pieces: Iterable[bytes], account: Account, *, ours: bool
    ) -> Iterator[bytes]:
        """The same bytes wherever nothing is taken out; but a YAML document of ours is written
        anew in any case, so that nothing is in it that was not understood.
        """
        line = 1
        for text, documents in _parts(name, pieces, ours):
            if ours and documents is not None:
                after = self._document(name, text, documents, account, line)
            else:
                scrubbed = self.scrubber.text(text, code=_is_code(name))
                account.add_scrubbed(scrubbed, line)
                after = _as_file(name, scrubbed)
            line += text.count("\n")
            yield as_bytes(after)

    def _document(
        self, name: str, text: str, documents: Sequence[Any], account: Account, line: int
    ) -> str:
        within = f"[{line}]" if name.lower().endswith(_JSON_LINES) else ""
        clean: list[Any] = []
        before = account.counts.total()
        for document in documents:
            after, spans = scrub_document(self.scrubber, document, within=within, ours=True)
            clean.append(after)
            account.add(spans)
        if not name.lower().endswith(_YAML) and account.counts.total() == before:
            return text
        comments = self.scrubber.text(_comments(name, text), where="a comment")
        account.add(comments.spans)
        return comments.text + _written(name, clean, text)


def _is_code(name: str) -> bool:
    return name.lower().endswith(_CODE)


def _as_file(name: str, scrubbed: Scrubbed) -> str:
    is_shell = scrubbed.taken and name.lower().endswith(_SHELL)
    return with_quoted_placeholders(scrubbed.text) if is_shell else scrubbed.text


def _parts(
    name: str, pieces: Iterable[bytes], ours: bool
) -> Iterator[tuple[str, list[Any] | None]]:
    """Texts that are looked at one by one, and what each is as a document, if it is one: somebody's
    JSON too, for a name and its value may stand far apart in its text.
    """
    low = name.lower()
    pieces = _text_only(pieces)
    if ours and low.endswith(_JSON_LINES):
        for line in b"".join(pieces).splitlines(keepends=True):
            yield as_text(line), _documents(".json", line)
    elif low.endswith(_JSON) or (ours and low.endswith(_YAML)):
        data = b"".join(pieces)
        yield as_text(data), _documents(low, data)
    else:
        for part in _cut_between_lines(pieces):
            yield as_text(part), None


def _cut_between_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) > _LONGEST_TEXT:
            text = b"".join(waiting)
            cut = _boundary(text)
            yield text[:cut]
            waiting = [text[cut:]]
    if any(waiting):
        yield b"".join(waiting)


def _boundary(waiting: bytes) -> int:
    """Behind the last line that does not belong together with the next one; where every line does,
    or there is only one, anywhere.
    """
    end = len(waiting)
    floor = end - _FARTHEST_BACK
    while (end := waiting.rfind(b"\n", floor, end)) > 0:
        line = waiting[waiting.rfind(b"\n", floor, end) + 1 : end]
        is_indented = waiting[end + 1 : end + 2] in (b" ", b"\t", b"")
        if not is_indented and not _GOES_ON.search(line[-200:]):
            begun = waiting.rfind(b"-----BEGIN ", floor, end)
            if begun < 0 or waiting.find(b"-----END", begun, end) >= 0:
                return end + 1
    return waiting.rfind(b"\n", floor) + 1 or len(waiting)


def _documents(low: str, data: bytes) -> list[Any] | None:
    """None where it does not parse, or hides a value behind a key that stands twice."""
    try:
        text = data.decode("utf-8-sig")
        if low.endswith(_YAML):
            return list(yaml.load_all(text, Loader=Loader))
        return [json.loads(text, object_pairs_hook=_object_of)]
    except (ValueError, RecursionError, yaml.YAMLError):
        return None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if doubled_key(pairs) is not None:
        raise ValueError
    return dict(pairs)


def _comments(name: str, text: str) -> str:
    """Every comment of a YAML document, a line each: all that stands between its tokens."""
    if not name.lower().endswith(_YAML) or "#" not in text:
        return ""
    marks = [(token.start_mark.index, token.end_mark.index) for token in yaml.scan(text)]
    starts = [start for start, _ in marks[1:]]
    between = (text[end:start] for (_, end), start in zip(marks, starts, strict=False))
    found = [line for gap in between for line in re.findall(r"#[^\r\n]*", gap)]
    return "".join(f"{line}\n" for line in found)


def _written(name: str, documents: list[Any], like: str) -> str:
    if name.lower().endswith(_YAML):
        text: str = yaml.dump_all(
            documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
        )
        return text
    stripped = like.strip()
    compact = '", "' not in stripped and '": ' not in stripped
    made = json.dumps(
        documents[0],
        indent=2 if "\n" in stripped else None,
        separators=(",", ":") if compact else None,
        ensure_ascii=like.isascii(),
    )
    return made + ("\n" if like.endswith("\n") else "")


def _text_only(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same pieces; NotTextError where the first, or a later one, is no text."""
    for number, piece in enumerate(pieces):
        if b"\0" in piece or (number == 0 and not looks_like_text(piece)):
            raise NotTextError
        yield piece
