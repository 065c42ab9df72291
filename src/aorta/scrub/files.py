"""Files on their way out: our own documents by field, everybody else's as text of any length,
packed logs unpacked for it.

It is given bytes and gives bytes: it opens nothing.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from aorta.core.documents import Dumper, Loader, doubled_key
from aorta.scrub.encodings import NotTextError, encoding_of, looks_like_text
from aorta.scrub.findings import with_quoted_placeholders
from aorta.scrub.scrubber import Replacement, Scrubber, count_groups
from aorta.scrub.stream import Account, TextStream
from aorta.scrub.structure import learn_document, scrub_document

_JSON, _JSON_LINES, _YAML = (".json",), (".jsonl", ".ndjson"), (".yaml", ".yml")
_SHELL = (".sh", ".bash")
_GZIP = b"\x1f\x8b"
_LARGEST_DOCUMENT = 64 << 20

__all__ = ["Account", "FileScrubber", "NotTextError", "ScrubbedFile", "scrub_bytes"]


@dataclass(frozen=True)
class ScrubbedFile:
    data: bytes
    spans: tuple[Replacement, ...]

    @property
    def counts(self) -> dict[str, int]:
        return count_groups(self.spans)


def scrub_bytes(scrubber: Scrubber, name: str, data: bytes) -> ScrubbedFile | None:
    """Somebody's own file: its text is searched and every other byte stays. None where it matches
    and is not text.
    """
    encoding = encoding_of(data)
    errors = "surrogateescape" if encoding == "utf-8" else "strict"
    try:
        text = data.decode(encoding, errors)
    except UnicodeError:
        text = "\0"
    if "\0" in text:
        return None if scrubber.text(data.decode("latin-1")).spans else ScrubbedFile(data, ())
    scrubbed = scrubber.text(text)
    if not scrubbed.spans:
        return ScrubbedFile(data, ())
    is_shell = name.lower().endswith(_SHELL)
    after = with_quoted_placeholders(scrubbed.text) if is_shell else scrubbed.text
    return ScrubbedFile(after.encode(encoding, errors), scrubbed.spans)


class FileScrubber:
    """One bundle's files: all are learnt from, then all are scrubbed. `ours`: a document that we
    wrote.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self.scrubber = scrubber
        self._stream = TextStream(scrubber)

    def learn(self, name: str, pieces: Iterable[bytes], *, ours: bool) -> None:
        """A file that cannot be read as text is a NotTextError."""
        low = name.lower()
        if ours and low.endswith(_JSON + _YAML):
            data = b"".join(pieces)
            documents = _documents(low, data)
            for document in documents or ():
                learn_document(self.scrubber, document, ours=True)
            self._stream.learn([data] if documents is None else [_comments(low, data)])
        elif ours and low.endswith(_JSON_LINES):
            for line in _lines(pieces):
                self._learn_line(line)
        else:
            self._stream.learn(self._also_as_document(low, _unpacked(pieces)))

    def scrub(
        self, name: str, pieces: Iterable[bytes], account: Account, *, ours: bool
    ) -> Iterator[bytes]:
        """The same bytes wherever nothing is taken out."""
        low = name.lower()
        if ours and low.endswith(_JSON + _YAML):
            yield from self._document(low, b"".join(pieces), account)
        elif ours and low.endswith(_JSON_LINES):
            for number, line in enumerate(_lines(pieces), start=1):
                yield from self._document(".json", line, account, f"[{number}]")
        else:
            first, whole = _begun(pieces)
            shell = low.endswith(_SHELL)
            if first.startswith(_GZIP):
                yield from _packed(self._stream.scrub(_unpacked(whole), account, shell=shell))
            else:
                yield from self._stream.scrub(whole, account, shell=shell)

    def _learn_line(self, line: bytes) -> None:
        documents = _documents(".json", line)
        for document in documents or ():
            learn_document(self.scrubber, document, ours=True)
        if documents is None:
            self._stream.learn([line])

    def _document(
        self, low: str, data: bytes, account: Account, within: str = ""
    ) -> Iterator[bytes]:
        documents = _documents(low, data)
        if documents is None:
            yield from self._stream.scrub([data], account)
            return
        clean: list[Any] = []
        found: list[Replacement] = []
        for document in documents:
            after, spans = scrub_document(self.scrubber, document, within=within, ours=True)
            clean.append(after)
            found += spans
        head = b"".join(self._stream.scrub([_comments(low, data)], account))
        account.add(found)
        if not found and head == _comments(low, data):
            yield data
            return
        yield head + _written(low, clean, data)

    def _also_as_document(self, low: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Somebody's JSON is also read as such, for a name and its value may stand far apart in its
        text.
        """
        if not low.endswith(_JSON):
            yield from pieces
            return
        kept: list[bytes] = []
        size = 0
        for piece in pieces:
            size += len(piece)
            if size <= _LARGEST_DOCUMENT:
                kept.append(piece)
            yield piece
        if size <= _LARGEST_DOCUMENT:
            for document in _documents(low, b"".join(kept)) or ():
                learn_document(self.scrubber, document)


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


def _comments(low: str, data: bytes) -> bytes:
    """The lines above a YAML document that say what it is."""
    if not low.endswith(_YAML):
        return b""
    lines = data.splitlines(keepends=True)
    count = next((i for i, line in enumerate(lines) if not line.startswith(b"#")), len(lines))
    return b"".join(lines[:count])


def _written(low: str, documents: list[Any], like: bytes) -> bytes:
    if low.endswith(_YAML):
        text: str = yaml.dump_all(
            documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100
        )
        return text.encode()
    stripped = like.strip()
    compact = b'", "' not in stripped and b'": ' not in stripped
    made = json.dumps(
        documents[0],
        indent=2 if b"\n" in stripped else None,
        separators=(",", ":") if compact else None,
        ensure_ascii=like.isascii(),
    )
    return made.encode("utf-8", "surrogatepass") + (b"\n" if like.endswith(b"\n") else b"")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting = b""
    for piece in pieces:
        *whole, waiting = (waiting + piece).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if waiting:
        yield waiting


def _begun(pieces: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, and all of them; what is no text is said before anything is read."""
    source = iter(pieces)
    first = next(source, b"")
    if not first.startswith(_GZIP) and not looks_like_text(first):
        raise NotTextError

    def whole() -> Iterator[bytes]:
        yield first
        yield from source

    return first, whole()


def _unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Text as it is; a gzip file by what it holds."""
    first, whole = _begun(pieces)
    if not first.startswith(_GZIP):
        yield from whole
        return
    inner = _gunzipped(whole)
    start = next(inner, b"")
    if start.startswith(_GZIP) or not looks_like_text(start):
        raise NotTextError
    yield start
    yield from inner


def _gunzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    reader = zlib.decompressobj(wbits=31)
    try:
        for piece in pieces:
            waiting = piece
            while waiting:
                yield reader.decompress(waiting, 1 << 20)
                waiting = reader.unconsumed_tail
                if reader.eof:
                    waiting = reader.unused_data
                    reader = zlib.decompressobj(wbits=31)
        yield reader.flush()
    except zlib.error:
        raise NotTextError from None


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes for the same text: zlib writes no time and no name into the header."""
    writer = zlib.compressobj(6, wbits=31)
    for piece in pieces:
        yield writer.compress(piece)
    yield writer.flush()
