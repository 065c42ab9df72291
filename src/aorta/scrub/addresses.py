"""Addresses and names of machines and people: IPv4, IPv6, MAC, e-mail, host names."""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache, partial

from aorta.scrub.findings import Kind, Rule, SecretSpan
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
_COMMIT = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,40}\Z")
_HOST_WITH_NUMBER = re.compile(rf"(?:{'|'.join(sorted(HOST_WORDS))})\d{{2,}}\Z", re.IGNORECASE)
_FIRST_WORD = re.compile(r"[A-Za-z]+")


def _is_ipv4(value: str, match: re.Match[str]) -> bool:
    """An address of this site, and no release: `nccl 2.21.5.1`, `==12.1.3.1`."""
    if value in _EVERYWHERE or value.startswith("127."):
        return False
    before = match.string[max(0, match.start() - _NEAR) : match.start()]
    word = before.rstrip(" \t:=@|\"'").rpartition(" ")[2]
    return word.isdigit() or _VERSION_BEFORE.search(before) is None


@lru_cache(maxsize=4096)
def _says_something(text: str) -> bool:
    """An IPv6 address, and not one that every machine has; `c10::d` is C++."""
    groups = [group for group in text.split(":") if group]
    if len(groups) < 3 and not re.match(r"[23fF][0-9A-Fa-f]{3}:", text):
        return False
    address = _address(text)
    return address is not None and not (address.is_loopback or address.is_unspecified)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_named(value: str, match: re.Match[str]) -> bool:
    """A host or a user; but `jax@c8b61e2f40` is a package and its commit."""
    host = match.groupdict().get("host") or ""
    return _names_somebody(value) and _COMMIT.match(host) is None


def _is_at_private_host(_value: str, match: re.Match[str]) -> bool:
    host = match["host"]
    is_one_word = "." not in host and not any(c.isdigit() or c == "-" for c in host)
    return not is_one_word and _names_somebody(host)


@lru_cache(maxsize=4096)
def _names_somebody(name: str) -> bool:
    is_code = name.startswith(("self.", "cls."))
    return not (is_code or is_generic(name) or is_public_domain(name) or _address(name))


def is_generic(name: str) -> bool:
    """Too common a word to be anybody's name: hiding it would only make the text unreadable."""
    return len(name) < 3 or name.lower() in NOBODY or name.isdigit()


def is_public_domain(host: str) -> bool:
    name = host.lower().rstrip(".")
    while name and name not in PUBLIC_DOMAINS:
        name = name.partition(".")[2]
    return bool(name)


@lru_cache(maxsize=4096)
def _is_before_lines(name: str) -> bool:
    """`gpu-a100-017`, `dgx07`; but not `rank-12`, `resnet-50`, `sha256`."""
    if _HOST_WITH_NUMBER.match(name):
        return True
    last = name.rpartition("-")[2]
    first = _FIRST_WORD.match(name)
    is_indexed = first is not None and first[0].lower() in INDEXED_WORDS and name.count("-") < 2
    is_numbered = "-" in name and last[-1:].isdigit() and (name.count("-") > 1 or len(last) > 1)
    return is_numbered and not is_indexed


def _is_private_domain(name: str, _match: re.Match[str]) -> bool:
    if is_public_domain(name):
        return False
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


