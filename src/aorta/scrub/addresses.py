"""Addresses and names of machines and people: IPv4, IPv6, MAC, e-mail, host names."""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache

from aorta.scrub.findings import Kind, SecretSpan, as_looked_at, rule
from aorta.scrub.vocabulary import (
    DOMAINS_AND_CODE,
    DOMAINS_WITH_A_DASH,
    HOST_WORDS,
    INDEXED_WORDS,
    MONTHS,
    NOBODY,
    ONLY_DOMAINS,
    PUBLIC_DOMAINS,
    words,
)

LOOKED_FOR = "IPv4, IPv6, MAC and e-mail addresses, host names in log prefixes, user names"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rule(
    rf"(?<![A-Za-z0-9.]){_OCTET}(?:\.{_OCTET}){{3}}(?![A-Za-z0-9]|\.\d)", shape=r"0\.0\.0\.0"
)
_DASHED_IPV4 = rule(r"(?<![A-Za-z0-9])ip-\d{1,3}(?:-\d{1,3}){3}(?![\w])", "ip-")
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
_EVERYWHERE = frozenset({"0.0.0.0", "255.255.255.255"})  # noqa: S104 - named, nothing listens there
_IPV6 = rule(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])",
    # Every time of day looks like the beginning of one; a whole one has `::` or many groups. A
    # shape that begins with its rarest character is searched for fast.
    shape=r":(?:(?<![G-Zg-z_.:]:):|(?:[0A-Fa-f]{1,4}:){5})",
)
_MAC = rule(
    r"(?<![\w:\-])[0-9A-Fa-f]{2}([:\-])(?:[0-9A-Fa-f]{2}\1){4,18}[0-9A-Fa-f]{2}(?![\w:\-])"
    r"|(?<![\w.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w.])",
    shape=r"[:\-.](?:(?<=[:\-])[0A-Fa-f]{1,2}(?:[:\-][0A-Fa-f]{1,2}){4}"
    r"|(?<=\.)[0A-Fa-f]{1,4}\.[0A-Fa-f]{1,4}(?![\w.]))",
)
_EMAIL = rule(
    r"(?<![\w.+\-])[\w.+\-]{1,64}(?:@|%40)(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w])",
    "@|%0",
)
_COMMIT = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,40}\Z")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_DOMAINS = "|".join(sorted(ONLY_DOMAINS | DOMAINS_AND_CODE | DOMAINS_WITH_A_DASH))
_ENDING = rule(_END := rf"(?i)\.(?=[A-Za-z])(?:{_DOMAINS})(?![\w(\-])(?!\.\w)", shape=_END)
_LABELS = re.compile(rf"(?<![\w.\-/@])(?:{_LABEL}\.){{0,7}}{_LABEL}\Z")
_URL_HOST = rule(
    r"\b[A-Za-z][A-Za-z0-9+.\-]{1,20}://(?:[^\s/@\"'<>]*@)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?)"
    r"(?::\d+)?(?P<path>/[^\s\"'<>`)]*)?",
    "://",
)
_COLLECTIVE = rule(
    r"(?<![\w.\-])([A-Za-z][\w.\-]++):[0-9]+:[0-9]+ \[[0-9]+\] [NR]CCL",
    "0:0 [0] nccl|0:0 [0] rccl",
)
_HOST_CONTEXTS = (
    rule(r"\[(?P<host>[A-Za-z][A-Za-z0-9.\-]+)\]:[0-9]{2,5}\b", "]:0"),
    rule(
        r"\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>[A-Za-z][\w.\-]+) \S+:",
        "|".join(f"{month} " for month in sorted(MONTHS)),
    ),
    rule(
        r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+\-]\d\d:?\d\d) (?P<host>[A-Za-z][\w.\-]*\d[\w.\-]*) "
        r"(?:kernel|systemd|slurm|sshd|dockerd|kubelet)[\w.\-]*(?:\[\d+\])?:",
        "kernel|systemd|slurm|sshd|dockerd|kubelet",
    ),
    rule(
        r"\b(?:srun|slurmstepd|salloc|sbatch): error: (?P<host>[A-Za-z][\w\-]*\d[\w\-]*):",
        "srun: error|slurmstepd: error|salloc: error|sbatch: error",
    ),
    rule(r"\b(?:STEP|JOB) \S+ ON (?P<host>[\w\-\[\],]+)", " on "),
    rule(r"\b(?:remote )?peer (?P<host>[A-Za-z][\w.\-]*)(?:<|&lt;)", "peer "),
    rule(
        r"\([\"']?(?P<host>[A-Za-z][\w.]*-[\w.\-]*|"
        r"[A-Za-z][\w.]*\d[\w.]*(?=[\"']?, ?[0-9]{5}\)))[\"']?, ?[0-9]{4,5}\)",
        ", 0)|,0)",
    ),
    rule(
        r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER|"
        r"username)[\"']?\s{0,2}[=:][ \t]{0,2}[\"']?"
        r"(?P<user>[A-Za-z_][\w.\-]{0,31})(?![\w/@:])",
        "user|logname",
    ),
    rule(
        r"\b(?:ssh|scp|ping|rsync)\s+(?:-\S+\s+)*(?:[\w.\-]+@)?"
        r"(?P<host>[A-Za-z][A-Za-z0-9.\-]*\d[A-Za-z0-9.\-]*)\b",
        "ssh|scp|ping|rsync",
    ),
    rule(
        r"(?<![\w.+\-])(?P<user>[a-z_][\w.\-]{0,31})@(?P<host>[A-Za-z][A-Za-z0-9\-]+)(?![\w.])", "@"
    ),
    rule(
        r"\b(?:[Hh]ost ?[Nn]ame|HOSTNAME|HOST|NODE_NAME|node_name|nodename|node|host|MASTER_ADDR|"
        r"master_addr|"
        r"SLURM(?:D|_)[A-Z_]*NODE(?:NAME|LIST)|rdzv_endpoint|rdzv-endpoint|rdzv_host)"
        r"[\"']?\s{0,2}[=:]\s{0,2}[\"']?(?P<host>[A-Za-z][\w.\-\[\],]*[\d\-.][\w.\-\[\],]*)"
        r"(?![\w.\-\[\],(])",
        "host|node|master_addr|rdzv",
    ),
)

