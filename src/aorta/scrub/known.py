"""The user's own patterns and values found once, searched everywhere in every spelling and behind
percent, JSON and HTML escapes, base64 and hexadecimal, one layer at a time.
"""

import base64
import binascii
import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from os.path import commonprefix
from urllib.parse import quote, quote_plus, unquote

from aorta.core.errors import UsageError
from aorta.scrub.addresses import is_generic
from aorta.scrub.findings import Kind, SecretSpan, as_looked_at
from aorta.scrub.vocabulary import FILES, FOLDERS

LOOKED_FOR = "all of these also behind base64, hexadecimal, URL, JSON, HTML and regex escapes"

_LOOKS_REGULAR = re.compile(r"[\\\[\](){}|+^$]|\.\*|\.\?")
_WILD = {"*": r"[^\s\"'<>]*", "?": r"[^\s\"'<>]"}


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    lambda text: quote(_raw(text)),
    lambda text: quote(_raw(text), safe=""),
    lambda text: quote_plus(_raw(text)),
    html.escape,
    lambda text: text.replace("/", "\\/"),
    lambda text: text.replace(" ", "\\ "),
)


def compiled(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Text with wildcards `*` and `?`, or `re:` and a regular expression. Text that also reads as
    one is searched for as both: taking out too much can be mended.
    """
    found: list[re.Pattern[str]] = []
    for pattern in patterns:
        if pattern.startswith("re:"):
            found.append(_regular(pattern[3:], pattern))
            continue
        if not pattern.strip(" *?"):
            raise UsageError(f"scrub pattern {pattern!r} matches everything; give some text")
        found.append(_wildcards(pattern))
        if _LOOKS_REGULAR.search(pattern):
            try:
                found.append(_regular(pattern, pattern))
            except UsageError:
                continue  # then it is only text
    return tuple(found)


def split_patterns(option: str) -> tuple[str, ...]:
    """`P[,P...]` of a command line; a regular expression keeps its commas."""
    if option.startswith("re:"):
        return (option,)
    return tuple(part for part in (piece.strip() for piece in option.split(",")) if part)


_LONGEST_NAME = max(map(len, FILES))
OUR_NAMES = re.compile(
    rf"(?<![\w.\-])(?:{'|'.join(map(re.escape, FILES))})(?![\w\-])|\A(?:{'|'.join(FOLDERS)})\Z"
)


def patterns_in(text: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[SecretSpan]:
    """What they match, if it is not a part of a name that we gave."""
    for match in chain.from_iterable(pattern.finditer(text) for pattern in patterns):
        start, end = match.span()
        near = OUR_NAMES.finditer(text, max(0, start - _LONGEST_NAME), end + _LONGEST_NAME)
        if start < end and not any(one.start() <= start and end <= one.end() for one in near):
            yield SecretSpan(start, end, Kind.TEXT, match.group())


def _wildcards(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"([*?])", pattern)
    bodies = dict.fromkeys(
        "".join(_WILD.get(piece) or re.escape(spelt(piece)) for piece in pieces)
        for spelt in SPELLINGS
    )
    recorded = [] if len(pieces) > 1 else _as_recorded(pattern)
    return re.compile("|".join([*bodies, *recorded]), re.IGNORECASE)


_SLOT = r"(?:\d{0,9}<\*>|\d{0,9}\[[^\]\s]{1,12}\][+*?]?|\\d[+*?]?|\d){1,40}"


def _as_recorded(value: str) -> list[str]:
    """A pattern for a value whose digits a recorded failure has lost; none without digits."""
    first, *rest = re.split(r"\d+", value)
    if not rest or len(first + "".join(rest)) < _SHORTEST:
        return []
    texts = ["".join(c if c.isalnum() else rf"\\?{re.escape(c)}" for c in p) for p in rest]
    start = "".join(c if c.isalnum() else rf"\\?{re.escape(c)}" for c in first)
    whole = _SLOT.join([start, *texts])
    return [whole, f"{start}{_SLOT}"] if len(first) >= _TELLING else [whole]


def _regular(expression: str, shown: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(expression)
    except re.error as wrong:
        raise UsageError(f"scrub pattern {shown!r} is not a regular expression: {wrong}") from None
    if pattern.match(""):
        raise UsageError(f"scrub pattern {shown!r} matches nothing at all; make it match some text")
    return pattern


_LETTER_OR_DIGIT = re.compile("[A-Za-z0-9]")
_SHORTEST_NAME = 4  # letters of a host's name that is looked for without its domain
_TELLING = 10  # characters of a value's beginning that are the value, whatever follows
_SHORTEST = 6  # characters of a secret that is looked for where nothing announces it
_PLAIN_WORD = re.compile(r"[A-Za-z]{1,9}\Z|\d{1,7}\Z")


class KnownValues:
    """All encodings of a value lead to that value."""

    def __init__(self) -> None:
        self._added: set[tuple[Kind, str]] = set()
        self._hosts, self._users = _Words(is_name=True), _Words(is_name=True)
        self._others = _Words(is_name=False)
        self._recorded: list[tuple[re.Pattern[str], str]] = []

    def add(self, kind: Kind, value: str) -> None:
        if (kind, value) in self._added:
            return
        self._added.add((kind, value))
        if kind in (Kind.HOST, Kind.USER):
            # `api` of `api.acme.com` is a word of every log.
            first = value.partition(".")[0]
            is_word = first.isalpha() and len(first) < _SHORTEST_NAME and first != value
            for name in dict.fromkeys((value, value if is_word else first)):
                if not is_generic(name) and not re.fullmatch(r"[\d.]+", name):
                    words = self._hosts if kind is Kind.HOST else self._users
                    words.add(_without_capitals(name) if kind is Kind.HOST else name, (kind, name))
        elif kind is Kind.CREDENTIAL:
            self._add_secret(value)
        elif kind is not Kind.TEXT:
            self._spell(kind, value, value)

    def _add_secret(self, value: str) -> None:
        """As it is, in capitals and in small letters, line by line, and folded into one line."""
        lines = [line.strip(" \t\\\"'") for line in value.splitlines()]
        for part in dict.fromkeys((value, " ".join(lines), "".join(lines), *lines)):
            # Too common a word is hidden where it stands, and not hunted for elsewhere.
            if len(part) >= _SHORTEST and not _PLAIN_WORD.match(part):
                self._spell(Kind.CREDENTIAL, part, value)
                self._recorded += [(re.compile(one), value) for one in _as_recorded(part)]
                for spelt in (*_in_bytes(part), part.upper(), part.lower()):
                    self._others.add(spelt, (Kind.CREDENTIAL, value))

    def _spell(self, kind: Kind, text: str, value: str) -> None:
        for spelt in SPELLINGS:
            self._others.add(spelt(text), (kind, value))

    def found_in(self, text: str) -> Iterator[SecretSpan]:
        yield from self._hosts.found_in(_without_capitals(text))
        yield from self._users.found_in(text)
        yield from self._others.found_in(text)
        if "<*>" in text or "\\" in text or "]+" in text:
            for pattern, value in self._recorded:
                for hit in pattern.finditer(text):
                    yield SecretSpan(hit.start(), hit.end(), Kind.CREDENTIAL, value)


def _without_capitals(text: str) -> str:
    return _raw(text).lower().decode("utf-8", "surrogatepass")


def _in_bytes(value: str) -> Iterator[str]:
    """In the middle of bytes that are written as base64 or hexadecimal."""
    data = _raw(value)
    yield from (data.hex(), data.hex().upper())
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        inside = text[(0, 2, 3)[before] : -1]
        yield from (inside, inside.replace("+", "-").replace("/", "_"))


class _Words:
    """Words that are looked for together, in one pass over a text."""

    def __init__(self, *, is_name: bool) -> None:
        self._is_name = is_name
        self._words: dict[str, tuple[Kind, str]] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, word: str, means: tuple[Kind, str]) -> None:
        if word and word not in self._words:
            self._words[word] = means
            self._pattern = None

    def found_in(self, text: str) -> Iterator[SecretSpan]:
        if not self._words:
            return
        if self._pattern is None:
            after = "(?![A-Za-z0-9])" if self._is_name else ""
            self._pattern = re.compile(_any_of(sorted(self._words, reverse=True)) + after)
        at = 0
        while (hit := self._pattern.search(text, at)) is not None:
            start, end = hit.span()
            inside = self._is_name and _LETTER_OR_DIGIT.match(text, max(0, start - 1), start)
            if not inside:
                yield SecretSpan(start, end, *self._words[hit.group()])
            at = start + 1 if inside else end


def _any_of(words: list[str]) -> str:
    """One expression for words in falling order; those with one beginning share it."""
    if len(words) == 1:
        return re.escape(words[0])
    begun = commonprefix(words)  # noqa: RUF071 - of characters, not of folders
    branches = (
        _any_of(list(group))
        for _, group in groupby((word[len(begun) :] for word in words), lambda word: word[:1])
    )
    return f"{re.escape(begun)}(?:{'|'.join(branches)})"


_TOKEN = re.compile(r"[^\s\"'<>]{3,65536}")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\/|&#?\w{2,6};")
_HEX = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){8,}(?![0-9A-Fa-f])")
_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})")
# As text with dots stands in a regular expression; where a dot is none, a value ends.
_IN_PATTERN = re.compile(r"(?:[\w/:@~]|(?<!\\)-|\\[.\-])+")
_SHAPE_OF_ESCAPE = re.compile(r"%[0-9A-Fa-f]|\\[ux/.\-]|&#?\w")
_SHORTEST_RUN = 16
# base64 and hexadecimal alike
_RUN = re.compile(rf"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{{{_SHORTEST_RUN},}}+={{0,2}}")
_LONGEST = 2**20


def decoded(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, what it says) of every stretch that is readable only after decoding."""
    for start, end in as_looked_at(text).lines_like(_SHAPE_OF_ESCAPE.search):
        for token in _TOKEN.finditer(text, start, end):
            if _ESCAPE.search(token.group()):
                yield token.start(), token.end(), _unescaped(token.group())
        for run in _IN_PATTERN.finditer(text, start, end):
            if "\\" in run.group():
                yield run.start(), run.end(), run.group().replace("\\", "")
    for run in _RUN.finditer(text):
        for first, last, part in _said_by(run.group()):
            yield run.start() + first, run.start() + last, part


def behind_backslashes(found: SecretSpan, escaped: str, at: int) -> SecretSpan:
    """What was found in a text without its backslashes, where it stands in the text with them."""
    marks = [0, *(char.end() for char in re.finditer(r"\\?.", escaped, re.DOTALL))]
    return found._replace(start=at + marks[found.start], end=at + marks[found.end])


@lru_cache(maxsize=1 << 16)
def _said_by(run: str) -> tuple[tuple[int, int, str], ...]:
    if len(run) > _LONGEST or run.isdigit():  # that is a number
        return ()
    whole = _readable(_from_base64(run))
    found = [] if whole is None else [(0, len(run), whole)]
    for match in _HEX.finditer(run):
        part = _readable(bytes.fromhex(match.group()))
        if part is not None:
            found.append((match.start(), match.end(), part))
    return tuple(found)


def _unescaped(token: str) -> str:
    plain = html.unescape(unquote(token)) if "&" in token else unquote(token)
    plain = _UNICODE.sub(lambda m: chr(int(m[1] or m[2], 16)), plain)
    return plain.replace("\\/", "/")


def _from_base64(token: str) -> bytes | None:
    body = token.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except binascii.Error:
        return None


def _readable(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        text = data.decode("utf-16-le" if data[1::2].count(0) * 2 == len(data) else "utf-8")
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\r\n\t" for c in text) else None
