"""The scrubber: text in, text without secrets and identities out, and a note of every place that changed.

It works in two steps. *Learning* reads everything that will leave, and remembers each secret and name it finds; *scrubbing*
then takes out what it detects and what it remembers, so that a token announced in one file is also gone from another
where it stands alone. It knows nothing of files, bundles or verbs.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from aorta.scrub.addresses import addresses_in, hosts_in, is_generic
from aorta.scrub.encodings import unveiled
from aorta.scrub.known import KnownValues
from aorta.scrub.paths import paths_in, users_in
from aorta.scrub.patterns import compiled, patterns_in
from aorta.scrub.placeholders import Placeholders, as_file_name
from aorta.scrub.secrets.findings import GROUPS, Kind, SecretSpan, settled
from aorta.scrub.secrets.shapes import providers_in, secrets_in

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_LAYERS = 3  # base64 of a percent-encoded JSON string is as deep as real files go
_CONTEXT = 40
_MISTAKEN = frozenset({Kind.HOST, Kind.USER, Kind.IPV4, Kind.IPV6, Kind.MAC})
_FOUND_BY_SHAPE = frozenset({Kind.IPV4, Kind.IPV6, Kind.MAC, Kind.EMAIL})


@dataclass(frozen=True)
class Identity:
    """Who and where this site is, as far as the caller knows. None of it may leave."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()  # home, working directory, mounts: private even below /usr


@dataclass(frozen=True)
class Rules:
    """What to take out. `detect=False` leaves only the user's own patterns."""

    patterns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # secrets that are known already
    secret_names: tuple[str, ...] = ()  # globs of variable and key names, besides the built-in ones
    keep: tuple[str, ...] = ()  # values that look private and are not
    identity: Identity = field(default_factory=Identity)
    detect: bool = True


@dataclass(frozen=True)
class Replacement:
    """One replaced stretch, with enough around it to judge it by."""

    where: str
    before: str
    value: str
    after: str
    placeholder: str
    kind: Kind


