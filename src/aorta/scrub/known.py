"""What is looked for everywhere, with or without its context: the user's own patterns (text in
which `*` and `?` are wildcards, or `re:` and a regular expression), and values that were found
once.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import quote, quote_plus

from aorta.core.errors import UsageError
from aorta.scrub.addresses import is_generic
from aorta.scrub.findings import Kind, SecretSpan, folded_in_place

_LOOKS_REGULAR = re.compile(r"[\\\[\](){}|+^$]|\.\*|\.\?")
_WILD = {"*": r"[^\s\"'<>]*", "?": r"[^\s\"'<>]"}
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    quote,
    lambda text: quote(text, safe=""),
    quote_plus,
    html.escape,
    lambda text: text.replace("/", "\\/"),
    lambda text: text.replace(" ", "\\ "),
)
"""How one text looks inside JSON (also twice), a URL, HTML and a shell line."""


def compiled(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns ready for use, or one line saying which is wrong.

    Text that also reads as a regular expression is searched for as both: taking out too much can be
    mended.
    """
    found: list[re.Pattern[str]] = []
    for pattern in patterns:
        if pattern.startswith("re:"):
            found.append(_regular(pattern[3:], pattern))
            continue
        if not pattern.strip(" *?"):
            raise UsageError(
                f"scrub pattern {pattern!r} matches everything; give some text to look for"
            )
        found.append(_wildcards(pattern))
        if _LOOKS_REGULAR.search(pattern):
            try:
                found.append(_regular(pattern, pattern))
            except UsageError:
                continue  # then it is only text
    return tuple(found)


def split_patterns(option: str) -> tuple[str, ...]:
    """`P[,P...]` as it stands on a command line; a regular expression keeps its commas."""
    if option.startswith("re:"):
        return (option,)
    return tuple(part for part in (piece.strip() for piece in option.split(",")) if part)


