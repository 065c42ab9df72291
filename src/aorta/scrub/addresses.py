"""Addresses and names of machines and people: IPv4, IPv6, MAC, e-mail, host names."""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache

from aorta.scrub.findings import Kind, SecretSpan, hinted, hinted_in_line, lines_at, occurrences
from aorta.scrub.vocabulary import (
    DOMAINS_AND_CODE,
    DOMAINS_WITH_A_DASH,
    MONTHS,
    NOBODY,
    ONLY_DOMAINS,
    PUBLIC_DOMAINS,
    words,
)

# A point or a colon first, what stands before it after that: digits are everywhere in a log, and
# this order is fast.
_OCTETS = ("[0-9]", "[1-9][0-9]", "(?:1[0-9][0-9]|2[0-4][0-9]|25[0-5])")
_OCTET = f"(?:{'|'.join(reversed(_OCTETS))})"
_FIRST_OCTET = "|".join(rf"(?<=(?<![A-Za-z0-9.])({octet})\.)" for octet in _OCTETS)
_IPV4 = re.compile(  # which group matched says how long the first number is
    rf"\.(?:{_FIRST_OCTET}){_OCTET}\.{_OCTET}\.{_OCTET}(?![A-Za-z0-9]|\.\d)"
)
_DASHED_IPV4 = hinted_in_line(r"(?<![A-Za-z0-9])ip-\d{1,3}(?:-\d{1,3}){3}(?![\w])", "ip-")
_VERSIONED = words(
    "version nvidia cuda cudnn cublas nccl rccl rocm hip driver toolkit firmware torch triton"
)
_VERSION_BEFORE = re.compile(
    r"(?:[vV]|==|[~<>!]=|version[\"']?[ \t]{0,2}[:=]?[ \t]{0,2}[\"']?"
    rf"|\b(?:{'|'.join(sorted(_VERSIONED - {'version'}))})[\w\-]*[\"']?[ \t]{{0,24}}[:=@|"
    rf"]?[ \t]{{0,24}}[\"']?)\Z",
    re.IGNORECASE,
)
_NEAR = 64  # characters before an address that may say that it is a release
_NEVER = 1 << 62
_EVERYWHERE = frozenset({"0.0.0.0", "255.255.255.255"})  # noqa: S104 - named, nothing listens there
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])"
)
_IPV6_SIGN = re.compile(r"::|:(?:[0-9A-Fa-f]{1,4}:){5}")  # without one there are too few groups
_MAC = re.compile(
    r"([:\-])(?<=(?<![\w:\-])[0-9A-Fa-f]{2}[:\-])(?:[0-9A-Fa-f]{2}\1){4,18}[0-9A-Fa-f]{2}(?![\w:\-])"
)
_DOTTED_MAC = re.compile(
    r"\.(?<=(?<![\w.])[0-9A-Fa-f]{4}\.)[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w.])"
)
_EMAIL = hinted_in_line(
    r"(?<![\w.+\-])[\w.+\-]{1,64}(?:@|%40)(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w])",
    "@",
    "%40",
)
_COMMIT = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,40}\Z")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_ENDING = re.compile(
    rf"\.(?:{'|'.join(sorted(ONLY_DOMAINS | DOMAINS_AND_CODE | DOMAINS_WITH_A_DASH))})(?![\w(\-])(?!\.\w)",
    re.IGNORECASE,
)
_LABELS = re.compile(rf"(?<![\w.\-/@])(?:{_LABEL}\.){{0,7}}{_LABEL}\Z")
_URL_HOST = hinted_in_line(
    r"\b[A-Za-z][A-Za-z0-9+.\-]{1,20}://(?:[^\s/@\"'<>]*@)?(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?)"
    r"(?::\d+)?(?P<path>/[^\s\"'<>`)]*)?",
    "://",
)
_COLLECTIVE_SIGN = re.compile(r"\] [NR]CCL")
_COLLECTIVE = re.compile(r"(?<![\w.\-])([A-Za-z][\w.\-]+):\d+:\d+ \[\d+\] [NR]CCL\Z")
_HOST_CONTEXTS = (
    hinted_in_line(r"\[(?P<host>[A-Za-z][A-Za-z0-9.\-]+)\]:\d{2,5}\b", "]:"),
    hinted_in_line(
        r"\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>[A-Za-z][\w.\-]+) \S+:",
        *(f"{month} " for month in sorted(MONTHS)),
    ),
    hinted_in_line(
        r"\b(?:srun|slurmstepd|salloc|sbatch): error: (?P<host>[A-Za-z][\w\-]*\d[\w\-]*):",
        ": error: ",
    ),
    hinted_in_line(r"\b(?:STEP|JOB) \S+ ON (?P<host>[\w\-\[\],]+)", " on "),
    hinted_in_line(r"\b(?:remote )?peer (?P<host>[A-Za-z][\w.\-]*)(?:<|&lt;)", "peer "),
    hinted_in_line(
        r"\([\"']?(?P<host>[A-Za-z][\w.]*-[\w.\-]*|"
        r"[A-Za-z][\w.]*\d[\w.]*(?=[\"']?, ?\d{5}\)))[\"']?, ?\d{4,5}\)",
        ", ",
    ),
    hinted_in_line(
        r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER|"
        r"username)[\"']?\s{0,2}[=:][ \t]{0,2}[\"']?"
        r"(?P<user>[A-Za-z_][\w.\-]{0,31})(?![\w/@:])",
        "user",
        "logname",
    ),
    hinted(
        r"\b(?:ssh|scp|ping|rsync)\s+(?:-\S+\s+)*(?:[\w.\-]+@)?(?P<host>[A-Za-z][A-Za-z0-9.\-]*\d[A-Za-z0-9.\-]*)\b",
        "ssh",
        "scp",
        "ping",
        "rsync",
    ),
    hinted_in_line(
        r"(?<![\w.+\-])(?P<user>[a-z_][\w.\-]{0,31})@(?P<host>[A-Za-z][A-Za-z0-9\-]+)(?![\w.])", "@"
    ),
    hinted(
        r"\b(?:[Hh]ost ?[Nn]ame|HOSTNAME|HOST|NODE_NAME|node_name|nodename|node|host|MASTER_ADDR|"
        r"master_addr|"
        r"SLURM(?:D|_)[A-Z_]*NODE(?:NAME|LIST)|rdzv_endpoint|rdzv-endpoint|rdzv_host)"
        r"[\"']?\s{0,2}[=:]\s{0,2}[\"']?(?P<host>[A-Za-z][\w.\-\[\],]*[\d\-.][\w.\-\[\],]*)",
        "host",
        "node",
        "master_addr",
        "rdzv",
    ),
)


