"""Placeholders in shell scripts: `<` outside quotes would be a redirection, so they are quoted there."""

import re

from aorta.scrub.secrets.findings import PLACEHOLDER

_STEP = re.compile(
    rf"(?P<placeholder>{PLACEHOLDER.pattern})|(?P<skip>\\.)|(?P<quote>[\"'])|\n|.", re.DOTALL
)


def with_quoted_placeholders(script: str) -> str:
    """Quotes are followed line by line: a stray apostrophe in a comment must not turn the rest around."""
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
