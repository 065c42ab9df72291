"""Which releases of a package lie between two others, as the package index lists them.

Reads the simple repository API (PEP 503, 691, 700) and directories; by default pip's own index.
Addresses may hold credentials, so none is shown as it is. Yanked releases are no candidates.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from typing import Any
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
from aorta.runtimes.http_get import (
    HttpRefusedError,
    HttpUnansweredError,
    credentials_in,
    read,
    without_credentials,
)

_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.1"
)
_PATIENCE = 60.0
_TRUE = {"1", "true", "yes", "on"}
_PYPI = "https://pypi.org/simple"
_Entry = Mapping[str, Any]


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
    """What its files and variables say; variables, which are listed last, count most."""
    command = (sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        words = value.strip().strip("'\"").replace("\\n", " ").split()
        found[key.rpartition(".")[2]] = words
    return found


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
        """From the good release to the bad one, both included; backwards if the bad is older."""
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
            releases.get(end) or Release(text)
            for end, text in zip((ends[0], ends[1]), (good, bad), strict=True)
        )
        inner = inner if ends[0] == older else inner[::-1]
        return [replace(first, version=good), *inner, replace(last, version=bad)]


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
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
            str(version), min((f.uploaded for f in those if f.uploaded is not None), default=None)
        )
        for version, those in found.items()
    }


def allows(requires: str | None, python: str) -> bool:
    """Whether a package that says so of its Pythons runs with this one."""
    try:
        return not requires or SpecifierSet(requires).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True


# -- reading it: entries as the JSON form has them, whatever a page is written in


def _listed(index: str, name: str) -> Iterator[IndexFile]:
    """The page of one package; a package that this index does not have is none."""
    address = f"{index.rstrip('/')}/{name}/"
    if address.startswith("file:"):
        address += "index.html"  # as pip and uv read a directory
        if not Path(unquote(urlsplit(address).path)).is_file():
            return
    yield from _files(_page(address), name)


def _linked(place: str, name: str) -> Iterator[IndexFile]:
    """A directory of files, or a page with links to them."""
    path = Path(unquote(urlsplit(place).path) if place.startswith("file://") else place)
    if place.startswith(("http://", "https://")):
        entries = _page(place)
    elif path.is_dir():
        entries = [{"filename": file.name} for file in sorted(path.iterdir())]
    elif path.is_file():
        entries = _links(path.read_text(encoding="utf-8"))
    else:
        raise UsageError("there is no such directory", where=f"--find-links {place}")
    yield from _files(entries, name)


def _page(address: str) -> Sequence[_Entry]:
    """What a page lists; nothing where there is none."""
    clean = without_credentials(address)
    try:
        answered = read(clean, accept=_ACCEPT, authorization=credentials_in(address))
        text = answered.body.decode("utf-8", "replace")
        if "json" not in answered.headers.get("Content-Type", ""):
            return _links(text)
        return list(json.loads(text).get("files", []))
    except HttpRefusedError as refused:
        if refused.code in {404, 410}:
            return ()
        problem = f"cannot be read: it answered {refused}"
    except HttpUnansweredError as wrong:
        problem = f"cannot be read: {wrong}"
    except json.JSONDecodeError:
        problem = "answers with broken JSON"
    raise InfrastructureError(f"the package index {problem}", where=without_secrets(clean))


def _links(text: str) -> list[_Entry]:
    page = _Links()
    page.feed(text)
    return page.found


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Entry] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            attributes = dict(attrs)
            path = unquote(urlsplit(urljoin("/", attributes.get("href") or "")).path)
            entry = {name.removeprefix("data-"): value for name, value in attrs}
            yanked = "data-yanked" in attributes
            self.found.append({**entry, "filename": path.rpartition("/")[2], "yanked": yanked})


def _files(entries: Iterable[_Entry], name: str) -> Iterator[IndexFile]:
    """Nothing for what was yanked, or is no file of this package: a page may list others."""
    for entry in entries:
        filename = str(entry.get("filename", ""))
        own: frozenset[tags.Tag] | None = None
        try:
            if filename.endswith(".whl"):
                project, version, _, own = parse_wheel_filename(filename)
            else:
                project, version = parse_sdist_filename(filename)
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            continue
        if project == name and not entry.get("yanked"):
            uploaded = _time(entry.get("upload-time"))
            yield IndexFile(filename, version, entry.get("requires-python"), uploaded, own)


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
