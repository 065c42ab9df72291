"""Keys known by shape: published prefixes and lengths, JSON web tokens, private keys, random words.

Standard library only: a snapshot of the environment is also taken inside containers.
"""

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from string import ascii_letters, digits

from aorta.scrub.findings import Kind, SecretSpan, as_looked_at
from aorta.scrub.vocabulary import KEY_PREFIXES, KEY_SHAPES

LOOKED_FOR = "keys of some ninety services by their shape, JSON web tokens, private keys"

# The bounds keep a text that only begins like one, again and again, from taking long.
_JWT = r"eyJ[A-Za-z0-9_\-]{8,4096}\.eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"
_TOKEN = re.compile(r"[A-Za-z0-9_\-.:/+=~@]{13,}")  # no key is shorter
# Also the end of one whose beginning stands in the part of a log that is left out.
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<what>[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----"
    r"(?:(?s:.*?)-----END (?P=what)-----|[A-Za-z0-9+/=\s\\]*)"
    r"|PuTTY-User-Key-File-\d:(?:(?s:.*?)Private-MAC: *[0-9a-f]+|[^\n]*(?:\n[A-Za-z0-9+/=:\- ]+)*)"
    r"|^(?:[ \t]*[A-Za-z0-9+/]{40,128}\r?\n){1,200}(?:[ \t]*[A-Za-z0-9+/=]{1,128}\r?\n)?"
    r"[ \t]*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----",
    re.MULTILINE,
)
_SHORTEST_DRAWN = 20
_RUN = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{{_SHORTEST_DRAWN},}}(?![A-Za-z0-9])")
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z0-9]+")
_AROUND_LEFT, _AROUND_RIGHT = re.compile(r"[A-Za-z0-9_\-+]*\Z"), re.compile(r"[A-Za-z0-9_\-+/=]*")
_KIND_OF_CHARACTER = str.maketrans(ascii_letters + digits, "a" * 26 + "A" * 26 + "0" * 10)
_WRITTEN_WORD = re.compile(r"[A-Z][a-z]{2,}|[a-z]{4,}")
_OF_WORDS = 0.6  # of a class's name; 2 in 100 drawn keys of 24 characters have as much
_MIXED = 0.45  # of the steps from one character to the next change its kind; 0.62 if drawn by lot


def _expression() -> str:
    shapes = "|".join(line.split(None, 1)[1] for line in KEY_SHAPES.strip().splitlines())
    for short, alphabet in (("@{", "[A-Za-z0-9]{"), ("#{", "[0-9a-f]{"), ("~", r"[\w\-]")):
        shapes = shapes.replace(short, alphabet)
    prefixes = "|".join(map(re.escape, sorted(KEY_PREFIXES, reverse=True)))
    drawn = r"(?=[\w\-.=+/]{0,60}[A-Z]|(?:[a-z_\-.]{0,40}[0-9]){3})"
    behind = rf"(?:(?<=[^A-Za-z0-9])|(?=[A-Za-z0-9]{{12}})){drawn}[\w\-.=+/]{{20,}}"
    return rf"(?<![A-Za-z0-9])(?:{shapes}|(?:{prefixes}){behind}|{_JWT})"


_BY_SHAPE = re.compile(_expression(), re.ASCII)
# The same for the shape of a line: each digit is a 0, and what is repeated may have any length.
_MAY_BE_KEY = re.compile(
    re.sub(r"[0-9]+", "0", re.sub(r"\{[\d,]+\}", "*", _BY_SHAPE.pattern)), re.ASCII
)


def known_keys_in(text: str) -> Iterator[SecretSpan]:
    for first, last in as_looked_at(text).lines_like(_may_hold_key):
        for match in _TOKEN.finditer(text, first, last):
            for start, end in _keys_of(match.group()):
                begin = match.start() + start
                yield SecretSpan(begin, match.start() + end, Kind.CREDENTIAL, match[0][start:end])
    if "PRIVATE KEY" in text or "PuTTY-User-Key" in text:
        for match in _PRIVATE_KEY.finditer(text):
            yield SecretSpan(match.start(), match.end(), Kind.CREDENTIAL, match.group())


@lru_cache(maxsize=1 << 14)
def _may_hold_key(shape: str) -> bool:
    return _MAY_BE_KEY.search(shape) is not None or any(
        _is_mixed(run, _SHORTEST_DRAWN) for run in _LETTERS_AND_DIGITS.findall(shape)
    )


@lru_cache(maxsize=1 << 16)
def _keys_of(token: str) -> tuple[tuple[int, int], ...]:
    found = [match.span() for match in _BY_SHAPE.finditer(token)]
    for run in _RUN.finditer(token):
        if any(start <= run.start() < end for start, end in found):
            continue
        left = _AROUND_LEFT.search(token, max(0, run.start() - 64), run.start())
        right = _AROUND_RIGHT.match(token, run.end())
        start = left.start() if left else run.start()
        if is_drawn(run.group()) and not token.startswith("_Z", start):
            found.append((start, right.end() if right else run.end()))
    return tuple(found)


def is_drawn(word: str) -> bool:
    """A random mix of cases and digits, unlike C++ mangled names and `Qwen2MoeSparseMoeBlock`."""
    written = sum(map(len, _WRITTEN_WORD.findall(word)))
    return _is_mixed(word, len(word)) and written < _OF_WORDS * len(word)


def _is_mixed(word: str, length: int) -> bool:
    """A word of this length, or the shape of one: there are as many changes in that."""
    kinds = word.translate(_KIND_OF_CHARACTER)
    if len(set(kinds)) < 3:
        return False
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return changes >= _MIXED * (length - 1)
