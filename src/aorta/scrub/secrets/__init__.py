"""What gives a secret away: its own shape, or the name it stands behind. One set of rules for every room.

The scrubber takes secrets out of what ships; a snapshot never lets them in. Imports the standard library alone,
because the snapshot is also taken inside containers.
"""

import re

from aorta.scrub.secrets.findings import settled
from aorta.scrub.secrets.keywords import announces_secret, is_dense, may_announce_secret
from aorta.scrub.secrets.shapes import secrets_in

REDACTED = "<redacted>"
_UNBROKEN = re.compile(r"[A-Za-z0-9+=]{32,}")


def without_secrets(text: str) -> str:
    """The text with every secret in it taken out."""
    for finding in reversed(settled(secrets_in(text), text)):
        text = text[: finding.start] + REDACTED + text[finding.end :]
    return text


def safe_value(name: str, value: str) -> str:
    """The value of a variable as it may be written down. What looks like a key is one, whatever its name."""
    if announces_secret(name) or may_announce_secret(name):
        return REDACTED
    return _UNBROKEN.sub(_without_key, without_secrets(value))


def _without_key(found: re.Match[str]) -> str:
    return REDACTED if is_dense(found[0]) else found[0]
