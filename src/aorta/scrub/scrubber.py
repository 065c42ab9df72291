"""The scrubber: text in, text without secrets and identities out, and a note of every place that
changed.

It works in two steps. *Learning* reads everything that will leave, and remembers each secret and
name it finds; *scrubbing* then takes out what it detects and what it remembers, so that a token
announced in one file is also gone from another where it stands alone. It knows nothing of files,
bundles or verbs.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from aorta.core.templates import TERMINAL_SEQUENCE
from aorta.scrub.addresses import (
    addresses_in,
    hosts_in,
    hosts_of_collectives_in,
    is_generic,
    mail_addresses_in,
)
from aorta.scrub.encodings import unveiled
from aorta.scrub.findings import (
    GROUPS,
    Detectors,
    Kind,
    Placeholders,
    SecretSpan,
    as_file_name,
    settled,
)
from aorta.scrub.known import KnownValues, compiled, patterns_in
from aorta.scrub.paths import paths_in, users_in
from aorta.scrub.secrets import providers_in, secrets_in

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


Taken = tuple[int, int, Kind, str]
"""Begin and end of a stretch of the original, what it was, and what stands there now. Plain, for
there are millions of them.
"""


@dataclass(frozen=True)
class Scrubbed:
    text: str
    before: str = ""
    taken: tuple[Taken, ...] = ()
    where: str = ""

    @cached_property
    def spans(self) -> tuple[Replacement, ...]:
        """For people to look at: made only where somebody does."""
        return self.first_spans(len(self.taken))

    def first_spans(self, most: int) -> tuple[Replacement, ...]:
        return tuple(_spans(self.taken[:most], self.before, self.text, self.where))

    @property
    def counts(self) -> dict[str, int]:
        return count_groups(self.spans)


def count_groups(spans: Sequence[Replacement]) -> dict[str, int]:
    """Replacements by group, every group present."""
    counted = Counter(GROUPS[span.kind] for span in spans)
    return {group: counted[group] for group in dict.fromkeys(GROUPS.values())}


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

    def learn(self, text: str, detectors: Detectors = Detectors.ALL) -> None:
        """Remember what is found here, so that it is known everywhere."""
        self._placeholders.step_over(text)
        if not self.rules.detect:
            return
        found = ((one.kind, one.value) for one in self._findings(text, detectors))
        for kind, value in dict.fromkeys(found):
            self.remember(kind, value)
        for user in users_in(text):
            self.remember(Kind.USER, user)

    def remember(self, kind: Kind, value: str) -> None:
        if value in self._keep or (kind in _MISTAKEN and value in self._names):
            return
        if kind not in _FOUND_BY_SHAPE and (kind is not Kind.PATH or " " in value):
            self._known.add(kind, value)

    def learn_name(self, value: str) -> None:
        """A name that we gave: where it stands in a text of ours, it is not taken for a host, a
        user or an address.
        """
        identity = self.rules.identity
        if value not in identity.users and value not in identity.hosts:
            self._names.add(value)

    def literals(self) -> dict[str, Kind]:
        """Every spelling that is looked for by itself, and what it is."""
        return self._known.literals()

    @property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        return self._patterns

    def name(self, value: str, *, where: str) -> Scrubbed:
        """A name that we gave: only the user's own patterns and what is a credential by its shape
        go.
        """
        return self._without(value, where, self._in_a_name)

    def text(self, text: str, *, where: str = "", detectors: Detectors = Detectors.ALL) -> Scrubbed:
        """Scrubbed text. Scrubbing it again changes nothing."""
        return self._without(text, where, partial(self._settled, detectors=detectors))

    def _without(self, text: str, where: str, find: Callable[[str], list[SecretSpan]]) -> Scrubbed:
        taken: list[Taken] = []
        current = text
        while findings := find(current):
            taken = self._also_taken(taken, findings)
            current = _rendered(text, taken)
        return Scrubbed(current, text, tuple(taken), where)

    def whole(self, value: str, kind: Kind, *, where: str) -> Scrubbed:
        """The value of a name that says it is private: gone as a whole."""
        placeholder = self._placeholders.stand_in(kind, value)
        return Scrubbed(placeholder, value, ((0, len(value), kind, placeholder),), where)

    def file_name(self, name: str) -> str:
        """A path inside the bundle with every part scrubbed, in characters every file system
        takes.
        """
        return "/".join(as_file_name(self.text(part).text) for part in name.split("/"))

    def is_kept(self, value: str) -> bool:
        return value in self._keep

    def _in_a_name(self, text: str) -> list[SecretSpan]:
        found = [*patterns_in(text, self._patterns)]
        if self.rules.detect:
            found += providers_in(text)
        return settled(found, text)

    def _settled(self, text: str, detectors: Detectors) -> list[SecretSpan]:
        return settled(self._findings(text, detectors), text)

    def _findings(
        self, text: str, detectors: Detectors, layers: int = _LAYERS
    ) -> Iterator[SecretSpan]:
        plain = (
            TERMINAL_SEQUENCE.sub(lambda match: " " * len(match.group()), text)
            if "\x1b" in text
            else text
        )
        detected = self._detected(plain, detectors)
        yield from filter(self._may_go, detected) if self._keep or self._names else detected
        if layers == 0 or Detectors.REST not in detectors:
            return
        for start, end, said in unveiled(plain):
            found = settled(self._findings(said, detectors, layers - 1), said)
            if found:
                inner = found[0]
                whole = inner.value if inner.end - inner.start == len(said) else said
                yield SecretSpan(start, end, inner.kind, whole)

    def _may_go(self, finding: SecretSpan) -> bool:
        is_ours = finding.kind in _MISTAKEN and finding.value in self._names
        return finding.value not in self._keep and not is_ours

    def _detected(self, text: str, detectors: Detectors) -> Iterator[SecretSpan]:
        if Detectors.REST in detectors:
            yield from patterns_in(text, self._patterns)
        if Detectors.NAMES in detectors:
            yield from self._known.found_in(text)
        if not self.rules.detect:
            return
        if Detectors.PATHS in detectors:
            yield from paths_in(text, self._roots)
        if Detectors.ADDRESSES in detectors:
            yield from addresses_in(text)
        if Detectors.COLLECTIVES in detectors:
            yield from hosts_of_collectives_in(text)
        if Detectors.REST in detectors:
            yield from secrets_in(text, self.rules.secret_names)
            yield from mail_addresses_in(text)
            for finding in hosts_in(text):
                if finding.kind is Kind.PATH or not is_generic(finding.value):
                    yield finding

    def _also_taken(self, taken: list[Taken], findings: list[SecretSpan]) -> list[Taken]:
        """In order. The offsets of findings are those of the text in which placeholders stand
        already.
        """
        together: list[Taken] = []
        earlier = iter(taken)
        waiting = next(earlier, None)
        shift = 0
        for start, end, kind, value in findings:
            while waiting is not None and waiting[0] - shift <= start:
                shift += waiting[1] - waiting[0] - len(waiting[3])
                together.append(waiting)
                waiting = next(earlier, None)
            stand_in = self._placeholders.stand_in(kind, value)
            together.append((start + shift, end + shift, kind, stand_in))
        if waiting is not None:
            together += (waiting, *earlier)
        return together


def _rendered(text: str, taken: list[Taken]) -> str:
    parts: list[str] = []
    at = 0
    for start, end, _, placeholder in taken:
        parts += (text[at:start], placeholder)
        at = end
    parts.append(text[at:])
    return "".join(parts)


def _spans(taken: Sequence[Taken], text: str, after: str, where: str) -> Iterator[Replacement]:
    """Contexts are taken from the scrubbed text: a neighbour may be as private as the value
    itself.
    """
    line, counted_to, shift = 1, 0, 0
    for start, end, kind, placeholder in taken:
        line += text.count("\n", counted_to, start)
        counted_to = start
        begin, stop = start + shift, start + shift + len(placeholder)
        shift = stop - end
        yield Replacement(
            where or f"line {line}",
            after[max(0, begin - _CONTEXT) : begin].rsplit("\n", 1)[-1],
            text[start:end],
            after[stop : stop + _CONTEXT].split("\n", 1)[0],
            placeholder,
            kind,
        )