# `pdsh`, `clush`, `dsh` and `parallel` put the machine's name in front of each line.
_LINE_OF_A_HOST = re.compile(
    r"\[?(?=[A-Za-z\-]*[0-9])(?P<host>[A-Za-z][A-Za-z0-9\-]{1,62})(?:: |\][: ])"
)
_HOST_WITH_NUMBER = re.compile(rf"(?:{'|'.join(sorted(HOST_WORDS))})\d{{2,}}\Z", re.IGNORECASE)
_FIRST_WORD = re.compile(r"[A-Za-z]+")


def machines_in(text: str) -> Iterator[SecretSpan]:
    """Addresses by their own shape, names of machines and people by what stands around them."""
    yield from _addresses_in(text)
    yield from _hosts_of_collectives_in(text)
    yield from _mail_addresses_in(text)
    for finding in _hosts_in(text):
        if finding.kind is Kind.PATH or not is_generic(finding.value):
            yield finding


def _addresses_in(text: str) -> Iterator[SecretSpan]:
    for match in _IPV4.finditer(text):
        value = match.group()
        if value not in _EVERYWHERE and not (
            value.startswith("127.") or _is_a_release(text, match.start())
        ):
            yield SecretSpan(match.start(), match.end(), Kind.IPV4, value)
    for match in _IPV6.finditer(text):
        value = match.group()
        groups = [group for group in value.split(":") if group]
        # `c10::d` is C++.
        is_scope = len(groups) < 3 and not re.match(r"[23fF][0-9A-Fa-f]{3}:", value)
        if not is_scope and _says_something(value):
            yield SecretSpan(match.start(), match.end(), Kind.IPV6, value)
    for match in _MAC.finditer(text):
        yield SecretSpan(match.start(), match.end(), Kind.MAC, match.group())


