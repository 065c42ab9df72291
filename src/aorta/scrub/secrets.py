"""The detectors of secrets: by shape, by name, by use. Standard library only, for containers.

Own rules since `detect-secrets` names a secret's line but not its end; it cross-checks the tests.
"""

import re
from collections.abc import Iterator
from itertools import chain

from aorta.scrub.assignments import assigned_in
from aorta.scrub.findings import SecretSpan, as_looked_at, without_overlap
from aorta.scrub.known_keys import known_keys_in
from aorta.scrub.logins import logins_in
from aorta.scrub.vocabulary import announces_secret, is_dense, may_announce_secret

REDACTED = "<redacted>"
_UNBROKEN = re.compile(r"[A-Za-z0-9+=]{32,}")

# How a value goes on in the next line: behind a backslash, or as the only word there.
_WORD = r"[A-Za-z0-9+/_\-.~!@#$%^&*]+={0,2}"
_MORE = re.compile(
    r"\\\r?\n(?:[ \t]+(?!-|\w+=))?(?P<word>[^\s\"'`]+)"
    r"|[\"'][ \t]*(?:\+[ \t]*\\?|\\)\r?\n[ \t]*[bru]?[\"'](?P<quoted>[^\"'\n]*)(?=[\"'])"
    rf"|[ \t]*\r?\n(?P<indent>[ \t]*)(?P<alone>{_WORD})[ \t]*(?=\r?\n|\Z)"
)
_WRAPPED = 16  # characters of a token from which on it is one that was wrapped


def secrets_in(text: str, *, quoted_only: bool = False) -> Iterator[SecretSpan]:
    """Every secret in the text; they may overlap. `quoted_only`: the text is source code."""
    looked_at = as_looked_at(text)
    for found in chain(
        known_keys_in(looked_at),
        logins_in(looked_at),
        assigned_in(looked_at, quoted_only=quoted_only),
    ):
        yield _with_next_lines(text, found)


def _with_next_lines(text: str, found: SecretSpan) -> SecretSpan:
    """The secret together with what of it stands on the lines below, if it goes on there."""
    if found.value.startswith("-----BEGIN"):
        return found
    end = found.end - found.value.endswith("\\")
    begun = text.rfind("\n", 0, found.start) + 1
    depth = len(text[begun : found.start]) - len(text[begun : found.start].lstrip(" \t"))
    length = end - found.start
    while more := _MORE.match(text, end):
        if more["alone"] and not _goes_on(more["alone"], len(more["indent"]) > depth, length):
            break
        end = more.end(more.lastgroup or 0)
        length = end - more.start()
    if end <= found.end:
        return found
    return found._replace(end=end, value=text[found.start : end])


def _goes_on(word: str, is_deeper: bool, length: int) -> bool:
    """Whether the only word of a line is the rest of a secret whose last line is so long."""
    if not any(map(str.isdigit, word)) or not any(map(str.isalpha, word)):
        return False
    return is_deeper or (length >= _WRAPPED and len(word) >= _WRAPPED) or length >= 4 * _WRAPPED


def without_secrets(text: str) -> str:
    for finding in reversed(without_overlap(secrets_in(text), text)):
        text = text[: finding.start] + REDACTED + text[finding.end :]
    return text


def safe_value(name: str, value: str) -> str:
    """The value of a variable as it may be recorded. What looks like a key is one."""
    if announces_secret(name) or may_announce_secret(name):
        return REDACTED
    return _UNBROKEN.sub(
        lambda found: REDACTED if is_dense(found[0]) else found[0], without_secrets(value)
    )