def addresses_in(text: str) -> Iterator[SecretSpan]:
    """Of networks: each is one by its own shape."""
    yield from _ip_addresses(text)
    for pattern, before in ((_MAC, 2), (_DOTTED_MAC, 4)):
        for found in pattern.finditer(text):
            start, end = found.start() - before, found.end()
            yield SecretSpan(start, end, Kind.MAC, text[start:end])


def mail_addresses_in(text: str) -> Iterator[SecretSpan]:
    for rule, kind in ((_EMAIL, Kind.EMAIL), (_DASHED_IPV4, Kind.HOST)):
        for match in rule.finditer(text):
            if not match.group().startswith("git@"):
                yield SecretSpan(match.start(), match.end(), kind, match.group())


def hosts_in(text: str) -> Iterator[SecretSpan]:
    """Names of machines and logins that their surroundings give away."""
    for match in _URL_HOST.finditer(text):
        host = match["host"]
        if "." not in host and not any(c.isdigit() or c == "-" for c in host):
            continue
        if not _names_somebody(host):
            continue
        yield SecretSpan(match.start("host"), match.end("host"), Kind.HOST, host)
        path = match["path"]
        if path and len(path) > 1:
            yield SecretSpan(match.start("path") + 1, match.end("path"), Kind.PATH, path[1:])
    for pattern in _HOST_CONTEXTS:
        for match in pattern.finditer(text):
            if _COMMIT.match(match.groupdict().get("host") or ""):
                continue  # `jax@c8b61e2f40` is a package and its commit
            for group, value in match.groupdict().items():
                if _names_somebody(value):
                    kind = Kind.USER if group == "user" else Kind.HOST
                    yield SecretSpan(match.start(group), match.end(group), kind, value)
    yield from _domains_in(text)


