"""Stable stand-ins: one value has one placeholder wherever it appears, and nothing maps back."""

import re

from aorta.scrub.secrets.findings import PLACEHOLDER, Kind


class Placeholders:
    """Numbers values in the order they are first met. The values live here only, and are never written."""

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
        """Text scrubbed earlier keeps its placeholders, so their numbers are not given a second meaning."""
        for kind, number in PLACEHOLDER.findall(text):
            self._last[Kind(kind)] = max(self._last.get(Kind(kind), 0), int(number))


def as_file_name(text: str) -> str:
    """`log-<HOST:1>.txt` as a name that every file system takes: `log-HOST-1.txt`."""
    return PLACEHOLDER.sub(r"\1-\2", text)


_STEP = re.compile(
    rf"(?P<placeholder>{PLACEHOLDER.pattern})|(?P<skip>\\.)|(?P<quote>[\"'])|\n|.", re.DOTALL
)


def with_quoted_placeholders(script: str) -> str:
    """In a shell script `<` outside quotes would be a redirection, so placeholders are quoted there.

    Quotes are followed line by line: a stray apostrophe in a comment must not turn the rest around.
    """
    quote = ""
    parts: list[str] = []
    for step in _STEP.finditer(script):
        text = step.group()
        if text == "\n":
            quote = ""
        elif step["quote"]:
            quote = "" if quote == text else quote or text
        parts.append(f"'{text}'" if step["placeholder"] and not quote else text)
    return "".join(parts)
