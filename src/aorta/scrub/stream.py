"""Text of any length, scrubbed piece by piece in constant memory: only lines that hold a sign are
read closely.

Bytes in, bytes out. Whole lines go through together; what may go over several lines (a key, wrapped
base64, a name and its value) is held back until it is whole.
"""

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from aorta.scrub.encodings import UTF8, NotTextError, as_bytes, as_text, as_utf8
from aorta.scrub.findings import GROUPS, Detectors, Kind, with_quoted_placeholders
from aorta.scrub.scrubber import Replacement, Scrubber, Taken
from aorta.scrub.signs import KnownLines, Literal, Region, Signs, goes_on, merged

PIECE = 1 << 20
_LONGEST_LINE = 1 << 22
_HELD_LINES = 3
_MOST_HELD = 1 << 18
_MOST_SPANS = 500  # kept of one file for people; all are counted
_MOST_REMEMBERED = 50_000  # lines
_MOST_PLACES = 2_000_000
_BETWEEN = "\n\0\n"  # no text holds a NUL, so nothing matches across it
# What has a shape of its own, what is known.
_NOTHING_TO_LEARN = int(Detectors.ADDRESSES | Detectors.NAMES)
_NONE_LEFT = (1 << 62, Kind.TEXT)
_WRAPPED = re.compile(rb"[A-Za-z0-9+/=]{40,76}\r?")


_Clean = tuple[bytes, tuple[Kind, ...], tuple[Replacement, ...]]
"""What a stretch becomes, what was taken out of it, and, where somebody will look at them, the
places.
"""


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

    @property
    def groups(self) -> dict[str, int]:
        found = dict.fromkeys(GROUPS.values(), 0)
        for kind, count in self.counts.items():
            found[GROUPS[kind]] += count
        return found


class _Seen:
    """Where the first reading found signs, so that the second need not look again; no more than
    fits into 24 MB.
    """

    def __init__(self, signs: Signs) -> None:
        self._signs = signs
        self._places: dict[tuple[int, int], array[int]] = {}
        self._left = _MOST_PLACES

    def regions(self, chunk: bytes) -> list[Region]:
        key = (hash(chunk), len(chunk))
        found = self._places.get(key)
        if found is not None:
            return list(zip(found[::3], found[1::3], found[2::3], strict=True))
        places = self._signs.regions(chunk)
        if len(places) < self._left:
            self._left -= len(places)
            self._places[key] = array("I", chain.from_iterable(places))
        return places


