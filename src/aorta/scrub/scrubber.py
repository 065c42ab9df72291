"""The scrubber: text in, text without secrets and identities out, and a note of every replacement.

*Learning* reads all that will leave and remembers each secret and name; *scrubbing* takes out those
too, so that a token announced in one file is also gone from another where it stands alone.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aorta.core.templates import TERMINAL_SEQUENCE
from aorta.scrub import addresses, assignments, known, known_keys, logins, paths
from aorta.scrub.findings import (
    Kind,
    Placeholders,
    SecretSpan,
    as_looked_at,
    as_plain_word,
    without_overlap,
)
from aorta.scrub.known import KnownValues, behind_backslashes, compiled, decoded, patterns_in
from aorta.scrub.known_keys import known_keys_in
from aorta.scrub.secrets import secrets_in

LOOKED_FOR = tuple(
    detector.LOOKED_FOR for detector in (known_keys, assignments, logins, paths, addresses, known)
)

_LAYERS = 3  # base64 of a percent-encoded JSON string is as deep as real files go
_MOST_KEPT = 500_000  # findings of texts that were learnt from: about 100 MB
_STRING_OR_COMMENT = re.compile(
    r"#[^\n]*|(?s:\"\"\".*?(?:\"\"\"|\Z)|\'\'\'.*?(?:\'\'\'|\Z))"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?"
)
_AFTER_ESCAPE = re.compile(r"[^\\]\\[nrt]\Z")
_MISTAKEN = frozenset({Kind.HOST, Kind.USER, Kind.IPV4, Kind.IPV6, Kind.MAC})
_FOUND_BY_SHAPE = frozenset({Kind.IPV4, Kind.IPV6, Kind.MAC, Kind.EMAIL})


@dataclass(frozen=True)
class Identity:
    """Who and where this site is."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()  # home, working directory, mounts: private even below /usr


@dataclass(frozen=True)
class Rules:
    """What to take out; `detect=False`: only the user's own patterns."""

    patterns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # secrets that are known already
    keep: tuple[str, ...] = ()  # values that look private and are not
    identity: Identity = field(default_factory=Identity)
    detect: bool = True


class Replacement(NamedTuple):
    where: str
    value: str
    placeholder: str
    kind: Kind


@dataclass(frozen=True)
class Scrubbed:
    text: str
    taken: tuple[Replacement, ...] = ()

    @classmethod
    def of(
        cls, text: str, taken: Iterable[tuple[SecretSpan, str]], where: str = "", line: int = 1
    ) -> "Scrubbed":
        """The text, which begins at this line of its file, with these stretches replaced."""
        parts: list[str] = []
        spans: list[Replacement] = []
        at = 0
        for (start, end, kind, _), placeholder in taken:
            line += 0 if where else text.count("\n", at, start)
            spans.append(Replacement(where or f"line {line}", text[start:end], placeholder, kind))
            line += 0 if where else text.count("\n", start, end)
            parts += (text[at:start], placeholder)
            at = end
        return cls("".join([*parts, text[at:]]), tuple(spans))


class _Found(NamedTuple):
    findings: list[SecretSpan]
    encoded: list[tuple[int, int, str, "_Found"]]  # stretches, what each says, and what is in that

    def everything(self) -> Iterator[SecretSpan]:
        yield from self.findings
        for *_, inner in self.encoded:
            yield from inner.everything()


