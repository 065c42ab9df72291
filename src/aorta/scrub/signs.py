"""Where in a piece of a log something private may stand: a superset of every detector, found in one
pass.

A line that holds no sign cannot be changed by the scrubber, and one that holds signs of some
detectors only by those; a property test holds the two against each other. Hyperscan does the pass
where it is installed (extra `scan`), the standard library's expressions otherwise:
`benchmarks/scrubbing.py` has both.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from aorta.scrub.encodings import decoded_run
from aorta.scrub.findings import Detectors, Kind
from aorta.scrub.secrets import PROVIDERS
from aorta.scrub.vocabulary import DOMAINS_AND_CODE, DOMAINS_WITH_A_DASH, MONTHS, ONLY_DOMAINS

_ANNOUNCING = (
    "pass|secret|token|key|cred|auth|dsn|cookie|bearer|session|pwd|netrc|string|url|salt|pin|nonce"
)
_QUOTES = r"(?:[\"'\\\]]|&quot;|&#x27;|&#39;){0,4}"
_ENDINGS = "|".join(sorted(ONLY_DOMAINS | DOMAINS_AND_CODE | DOMAINS_WITH_A_DASH))
_RUN = "[A-Za-z0-9+/_\\-]{16,}[^A-Za-z0-9+/_\\-]"
_KEY = r"-----BEGIN |PuTTY-User-Key-File"
_WRAPPED_LINE = 60

Region = tuple[int, int, int]
"""Begin and end of whole lines, and the detectors that can find something there (a plain number:
there are many regions).
"""

_ADDRESSES, _COLLECTIVES, _PATHS, _NAMES, _ALL = map(
    int,
    (
        Detectors.ADDRESSES,
        Detectors.COLLECTIVES,
        Detectors.PATHS,
        Detectors.NAMES,
        Detectors.ALL,
    ),
)


@dataclass(frozen=True)
class Sign:
    pattern: str
    caseless: bool = False
    next_lines: int = 0  # how many of the following lines may hold what is announced here
    of: int = _ALL  # the detectors that may match where this does


_SHAPES = (
    Sign(r"\d\.\d{1,3}\.\d{1,3}\.\d", of=_ADDRESSES),
    Sign(r"::", of=_ADDRESSES),
    Sign(r"(?::[0-9A-Fa-f]{1,4}){5}", of=_ADDRESSES),
    Sign(
        r"[0-9A-Fa-f]{2}(?:[:\-][0-9A-Fa-f]{2}){5}|[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}",
        of=_ADDRESSES,
    ),
    Sign(r"\] [NR]CCL", of=_COLLECTIVES),
    Sign(r"ip-\d", caseless=True),
    Sign(r"\]:\d\d|: error: | ON |peer "),
    Sign(rf"(?:{'|'.join(sorted(MONTHS))}) [ \d]\d \d\d:\d\d:\d\d ", caseless=True),
    Sign(r"\([\"']?[A-Za-z][A-Za-z0-9_.\-]*[\"']?, ?\d{4,5}\)"),
    Sign(rf"<(?:{'|'.join(Kind)}):[1-9]"),  # text that was scrubbed before
)
_ESCAPES = (
    Sign(r"%[0-9A-Fa-f]{2}|\\u00[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2}|\\/|&#?[A-Za-z0-9_]{2,6};"),
)
_PLACES = (
    Sign(r"(?:^|[^A-Za-z0-9_.<>/~)\]\-]|(?:^|\s)-[A-Za-z])/{1,2}[^\s/]", of=_PATHS),
    Sign(r"~[A-Za-z0-9_.\-]*/", of=_PATHS),
    Sign(r"[A-Za-z]:[\\/]|\\\\|://|@|\x1b"),
    Sign(rf"\.(?:{_ENDINGS})(?:[^A-Za-z0-9_(\-]|$)", caseless=True),
    Sign(r"(?:home|users?|people)[\\/]", caseless=True, of=_PATHS),
    Sign(r"[?&;](?:sig|x-amz|x-goog|signature|code|access_token|awsaccess)[A-Za-z0-9_\-]*=", caseless=True),
    Sign(rf"-[A-Za-z0-9_.\-]*(?:{_ANNOUNCING})[A-Za-z0-9_.\-]*{_QUOTES}[ \t]", caseless=True),
    Sign(rf"<[A-Za-z0-9_:.\-]*(?:{_ANNOUNCING})[A-Za-z0-9_:.\-]*>", caseless=True),
)  # fmt: skip
_CREDENTIALS = tuple(Sign(re.sub(r"\(\?![^)]*\)", "", provider)) for provider in PROVIDERS)
_ANNOUNCEMENTS = (
    Sign(
        rf"(?:{_ANNOUNCING})[A-Za-z0-9_.\-]{{0,40}}{_QUOTES}\s{{0,4}}(?:[=:]|"
        rf",\s{{0,4}}(?:\\*[\"']|&))",
        caseless=True,
        next_lines=1,
    ),
    Sign(
        rf"(?:name|key|variable)\\?[\"']?\s{{0,2}}[:=]\s{{0,2}}\\?[\"']?[A-Za-z0-9_.\-]*(?:{_ANNOUNCING})",
        caseless=True,
        next_lines=2,
    ),
    Sign(r"(?:ssh|scp|ping|rsync)\s", caseless=True, next_lines=1),
    Sign(
        r"(?:name|host|node|list|master_addr|endpoint|user|logname|login)[\"']?\s{0,2}[=:]",
        caseless=True,
        next_lines=1,
    ),
    Sign(r"authorization|bearer|cookie|curl|sshpass|login|mysql|mariadb|redis-cli", caseless=True, next_lines=1),
)  # fmt: skip
_IN_LINE = (_SHAPES, (*_PLACES, *_ESCAPES, *_CREDENTIALS))
"""One database each: hyperscan reads a log faster with these than with all of them in one."""
_GOES_ON = re.compile(
    "|".join(f"(?:{sign.pattern})" for sign in _ANNOUNCEMENTS).encode(), re.IGNORECASE
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
    is_name: bool  # of a host or a user


PLAIN, HYPERSCAN = "re", "hyperscan"
"""What looks for the expressions; where nothing is said, whichever is sooner done with what
there is to read.
"""
OnHit = Callable[[int, int, int, int, Any], None]


class _Matcher(Protocol):
    def scan(self, piece: bytes, on_hit: OnHit) -> None:
        """`on_hit(number of the expression, start, end, _, _)` of every match. The start is right
        only where it was asked for.
        """


class Signs:
    """Finds the lines of a piece that are worth reading. `exclude` nothing: what is doubtful is
    read.
    """

    def __init__(self, *, detect: bool = True, assignments: bool = False, engine: str = "") -> None:
        self._announcements = (_ANNOUNCEMENTS if detect else ()) + (
            (_ANY_ASSIGNMENT,) if assignments else ()
        )
        in_line = _IN_LINE if detect else (_ESCAPES,)
        self._in_line = [(_compiled(group, engine), _detectors(group)) for group in in_line]
        self._announcing = _compiled(self._announcements, engine) if self._announcements else None
        self._runs = _compiled((Sign(_RUN),), engine, with_start=True)
        self._keys = _compiled((Sign(_KEY),), engine)

    def regions(self, piece: bytes) -> list[Region]:
        """Stretches of whole lines, in order, apart from each other."""
        found: list[Region] = []
        for matcher, detectors in self._in_line:
            found += _lines_of(matcher, detectors, piece)
        found += self._announced(piece)
        found += _encoded(self._runs, piece)
        found += _key_blocks(self._keys, piece)
        return merged(found)

    def _announced(self, piece: bytes) -> list[Region]:
        """The line of a match, and those that may hold what it announces."""
        found: list[Region] = []

        def keep(number: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            begin = piece.rfind(b"\n", 0, max(0, end - 1)) + 1
            if begin and not piece[begin : max(begin, end - 1)].strip():
                begin = piece.rfind(b"\n", 0, begin - 1) + 1  # it began on an earlier line
            after = end
            for _ in range(self._announcements[number].next_lines):
                after = _line_end(piece, after) + 1
            found.append((begin, _line_end(piece, max(0, after - 1)), _ALL))

        if self._announcing is not None:
            self._announcing.scan(piece, keep)
        return found


class KnownLines:
    """Finds the lines that hold a value which is known already."""

    def __init__(self, literals: Sequence[Literal], *, engine: str = "") -> None:
        known = [
            Sign(_escaped(value.text), value.caseless, of=_NAMES if value.is_name else _ALL)
            for value in literals
        ]
        self._matcher = _matcher(known, engine) if known else None
        self._detectors = _detectors(known)

    def regions(self, piece: bytes) -> list[Region]:
        if self._matcher is None:
            return []
        return _lines_of(self._matcher, self._detectors, piece)


def _detectors(signs: Sequence[Sign]) -> tuple[int, ...]:
    return tuple(sign.of for sign in signs)


def _lines_of(matcher: _Matcher, detectors: Sequence[int], piece: bytes) -> list[Region]:
    """The line of each match, once for a kind of detector: most lines that hold one match hold
    several.
    """
    found: list[Region] = []
    begin = stop = seen = 0

    def keep(number: int, _start: int, end: int, _flags: int, _context: Any) -> None:
        nonlocal begin, stop, seen
        wanted = detectors[number]
        if not begin < end <= stop:
            begin = piece.rfind(b"\n", 0, end - 1) + 1
            stop = piece.find(b"\n", end - 1)
            if stop < 0:
                stop = len(piece)
        elif wanted == seen:
            return
        seen = wanted
        found.append((begin, stop, wanted))

    matcher.scan(piece, keep)
    return found


def _encoded(matcher: _Matcher, piece: bytes) -> list[Region]:
    """Lines with an unbroken run that says something once it is decoded, and those over which one
    may go on.
    """
    found: list[Region] = []

    def keep(_number: int, start: int, end: int, _flags: int, _context: Any) -> None:
        is_long = end - 1 - start >= _WRAPPED_LINE
        if is_long or _says_something(piece[start : end - 1]):
            after = _line_end(piece, end - 1) + 1 if is_long else end - 2
            found.append((piece.rfind(b"\n", 0, start) + 1, _line_end(piece, after), _ALL))

    matcher.scan(piece, keep)
    return found


def _key_blocks(matcher: _Matcher, piece: bytes) -> list[Region]:
    found: list[Region] = []

    def keep(_number: int, _start: int, end: int, _flags: int, _context: Any) -> None:
        begin = piece.rfind(b"\n", 0, max(0, end - 1)) + 1
        found.append((begin, _line_end(piece, max(0, _block_end(piece, end) - 1)), _ALL))

    matcher.scan(piece, keep)
    return found


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


def merged(found: list[Region]) -> list[Region]:
    """In order; as one those that overlap, and those that touch and want the same."""
    joined: list[Region] = []
    last_begin, last_stop, last_wanted = -1, -2, 0
    for begin, stop, wanted in sorted(found):
        if begin < last_stop or begin == last_begin:
            last_stop = max(last_stop, stop)
            if wanted | last_wanted != last_wanted:
                last_wanted |= wanted
                if len(joined) > 1 and joined[-2][1:] == (last_begin - 1, last_wanted):
                    joined.pop()
                    last_begin = joined[-1][0]
            joined[-1] = (last_begin, last_stop, last_wanted)
        elif begin == last_stop + 1 and wanted == last_wanted:
            last_stop = stop
            joined[-1] = (last_begin, last_stop, last_wanted)
        else:
            last_begin, last_stop, last_wanted = begin, stop, wanted
            joined.append((begin, stop, wanted))
    return joined


@lru_cache(maxsize=32)
def _compiled(signs: tuple[Sign, ...], engine: str, *, with_start: bool = False) -> "_Matcher":
    """Once a process: the expressions take a fifth of a second, the known values next to
    nothing.
    """
    return _matcher(signs, engine, with_start=with_start) if engine else _Paying(signs, with_start)


_PAYS_FROM = 1 << 18
"""Bytes. Python reads 0.8 s a megabyte, and hyperscan next to nothing once its expressions are
compiled.
"""


class _Paying:
    """Python's own expressions as long as they read a text sooner than hyperscan could begin to."""

    def __init__(self, signs: Sequence[Sign], with_start: bool) -> None:
        self._signs = signs
        self._with_start = with_start
        self._left = _PAYS_FROM
        self._now: _Matcher = _Plain(signs)

    def scan(self, piece: bytes, on_hit: OnHit) -> None:
        if self._left > 0:
            self._left -= len(piece)
            if self._left <= 0:
                self._now = _matcher(self._signs, HYPERSCAN, with_start=self._with_start)
        self._now.scan(piece, on_hit)


