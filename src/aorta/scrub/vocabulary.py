"""Word lists of the detectors; which names announce a secret: `HF_TOKEN`, not `pad_token`."""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LISTS: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("vocabulary.toml").read_text("utf-8")
)
ALWAYS_SECRET = words(_LISTS["always_secret"])
ALL_BELOW_IS_SECRET = words(_LISTS["all_below_is_secret"])
ALSO_ENGLISH = words(_LISTS["also_english"])
PASSWORD_ELSEWHERE = tuple(words(_LISTS["password_elsewhere"]))
NAMES_OF_TWO_WORDS = frozenset(_LISTS["names_of_two_words"])
PASSES_OF_A_PROGRAM = words(_LISTS["passes_of_a_program"])
ENGLISH_ENDINGS_IN_PASS = words(_LISTS["english_endings_in_pass"])
KEYS_OF_A_PROGRAM = words(_LISTS["keys_of_a_program"])
SECRET_IF_DENSE = ALWAYS_SECRET | words(_LISTS["secret_if_dense"])
POINTS_AT_A_SECRET = words(_LISTS["points_at_a_secret"])
TOKEN_OF_A_VOCABULARY = words(_LISTS["token_of_a_vocabulary"])
SECRET_NAME_TRAILERS = words(_LISTS["secret_name_trailers"])
STATES = words(_LISTS["states"])
PLACEHOLDERS = words(_LISTS["placeholders"])
TECHNICAL = words(_LISTS["technical"])
HOST_NAMES = words(_LISTS["host_names"])
USER_NAMES = words(_LISTS["user_names"])
ONLY_DOMAINS = words(_LISTS["only_domains"])
DOMAINS_AND_CODE = words(_LISTS["domains_and_code"])
DOMAINS_WITH_A_DASH = words(_LISTS["domains_with_a_dash"])
MONTHS = words(_LISTS["months"])
PUBLIC_DOMAINS = words(_LISTS["public_domains"])
KEY_PREFIXES, KEY_SHAPES = words(_LISTS["key_prefixes"]), str(_LISTS["key_shapes"])
NOBODY = words(_LISTS["nobody"])
HOST_WORDS = words(_LISTS["host_words"])
INDEXED_WORDS = words(_LISTS["indexed_words"])
PRIVATE_ROOTS = words(_LISTS["private_roots"])
PUBLIC_PACKAGES = words(_LISTS["public_packages"])
ENUMERATIONS = words(_LISTS["enumerations"])
NAMES = words(_LISTS["names"])
KEPT_TREES = words(_LISTS["kept_trees"])
SEARCHED_TREES = words(_LISTS["searched_trees"])
PATHS = words(_LISTS["paths"])
OWN_KEYS = words(_LISTS["keys"]) | NAMES | KEPT_TREES | SEARCHED_TREES | PATHS
FILES = words(_LISTS["files"])
FOLDERS = words(_LISTS["folders"])

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORD = re.compile(r"\w*(?:pa?ss?w(?:o?r)?d|passphrase|passcode|pwd|pw)s?\Z")
_NOT_SECRETS = frozenset({"PWD", "OLDPWD", "oldpwd", "issecret"})
_A_PLACE = ("/", "~", ".", "$", "\\", "C:")
_PLAIN_VALUE = re.compile(
    r"(?i)(?:true|false|none|null|nil|yes|no|on|off|unset|undefined|unknown|required|optional|"
    r"str|string|int|bytes|"
    r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?(?:[nmu]?s|%|[kMG]i?B)?|"
    r"\$\{[\w.]+:[\w.]+|\d+(?:\.\d+){2,3}|\$\{?\w+\}?(?::\$\{?\w+\}?)?|%\w+%|\*+|\.+|"
    r"x{3,}|0x[0-9a-f]{1,16}|\\u\w{4}|<[^<>]*>|<\|[^\s]*\|>|\[[\w .,'\-]{0,40}\]|"
    r"(?:(?:bearer|basic|token) )?\$?\{\{?(?:[\w .:\[\]'\-]{0,40}\}?\})?)\Z"
)
_DENSE = re.compile(r"[A-Za-z0-9+/_.~\-]{15,}[A-Za-z0-9+/_.~\-=]={0,2}\Z")
_WRITTEN = re.compile(r"[A-Za-z]?[a-z]{0,12}\d{0,4}[a-z]?")
_VARIABLE = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+:?\Z")