class Scrubber:
    """The same value has the same placeholder in all that one scrubber is given."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._patterns = compiled(self.rules.patterns)
        self._keep = frozenset(self.rules.keep)
        self._known = KnownValues()
        self._placeholders = Placeholders()
        self._learnt: dict[tuple[int, int, bool], _Found] = {}
        self._room = _MOST_KEPT
        identity = self.rules.identity
        self._roots = tuple(
            root.rstrip("/") for root in identity.roots if root.count("/") > 0 and root != "/"
        )
        for kind, values in (
            (Kind.USER, identity.users),
            (Kind.HOST, identity.hosts),
            (Kind.CREDENTIAL, self.rules.values),
            (Kind.PATH, [root for root in self._roots if " " in root]),
        ):
            for value in values:
                self._known.add(kind, value)

    def learn(self, text: str, *, code: bool = False) -> None:
        """`code`: a value without quotes is an expression."""
        self._placeholders.step_over(text)
        if not self.rules.detect:
            return
        plain = as_looked_at(_without_colours(text))
        found = self._look(plain, code)
        if code:
            found = found._replace(findings=list(_outside_of_code(plain, found.findings)))
        for kind, value in dict.fromkeys((one.kind, one.value) for one in found.everything()):
            self.remember(kind, value)
        for user in paths.users_in(plain):
            self.remember(Kind.USER, user)
        if len(found.findings) < self._room:
            self._room -= len(found.findings)
            self._learnt[hash(text), len(text), code] = found

    def remember(self, kind: Kind, value: str) -> None:
        if value in self._keep:
            return
        if kind not in _FOUND_BY_SHAPE and (kind is not Kind.PATH or " " in value):
            self._known.add(kind, value)

    def name(self, value: str, *, where: str) -> Scrubbed:
        """A name that we gave: only the user's patterns, known secrets and keys by shape go."""
        found = [*patterns_in(value, self._patterns)]
        found += (one for one in self._known.found_in(value) if one.kind is Kind.CREDENTIAL)
        found += known_keys_in(value) if self.rules.detect else ()
        return self.replaced(value, where, without_overlap(found, value))

    def pattern(self, value: str, *, where: str) -> Scrubbed:
        """A regular expression: behind what announces a secret stands there what matches one."""
        found = self._look(value)
        kept = [one for one in found.findings if one.kind is not Kind.CREDENTIAL]
        gone = self._findings(value, found._replace(findings=[*kept, *known_keys_in(value)]))
        return self.replaced(value, where, without_overlap(gone, value))

    def text(self, text: str, *, where: str = "", line: int = 1, code: bool = False) -> Scrubbed:
        found = self._learnt.get((hash(text), len(text), code)) or self._look(text, code)
        gone: Iterable[SecretSpan] = self._findings(text, found)
        if code:
            gone = _outside_of_code(text, gone)
        return self.replaced(text, where, without_overlap(gone, text), line)

    def replaced(
        self, text: str, where: str, findings: Sequence[SecretSpan], line: int = 1
    ) -> Scrubbed:
        stand_in = self._placeholders.stand_in
        return Scrubbed.of(
            text, ((one, stand_in(one.kind, one.value)) for one in findings), where, line
        )

    def whole(self, value: str, kind: Kind, *, where: str) -> Scrubbed:
        """The value of a name that says it is private: gone as a whole."""
        return self.replaced(value, where, [SecretSpan(0, len(value), kind, value)])

    def file_name(self, name: str) -> str:
        """A path inside the bundle, every part scrubbed, in characters any system takes."""
        return "/".join(as_plain_word(self.text(part).text) for part in name.split("/"))

    def _look(self, text: str, code: bool = False, layers: int = _LAYERS) -> _Found:
        plain = as_looked_at(_without_colours(text))
        findings: list[SecretSpan] = []
        if self.rules.detect:
            findings += secrets_in(plain, quoted_only=code)
            findings += paths.paths_in(plain, self._roots)
            findings += addresses.machines_in(plain)
        encoded = [
            (start, end, said, self._look(said, layers=layers - 1))
            for start, end, said in (decoded(plain) if layers else ())
        ]
        return _Found(findings, encoded)

    def _findings(self, text: str, found: _Found) -> Iterator[SecretSpan]:
        """All that goes: what was detected, what is known, and what the user's patterns match."""
        plain = _without_colours(text)
        for start, end, said, inner in found.encoded:
            gone = without_overlap(self._findings(said, inner), said)
            if text[start:end].replace("\\", "") == said:
                yield from (behind_backslashes(one, text[start:end], start) for one in gone)
            elif gone:
                first = gone[0]
                is_all = first.end - first.start == len(said)
                yield SecretSpan(start, end, first.kind, first.value if is_all else said)
        for one in (*found.findings, *self._known.found_in(plain)):
            if one.value not in self._keep:
                yield one
        yield from patterns_in(plain, self._patterns)


def _outside_of_code(text: str, findings: Iterable[SecretSpan]) -> Iterator[SecretSpan]:
    """Without hosts, users and addresses that are names in a Python program."""
    written = [match.span() for match in _STRING_OR_COMMENT.finditer(text)]
    for one in findings:
        at = bisect_right(written, (one.start, len(text))) - 1
        is_written = at >= 0 and one.start < written[at][1]
        if is_written or one.kind not in _MISTAKEN:
            # the n of `\n` is no part of a name: `\USER_1` is no Python
            over = _AFTER_ESCAPE.match(text, max(0, one.start - 2), one.start + 1) is not None
            yield one._replace(start=one.start + over, value=one.value[over:])


def _without_colours(text: str) -> str:
    if "\x1b" not in text:
        return text  # the same object, with what is known of it
    return TERMINAL_SEQUENCE.sub(lambda match: " " * len(match.group()), text)
