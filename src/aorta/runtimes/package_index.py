"""Which releases of a package lie between two others, as the package index lists them.

Reads the simple repository API, as JSON or as HTML (PEP 503, 691, 700), and directories or pages of
files. Which index is asked, where none is named, is what pip is configured with. Addresses may hold
credentials, so none is ever shown as it is. Yanked releases are no candidates.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from packaging import tags
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from aorta.core.errors import InfrastructureError, UsageError
from aorta.runtimes.git import without_secrets
from aorta.runtimes.http_get import HttpRefusedError, HttpUnansweredError, read, split_credentials

_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)
_PATIENCE = 60.0
_DAY = re.compile(r"(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_TRUE = {"1", "true", "yes", "on"}
_PYPI = "https://pypi.org/simple"


@dataclass(frozen=True)
class Sources:
    """Where packages come from. `pre`: whether pre-releases are candidates."""

    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    pre: bool = False

    @property
    def options(self) -> list[str]:
        """The same as options of uv, for people who type them."""
        words = [word for place in self.find_links for word in ("--find-links", place)]
        if not self.indexes:
            return [*words, "--no-index"]
        words += ["--default-index", self.indexes[0]]
        words += [word for index in self.indexes[1:] for word in ("--index", index)]
        return [*words, "--index-strategy", "unsafe-best-match"]


@dataclass(frozen=True)
class IndexFile:
    """One file of one release."""

    name: str
    version: Version
    requires_python: str | None = None
    uploaded: float | None = None
    runs_on: frozenset[tags.Tag] | None = None  # None for sources, which install anywhere


@dataclass(frozen=True)
class Release:
    version: str
    time: float | None = None


def sources_of(
    index_url: str | None,
    extra: Sequence[str],
    find_links: Sequence[str],
    *,
    no_index: bool,
    pre: bool,
) -> Sources:
    """What is named, and where no index is, what pip is configured with, else PyPI."""
    configured = {} if no_index or index_url else _pip_configured()
    links = tuple(dict.fromkeys((*find_links, *configured.get("find-links", ()))))
    if no_index or _TRUE & {word.lower() for word in configured.get("no-index", ())}:
        return Sources((), links, pre)
    first = index_url or next(iter(configured.get("index-url", ())), _PYPI)
    extra = (*extra, *configured.get("extra-index-url", ()))
    return Sources(tuple(dict.fromkeys((first, *extra))), links, pre)


def _pip_configured() -> dict[str, list[str]]:
    """A variable counts before a file's `install`, and that before its `global`."""
    command = (sys.executable, "-m", "pip", "config", "list")
    variables = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    said = ""
    with suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(
            command, capture_output=True, text=True, env=variables, timeout=_PATIENCE, check=False
        ).stdout
    sections: dict[str, dict[str, list[str]]] = {"global": {}, "install": {}, ":env:": {}}
    for line in said.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        words = value.strip().strip("'\"").replace("\\n", " ").split()
        sections.setdefault(section, {})[name] = words
    return {**sections["global"], **sections["install"], **sections[":env:"]}


# -- what an index lists


