"""Text of any length, scrubbed piece by piece in constant memory: only lines that hold a sign are read closely.

Bytes in, bytes out. Whole lines go through together; what may go over several lines (a key, wrapped base64, a name and its value)
is held back until it is whole.
"""

import codecs
import hashlib
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from aorta.scrub.placeholders import with_quoted_placeholders
from aorta.scrub.scrubber import Replacement, Scrubber
from aorta.scrub.secrets.findings import GROUPS, Kind
from aorta.scrub.signs import KnownLines, Literal, Region, Signs, goes_on, merged

PIECE = 1 << 20
_LONGEST_LINE = 1 << 22
_HELD_LINES = 3
_MOST_HELD = 1 << 18
_MOST_SPANS = 500  # kept of one file for people; all are counted
_MOST_REMEMBERED = 50_000  # lines
_MOST_PLACES = 2_000_000
_BETWEEN = "\n\0\n"  # no text holds a NUL, so nothing matches across it
_WRAPPED = re.compile(rb"[A-Za-z0-9+/=]{40,76}\r?")
_UTF8 = "utf-8"
_BOMS = (  # the mark itself goes through as a character
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PACKED = (
    b"BZh",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
    b"PK\x03\x04",
    b"7z\xbc\xaf",
    b"\x04\x22\x4d\x18",
    b"\x80\x04\x95",
)
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_WIDE = (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1))


class NotTextError(ValueError):
    """These bytes are no text that can be read, so nothing can be promised about them."""


@dataclass
class Account:
    """What was taken out of one file."""

    counts: Counter[Kind] = field(default_factory=Counter)
    spans: list[Replacement] = field(default_factory=list)

    def add(self, spans: Iterable[Replacement]) -> None:
        for span in spans:
            self.counts[span.kind] += 1
            if len(self.spans) < _MOST_SPANS:
                self.spans.append(span)

    @property
    def groups(self) -> dict[str, int]:
        found = dict.fromkeys(GROUPS.values(), 0)
        for kind, count in self.counts.items():
            found[GROUPS[kind]] += count
        return found


class _Seen:
    """Where the first reading found signs, so that the second need not look again; no more than fits into 16 MB."""

    def __init__(self) -> None:
        self._places: dict[bytes, array[int]] = {}
        self._left = _MOST_PLACES

    def keep(self, chunk: bytes, places: list[Region]) -> None:
        if len(places) < self._left:
            self._left -= len(places)
            self._places[_key_of(chunk)] = array("I", chain.from_iterable(places))

    def get(self, chunk: bytes) -> list[Region] | None:
        found = self._places.get(_key_of(chunk)) if self._places else None
        return None if found is None else list(zip(found[::2], found[1::2], strict=True))


def _key_of(chunk: bytes) -> bytes:
    return hashlib.sha256(chunk).digest()


