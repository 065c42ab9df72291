"""The user's own patterns: text in which `*` and `?` are wildcards, or `re:` and a regular expression."""

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote, quote_plus

from aorta.core.errors import UsageError
from aorta.scrub.secrets.findings import Kind, SecretSpan

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

    Text that also reads as a regular expression is searched for as both: taking out too much can be mended.
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