def hosts_of_collectives_in(text: str) -> Iterator[SecretSpan]:
    """`gpu-07:4711:4712 [0] NCCL INFO …`, the prefix of every line that NCCL and RCCL write."""
    for sign in _COLLECTIVE_SIGN.finditer(text):
        match = _COLLECTIVE.search(text, text.rfind("\n", 0, sign.start()) + 1, sign.end())
        if match is not None:
            host = match[1]
            if _names_somebody(host) and not _COMMIT.match(host):
                yield SecretSpan(match.start(1), match.end(1), Kind.HOST, host)


def _domains_in(text: str) -> Iterator[SecretSpan]:
    for match in _ENDING.finditer(text):
        labels = _LABELS.search(text, max(0, match.start() - 255), match.start())
        if labels is not None:
            name = text[labels.start() : match.end()]
            if _is_domain(name) and not is_public_domain(name):
                yield SecretSpan(labels.start(), match.end(), Kind.HOST, name)


@lru_cache(maxsize=4096)
def _names_somebody(name: str) -> bool:
    return not (is_generic(name) or is_public_domain(name) or _is_ip(name))


def is_generic(name: str) -> bool:
    """Too common a word to be anybody's name: hiding it would only make the text unreadable."""
    return len(name) < 3 or name.lower() in NOBODY or name.isdigit()


def is_public_domain(host: str) -> bool:
    name = host.lower().rstrip(".")
    while name and name not in PUBLIC_DOMAINS:
        name = name.partition(".")[2]
    return bool(name)


def _ip_addresses(text: str) -> Iterator[SecretSpan]:
    versioned = _VersionWords(text)
    for rest in _IPV4.finditer(text):
        start, end = rest.span()
        start -= rest.lastindex or 0
        value = text[start:end]
        if value not in _EVERYWHERE and not (
            value.startswith("127.") or versioned.announce(text, start)
        ):
            yield SecretSpan(start, end, Kind.IPV4, value)
    for match in _possible_ipv6(text):
        value = match.group()
        groups = [group for group in value.split(":") if group]
        # `c10::d` is C++.
        is_scope = len(groups) < 3 and not re.match(r"[23fF][0-9A-Fa-f]{3}:", value)
        if not is_scope and _says_something(value):
            yield SecretSpan(match.start(), match.end(), Kind.IPV6, value)


class _VersionWords:
    """Where a text names something that has releases. The places asked for come in order."""

    def __init__(self, text: str) -> None:
        self._words = iter(occurrences(text, tuple(_VERSIONED)))
        self._next = next(self._words, _NEVER)
        self._last = -_NEVER

    def announce(self, text: str, at: int) -> bool:
        """Whether what begins here is announced as a release; where no word is near, nothing else
        is looked at.
        """
        while self._next < at:
            self._last, self._next = self._next, next(self._words, _NEVER)
        if at - self._last > _NEAR and text[at - 1 : at] not in ("v", "V", "="):
            return False
        return _VERSION_BEFORE.search(text, max(0, at - _NEAR), at) is not None


def _possible_ipv6(text: str) -> Iterator[re.Match[str]]:
    """Tried only in lines that hold a sign of one: every time of day looks like the beginning of an
    address.
    """
    signs = (sign.start() for sign in _IPV6_SIGN.finditer(text))
    for start, end in lines_at(text, signs):
        yield from _IPV6.finditer(text, start, end)


def _is_domain(name: str) -> bool:
    labels = name.lower().split(".")
    ending = labels[-1]
    if ending in ONLY_DOMAINS:
        return len(labels) > 2 or labels[0] not in {"self", "np", "torch"}
    marked = any("-" in label or label[-1:].isdigit() for label in labels[:-1])
    if ending in DOMAINS_AND_CODE:
        return marked or len(labels) > 2
    return ending in DOMAINS_WITH_A_DASH and any("-" in label for label in labels[:-1])


@lru_cache(maxsize=4096)
def _says_something(text: str) -> bool:
    """An address, and not one that every machine has."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or text == "255.255.255.255")


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