class TextStream:
    """One scrubber's way through long texts. Learning comes first; the first scrubbing fixes what
    is known.
    """

    def __init__(self, scrubber: Scrubber, *, piece: int = PIECE, engine: str = "") -> None:
        self.scrubber = scrubber
        self._piece = piece
        self._engine = engine
        signs = Signs(
            detect=scrubber.rules.detect,
            assignments=bool(scrubber.rules.secret_names),
            engine=engine,
        )
        self._known = KnownLines((), engine=engine)
        self._known_count = -1
        self._seen = _Seen(signs)
        self._learnt: set[int] = set()
        self._lines: dict[bytes, _Clean] = {}

    def learn(self, pieces: Iterable[bytes]) -> None:
        _, texts = as_utf8(pieces)
        for chunk in self._chunks(texts):
            for detectors, parts in self._to_learn(chunk).items():
                self.scrubber.learn(_together(parts), Detectors(detectors))

    def scrub(
        self, pieces: Iterable[bytes], account: Account, *, shell: bool = False
    ) -> Iterator[bytes]:
        encoding, texts = as_utf8(pieces)
        self._fix_known()
        line = 1
        for chunk in self._chunks(texts):
            clean = self._scrubbed(chunk, line, account, shell)
            line += chunk.count(b"\n") if account.room else 0
            yield clean if encoding == UTF8 else as_text(clean).encode(encoding)

    def _fix_known(self) -> None:
        literals = self.scrubber.literals()
        if len(literals) != self._known_count:
            self._known_count = len(literals)
            known = [
                Literal(text, kind is Kind.HOST, kind in (Kind.HOST, Kind.USER))
                for text, kind in literals.items()
            ]
            self._known = KnownLines(known, engine=self._engine)
            self._lines.clear()

    def _to_learn(self, chunk: bytes) -> dict[int, list[bytes]]:
        """What was not learnt yet, by who can find something in it."""
        found: dict[int, list[bytes]] = {}
        for start, end, detectors in self._places(chunk):
            if detectors & _NOTHING_TO_LEARN == detectors:
                continue
            part = chunk[start:end]
            key = hash(part)
            if key not in self._learnt:
                found.setdefault(detectors, []).append(part)
                if len(self._learnt) < 10 * _MOST_REMEMBERED:
                    self._learnt.add(key)
        return found

    def _places(self, chunk: bytes) -> list[Region]:
        whole = chunk if chunk.endswith(b"\n") else chunk + b"\n"
        places = self._seen.regions(whole)
        more = [*self._known.regions(whole), *self._by_pattern(chunk)]
        if more:
            places = merged([*places, *more])
        if places and places[-1][1] > len(chunk):
            places = [*places[:-1], (places[-1][0], len(chunk), places[-1][2])]
        return places

    def _by_pattern(self, chunk: bytes) -> Iterator[Region]:
        """The user's own expressions are Python's, so Python looks for them."""
        if not self.scrubber.patterns:
            return
        text = as_text(chunk)
        for pattern in self.scrubber.patterns:
            for match in pattern.finditer(text):
                start = text.rfind("\n", 0, match.start()) + 1
                end = text.find("\n", match.end())
                end = len(text) if end < 0 else end
                if len(text) == len(chunk):
                    yield start, end, int(Detectors.ALL)
                else:
                    before = len(as_bytes(text[:start]))
                    after = before + len(as_bytes(text[start:end]))
                    yield before, after, int(Detectors.ALL)

    def _scrubbed(self, chunk: bytes, line: int, account: Account, shell: bool) -> bytes:
        places = self._places(chunk)
        if not places:
            return chunk
        clean = self._clean_lines(chunk, places, account.room)
        parts: list[bytes] = []
        counted: list[Kind] = []
        at = counted_to = 0
        for start, end, _ in places:
            part = chunk[start:end]
            text, kinds, spans = clean.get(part) or self._lines[part]
            if kinds:
                if not account.room:
                    counted += kinds
                else:
                    line += chunk.count(b"\n", counted_to, start)
                    counted_to = start
                    if len(spans) < min(len(kinds), account.room):
                        spans = self.scrubber.text(as_text(part)).first_spans(account.room)
                    account.add(_moved(spans, line))
                    counted += kinds[len(spans) :]
                if shell:
                    text = as_bytes(with_quoted_placeholders(as_text(text)))
                parts += (chunk[at:start], text)
                at = end
        parts.append(chunk[at:])
        account.counts.update(counted)
        return b"".join(parts)

    def _clean_lines(self, chunk: bytes, places: list[Region], room: int) -> dict[bytes, "_Clean"]:
        """What becomes of lines that were not seen before, each detector's together: that is many
        times faster.
        """
        fresh: dict[int, dict[bytes, None]] = {}
        for start, end, detectors in places:
            part = chunk[start:end]
            if part not in self._lines:
                fresh.setdefault(detectors, {})[part] = None
        clean: dict[bytes, _Clean] = {}
        for detectors, found in fresh.items():
            parts = list(found)
            clean.update(zip(parts, self._clean(parts, detectors, room), strict=True))
        for part, result in clean.items():
            if len(self._lines) >= _MOST_REMEMBERED:
                break
            if len(part) < 4096:
                self._lines[part] = result
        return clean

    def _clean(self, parts: list[bytes], detectors: int, room: int) -> Iterable["_Clean"]:
        together = self.scrubber.text(_together(parts), detectors=Detectors(detectors))
        if not together.taken:
            return [(part, (), ()) for part in parts]
        after = together.text.split(_BETWEEN)
        if len(after) != len(parts):
            each = [self.scrubber.text(as_text(part)) for part in parts]
            return [
                (as_bytes(one.text), tuple(span.kind for span in one.spans), one.spans)
                for one in each
            ]
        texts = together.before.split(_BETWEEN)
        kinds = _kinds_apart(together.taken, texts)
        spans = _apart(together.first_spans(room), texts) if room else [()] * len(texts)
        return zip(map(as_bytes, after), kinds, spans, strict=True)

    def _chunks(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        waiting = b""
        for piece in pieces:
            if b"\0" in piece:
                raise NotTextError
            waiting += piece
            looked_at = self._piece
            while len(waiting) >= looked_at:
                cut = _cut(waiting, looked_at)
                if cut:
                    yield waiting[:cut]
                    waiting = waiting[cut:]
                    looked_at = self._piece
                else:
                    looked_at += self._piece
        if waiting:
            yield waiting


def _cut(waiting: bytes, size: int) -> int:
    """Behind the last line of the first `size` bytes that cannot belong together with what follows;
    0 where nothing may go yet.
    """
    end = size
    for _ in range(_HELD_LINES):
        end = waiting.rfind(b"\n", 0, end)
        if end < 0:
            break
    if end < 0:
        return _cut_in_line(waiting, size) if size > _LONGEST_LINE else 0
    floor = max(0, end - _MOST_HELD)
    while end > floor:
        start = waiting.rfind(b"\n", 0, end) + 1
        before = waiting.rfind(b"\n", 0, max(0, start - 1)) + 1
        after = min(end + 16, size)
        if not _WRAPPED.fullmatch(waiting, start, end) and not goes_on(waiting[before:after]):
            break
        end = start - 1
    block = max(waiting.rfind(mark, floor, end) for mark in (b"-----BEGIN ", b"PuTTY-User-Key"))
    if (
        block >= 0
        and waiting.find(b"-----END", block, end) < 0
        and waiting.find(b"Private-MAC", block, end) < 0
    ):
        end = waiting.rfind(b"\n", 0, block)
    return max(0, end + 1) or (_cut_in_line(waiting, size) if size > _LONGEST_LINE else 0)


def _cut_in_line(waiting: bytes, size: int) -> int:
    """A line without end is cut behind a comma or a space; where there is none, it is cut
    anyway.
    """
    for mark in (b",", b" "):
        found = waiting.rfind(mark, size // 2, size)
        if found >= 0:
            return found + 1
    return size


def _together(parts: list[bytes]) -> str:
    return as_text(as_bytes(_BETWEEN).join(parts))


def _kinds_apart(taken: Iterable[Taken], texts: list[str]) -> Iterator[tuple[Kind, ...]]:
    """What was taken out of each stretch."""
    places = ((start, kind) for start, _, kind, _ in taken)
    start, kind = next(places, _NONE_LEFT)
    end = 0
    for text in texts:
        end += len(text) + len(_BETWEEN)
        here: list[Kind] = []
        while start < end:
            here.append(kind)
            start, kind = next(places, _NONE_LEFT)
        yield tuple(here)


def _apart(spans: Iterable[Replacement], texts: list[str]) -> list[tuple[Replacement, ...]]:
    """The spans of each stretch, with lines counted from its own beginning."""
    starts = [1]
    for text in texts:
        starts.append(starts[-1] + text.count("\n") + 2)
    found: list[list[Replacement]] = [[] for _ in texts]
    for span in spans:
        number = int(span.where.removeprefix("line "))
        index = bisect_right(starts, number) - 1
        found[index].append(_at_line(span, number - starts[index] + 1))
    return [tuple(here) for here in found]


def _moved(spans: Iterable[Replacement], line: int) -> Iterator[Replacement]:
    return (_at_line(span, line + int(span.where.removeprefix("line ")) - 1) for span in spans)


def _at_line(span: Replacement, line: int) -> Replacement:
    return Replacement(
        f"line {line}", span.before, span.value, span.after, span.placeholder, span.kind
    )