class TextStream:
    """One scrubber's way through long texts. Learning comes first; the first scrubbing fixes what is known."""

    def __init__(self, scrubber: Scrubber, *, piece: int = PIECE, engine: str = "") -> None:
        self.scrubber = scrubber
        self._piece = piece
        self._engine = engine
        self._signs = Signs(
            detect=scrubber.rules.detect,
            assignments=bool(scrubber.rules.secret_names),
            engine=engine,
        )
        self._known = KnownLines((), engine=engine)
        self._known_count = -1
        self._seen = _Seen()
        self._learnt: set[int] = set()
        self._lines: dict[bytes, tuple[bytes, tuple[Replacement, ...]]] = {}

    def learn(self, pieces: Iterable[bytes]) -> None:
        _, texts = _as_utf8(pieces)
        for chunk in self._chunks(texts):
            fresh = [part for part in self._regions(chunk) if self._is_new(part)]
            if fresh:
                self.scrubber.learn(_BETWEEN.join(map(_text, fresh)))

    def scrub(
        self, pieces: Iterable[bytes], account: Account, *, shell: bool = False
    ) -> Iterator[bytes]:
        encoding, texts = _as_utf8(pieces)
        self._fix_known()
        line = 1
        for chunk in self._chunks(texts):
            clean = self._scrubbed(chunk, line, account, shell)
            line += chunk.count(b"\n")
            yield clean if encoding == _UTF8 else _text(clean).encode(encoding)

    def _fix_known(self) -> None:
        literals = self.scrubber.literals()
        if len(literals) != self._known_count:
            self._known_count = len(literals)
            known = [Literal(text, caseless) for text, caseless in literals]
            self._known = KnownLines(known, engine=self._engine)
            self._lines.clear()

    def _is_new(self, line: bytes) -> bool:
        key = hash(line)
        if key in self._learnt:
            return False
        if len(self._learnt) < 10 * _MOST_REMEMBERED:
            self._learnt.add(key)
        return True

    def _regions(self, chunk: bytes) -> Iterator[bytes]:
        return (chunk[start:end] for start, end in self._places(chunk))

    def _places(self, chunk: bytes) -> list[Region]:
        whole = chunk if chunk.endswith(b"\n") else chunk + b"\n"
        places = self._seen.get(whole)
        if places is None:
            places = self._signs.regions(whole)
            self._seen.keep(whole, places)
        more = [*self._known.regions(whole), *self._by_pattern(chunk)]
        if more:
            places = merged([*places, *more])
        if places and places[-1][1] > len(chunk):
            places = [*places[:-1], (places[-1][0], len(chunk))]
        return places

    def _by_pattern(self, chunk: bytes) -> Iterator[Region]:
        """The user's own expressions are Python's, so Python looks for them."""
        if not self.scrubber.patterns:
            return
        text = _text(chunk)
        for pattern in self.scrubber.patterns:
            for match in pattern.finditer(text):
                start = text.rfind("\n", 0, match.start()) + 1
                end = text.find("\n", match.end())
                end = len(text) if end < 0 else end
                if len(text) == len(chunk):
                    yield start, end
                else:
                    before = len(_bytes(text[:start]))
                    yield before, before + len(_bytes(text[start:end]))

    def _scrubbed(self, chunk: bytes, line: int, account: Account, shell: bool) -> bytes:
        places = self._places(chunk)
        if not places:
            return chunk
        given = [chunk[start:end] for start, end in places]
        fresh = list(dict.fromkeys(part for part in given if part not in self._lines))
        clean = dict(zip(fresh, self._clean(fresh), strict=True))
        parts: list[bytes] = []
        at = 0
        for part, (start, end) in zip(given, places, strict=True):
            text, spans = clean.get(part) or self._lines[part]
            if spans and len(account.spans) < _MOST_SPANS:
                account.add(_moved(spans, line + chunk.count(b"\n", 0, start)))
            else:
                account.counts.update(span.kind for span in spans)
            if spans:
                text = _bytes(with_quoted_placeholders(_text(text))) if shell else text
            parts += [chunk[at:start], text]
            at = end
        parts.append(chunk[at:])
        return b"".join(parts)

    def _clean(self, given: list[bytes]) -> Iterator[tuple[bytes, tuple[Replacement, ...]]]:
        """All stretches as one text, which is many times faster than each by itself."""
        texts = [_text(part) for part in given]
        together = self.scrubber.text(_BETWEEN.join(texts))
        after = together.text.split(_BETWEEN)
        if len(after) != len(texts):
            results = [self.scrubber.text(text) for text in texts]
            found = [(_bytes(one.text), one.spans) for one in results]
        else:
            spans = _apart(together.spans, texts)
            found = [(_bytes(text), tuple(here)) for text, here in zip(after, spans, strict=True)]
        for part, result in zip(given, found, strict=True):
            if len(self._lines) < _MOST_REMEMBERED and len(part) < 4096:
                self._lines[part] = result
            yield result

    def _chunks(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        waiting = b""
        for piece in pieces:
            if b"\0" in piece:
                raise NotTextError
            waiting += piece
            looked_at = self._piece
            while len(waiting) >= looked_at:
                cut = _cut(waiting[:looked_at])
                if cut:
                    yield waiting[:cut]
                    waiting = waiting[cut:]
                    looked_at = self._piece
                else:
                    looked_at += self._piece
        if waiting:
            yield waiting


def _cut(waiting: bytes) -> int:
    """Behind the last line that cannot belong together with what follows; 0 where nothing may go yet."""
    end = len(waiting)
    for _ in range(_HELD_LINES):
        end = waiting.rfind(b"\n", 0, end)
        if end < 0:
            break
    if end < 0:
        return _cut_in_line(waiting) if len(waiting) > _LONGEST_LINE else 0
    floor = max(0, end - _MOST_HELD)
    while end > floor:
        start = waiting.rfind(b"\n", 0, end) + 1
        before = waiting.rfind(b"\n", 0, max(0, start - 1)) + 1
        if not _WRAPPED.fullmatch(waiting, start, end) and not goes_on(waiting[before : end + 16]):
            break
        end = start - 1
    block = max(waiting.rfind(mark, floor, end) for mark in (b"-----BEGIN ", b"PuTTY-User-Key"))
    if (
        block >= 0
        and waiting.find(b"-----END", block, end) < 0
        and waiting.find(b"Private-MAC", block, end) < 0
    ):
        end = waiting.rfind(b"\n", 0, block)
    return max(0, end + 1) or (_cut_in_line(waiting) if len(waiting) > _LONGEST_LINE else 0)


def _cut_in_line(waiting: bytes) -> int:
    """A line without end is cut behind a comma or a space; where there is none, it is cut anyway."""
    for mark in (b",", b" "):
        found = waiting.rfind(mark, len(waiting) // 2)
        if found >= 0:
            return found + 1
    return len(waiting)


def _apart(spans: Iterable[Replacement], texts: list[str]) -> list[list[Replacement]]:
    """The spans of each stretch, with lines counted from its own beginning."""
    starts = [1]
    for text in texts:
        starts.append(starts[-1] + text.count("\n") + 2)
    found: list[list[Replacement]] = [[] for _ in texts]
    for span in spans:
        number = int(span.where.removeprefix("line "))
        index = bisect_right(starts, number) - 1
        found[index].append(_at_line(span, number - starts[index] + 1))
    return found


def _moved(spans: Iterable[Replacement], line: int) -> Iterator[Replacement]:
    return (_at_line(span, line + int(span.where.removeprefix("line ")) - 1) for span in spans)


def _at_line(span: Replacement, line: int) -> Replacement:
    return Replacement(
        f"line {line}", span.before, span.value, span.after, span.placeholder, span.kind
    )


def _as_utf8(pieces: Iterable[bytes]) -> tuple[str, Iterator[bytes]]:
    """The encoding, and the same text in UTF-8; bytes that are none go through as they are."""
    source = iter(pieces)
    first = next(source, b"")
    encoding = encoding_of(first)
    whole = chain((first,), source)
    return encoding, whole if encoding == _UTF8 else _decoded(whole, encoding)


def _decoded(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    try:
        for piece in pieces:
            yield decoder.decode(piece).encode("utf-8")
        yield decoder.decode(b"", final=True).encode("utf-8")
    except UnicodeError:
        raise NotTextError from None


def encoding_of(first: bytes) -> str:
    """By its mark, or by where its NUL bytes are; everything else is read as UTF-8."""
    for mark, encoding in _BOMS:
        if first.startswith(mark):
            return encoding
    head = first[: 4096 - len(first) % 4]
    if b"\0" in head and len(head) >= 8:
        for encoding, width, place in _WIDE:
            others = (head[at::width] for at in range(width) if at != place)
            if not any(part.strip(b"\0") for part in others) and b"\0" not in head[place::width]:
                return encoding
    return _UTF8


def looks_like_text(first: bytes) -> bool:
    """No archive, no picture, no program: those hold control characters that no log does."""
    if first.startswith(_PACKED):
        return False
    if encoding_of(first) != _UTF8:
        return True
    head = first[: 1 << 16]
    return b"\0" not in first and len(_CONTROL.findall(head)) * 50 <= len(head)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