_named = partial(Rule, kind=Kind.HOST, is_private=_is_named)
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
# `[rank0]: ` begins every other line of a log.
_INDEXED = (
    rf"(?i:{'|'.join(sorted(INDEXED_WORDS - HOST_WORDS))})(?![A-Za-z])"
    r"[^\-:\]]{0,62}-?[^\-:\]]{0,62}[:\]]"
)
_MACHINE = r"(?=[A-Za-z\-]*[0-9])[A-Za-z][A-Za-z0-9\-]{1,62}"
_FROM_SECOND = re.compile(r"\[|(?<=[0-9])-[0-9,\-]+\]")  # of a list of machines
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_DOMAINS = "|".join(sorted(ONLY_DOMAINS | DOMAINS_AND_CODE | DOMAINS_WITH_A_DASH))
_END = r"(?![\w(\-])(?!\.\w)"
_RULES = (
    Rule(
        rf"(?<![A-Za-z0-9.]){_OCTET}(?:\.{_OCTET}){{3}}(?![A-Za-z0-9]|\.\d)",
        shape=r"0\.0\.0\.0",
        kind=Kind.IPV4,
        is_private=_is_ipv4,
    ),
    Rule(
        r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?"
        r"(?![\w:])",
        # Every time of day looks like the beginning of one; a whole one has `::` or many groups. A
        # shape that begins with its rarest character is searched for fast.
        shape=r":(?:(?<![G-Zg-z_.:]:):|(?:[0A-Fa-f]{1,4}:){5})",
        kind=Kind.IPV6,
        is_private=lambda value, _: _says_something(value),
    ),
    Rule(
        r"(?<![\w:\-])[0-9A-Fa-f]{2}([:\-])(?:[0-9A-Fa-f]{2}\1){4,18}[0-9A-Fa-f]{2}(?![\w:\-])"
        r"|(?<![\w.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}(?![\w.])",
        shape=r"[:\-.](?:(?<=[:\-])[0A-Fa-f]{1,2}(?:[:\-][0A-Fa-f]{1,2}){4}"
        r"|(?<=\.)[0A-Fa-f]{1,4}\.[0A-Fa-f]{1,4}(?![\w.]))",
        kind=Kind.MAC,
    ),
    Rule(
        r"(?<![\w.+\-])(?!git@)[\w.+\-]{1,64}(?:@|%40)(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}"
        r"(?![\w])",
        "@|%0",
        kind=Kind.EMAIL,
    ),
    Rule(r"(?<![A-Za-z0-9])ip-\d{1,3}(?:-\d{1,3}){3}(?![\w])", "ip-", kind=Kind.HOST),
    Rule(
        r"\b[A-Za-z][A-Za-z0-9+.\-]{1,20}://(?:[^\s/@\"'<>]*@)?"
        r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?)"
        r"(?::\d+)?(?:/(?P<path>[^\s\"'<>`)]*))?",
        "://",
        is_private=_is_at_private_host,
    ),
    # The prefix of every line that NCCL and RCCL write; the rest of the line need not be searched.
    _named(
        r"(?<![\w.\-])(?P<host>[A-Za-z][\w.\-]++):[0-9]+:[0-9]+ \[[0-9]+\] [NR]CCL[^\n]*",
        "0:0 [0] nccl|0:0 [0] rccl",
    ),
    # Open MPI puts the machine and the process in front of a line, Ansible the machine.
    Rule(
        rf"\[(?P<host>{_MACHINE})(?:\.[\w.\-]+)?:[0-9]{{3,}}(?::[0-9]+)*\] ",
        ":0] ",
        is_private=lambda value, _: value.count("-") > 1 or _is_before_lines(value),
    ),
    # `gpu-a100-[017-020]`, `gpu-a100-017:29500`, `on node dgx07`, `dgx07 slots=8`.
    Rule(
        rf"(?<![\w.\-])(?P<host>{_MACHINE})(?::[0-9]{{4,5}}(?![\w.:])|[ \t]+slots=)"
        rf"|(?i:\b(?:host|node|node failure on|machine))[ \t]+(?P<of_word>{_MACHINE})(?![\w.\-])"
        r"|(?<![\w.\-])(?P<list>[A-Za-z][A-Za-z0-9\-]*\[[0-9]+-[0-9,\-]+\])",
        shape=r"[A-Za-z\-]0[A-Za-z0\-]*(?::0(?![\w.:])|[ \t]+slots=)"
        r"|(?i:host|node|failure on|machine)[ \t]|\[0-0",
        is_private=lambda value, _: _is_before_lines(_FROM_SECOND.sub("", value)),
        kind=Kind.HOST,
    ),
    _named(
        r"^(?P<host>[A-Za-z][\w.\-]*)(?: \| (?:SUCCESS|CHANGED|FAILED|UNREACHABLE)\b|\s+: ok=[0-9])"
        r"|^(?:ok|changed|fatal|failed|skipping|unreachable): \[(?P<of_task>[A-Za-z][\w.\-]*)\]",
        shape=r"\A(?:[A-Za-z][\w.\-]* \| [A-Z]|[a-z]+: \[[A-Za-z]|[A-Za-z][\w.\-]*\s+: ok=0)",
        flags=re.MULTILINE,
    ),
    _named(
        r"\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<host>[A-Za-z][\w.\-]+) \S+:",
        "|".join(f"{month} " for month in sorted(MONTHS)),
    ),
    _named(
        r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+\-]\d\d:?\d\d) (?P<host>[A-Za-z][\w.\-]*\d[\w.\-]*) "
        r"(?:kernel|systemd|slurm|sshd|dockerd|kubelet)[\w.\-]*(?:\[\d+\])?:",
        "kernel|systemd|slurm|sshd|dockerd|kubelet",
    ),
    _named(
        r"\b(?:(?:srun|slurmstepd|salloc|sbatch): error|clush|pdsh@[\w.\-]+): "
        r"(?P<host>[A-Za-z][\w\-]*[\d\[][\w\-\[\],]*):",
        "srun: error|slurmstepd: error|salloc: error|sbatch: error|clush|pdsh",
    ),
    _named(
        r"\b(?:STEP|JOB) \S+ ON (?P<host>(?=\S*[0-9])[\w\-\[\],]+)"
        r"|\b(?:remote )?peer (?P<peer>[A-Za-z][\w.\-]*)(?:<|&lt;)"
        r"|\[(?P<in_brackets>[A-Za-z][A-Za-z0-9.\-]+)\]:[0-9]{2,5}\b"
        r"|\([\"']?(?P<with_port>[A-Za-z][\w.]*-[\w.\-]*|"
        r"[A-Za-z][\w.]*\d[\w.]*(?=[\"']?, ?[0-9]{5}\)))[\"']?, ?[0-9]{4,5}\)",
        " on |peer |]:0|, 0)|,0)",
    ),
    _named(
        r"\b(?:(?:SUDO_|SLURM_JOB_)?USER|LOGNAME|USERNAME|username)[\"']?\s{0,2}[=:][ \t]{0,2}"
        r"[\"']?(?P<user>[A-Za-z_][\w.\-]{0,31})(?![\w/@:])",
        "user|logname",
    ),
    _named(
        r"(?<![\w.+\-])(?P<user>[a-z_][\w.\-]{0,31})@(?P<host>[A-Za-z][A-Za-z0-9\-]+)(?![\w.])", "@"
    ),
    _named(
        r"\b(?i:(?:local )?host(?: ?name)?|node(?:_?name)?|master_addr|slurmd_nodename|\w*nodelist|"
        r"rdzv[_\-]endpoint|rdzv_host)"
        r"[\"']?\s{0,2}[=:]\s{0,24}[\"']?(?P<host>[A-Za-z][\w.\-\[\],]*[\d\-.][\w.\-\[\],]*)"
        r"(?![\w.\-\[\],(])",
        "host|node|master_addr|rdzv",
    ),
    Rule(
        # also behind a part that was left open: `<*>.acme.com`, `*.acme.com`
        rf"(?:(?<![\w.\-/@])|(?<=[*>]\.)|(?<=\A\.))(?:{_LABEL}\.){{1,8}}(?i:{_DOMAINS}){_END}",
        shape=rf"(?i)\.(?:{_DOMAINS}){_END}",
        kind=Kind.HOST,
        is_private=_is_private_domain,
    ),
    # `pdsh`, `clush`, `dsh` and `parallel` put the machine's name in front of each line.
    Rule(
        r"^\[?(?=[A-Za-z\-]*[0-9])(?P<host>[A-Za-z][A-Za-z0-9\-]{1,62})(?:: |\][: ])[^\n]*",
        shape=rf"\A\[?(?!{_INDEXED})(?=[A-Za-z\-]*0)[A-Za-z][A-Za-z0\-]+(?:: |\][: ])",
        flags=re.MULTILINE,
        is_private=lambda value, _: _is_before_lines(value),
    ),
)


def machines_in(text: str) -> Iterator[SecretSpan]:
    for one in _RULES:
        yield from one.found_in(text)
