"""Where in a piece of a log something private may stand: a superset of every detector, found in one pass.

A line that holds no sign cannot be changed by the scrubber; a property test holds the two against each other. Hyperscan does the
pass where it is installed (extra `scan`), one alternation of the standard library otherwise: `benchmarks/scrubbing.py` has both.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from aorta.scrub.encodings import decoded_run
from aorta.scrub.secrets.shapes import PROVIDERS
from aorta.scrub.secrets.vocabulary import DOMAINS_AND_CODE, DOMAINS_WITH_A_DASH, ONLY_DOMAINS

_ANNOUNCING = (
    "pass|secret|token|key|cred|auth|dsn|cookie|bearer|session|pwd|netrc|string|url|salt|pin|nonce"
)
_QUOTES = r"(?:[\"'\\\]]|&quot;|&#x27;|&#39;){0,4}"
_ENDINGS = "|".join(sorted(ONLY_DOMAINS | DOMAINS_AND_CODE | DOMAINS_WITH_A_DASH))
_RUN = "[A-Za-z0-9+/_\\-]{16,}[^A-Za-z0-9+/_\\-]"
_KEY = r"-----BEGIN |PuTTY-User-Key-File"
_WRAPPED_LINE = 60


@dataclass(frozen=True)
class Sign:
    pattern: str
    caseless: bool = False
    next_lines: int = 0  # how many of the following lines may hold what is announced here


_SIGNS = (
    Sign(r"(?:^|[^A-Za-z0-9_.<>/~)\]\-]|\s-[A-Za-z])/{1,2}[^\s/]"),
    Sign(r"~[A-Za-z0-9_.\-]*/"),
    Sign(r"[A-Za-z]:[\\/]|\\\\|://|@|\x1b"),
    Sign(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\/|&#?[A-Za-z0-9_]{2,6};"),
    Sign(r"\d\.\d{1,3}\.\d{1,3}\.\d|::|(?::[0-9A-Fa-f]{1,4}){5}|ip-\d", caseless=True),
    Sign(r"[0-9A-Fa-f]{2}(?:[:\-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}"),
    Sign(rf"\.(?:{_ENDINGS})(?:[^A-Za-z0-9_(\-]|$)", caseless=True),
    Sign(r"\] [NR]CCL|\]:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |: error: | ON |peer "),
    Sign(r"\([\"']?[A-Za-z][A-Za-z0-9_.\-]*[\"']?, ?\d{4,5}\)"),
    Sign(r"(?:ssh|scp|ping|rsync)\s", caseless=True, next_lines=1),
    Sign(
        r"(?:name|host|node|list|master_addr|endpoint|user|logname|login)[\"']?\s{0,2}[=:]",
        caseless=True,
        next_lines=1,
    ),
    Sign(r"(?:home|users?|people)[\\/]", caseless=True),
    Sign(r"authorization|bearer|cookie|curl|sshpass|login|mysql|mariadb|redis-cli", caseless=True, next_lines=1),
    Sign(r"[?&;](?:sig|x-amz|x-goog|signature|code|access_token|awsaccess)[A-Za-z0-9_\-]*=", caseless=True),
    Sign(
        rf"(?:{_ANNOUNCING})[A-Za-z0-9_.\-]{{0,40}}{_QUOTES}\s{{0,4}}(?:[=:]|,\s{{0,4}}(?:\\*[\"']|&))",
        caseless=True,
        next_lines=1,
    ),
    Sign(rf"-[A-Za-z0-9_.\-]*(?:{_ANNOUNCING})[A-Za-z0-9_.\-]*{_QUOTES}[ \t]", caseless=True),
    Sign(rf"<[A-Za-z0-9_:.\-]*(?:{_ANNOUNCING})[A-Za-z0-9_:.\-]*>", caseless=True),
    Sign(
        rf"(?:name|key|variable)\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}\\?[\"']?[A-Za-z0-9_.\-]*(?:{_ANNOUNCING})",
        caseless=True,
        next_lines=2,
    ),
    *(Sign(re.sub(r"\(\?![^)]*\)", "", provider)) for provider in PROVIDERS),
)  # fmt: skip
_GOES_ON = re.compile(
    "|".join(f"(?:{sign.pattern})" for sign in _SIGNS if sign.next_lines).encode(), re.IGNORECASE
)
_ANY_ASSIGNMENT = Sign(r"[A-Za-z_][A-Za-z0-9_.\-]*[\"']?\s{0,4}[=:]", next_lines=1)


def goes_on(line: bytes) -> bool:
    """Whether what this line announces may stand on the next ones."""
    return _GOES_ON.search(line) is not None


@dataclass(frozen=True)
class Literal:
    """A value that is known already."""

    text: str
    caseless: bool


Hit = tuple[int, int, int]
_KNOWN = 1 << 30  # the number of every known value


class _Matcher(Protocol):
    def hits(self, piece: bytes) -> list[Hit]:
        """(number of the expression, start where it is asked for, end) of every match."""


class Signs:
    """Finds the lines of a piece that are worth reading. `exclude` nothing: what is doubtful is read."""

    def __init__(
        self,
        literals: Sequence[Literal] = (),
        *,
        detect: bool = True,
        assignments: bool = False,
        engine: str = "",
    ) -> None:
        signs = (_SIGNS if detect else _SIGNS[3:4]) + ((_ANY_ASSIGNMENT,) if assignments else ())
        self._signs = signs
        self._run, self._key = len(signs), len(signs) + 1
        self._matcher = _compiled(signs, engine)
        known = [Sign(_escaped(literal.text), literal.caseless) for literal in literals]
        self._known = _matcher(known, -1, engine) if known else None

    def regions(self, piece: bytes) -> list[tuple[int, int]]:
        """(start, end) of stretches of whole lines, in order, apart from each other."""
        found: list[tuple[int, int]] = []
        covered = 0
        hits = self._matcher.hits(piece)
        if self._known is not None:
            known = ((_KNOWN, -1, end) for _, _, end in self._known.hits(piece))
            hits = sorted([*hits, *known], key=lambda hit: hit[2])
        for number, start, end in hits:
            if end <= covered and not self._reaches_on(number):
                continue  # most lines hold several signs
            if number == self._run:
                after = self._after_run(piece, start, end)
                if after is None:
                    continue
            elif number == self._key:
                after = _block_end(piece, end)
            else:
                after = end
                lines = self._signs[number].next_lines if number < self._run else 0
                for _ in range(lines):
                    after = _line_end(piece, after) + 1
            if min(end, len(piece)) <= covered and after <= covered:
                continue
            begin = piece.rfind(b"\n", 0, max(0, end - 1)) + 1
            if number >= self._run and start >= 0:
                begin = piece.rfind(b"\n", 0, start) + 1
            begin = (
                piece.rfind(b"\n", 0, begin - 1) + 1
                if self._reaches_back(number, piece, begin, end)
                else begin
            )
            stop = _line_end(piece, max(0, after - 1))
            if found and begin <= found[-1][1] + 1:
                found[-1] = (min(begin, found[-1][0]), max(stop, found[-1][1]))
            else:
                found.append((begin, stop))
            covered = max(covered, found[-1][1])
        return _merged(found)

    def _reaches_on(self, number: int) -> bool:
        """What begins here may go on behind this line."""
        if number < self._run:
            return self._signs[number].next_lines > 0
        return number in (self._run, self._key)

    def _reaches_back(self, number: int, piece: bytes, begin: int, end: int) -> bool:
        """A match that holds a line break began on an earlier line."""
        return (
            number < self._run
            and self._signs[number].next_lines > 0
            and not piece[begin : max(begin, end - 1)].strip()
        )

    def _after_run(self, piece: bytes, start: int, end: int) -> int | None:
        run = piece[start : end - 1]
        if len(run) >= _WRAPPED_LINE:
            return min(len(piece), _line_end(piece, end - 1) + 2)
        return end - 1 if _says_something(bytes(run)) else None


@lru_cache(maxsize=1 << 16)
def _says_something(run: bytes) -> bool:
    return decoded_run(run.decode("ascii"))


def _line_end(piece: bytes, at: int) -> int:
    found = piece.find(b"\n", min(at, len(piece)))
    return len(piece) if found < 0 else found


def _block_end(piece: bytes, at: int) -> int:
    ends = [
        found for mark in (b"-----END", b"Private-MAC:") if (found := piece.find(mark, at)) >= 0
    ]
    if ends:
        return min(ends) + 1
    end = _line_end(piece, at)
    while end < len(piece) and _BLOCK_LINE.match(piece, end + 1):
        end = _line_end(piece, end + 1)
    return end


_BLOCK_LINE = re.compile(rb"[A-Za-z0-9+/=:\- \\]+\r?(?=\n|\Z)")


def _merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, stop in sorted(found):
        if merged and begin <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((begin, stop))
    return merged


@lru_cache(maxsize=8)
def _compiled(signs: tuple[Sign, ...], engine: str) -> "_Matcher":
    """Once a process: the expressions take a good part of a second, the known values next to nothing."""
    return _matcher([*signs, Sign(_RUN), Sign(_KEY)], len(signs), engine)


def _matcher(signs: Sequence[Sign], run: int, engine: str) -> "_Matcher":
    if engine != "re":
        try:
            return _Hyperscan(signs, run)
        except ImportError:
            pass
    return _Plain(signs, run)


class _Hyperscan:
    def __init__(self, signs: Sequence[Sign], run: int) -> None:
        import hyperscan

        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        flags = [
            hyperscan.HS_FLAG_MULTILINE
            | (hyperscan.HS_FLAG_CASELESS if sign.caseless else 0)
            | (hyperscan.HS_FLAG_SOM_LEFTMOST if number == run else 0)
            for number, sign in enumerate(signs)
        ]
        patterns = [sign.pattern.encode() for sign in signs]
        numbers = list(range(len(patterns)))
        self._database.compile(
            expressions=patterns, ids=numbers, elements=len(patterns), flags=flags
        )
        self._run = run

    def hits(self, piece: bytes) -> list[Hit]:
        found: list[Hit] = []
        run = self._run

        def keep(number: int, start: int, end: int, _flags: int, _context: Any) -> None:
            found.append((number, start if number == run else -1, end))

        self._database.scan(piece, match_event_handler=keep)
        return found


class _Plain:
    """The standard library alone, one expression after the other."""

    def __init__(self, signs: Sequence[Sign], run: int) -> None:
        self._patterns = [
            re.compile(
                sign.pattern.encode(),
                re.MULTILINE | (re.IGNORECASE if sign.caseless else re.NOFLAG),
            )
            for sign in signs
        ]
        self._run = run

    def hits(self, piece: bytes) -> list[Hit]:
        found = [
            (number, match.start() if number == self._run else -1, match.end())
            for number, pattern in enumerate(self._patterns)
            for match in pattern.finditer(piece)
        ]
        return sorted(found, key=lambda hit: hit[2])


def _escaped(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in data)