def announces_secret(name: str) -> bool:
    """The value of this name is a secret, whatever it looks like."""
    if name.lower().endswith(PASSWORD_ELSEWHERE) or name in ALL_BELOW_IS_SECRET:
        return True
    words = _words(name)
    if not words or name in _NOT_SECRETS:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("pass", "pwd", "pw"):
        return before not in PASSES_OF_A_PROGRAM
    if last == "token" and before in TOKEN_OF_A_VOCABULARY:
        return False
    if last.endswith("pass") and last not in ENGLISH_ENDINGS_IN_PASS:
        return True
    return (
        last in ALWAYS_SECRET
        or f"{before} {last.removesuffix('s')}" in NAMES_OF_TWO_WORDS
        or _PASSWORD.match(last) is not None
        or last.endswith(("apikey", "authtoken", "secretkey", "secret"))
    )


def may_announce_secret(name: str) -> bool:
    """The value of this name is a secret if it also looks like one: `key`, `auth`, `session`."""
    words = _words(name)
    if words[-2:] in (["key", "id"], ["session", "id"]):
        return True  # it says whose key it is
    if not words or name in _NOT_SECRETS or words[-1] in POINTS_AT_A_SECRET:
        return False
    if words[-1] == "key" and words[-2:-1] and words[-2] in KEYS_OF_A_PROGRAM:
        return False
    return not SECRET_IF_DENSE.isdisjoint(words)


def is_secret_value(name: str, value: str) -> bool:
    """No switch, variable reference, placeholder or path; a number only of a password or code."""
    low = name.lower()
    if low.endswith("pwd") and value.startswith(_A_PLACE):
        return False
    if value.isdigit() and (names_a_password(name) or low.endswith(("code", "codes", "pin"))):
        return len(value) >= 4
    is_name = _VARIABLE.match(value) is not None and announces_secret(value)
    is_known = is_name or value.lower() in TECHNICAL
    # `--hf-token TOKEN`, `your_token_here`: words that repeat the name or ask for the value.
    words = set(_words(value)) if value.isascii() else set()
    is_asked_for = bool(words) and words <= PLACEHOLDERS | set(_words(name))
    return is_worth_hiding(value) and not is_known and not is_asked_for


def is_worth_hiding(value: str) -> bool:
    """Not a number, a switch, a variable reference or a placeholder somebody already put there."""
    return len(value) > 1 and not _PLAIN_VALUE.match(value)


def is_mixed(value: str) -> bool:
    """Letters and digits in one word that is no word of a sentence about passwords."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_both and len(value) >= 6 and " " not in value


def names_a_password(name: str) -> bool:
    """Its value may be several words: a password, a passphrase, a secret."""
    last = (_words(name) or [""])[-1]
    of_words = last.startswith(("secret", "mnemonic", "phrase")) or last.endswith("pass")
    return of_words or last.startswith("pass") or _PASSWORD.match(last) is not None


def is_dense(value: str) -> bool:
    """A long near-random string without spaces, unlike the words of `model.layers.11.self_attn`."""
    if not _DENSE.match(value) or value.startswith("/"):
        return False
    if all(map(_WRITTEN.fullmatch, re.split(r"[._\-]", value))):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and entropy >= 3.0


def _words(name: str) -> list[str]:
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in SECRET_NAME_TRAILERS):
        words.pop()
    return words
