"""What detectors take (a text) and return (private spans), and placeholders: one for a value."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple

_ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_ZEROS = re.compile("00+")
_LIKE_I = {0x131: "i", 0x307: None}  # for `re.IGNORECASE` these are an i
_SHAPES_KNOWN = 1 << 12  # of each rule


class Text(str):
    """Text with lines grouped by shape, every number a `0` (`10.1.2.3` is `0.0.0.0`), so that a
    detector tries its patterns only where the shape can match.
    """

    @cached_property
    def _shapes(self) -> Mapping[str, list[tuple[int, int]]]:
        alike: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        start = 0
        data = self.encode("utf-8", "surrogatepass").translate(_ONE_DIGIT)
        for line in data.decode("utf-8", "surrogatepass").split("\n"):
            alike[line].append((start, start + len(line)))
            start += len(line) + 1
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for line, lines in alike.items():
            found[_ZEROS.sub("0", line)] += lines
        return found

    def lines_like(self, may_match: Callable[[str], object]) -> Iterator[tuple[int, int]]:
        for shape, lines in self._shapes.items():
            if may_match(shape):
                yield from lines


def as_looked_at(text: str) -> Text:
    return text if isinstance(text, Text) else Text(text)


class Kind(StrEnum):
    """Strongest first: where two findings overlap, the stronger names the placeholder of both."""

    CREDENTIAL = "SECRET"
    TEXT = "TEXT"  # matched a pattern of the user
    EMAIL = "EMAIL"
    PATH = "PATH"
    IPV4 = "IPV4"
    IPV6 = "IPV6"
    MAC = "MAC"
    HOST = "HOST"
    USER = "USER"


_NO_ADDRESSES = {"SECRET": "secrets", "TEXT": "patterns", "PATH": "paths", "USER": "names"}
GROUPS: dict[Kind, str] = {kind: _NO_ADDRESSES.get(kind, "addresses") for kind in Kind}

_KIND_OF_GROUP: Mapping[int | str, Kind] = {kind.lower(): kind for kind in Kind}

PLACEHOLDER = re.compile(rf"<({'|'.join(Kind)}):([1-9]\d*)>")
_PLAIN_WORD = re.compile(rf"({'|'.join(Kind)})_([1-9]\d{{0,5}})")
_STRENGTH = {kind: strength for strength, kind in enumerate(Kind)}


class SecretSpan(NamedTuple):
    """`text[start:end]` must go; `value` is what it stands for, decoded."""

    start: int
    end: int
    kind: Kind
    value: str


class Rule:
    """A pattern whose matches may not leave.

    A line is searched if its shape has one of the hints, as the keywords of gitleaks, or matches. A
    match goes at most `over` characters over the end of its line. Of a match with named groups
    these go, as `host`, `user` or `path` where that is their name and else as the rule's kind; of
    any other match all. `trailing` is punctuation that is no part of a value.
    """

    def __init__(
        self,
        pattern: str,
        hints: str = "",
        *,
        shape: str = "",
        flags: re.RegexFlag = re.NOFLAG,
        over: int = 0,
        kind: Kind = Kind.CREDENTIAL,
        is_private: Callable[[str, re.Match[str]], bool] = lambda _value, _match: True,
        trailing: str = "",
    ) -> None:
        self.pattern = re.compile(pattern, flags)
        self.hints = tuple(hints.split("|")) if hints else ()
        self.may_match = lru_cache(maxsize=_SHAPES_KNOWN)(self._may_match)
        self._shape = re.compile(shape)
        self._over = over
        self._is_private = is_private
        self._trailing = trailing
        groups = tuple(self.pattern.groupindex) or (0,)
        self._kinds = [(group, _KIND_OF_GROUP.get(group, kind)) for group in groups]

    def _may_match(self, shape: str) -> bool:
        if not self.hints:
            return self._shape.search(shape) is not None
        low = without_capitals(shape)
        return any(hint in low for hint in self.hints)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        for start, end in as_looked_at(text).lines_like(self.may_match):
            yield from self.pattern.finditer(text, start, min(len(text), end + self._over))

    def found_in(self, text: str) -> Iterator[SecretSpan]:
        for match in self.finditer(text):
            for group, kind in self._kinds:
                value = (match[group] or "").rstrip(self._trailing)
                if value and self._is_private(value, match):
                    start = match.start(group)
                    yield SecretSpan(start, start + len(value), kind, value)


@lru_cache(maxsize=_SHAPES_KNOWN)
def without_capitals(shape: str) -> str:
    return shape.casefold().translate(_LIKE_I)


def without_overlap(findings: Iterable[SecretSpan], text: str) -> list[SecretSpan]:
    """In order, and never touching a placeholder."""
    merged: list[SecretSpan] = []
    for finding in sorted(findings, key=lambda one: (one.start, -one.end, _STRENGTH[one.kind])):
        last = merged[-1] if merged else None
        if last is not None and finding.start < last.end:
            merged[-1] = _union(last, finding, text)
        elif finding.start < finding.end:
            merged.append(finding)
    taken = [match.span() for match in PLACEHOLDER.finditer(text)]
    return [part for finding in merged for part in _outside(finding, taken, text)]


def _union(first: SecretSpan, second: SecretSpan, text: str) -> SecretSpan:
    strongest = min(first, second, key=lambda one: _STRENGTH[one.kind])
    end = max(first.end, second.end)
    if (strongest.start, strongest.end) == (first.start, end):
        return strongest
    return SecretSpan(first.start, end, strongest.kind, text[first.start : end])


def _outside(finding: SecretSpan, taken: list[tuple[int, int]], text: str) -> Iterable[SecretSpan]:
    first = max(0, bisect_left(taken, (finding.start, 0)) - 1)
    last = bisect_left(taken, (finding.end, 0))
    inside = [span for span in taken[first:last] if span[1] > finding.start]
    if not inside:
        return [finding]
    edges = [finding.start, *chain.from_iterable(inside), finding.end]
    parts = zip(edges[::2], edges[1::2], strict=True)
    return [SecretSpan(at, end, finding.kind, text[at:end]) for at, end in parts if at < end]


class Placeholders:
    """Numbers values in the order they are first met."""

    def __init__(self) -> None:
        self._given: dict[tuple[Kind, str], str] = {}
        self._last: dict[Kind, int] = {}

    def stand_in(self, kind: Kind, value: str) -> str:
        given = self._given.get((kind, value))
        if given is None:
            self._last[kind] = self._last.get(kind, 0) + 1
            given = self._given[kind, value] = f"<{kind}:{self._last[kind]}>"
        return given

    def step_over(self, text: str) -> None:
        """Numbers of placeholders that a text has already are not given again."""
        for kind, number in _PLAIN_WORD.findall(as_plain_word(text)):
            self._last[Kind(kind)] = max(self._last.get(Kind(kind), 0), int(number))


def as_plain_word(text: str) -> str:
    """`log-<HOST:1>.txt` as file systems, shells and programs take it: `log-HOST_1.txt`."""
    return PLACEHOLDER.sub(r"\1_\2", text)
