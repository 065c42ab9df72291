"""What looks like a secret, in one place. Imports the standard library alone."""

import re

REDACTED = "<redacted>"

_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH", re.IGNORECASE
)

_SECRET_TEXT = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*",
            r"(?<=://)[^/\s@]+(?=@)",  # user:password of a URL
            r"\b(?:gh[opsu]|github_pat)_\w{8,}",
            r"\bglpat-[\w-]{8,}",
            r"\bhf_[A-Za-z0-9]{8,}",
            r"\bsk-[\w-]{8,}",
            r"\bxox[abprs]-[\w-]{8,}",
            r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}",
            r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # a JSON web token
            r"(?i:\bbearer\s+\S+)",
            r"(?i:(?<=password=)|(?<=passwd=)|(?<=token=)|(?<=secret=)|(?<=key=))[^\s,;&]+",
        )
    )
)

_UNBROKEN = re.compile(r"[A-Za-z0-9+=]{32,}")
_KINDS = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name))


def without_secrets(text: str) -> str:
    """The text with everything of the known shapes of secrets taken out."""
    return _SECRET_TEXT.sub(REDACTED, text)


def safe_value(name: str, value: str) -> str:
    """The value of a variable as it may be written down."""
    if is_secret_name(name):
        return REDACTED
    return _UNBROKEN.sub(_without_key, without_secrets(value))


def _without_key(found: re.Match[str]) -> str:
    """Long, unbroken, of all three kinds of characters: a key, and nothing that a person wrote."""
    return REDACTED if all(kind.search(found[0]) for kind in _KINDS) else found[0]
