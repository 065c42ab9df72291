"""Encodings a value hides behind: percent, JSON and HTML escapes, base64, hexadecimal.

A token is taken apart one layer at a time, a few layers deep. Whether what comes out may leave is not decided here.
"""

import base64
import binascii
import html
import re
from collections.abc import Iterator
from urllib.parse import unquote

_TOKEN = re.compile(r"[^\s\"'<>]{3,65536}")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\/|&#?\w{2,6};")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{16,}={0,2}(?![A-Za-z0-9+/_=\-])")
_WRAPPED = re.compile(
    r"(?:^[A-Za-z0-9+/]{60,76}\r?\n){1,200}[A-Za-z0-9+/]{1,76}={0,2}$", re.MULTILINE
)
_HEX = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){8,}(?![0-9A-Fa-f])")
_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})")
_LONGEST = 2**20


def unveiled(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, what it says) of every stretch that is readable only after decoding."""
    has_escapes = _ESCAPE.search(text) is not None
    for match in _TOKEN.finditer(text) if has_escapes else ():
        if _ESCAPE.search(match.group()):
            yield match.start(), match.end(), _unescaped(match.group())
    for pattern, decode in ((_BASE64, _from_base64), (_WRAPPED, _from_base64), (_HEX, _from_hex)):
        for match in pattern.finditer(text):
            if match.end() - match.start() <= _LONGEST:
                said = decode(match.group())
                if said is not None:
                    yield match.start(), match.end(), said


def _unescaped(token: str) -> str:
    plain = html.unescape(unquote(token)) if "&" in token else unquote(token)
    plain = _UNICODE.sub(lambda m: chr(int(m[1] or m[2], 16)), plain)
    return plain.replace("\\/", "/")


def _from_base64(token: str) -> str | None:
    body = re.sub(r"\s", "", token).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return _readable(base64.b64decode(body + "=" * (-len(body) % 4), validate=True))
    except binascii.Error:
        return None


def _from_hex(token: str) -> str | None:
    return _readable(bytes.fromhex(token))


def _readable(data: bytes) -> str | None:
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
