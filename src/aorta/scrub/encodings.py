"""How bytes hold text, and the encodings that a value in it hides behind: percent, JSON and HTML
escapes, base64, hexadecimal.

A token is taken apart one layer at a time, a few layers deep. Whether what comes out may leave is
not decided here.
"""

import base64
import binascii
import html
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

from aorta.scrub.findings import as_looked_at

LOOKED_FOR = "all of these also behind base64, hexadecimal, URL, JSON and HTML escapes"

_TOKEN = re.compile(r"[^\s\"'<>]{3,65536}")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\/|&#?\w{2,6};")
_WRAPPED = re.compile(
    r"(?:[A-Za-z0-9+/]{60,76}\r?\n){1,200}[A-Za-z0-9+/]{1,76}={0,2}$", re.MULTILINE
)
_ONLY_BASE64 = re.compile(r"[A-Za-z0+/]+\r?")
_HEX = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){8,}(?![0-9A-Fa-f])")
_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})")
_SHAPE_OF_ESCAPE = re.compile(r"%[0-9A-Fa-f]|\\[ux/]|&#?\w")
_SHORTEST = 16
# base64 and hexadecimal alike
_RUN = re.compile(rf"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{{{_SHORTEST},}}+={{0,2}}")
_LONGEST = 2**20

# Others hold a NUL at once.
_PACKED = (b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


class NotTextError(ValueError):
    """These bytes are no text that can be read, so nothing can be promised about them."""


def looks_like_text(first: bytes) -> bool:
    """No archive, no picture, no program: those hold control characters that no log does."""
    if first.startswith(_PACKED) or b"\0" in first:
        return False
    head = first[: 1 << 16]
    return len(_CONTROL.findall(head)) * 50 <= len(head)


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# -- what a value hides behind


def decoded(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, what it says) of every stretch that is readable only after decoding. A word is
    decoded once, however often it stands in the text.
    """
    for start, end in as_looked_at(text).lines_like(_SHAPE_OF_ESCAPE.search):
        for token in _TOKEN.finditer(text, start, end):
            if _ESCAPE.search(token.group()):
                yield token.start(), token.end(), _unescaped(token.group())
    for start, end in as_looked_at(text).matches_in_lines(_RUN):
        for first, last, part in _said_by(text[start:end]):
            yield start + first, start + last, part
    done = 0
    for start, _ in sorted(as_looked_at(text).lines_like(_ONLY_BASE64.fullmatch)):
        wrapped = _WRAPPED.match(text, start) if start >= done else None
        if wrapped and (whole := _readable(_from_base64(wrapped.group()))) is not None:
            done = wrapped.end()
            yield start, done, whole


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
    body = re.sub(r"\s", "", token).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except binascii.Error:
        return None


def _readable(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        try:
            text = data.decode("utf-16-le")
        except UnicodeDecodeError:
            return None
        if not text.isascii():
            return None
    printable = sum(c.isprintable() or c in "\r\n\t" for c in text)
    return text if printable == len(text) else None
