"""Absolute paths, but for the operating system's; relative ones stay: they make a log readable."""

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from aorta.scrub.findings import Kind, Rule, SecretSpan
from aorta.scrub.vocabulary import PRIVATE_ROOTS, PUBLIC_PACKAGES

LOOKED_FOR = "absolute paths that are not the system's, object stores, clone addresses"

_TRAILING = ".,:;!?)'\""
_path = partial(Rule, kind=Kind.PATH, trailing=_TRAILING)
_PUBLIC = re.compile(
    r"/(?:usr|bin|sbin|lib|lib32|lib64|libx32|etc|proc|sys|dev|boot|run)(?:/|\Z)"
    r"|/opt/(?:rocm|conda|nvidia|hpcx|amazon|venv|python|intel|ompi|ucx)[^/]*(?:/|\Z)"
    r"|/var/(?:run|lib/dpkg|lib/docker)(?:/|\Z)"
)
_PERSONAL_INSIDE_PUBLIC = re.compile(
    # data are staged there, under names of their own
    r"/run/(?:user|media)/|/usr/(?:home|people)/|/dev/shm/(?!nccl-)"
)
_SYSTEM_WINDOWS = re.compile(r"[A-Za-z]:\\+(?:windows|program files(?: \(x86\))?)\\", re.IGNORECASE)
_PART = r"[^\s/\\\"'`<>|:;,()\[\]{}\x00-\x1f\x7f*?!$&=]"
_ABSOLUTE = re.compile(  # the slash first and its surroundings after it: that is the fast order
    rf"/(?:(?<![\w.<>/~)\]\-]/)|(?<=\s-[A-Za-z]/)|(?<=\A-[A-Za-z]/)|"
    rf"(?<=file:///))(?:(?<!:/)/)?{_PART}+(?:(?:/|\\ )+{_PART}*)*"
)
_REMOTE = Rule(rf":/(?<=[\w.\-]:/){_PART}+/{_PART}+(?:/{_PART}*)*", ":/")
_TILDE = _path(rf"~(?<![\w/]~)[\w.\-]*/{_PART}+(?:/{_PART}*)*", "~")
_SPACED = Rule(
    r"(?P<quote>[\"'`])(?P<path>/[^\"'`\n<> ]{0,1024} [^\"'`\n<>]{0,1024})(?P=quote)",
    shape=r"[\"'`]/[^\"'`\n<> ]* ",
)
_WINDOWS = _path(
    r"(?<![A-Za-z0-9])[A-Za-z]:(?:\\{1,16}|/)(?:[^\s\\/\"'<>|:;,*?()]+(?: [^\s\\/\"'<>|"
    r":;,*?()]+)*[\\/]{1,16})*[^\s\\/\"'<>|:;,*?()]*"
    r"|(?<![\\\w])\\{2,16}[\w.\-]+\\{1,8}[\w.$\-]+(?:\\{1,8}[^\s\\\"'<>|:;,*?]+)*",
    ":\\|:/|\\\\",
    is_private=lambda path, _: len(path) > 3 and _SYSTEM_WINDOWS.match(path) is None,
)
_STORE = _path(
    r"\b(?:s3[an]?|gs|gcs|az|abfss?|wasbs?|hdfs|nfs|oss|oci|azureml|dbfs|file|smb|ftp|sftp|ssh|"
    r"rsync|git\+ssh|lustre)"
    r"://(?P<path>[^\s\"'<>`]+)",
    "://",
    is_private=lambda path, _: not path.startswith("/usr/"),
)
_CLONE = _path(r"(?<![\w.\-])[\w.\-]+@[\w.\-]+:(?P<path>(?!\d+\b)[\w.~\-]+/[\w./~\-]+)", "@")
_PACKAGES = re.compile(
    rf"(?:site|dist)-packages/(?=(?:{'|'.join(sorted(PUBLIC_PACKAGES))})(?:/|\Z))"
    r"|/lib/python3\.\d+/(?=[a-z_]+(?:/[a-z_]+)*\.py\Z)"
)
_HOME = Rule(
    r"(?:/home|/Users|/usr/home|/export/home|/nfs/home|/homes?/users?|"
    r"[A-Za-z]:[\\/]+Users)[\\/]+(?P<user>[^\s\\/\"'<>:;,]+)",
    "home|users",
)
_VARIABLE = re.compile(r"(?:\"\$(?:\w+|\{\w+\})\"|\$\{\w+\})\Z")
_LONGEST_VARIABLE = 80


def paths_in(text: str, private_roots: Sequence[str] = ()) -> Iterator[SecretSpan]:
    """Absolute private, home-relative, Windows and UNC paths, object stores, clone addresses."""
    yield from _absolute_in(text, tuple(private_roots))
    for one in (_TILDE, _WINDOWS, _STORE, _CLONE):
        yield from one.found_in(text)


def _absolute_in(text: str, private_roots: tuple[str, ...]) -> Iterator[SecretSpan]:
    quoted = ((match["path"], match.start("path")) for match in _SPACED.finditer(text))
    with_spaces = ((path, at) for path, at in quoted if " -" not in path and path.count("/") > 1)
    plain = ((m.group().rstrip(_TRAILING), m.start()) for m in _ABSOLUTE.finditer(text))
    remote = ((m.group()[1:].rstrip(_TRAILING), m.start() + 1) for m in _REMOTE.finditer(text))
    for path, at in itertools.chain(with_spaces, plain, remote):
        end = 0  # how much of it says who and where; what follows names a public package
        if _is_private(re.sub(r"/{2,}", "/", path), private_roots):
            library = max(_PACKAGES.finditer(path), key=re.Match.end, default=None)
            end = library.end() - 1 if library else len(path)
        is_whole = not is_below_a_variable(text, at) or path.startswith(private_roots)
        if end and (is_whole or any(users_in(path))):
            yield SecretSpan(at, at + end, Kind.PATH, path[:end])


def users_in(text: str) -> Iterator[str]:
    for match in _HOME.finditer(text):
        yield match["user"].rstrip(_TRAILING)


def is_below_a_variable(text: str, at: int) -> bool:
    """`"$here"/data/a.txt` in a shell script: what follows is a relative name."""
    start = max(0, at - _LONGEST_VARIABLE)
    return text[at - 1 : at] in {'"', "}"} and _VARIABLE.search(text, start, at) is not None


@lru_cache(maxsize=1 << 14)
def _is_private(path: str, private_roots: Sequence[str]) -> bool:
    if any(path == root or path.startswith(f"{root}/") for root in private_roots):
        return True
    if _PERSONAL_INSIDE_PUBLIC.match(path):
        return True
    if _PUBLIC.match(path):
        return False
    parts = [part for part in path.split("/") if part]
    return len(parts) > 1 or (len(parts) == 1 and parts[0] in PRIVATE_ROOTS and len(path) > 4)
