"""What gives a secret away: its own shape, the name it stands behind, or what is done with it. One
set of rules for every package.

The scrubber takes secrets out of what ships; a snapshot never lets them in. Imports the standard
library alone, because the snapshot is also taken inside containers.

Own rules, not a library's: `detect-secrets` names the line a secret is on but not where it ends,
sees only the first line of a private key, and knows no credential of the machine-learning world
(see `benchmarks/scrubbing.py`, which counts both on one corpus). It is used in the tests as the
second opinion.
"""

import re
from collections.abc import Iterator, Sequence

from aorta.scrub.assignments import assigned_in
from aorta.scrub.findings import SecretSpan, as_looked_at, without_overlap
from aorta.scrub.known_keys import known_keys_in
from aorta.scrub.logins import logins_in
from aorta.scrub.vocabulary import announces_secret, is_dense, may_announce_secret

REDACTED = "<redacted>"
_UNBROKEN = re.compile(r"[A-Za-z0-9+=]{32,}")


def secrets_in(
    text: str, secret_names: Sequence[str] = (), *, quoted_only: bool = False
) -> Iterator[SecretSpan]:
    """Every secret in the text; they may overlap. `secret_names`: globs of further names that
    announce one. `quoted_only`: the text is source code.
    """
    looked_at = as_looked_at(text)
    yield from known_keys_in(looked_at)
    yield from logins_in(looked_at)
    yield from assigned_in(looked_at, secret_names, quoted_only=quoted_only)


def without_secrets(text: str) -> str:
    """The text with every secret in it taken out."""
    for finding in reversed(without_overlap(secrets_in(text), text)):
        text = text[: finding.start] + REDACTED + text[finding.end :]
    return text


def safe_value(name: str, value: str) -> str:
    """The value of a variable as it may be recorded. What looks like a key is one."""
    if announces_secret(name) or may_announce_secret(name):
        return REDACTED
    return _UNBROKEN.sub(_without_key, without_secrets(value))


def _without_key(found: re.Match[str]) -> str:
    return REDACTED if is_dense(found[0]) else found[0]