def _mail_addresses_in(text: str) -> Iterator[SecretSpan]:
    for pattern, kind in ((_EMAIL, Kind.EMAIL), (_DASHED_IPV4, Kind.HOST)):
        for match in pattern.finditer(text):
            if not match.group().startswith("git@"):
                yield SecretSpan(match.start(), match.end(), kind, match.group())


def _hosts_in(text: str) -> Iterator[SecretSpan]:
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
    yield from _hosts_before_lines(text)


def _hosts_before_lines(text: str) -> Iterator[SecretSpan]:
    for start, end in as_looked_at(text).lines_like(_may_begin_with_host):
        match = _LINE_OF_A_HOST.match(text, start, end)
        if match is not None and _is_before_lines(match["host"]):
            yield SecretSpan(match.start(1), match.end(1), Kind.HOST, match[1])


def _may_begin_with_host(shape: str) -> bool:
    match = _LINE_OF_A_HOST.match(shape)
    if match is None:
        return False
    return bool(_HOST_WITH_NUMBER.match(match["host"] + "0")) or not _is_indexed(match["host"])


def _is_indexed(name: str) -> bool:
    """`rank-12`, `resnet-50`, `sha256`."""
    first = _FIRST_WORD.match(name)
    return first is not None and first[0].lower() in INDEXED_WORDS and name.count("-") < 2


@lru_cache(maxsize=4096)
def _is_before_lines(name: str) -> bool:
    """`gpu-a100-017`, `dgx07`."""
    if _HOST_WITH_NUMBER.match(name):
        return True
    last = name.rpartition("-")[2]
    is_numbered = "-" in name and last[-1:].isdigit() and (name.count("-") > 1 or len(last) > 1)
    return is_numbered and not _is_indexed(name)


def _hosts_of_collectives_in(text: str) -> Iterator[SecretSpan]:
    """`gpu-07:4711:4712 [0] NCCL INFO …`, the prefix of every line that NCCL and RCCL write."""
    for line in as_looked_at(text).lines_like(_COLLECTIVE.may_match):
        match = _COLLECTIVE.pattern.search(text, *line)
        if match is not None and _names_somebody(match[1]) and not _COMMIT.match(match[1]):
            yield SecretSpan(match.start(1), match.end(1), Kind.HOST, match[1])


def _domains_in(text: str) -> Iterator[SecretSpan]:
    for match in _ENDING.finditer(text):
        labels = _LABELS.search(text, max(0, match.start() - 255), match.start())
        if labels is not None:
            name = text[labels.start() : match.end()]
            if _is_domain(name) and not is_public_domain(name):
                yield SecretSpan(labels.start(), match.end(), Kind.HOST, name)


@lru_cache(maxsize=4096)
def _names_somebody(name: str) -> bool:
    is_code = name.startswith(("self.", "cls."))
    return not (is_code or is_generic(name) or is_public_domain(name) or _is_ip(name))


def is_generic(name: str) -> bool:
    """Too common a word to be anybody's name: hiding it would only make the text unreadable."""
    return len(name) < 3 or name.lower() in NOBODY or name.isdigit()


def is_public_domain(host: str) -> bool:
    name = host.lower().rstrip(".")
    while name and name not in PUBLIC_DOMAINS:
        name = name.partition(".")[2]
    return bool(name)


def _is_a_release(text: str, at: int) -> bool:
    """Whether what begins here is announced as a version: `nccl 2.21.5.1`, `==12.1.3.1`."""
    before = text[max(0, at - _NEAR) : at]
    word = before.rstrip(" \t:=@|\"'").rpartition(" ")[2]
    return not word.isdigit() and _VERSION_BEFORE.search(before) is not None


def _is_domain(name: str) -> bool:
    labels = name.lower().split(".")
    ending = labels[-1]
    if name.endswith(ending.upper()) and not name.isupper():
        return False  # `logging.INFO` is a constant
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
