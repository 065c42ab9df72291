"""Which names announce a secret: `HF_TOKEN`, `dbPassword`, `--api-key`; but not `pad_token` or `PWD`."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

from aorta.scrub.secrets.vocabulary import (
    ALWAYS_SECRET,
    ALWAYS_SECRET_PAIRS,
    POINTS_AT_A_SECRET,
    SECRET_ENDINGS,
    SECRET_IF_DENSE,
    SECRET_NAME_TRAILERS,
    TOKEN_OF_A_VOCABULARY,
)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NOT_SECRETS = frozenset({"pwd", "oldpwd"})
_PLAIN_VALUE = re.compile(
    r"(?i)(?:true|false|none|null|nil|yes|no|on|off|unset|undefined|required|optional|str|string|int|bytes|"
    r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?|\$\{?\w+\}?|%\w+%|\*+|\.+|x{3,}|<[^<>]*>|\[[^\]]*\]|\{\{?[^}]*\}?\})\Z"
)
_DENSE = re.compile(r"[A-Za-z0-9+/_=.~\-]{16,}\Z")


def announces_secret(name: str, extra: Iterable[str] = ()) -> bool:
    """The value of this name is a secret, whatever it looks like."""
    if any(fnmatchcase(name.upper(), glob.upper()) for glob in extra):
        return True
    words = _words(name)
    if not words or name.lower() in _NOT_SECRETS:
        return False
    if words[-1] == "token" and len(words) > 1 and words[-2] in TOKEN_OF_A_VOCABULARY:
        return False
    if words[-1].endswith(SECRET_ENDINGS):
        return True
    return words[-1] in ALWAYS_SECRET or " ".join(words[-2:]) in ALWAYS_SECRET_PAIRS


def may_announce_secret(name: str) -> bool:
    """The value of this name is a secret if it also looks like one: `key`, `auth`, `session`."""
    words = _words(name)
    if not words or name.lower() in _NOT_SECRETS or words[-1] in POINTS_AT_A_SECRET:
        return False
    return not SECRET_IF_DENSE.isdisjoint(words)


def is_worth_hiding(value: str) -> bool:
    """Not a number, a switch, a variable reference or a placeholder somebody already put there."""
    return len(value) > 1 and not _PLAIN_VALUE.match(value)


def is_secret_value(name: str, value: str) -> bool:
    """What to hide behind a name that announces a secret: numbers are counts, unless they are a password."""
    if "pass" in name.lower() and value.isdigit():
        return len(value) >= 4
    return is_worth_hiding(value)


def is_dense(value: str) -> bool:
    """A long string without spaces that no language would produce: letters and digits, near-random."""
    if not _DENSE.match(value):
        return False
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return has_both and entropy(value) >= 3.0


def entropy(value: str) -> float:
    """Shannon bits a character."""
    counts = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in SECRET_NAME_TRAILERS):
        words.pop()
    return words