class PackageIndex:
    """Reads each package once."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._known: dict[str, list[IndexFile]] = {}

    def files(self, name: str) -> list[IndexFile]:
        name = canonicalize_name(name)
        if name not in self._known:
            found: dict[str, IndexFile] = {}
            listed = [_linked(place, name) for place in self._sources.find_links]
            listed += [_listed(index, name) for index in self._sources.indexes]
            for file in chain.from_iterable(listed):
                found.setdefault(file.name, file)
            self._known[name] = list(found.values())
        return self._known[name]

    def between(self, name: str, good: str, bad: str, python: str) -> list[Release]:
        """From the good release to the bad one, both included, whatever the index says of these
        two; backwards where the bad one is older.
        """
        ends = _version(good), _version(bad)
        if ends[0] is None or ends[1] is None:
            return [Release(good), Release(bad)]
        older, newer = sorted((ends[0], ends[1]))
        pre = self._sources.pre or older.is_prerelease or newer.is_prerelease
        locals_ = {older.local, newer.local}
        releases = _releases(self.files(name), python)
        inner = [
            release
            for version, release in sorted(releases.items())
            if older < version < newer
            and version.local in locals_
            and (pre or not version.is_prerelease)
        ]
        first, last = (
            releases.get(end) or Release(text, _day_in(text))
            for end, text in zip((ends[0], ends[1]), (good, bad), strict=True)
        )
        inner = inner if ends[0] == older else inner[::-1]
        return [replace(first, version=good), *inner, replace(last, version=bad)]


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _day_in(version: str) -> float | None:
    """Nightly builds carry their day: 2.9.0.dev20260101."""
    with suppress(ValueError):
        if found := _DAY.search(version):
            return datetime.strptime(f"{found[0]}Z", "%Y%m%d%z").timestamp()
    return None


def _releases(files: Iterable[IndexFile], python: str) -> dict[Version, Release]:
    """Those with a file for this Python and machine."""
    parts = tuple(int(part) for part in re.findall(r"\d+", python)[:2])
    interpreter = f"cp{parts[0]}{parts[1]}"
    usable = {*tags.cpython_tags(parts), *tags.compatible_tags(parts, interpreter=interpreter)}
    found: dict[Version, list[IndexFile]] = {}
    for file in files:
        fits = file.runs_on is None or not usable.isdisjoint(file.runs_on)
        if fits and allows(file.requires_python, python):
            found.setdefault(file.version, []).append(file)
    return {
        version: Release(
            str(version),
            min((f.uploaded for f in those if f.uploaded is not None), default=None)
            or _day_in(str(version)),
        )
        for version, those in found.items()
    }


def allows(requires: str | None, python: str) -> bool:
    """Whether a package that says so of its Pythons runs with this one."""
    try:
        return not requires or SpecifierSet(requires).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True


# -- reading it


def _listed(index: str, name: str) -> Iterator[IndexFile]:
    """The page of one package; a package that this index does not have is none."""
    address = f"{index.rstrip('/')}/{name}/"
    if address.startswith("file:"):
        address += "index.html"  # as pip and uv read a directory
        if not Path(unquote(urlsplit(address).path)).is_file():
            return
    page = _read(address)
    if page is None:
        return
    kind, text = page
    if "json" not in kind:
        yield from _from_html(text, name)
        return
    try:
        yield from _from_json(text, name)
    except json.JSONDecodeError:
        raise InfrastructureError(
            "the package index answers with broken JSON", where=without_secrets(address)
        ) from None


def _linked(place: str, name: str) -> Iterator[IndexFile]:
    """A directory of files, or a page with links to them."""
    if place.startswith(("http://", "https://")):
        page = _read(place)
        yield from _from_html(page[1], name) if page else ()
        return
    path = Path(unquote(urlsplit(place).path) if place.startswith("file://") else place)
    if path.is_dir():
        yield from _from_names((file.name for file in path.iterdir()), name)
    elif path.is_file():
        yield from _from_html(path.read_text(encoding="utf-8"), name)
    else:
        raise UsageError("there is no such directory", where=f"--find-links {place}")


def _read(address: str) -> tuple[str, str] | None:
    """The kind and the text of a page; None where there is none."""
    clean, authorization = split_credentials(address)
    try:
        answered = read(clean, accept=_ACCEPT, authorization=authorization)
    except HttpRefusedError as refused:
        if refused.code in {404, 410}:
            return None
        said = f"it answered {refused}"
    except HttpUnansweredError as wrong:
        said = str(wrong)
    else:
        return answered.headers.get("Content-Type", ""), answered.body.decode("utf-8", "replace")
    raise InfrastructureError(
        f"the package index cannot be read: {said}", where=without_secrets(clean)
    )


def _from_json(text: str, name: str) -> Iterator[IndexFile]:
    content = json.loads(text)
    for file in content.get("files", []):
        if file.get("yanked"):
            continue
        yield from _file(
            str(file.get("filename", "")),
            name,
            requires_python=file.get("requires-python"),
            uploaded=_time(file.get("upload-time")),
        )


def _from_html(text: str, name: str) -> Iterator[IndexFile]:
    links = _Links()
    links.feed(text)
    for link in links.found:
        if "data-yanked" in link:
            continue
        path = unquote(urlsplit(urljoin("/", link.get("href") or "")).path)
        yield from _file(
            path.rpartition("/")[2],
            name,
            requires_python=link.get("data-requires-python"),
        )


def _from_names(names: Iterable[str], name: str) -> Iterator[IndexFile]:
    for file in sorted(names):
        yield from _file(file, name)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def _file(
    filename: str,
    name: str,
    *,
    requires_python: str | None = None,
    uploaded: float | None = None,
) -> Iterator[IndexFile]:
    """Nothing for what is no file of this package: a page may list others."""
    try:
        if filename.endswith(".whl"):
            project, version, _, which = parse_wheel_filename(filename)
            own: frozenset[tags.Tag] | None = which
        else:
            project, version = parse_sdist_filename(filename)
            own = None
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return
    if project == name:
        yield IndexFile(filename, version, requires_python, uploaded, own)


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