@dataclass(frozen=True)
class Scrubbed:
    text: str
    spans: tuple[Replacement, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        return count_groups(self.spans)


def count_groups(spans: Sequence[Replacement]) -> dict[str, int]:
    """Replacements by group, every group present."""
    counted = Counter(GROUPS[span.kind] for span in spans)
    return {group: counted[group] for group in dict.fromkeys(GROUPS.values())}


@dataclass(frozen=True)
class _Piece:
    """A stretch of the original: as it was, or with what stands in for it."""

    start: int
    end: int
    finding: SecretSpan | None = None
    placeholder: str = ""


class Scrubber:
    """One scrubber serves one bundle: the same value has the same placeholder in all of it."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._patterns = compiled(self.rules.patterns)
        self._keep = frozenset(self.rules.keep)
        self._known = KnownValues()
        self._names: set[str] = set()
        self._placeholders = Placeholders()
        identity = self.rules.identity
        self._roots = tuple(
            root.rstrip("/") for root in identity.roots if root.count("/") > 0 and root != "/"
        )
        for kind, values in ((Kind.USER, identity.users), (Kind.HOST, identity.hosts)):
            for value in values:
                self._known.add(kind, value)
        for value in self.rules.values:
            self._known.add(Kind.CREDENTIAL, value)
        for root in self._roots:
            if " " in root:
                self._known.add(Kind.PATH, root)

    def learn(self, text: str) -> None:
        """Remember what is found here, so that it is known everywhere."""
        self._placeholders.step_over(text)
        if not self.rules.detect:
            return
        for finding in self._findings(text, _LAYERS):
            self.remember(finding.kind, finding.value)
        for user in users_in(text):
            self.remember(Kind.USER, user)

    def remember(self, kind: Kind, value: str) -> None:
        if value in self._keep or (kind in _MISTAKEN and value in self._names):
            return
        if kind not in _FOUND_BY_SHAPE and (kind is not Kind.PATH or " " in value):
            self._known.add(kind, value)

    def learn_name(self, value: str) -> None:
        """A name that we gave: where it stands in a text of ours, it is not taken for a host, a user or an address."""
        identity = self.rules.identity
        if value not in identity.users and value not in identity.hosts:
            self._names.add(value)

    def literals(self) -> list[tuple[str, bool]]:
        """(spelling, whatever its case) of everything that is looked for by itself."""
        return self._known.literals()

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        return self._patterns

    def name(self, value: str, *, where: str) -> Scrubbed:
        """A name that we gave: only the user's own patterns and what is a credential by its shape go."""
        return self._without(value, where, self._in_a_name)

    def text(self, text: str, *, where: str = "") -> Scrubbed:
        """Scrubbed text. Scrubbing it again changes nothing."""
        return self._without(text, where, self._settled)

    def _without(self, text: str, where: str, find: Callable[[str], list[SecretSpan]]) -> Scrubbed:
        pieces = [_Piece(0, len(text))]
        current = text
        while findings := find(current):
            pieces = self._replaced(pieces, findings, text)
            current = "".join(
                piece.placeholder if piece.finding else text[piece.start : piece.end]
                for piece in pieces
            )
        if current == text:
            return Scrubbed(text)
        return Scrubbed(current, tuple(_spans(pieces, text, current, where)))

    def whole(self, value: str, kind: Kind, *, where: str) -> Scrubbed:
        """The value of a name that says it is private: gone as a whole."""
        placeholder = self._placeholders.stand_in(kind, value)
        return Scrubbed(placeholder, (Replacement(where, "", value, "", placeholder, kind),))

    def file_name(self, name: str) -> str:
        """A path inside the bundle with every part scrubbed, in characters every file system takes."""
        return "/".join(as_file_name(self.text(part).text) for part in name.split("/"))

    def is_kept(self, value: str) -> bool:
        return value in self._keep

    def _in_a_name(self, text: str) -> list[SecretSpan]:
        found = [*patterns_in(text, self._patterns)]
        if self.rules.detect:
            found += providers_in(text)
        return settled(found, text)

    def _settled(self, text: str) -> list[SecretSpan]:
        return settled(self._findings(text, _LAYERS), text)

    def _findings(self, text: str, layers: int) -> Iterator[SecretSpan]:
        plain = _ANSI.sub(lambda match: " " * len(match.group()), text)
        for finding in self._detected(plain):
            is_ours = finding.kind in _MISTAKEN and finding.value in self._names
            if finding.value not in self._keep and not is_ours:
                yield finding
        if layers == 0:
            return
        for start, end, said in unveiled(plain):
            inner = next(iter(settled(self._findings(said, layers - 1), said)), None)
            if inner is not None:
                whole = inner.value if inner.end - inner.start == len(said) else said
                yield SecretSpan(start, end, inner.kind, whole)

    def _detected(self, text: str) -> Iterator[SecretSpan]:
        yield from patterns_in(text, self._patterns)
        yield from self._known.found_in(text)
        if not self.rules.detect:
            return
        yield from secrets_in(text, self.rules.secret_names)
        yield from paths_in(text, self._roots)
        yield from addresses_in(text)
        for finding in hosts_in(text):
            if finding.kind is Kind.PATH or not is_generic(finding.value):
                yield finding

    def _replaced(
        self, pieces: list[_Piece], findings: list[SecretSpan], text: str
    ) -> list[_Piece]:
        """Split the untouched pieces at the findings, whose offsets are those of the current text."""
        after: list[_Piece] = []
        waiting = iter(findings)
        finding = next(waiting, None)
        offset = 0
        for piece in pieces:
            length = len(piece.placeholder) if piece.finding else piece.end - piece.start
            at = piece.start
            while finding is not None and finding.start < offset + length:
                start = piece.start + finding.start - offset
                end = piece.start + finding.end - offset
                if at < start:
                    after.append(_Piece(at, start))
                placeholder = self._placeholders.stand_in(finding.kind, finding.value)
                after.append(_Piece(start, end, finding, placeholder))
                at = end
                finding = next(waiting, None)
            if piece.finding:
                after.append(piece)
            elif at < piece.end:
                after.append(_Piece(at, piece.end))
            offset += length
        return after


def _spans(pieces: list[_Piece], text: str, after: str, where: str) -> Iterator[Replacement]:
    """Contexts are taken from the scrubbed text: a neighbour may be as private as the value itself."""
    line, counted_to, at = 1, 0, 0
    for piece in pieces:
        length = len(piece.placeholder) if piece.finding else piece.end - piece.start
        start, end = at, at + length
        at = end
        if piece.finding is None:
            continue
        line += text.count("\n", counted_to, piece.start)
        counted_to = piece.start
        yield Replacement(
            where or f"line {line}",
            after[max(0, start - _CONTEXT) : start].rsplit("\n", 1)[-1],
            text[piece.start : piece.end],
            after[end : end + _CONTEXT].split("\n", 1)[0],
            piece.placeholder,
            piece.finding.kind,
        )
