"""Logins in URLs, headers, command lines of known programs, and user-password pairs in source code.

Standard library only, as `known_keys`.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from aorta.scrub.findings import Rule, SecretSpan
from aorta.scrub.vocabulary import is_worth_hiding

LOOKED_FOR = "logins in URLs, HTTP headers, cookies, command lines and pairs of user and password"

_TABLES = tomllib.loads(Path(__file__).with_name("logins.toml").read_text("utf-8"))["rule"]
_RULES = [
    Rule(
        **{**table, "pattern": table["pattern"].replace("\n", "")},
        is_private=lambda value, _match: is_worth_hiding(value),
    )
    for table in _TABLES
]
_COMMANDS = _RULES[0]

# `['sshpass', '-p', '...']`, as Python prints a command.
_WORD = r"(?:'[^'\n]{1,400}'|\"[^\"\n]{1,400}\")"
_PRINTED_COMMAND = re.compile(rf"\[{_WORD}(?:, {_WORD})+\]")
_BETWEEN_WORDS = re.compile(r"[\"'], [\"']")


def logins_in(text: str) -> Iterator[SecretSpan]:
    for one in _RULES:
        yield from one.found_in(text)
    for printed in _PRINTED_COMMAND.finditer(text):
        typed = _BETWEEN_WORDS.sub(" " * 4, printed[0])
        for span in _COMMANDS.found_in(typed):
            start, end = span.start + printed.start(), span.end + printed.start()
            yield span._replace(start=start, end=end)
