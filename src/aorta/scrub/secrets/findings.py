"""What a detector says: here is something that may not leave, and what kind of thing it is."""

import re
from bisect import bisect_left
from collections.abc import Iterable
from enum import IntFlag, StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """Strongest first: where two findings overlap, the stronger names the placeholder of both."""

    CREDENTIAL = "SECRET"
    TEXT = "TEXT"  # matched a pattern of the user
    EMAIL = "EMAIL"
    PATH = "PATH"
    IPV4 = "IPV4"
    IPV6 = "IPV6"
    MAC = "MAC"
    HOST = "HOST"
    USER = "USER"


GROUPS: dict[Kind, str] = {
    Kind.CREDENTIAL: "secrets",
    Kind.TEXT: "patterns",
    Kind.PATH: "paths",
    Kind.EMAIL: "addresses",
    Kind.IPV4: "addresses",
    Kind.IPV6: "addresses",
    Kind.MAC: "addresses",
    Kind.HOST: "addresses",
    Kind.USER: "names",
}
"""How counts are reported: `paths`, `addresses`, `secrets`, `patterns`, `names`."""

PLACEHOLDER = re.compile(rf"<({'|'.join(Kind)}):([1-9]\d*)>")
_STRENGTH = {kind: strength for strength, kind in enumerate(Kind)}


class Detectors(IntFlag):
    """Which of the rules can find something in a line; nearly every line of a log has a sign of one at most."""

    ADDRESSES = 1  # of networks
    COLLECTIVES = 2  # hosts in front of what NCCL and RCCL say
    PATHS = 4
    NAMES = 8  # of hosts and users that are known
    REST = 16
    ALL = 31


class SecretSpan(NamedTuple):
    """`text[start:end]` must go. `value` is what it stands for, which is not the text itself when that is encoded."""

    start: int
    end: int
    kind: Kind
    value: str


def settled(findings: Iterable[SecretSpan], text: str) -> list[SecretSpan]:
    """Findings in order, without overlap, and never touching a placeholder that is already there."""
    merged: list[SecretSpan] = []
    for finding in sorted(findings, key=_order):
        last = merged[-1] if merged else None
        if last is not None and finding.start < last.end:
            merged[-1] = _union(last, finding, text)
        elif finding.start < finding.end:
            merged.append(finding)
    taken = [match.span() for match in PLACEHOLDER.finditer(text)]
    if not taken:
        return merged
    return [part for finding in merged for part in _outside(finding, taken, text)]


def _order(finding: SecretSpan) -> tuple[int, int, int]:
    start, end, kind, _ = finding
    return start, -end, _STRENGTH[kind]


def _union(first: SecretSpan, second: SecretSpan, text: str) -> SecretSpan:
    if second.end <= first.end and _STRENGTH[first.kind] <= _STRENGTH[second.kind]:
        return first
    kind = min(first.kind, second.kind, key=_STRENGTH.__getitem__)
    if (second.start, second.end) == (first.start, first.end):
        return first if kind is first.kind else second
    end = max(first.end, second.end)
    return SecretSpan(first.start, end, kind, text[first.start : end])


def _outside(finding: SecretSpan, taken: list[tuple[int, int]], text: str) -> Iterable[SecretSpan]:
    first = max(0, bisect_left(taken, (finding.start, 0)) - 1)
    last = bisect_left(taken, (finding.end, 0))
    inside = [span for span in taken[first:last] if span[1] > finding.start]
    if not inside:
        yield finding
        return
    at = finding.start
    for start, end in [*inside, (finding.end, finding.end)]:
        if at < start:
            yield SecretSpan(at, start, finding.kind, text[at:start])
        at = max(at, end)
