"""Addresses and names of machines and people: IPv4, IPv6, MAC, e-mail, host names."""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache

from aorta.core.secrets.findings import Finding, Kind
from aorta.core.secrets.hints import hinted
from aorta.core.secrets.vocabulary import (
    DOMAINS_AND_CODE,
    DOMAINS_WITH_A_DASH,
    MONTHS,
    NOBODY,
    ONLY_DOMAINS,
    PUBLIC_DOMAINS,
)

_IPV4 = re.compile(r"(?<![A-Za-z0-9.])(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9]|\.\d)")
_DASHED_IPV4 = hinted(r"(?<![A-Za-z0-9])ip-\d{1,3}(?:-\d{1,3}){3}(?![\w])", "ip-")
_VERSION_BEFORE = re.compile(
    r"(?:[vV]|==|[~<>!]=|version[\"']?\s{0,2}[:=]?\s{0,2}[\"']?)\Z", re.IGNORECASE
)
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])"
)
_MAC = hinted(
    r"(?<![\w:\-])(?:[0-9A-Fa-f]{2}([:\-]))(?:[0-9A-Fa-f]{2}\1){4,18}[0-9A-Fa-f]{2}(?![\w:\-])"
    r"|(?<![\w.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w.])",
    ":",
    "-",
    ".",
)
_EMAIL = hinted(
    r"(?<![\w.+\-])[\w.+\-]{1,64}(?:@|%40)(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w])",
    "@",
    "%40",
)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_ENDING = re.compile(
    rf"\.(?:{'|'.join(sorted(ONLY_DOMAINS | DOMAINS_AND_CODE | DOMAINS_WITH_A_DASH))})(?![\w(\-])(?!\.\w)",
    re.IGNORECASE,
)
_LABELS = re.compile(rf"(?<![\w.\-/@])(?:{_LABEL}\.){{0,7}}{_LABEL}\Z")
_URL_HOST = hinted(
    r"\b[A-Za-z][A-Za-z0-9+.\-]{1,20}://(?:[^\s/@\"'<>]*@)?(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?)"
    r"(?::\d+)?(?P<path>/[^\s\"'<>`)]*)?",
    "://",
)
_HOST_CONTEXTS = (
    hinted(
        r"(?<![\w.\-])(?P<host>[A-Za-z][\w.\-]+):\d+:\d+ \[\d+\] (?:NCCL|RCCL)", "] nccl", "] rccl"
    ),
    hinted(r"\[(?P<host>[A-Za-z][A-Za-z0-9.\-]+)\]:\d{2,5}\b", "]:"),
    hinted(
        r"\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>[A-Za-z][\w.\-]+) \S+:",
        *(f"{month} " for month in sorted(MONTHS)),
    ),
    hinted(
        r"\b(?:srun|slurmstepd|salloc|sbatch): error: (?P<host>[A-Za-z][\w\-]*\d[\w\-]*):",
        ": error: ",
    ),
    hinted(r"\bSTEP \S+ ON (?P<host>[\w\-\[\],]+)", "step "),
    hinted(
        r"\b(?:ssh|scp|ping|rsync)\s+(?:-\S+\s+)*(?:[\w.\-]+@)?(?P<host>[A-Za-z][A-Za-z0-9.\-]*\d[A-Za-z0-9.\-]*)\b",
        "ssh",
        "scp",
        "ping",
        "rsync",
    ),
    hinted(
        r"(?<![\w.+\-])(?P<user>[a-z_][\w.\-]{0,31})@(?P<host>[A-Za-z][A-Za-z0-9\-]+)(?![\w.])", "@"
    ),
    hinted(
        r"\b(?:[Hh]ost ?[Nn]ame|HOSTNAME|HOST|NODE_NAME|node_name|nodename|node|host|MASTER_ADDR|master_addr|"
        r"SLURM(?:D|_)[A-Z_]*NODE(?:NAME|LIST)|rdzv_endpoint|rdzv-endpoint|rdzv_host)"
        r"[\"']?\s{0,2}[=:]\s{0,2}[\"']?(?P<host>[A-Za-z][\w.\-\[\],]*[\d\-.][\w.\-\[\],]*)",
        "host",
        "node",
        "master_addr",
        "rdzv",
    ),
)


def addresses_in(text: str) -> Iterator[Finding]:
    yield from _ip_addresses(text)
    for pattern, kind in ((_MAC, Kind.MAC), (_EMAIL, Kind.EMAIL), (_DASHED_IPV4, Kind.HOST)):
        for match in pattern.finditer(text):
            if not match.group().startswith("git@"):
                yield Finding(match.start(), match.end(), kind, match.group())


def hosts_in(text: str) -> Iterator[Finding]:
    """Names of machines and logins that their surroundings give away."""
    for match in _URL_HOST.finditer(text):
        host = match["host"]
        if "." not in host and not any(c.isdigit() or c == "-" for c in host):
            continue
        if not _names_somebody(host):
            continue
        yield Finding(match.start("host"), match.end("host"), Kind.HOST, host)
        path = match["path"]
        if path and len(path) > 1:
            yield Finding(match.start("path") + 1, match.end("path"), Kind.PATH, path[1:])
    for pattern in _HOST_CONTEXTS:
        for match in pattern.finditer(text):
            for group, value in match.groupdict().items():
                if _names_somebody(value):
                    kind = Kind.USER if group == "user" else Kind.HOST
                    yield Finding(match.start(group), match.end(group), kind, value)
    for match in _ENDING.finditer(text):
        labels = _LABELS.search(text, max(0, match.start() - 255), match.start())
        if labels is not None:
            name = text[labels.start() : match.end()]
            if _is_domain(name) and not is_public_domain(name):
                yield Finding(labels.start(), match.end(), Kind.HOST, name)


def _names_somebody(name: str) -> bool:
    return not (is_generic(name) or is_public_domain(name) or _is_ip(name))


def is_generic(name: str) -> bool:
    """Too common a word to be anybody's name: hiding it would only make the text unreadable."""
    return len(name) < 3 or name.lower() in NOBODY or name.isdigit()


def is_public_domain(host: str) -> bool:
    name = host.lower().rstrip(".")
    return any(name == domain or name.endswith(f".{domain}") for domain in PUBLIC_DOMAINS)


def _ip_addresses(text: str) -> Iterator[Finding]:
    for match in _IPV4.finditer(text):
        if _VERSION_BEFORE.search(text, max(0, match.start() - 12), match.start()):
            continue
        if _says_something(match.group()):
            yield Finding(match.start(), match.end(), Kind.IPV4, match.group())
    for match in _IPV6.finditer(text):
        value = match.group()
        groups = [group for group in value.split(":") if group]
        is_scope = len(groups) < 3 and not re.match(
            r"[23fF][0-9A-Fa-f]{3}:", value
        )  # `c10::d` is C++
        if not is_scope and _says_something(value):
            yield Finding(match.start(), match.end(), Kind.IPV6, value)


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