def patterns_in(text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[SecretSpan]:
    for pattern in patterns:
        for match in pattern.finditer(text):
            if match.group():
                yield SecretSpan(match.start(), match.end(), Kind.TEXT, match.group())


def _wildcards(pattern: str) -> re.Pattern[str]:
    """The text in every spelling that JSON, a URL, HTML or a shell line gives it."""
    pieces = re.split(r"([*?])", pattern)
    bodies = dict.fromkeys(
        "".join(_WILD.get(piece) or re.escape(spelt(piece)) for piece in pieces)
        for spelt in SPELLINGS
    )
    return re.compile("|".join(bodies), re.IGNORECASE)


def _regular(expression: str, shown: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(expression)
    except re.error as wrong:
        raise UsageError(
            f"scrub pattern {shown!r} is not a regular expression: {wrong}; "
            "leave out `re:` to look for the text itself"
        ) from None
    if pattern.match(""):
        raise UsageError(f"scrub pattern {shown!r} matches nothing at all; make it match some text")
    return pattern


_NAMES = frozenset({Kind.HOST, Kind.USER})
_WORTH_AN_INDEX = 1 << 20  # characters times values: below it the index costs more than it saves
_PART_OF_A_NAME = re.compile(r"[A-Za-z0-9]")
# So many characters of a value are looked for; the rest is compared where they stand.
_KEY_LENGTH = 16
# Dotless i and long s, where case is ignored.
_ALSO_THE_SAME = str.maketrans({0x131: "i", 0x17F: "s"})
_PLAIN_WORD = re.compile(r"[A-Za-z]{1,9}\Z|\d{1,7}\Z")


Trie = dict[str, "Trie"]


class KnownValues:
    """Grows while content is surveyed. Spelling differences of encodings lead to one and the same
    value.
    """

    def __init__(self) -> None:
        self._spellings: dict[str, tuple[Kind, str]] = {}
        self._tried: dict[str, re.Pattern[str]] = {}
        self._added: set[tuple[Kind, str]] = set()
        self._index: ValueIndex | None = None

    def add(self, kind: Kind, value: str) -> None:
        if (kind, value) in self._added:
            return
        self._added.add((kind, value))
        before = len(self._spellings)
        if kind in _NAMES:
            for name in dict.fromkeys((value, value.partition(".")[0])):
                if not is_generic(name) and not re.fullmatch(r"[\d.]+", name):
                    self._spellings.setdefault(name, (kind, name))
        elif kind is Kind.CREDENTIAL and (len(value) < 6 or _PLAIN_WORD.match(value)):
            return  # hidden where it stands; too common a word to hunt for elsewhere
        elif kind is not Kind.TEXT:
            for spelling in _spellings(value):
                self._spellings.setdefault(spelling, (kind, value))
        if len(self._spellings) > before:
            self._index = None

    def literals(self) -> dict[str, Kind]:
        return {spelling: kind for spelling, (kind, _) in self._spellings.items()}

    def found_in(self, text: str) -> Iterator[SecretSpan]:
        if len(text) * len(self._spellings) < _WORTH_AN_INDEX:
            yield from self._searched_one_by_one(text)
            return
        self._index = self._index or ValueIndex(self._spellings)
        ends: dict[str, int] = {}
        for at, spelling in self._index.places(text):
            kind, value = self._spellings[spelling]
            if at >= ends.get(spelling, 0) and _stands_at(at, spelling, kind, text):
                ends[spelling] = at + len(spelling)
                yield SecretSpan(at, at + len(spelling), kind, value)

    def _searched_one_by_one(self, text: str) -> Iterator[SecretSpan]:
        lower = text.lower()
        for spelling, (kind, value) in self._spellings.items():
            if spelling.lower() not in lower:
                continue
            for match in self._pattern(spelling, kind).finditer(text):
                yield SecretSpan(match.start(), match.end(), kind, value)

    def _pattern(self, spelling: str, kind: Kind) -> re.Pattern[str]:
        pattern = self._tried.get(spelling)
        if pattern is None:
            body = re.escape(spelling)
            if kind in _NAMES:
                body = rf"(?<![A-Za-z0-9]){body}(?![A-Za-z0-9])"
            flags = re.IGNORECASE if kind is Kind.HOST else re.NOFLAG
            pattern = self._tried[spelling] = re.compile(body, flags)
        return pattern


def _stands_at(at: int, spelling: str, kind: Kind, text: str) -> bool:
    """What `KnownValues._pattern` demands of a place where it stands in some case."""
    if kind is not Kind.HOST and not text.startswith(spelling, at):
        return False
    around = (text[at - 1 : at], text[at + len(spelling) : at + len(spelling) + 1])
    return kind not in _NAMES or not any(_PART_OF_A_NAME.match(char) for char in around)


def _spellings(value: str) -> list[str]:
    return list(dict.fromkeys(spelt(value) for spelt in SPELLINGS))


class ValueIndex:
    """Where many values stand in a long text, found in one pass over it however many there are."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values: dict[str, list[tuple[str, str]]] = {}
        for value in values:
            folded = _folded(value)
            self._values.setdefault(folded[:_KEY_LENGTH], []).append((folded, value))
        self._lengths = sorted({len(key) for key in self._values})
        self._anywhere = re.compile(f"(?={_pattern_of(self._values)})")

    def places(self, text: str) -> Iterator[tuple[int, str]]:
        """(position, value) wherever a value stands in any case, in order of position."""
        folded = _folded(text)
        for hit in self._anywhere.finditer(folded):
            at = hit.start()
            for length in self._lengths:
                for spelt, value in self._values.get(folded[at : at + length], ()):
                    if folded.startswith(spelt, at):
                        yield at, value


def _folded(text: str) -> str:
    folded = folded_in_place(text)
    return folded if folded.isascii() else folded.translate(_ALSO_THE_SAME)


def _pattern_of(keys: Iterable[str]) -> str:
    """One expression for all of them that looks at each character of the text once or twice, not
    once a key.
    """
    trie: Trie = {}
    for key in keys:
        place = trie
        for char in key:
            place = place.setdefault(char, {})
        place[""] = {}
    return _expression(trie)


def _expression(trie: Trie) -> str:
    if "" in trie:
        return ""  # a key ends here: whatever follows, something stands at this place
    branches = [re.escape(char) + _expression(below) for char, below in trie.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