def _matcher(signs: Sequence[Sign], engine: str, *, with_start: bool = False) -> "_Matcher":
    if engine != PLAIN:
        try:
            return _Hyperscan(signs, with_start)
        except ImportError:
            pass
    return _Plain(signs)


class _Hyperscan:
    def __init__(self, signs: Sequence[Sign], with_start: bool) -> None:
        import hyperscan

        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        flags = [
            hyperscan.HS_FLAG_MULTILINE
            | (hyperscan.HS_FLAG_CASELESS if sign.caseless else 0)
            | (hyperscan.HS_FLAG_SOM_LEFTMOST if with_start else 0)
            for sign in signs
        ]
        patterns = [sign.pattern.encode() for sign in signs]
        numbers = list(range(len(patterns)))
        self._database.compile(
            expressions=patterns, ids=numbers, elements=len(patterns), flags=flags
        )

    def scan(self, piece: bytes, on_hit: OnHit) -> None:
        self._database.scan(piece, match_event_handler=on_hit)


class _Plain:
    """The standard library alone, one expression after the other."""

    def __init__(self, signs: Sequence[Sign]) -> None:
        self._patterns = [
            re.compile(
                sign.pattern.encode(),
                re.MULTILINE | (re.IGNORECASE if sign.caseless else re.NOFLAG),
            )
            for sign in signs
        ]

    def scan(self, piece: bytes, on_hit: OnHit) -> None:
        for number, pattern in enumerate(self._patterns):
            for match in pattern.finditer(piece):
                on_hit(number, match.start(), match.end(), 0, None)


def _escaped(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in data)
