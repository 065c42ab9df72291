"""Encodings a value hides behind: percent, JSON and HTML escapes, base64, hexadecimal.

A token is taken apart one layer at a time, a few layers deep. Whether what comes out may leave is not decided here.
"""

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from aorta.scrub.findings import lines_at

_TOKEN = re.compile(r"[^\s\"'<>]{3,65536}")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\/|&#?\w{2,6};")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{16,}={0,2}(?![A-Za-z0-9+/_=\-])")
_WRAPPED = re.compile(
    r"(?:^[A-Za-z0-9+/]{60,76}\r?\n){1,200}[A-Za-z0-9+/]{1,76}={0,2}$", re.MULTILINE
)
_HEX = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}){8,}(?![0-9A-Fa-f])")
_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})")
_RUN = re.compile(r"[A-Za-z0-9+/_\-]{16,}")  # base64 and hexadecimal alike
_WRAPPED_LINE = 60
_LONGEST = 2**20


def unveiled(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, what it says) of every stretch that is readable only after decoding."""
    for match in _escaped_tokens(text):
        yield match.start(), match.end(), _unescaped(match.group())
    for match, decode in _encoded(text):
        if match.end() - match.start() <= _LONGEST:
            said = decode(match.group())
            if said is not None:
                yield match.start(), match.end(), said


def decoded_run(run: str) -> bool:
    """Whether an unbroken run of letters and digits says something once it is decoded."""
    return any(decode(match.group()) is not None for match, decode in _encoded(run))


def _escaped_tokens(text: str) -> Iterator[re.Match[str]]:
    """Tokens hold no space, so those of a line without an escape hold none."""
    escapes = (escape.start() for escape in _ESCAPE.finditer(text))
    for start, end in lines_at(text, escapes):
        for token in _TOKEN.finditer(text, start, end):
            if _ESCAPE.search(token.group()):
                yield token


def _encoded(text: str) -> Iterator[tuple[re.Match[str], Callable[[str], str | None]]]:
    is_wrapped = False
    for run in _RUN.finditer(text):
        is_wrapped = is_wrapped or run.end() - run.start() >= _WRAPPED_LINE
        for match in _BASE64.finditer(
            text, run.start(), run.end() + 3
        ):  # its two `=`, and what follows
            yield match, _from_base64
        for match in _HEX.finditer(text, run.start(), run.end()):
            yield match, _from_hex
    if is_wrapped:
        for match in _WRAPPED.finditer(text):
            yield match, _from_base64


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
