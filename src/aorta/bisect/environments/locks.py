"""One side of two environments, and the locks it may be read from: `uv.lock` and `pylock.toml`."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from aorta.core.errors import UsageError


@dataclass(frozen=True)
class EnvironmentSide:
    """`requirements` by canonical name, as a line each. `complete`: every package that was
    installed is among them, as far as the file can say. `variables`: None where the file says that
    one was not set; empty where it says nothing.
    """

    name: str
    requirements: Mapping[str, str]
    python: str | None = None
    interpreter: str | None = None  # the program, where the side is an environment of this machine
    variables: Mapping[str, str | None] | None = None
    complete: bool = True
    options: tuple[tuple[str, str], ...] = ()  # index_url, extra_index_url, find_links, pre
    left_out: tuple[str, ...] = ()  # what stood in the file and cannot be installed from it

    @property
    def is_pinned(self) -> bool:
        return all(exact_version(line) or " @ " in line for line in self.requirements.values())

    @property
    def versions(self) -> dict[str, str]:
        """As far as the file says them: a version, or a whole line where there is none."""
        return {name: version_in(line) for name, line in self.requirements.items()}


def exact_version(line: str) -> str | None:
    """The version of `name==version`; None for anything looser."""
    try:
        specifiers = list(Requirement(line).specifier)
    except InvalidRequirement:
        return None
    if len(specifiers) == 1 and specifiers[0].operator in {"==", "==="}:
        version = specifiers[0].version
        return None if version.endswith(".*") else version
    return None


def version_in(line: str) -> str:
    """What tells two requirements of one package apart: version, commit, address or line."""
    if line.startswith("-e "):
        return _commit_in(line[3:].strip())
    found = Requirement(line)
    url = _commit_in(found.url) if found.url else None
    return exact_version(line) or url or str(found.specifier) or "any"


def _commit_in(url: str) -> str:
    """Of an address in a repository what follows its last @; else the address itself."""
    address, at, commit = url.partition("#")[0].rpartition("@")
    return commit if at and url.startswith("git+") and "/" in address.partition("://")[2] else url


def read_lock(path: Path, text: str) -> EnvironmentSide:
    content = tomllib.loads(text)
    if "lock-version" in content:
        return _pylock(path, content)
    packages = content.get("package")
    if isinstance(packages, list) and "requires-python" in content:
        return _uv_lock(path, packages)
    raise UsageError(
        "it is neither a uv.lock nor a pylock.toml: it has neither package and requires-python, "
        "nor lock-version"
    )


def _pylock(path: Path, content: Mapping[str, Any]) -> EnvironmentSide:
    """PEP 751. Packages whose marker is not of this platform are left out."""
    requirements: dict[str, str] = {}
    left_out: list[str] = []
    groups = content.get("default-groups", [])
    around = {"extras": set(), "dependency_groups": set(groups)}
    for package in content.get("packages", []):
        marker = package.get("marker")
        if marker and not Marker(marker).evaluate(around, context="lock_file"):
            continue
        line = _locked(package, package.get("directory"), package.get("vcs"), path)
        if line is None:
            left_out.append(str(package.get("name")))
        else:
            requirements[canonicalize_name(package["name"])] = line
    return EnvironmentSide(path.name, requirements, left_out=tuple(left_out))


def _locked(
    package: Mapping[str, Any],
    local: Mapping[str, Any] | None,
    vcs: Mapping[str, Any] | None,
    path: Path,
) -> str | None:
    name = package.get("name")
    if not isinstance(name, str):
        raise UsageError("a package has no name")
    if vcs is not None and vcs.get("url"):
        return f"{name} @ {vcs.get('type', 'git')}+{vcs['url']}@{vcs.get('commit-id', 'HEAD')}"
    if local is not None:
        place = (path.parent / str(local.get("path", "."))).resolve()
        return f"{name} @ {place.as_uri()}" if (place / "pyproject.toml").exists() else None
    archive = package.get("archive")
    if archive and archive.get("url"):
        return f"{name} @ {archive['url']}"
    return f"{name}=={package['version']}" if package.get("version") else None


def _uv_lock(path: Path, packages: Sequence[Mapping[str, Any]]) -> EnvironmentSide:
    """What the project needs on this platform; the project itself is not installed."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for package in packages:
        by_name.setdefault(str(package.get("name")), []).append(package)
    roots = [p for p in packages if {"editable", "virtual"} & (p.get("source") or {}).keys()]
    waiting = [] if roots else [{"name": name} for name in by_name]
    for root in roots:
        waiting += root.get("dependencies", [])
        waiting += (root.get("dev-dependencies") or {}).get("dev", [])
    requirements: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while waiting:
        dependency = waiting.pop()
        if not _applies(dependency.get("marker")):
            continue
        entry = _entry(by_name, dependency)
        if entry is None or entry in roots:
            continue
        name = str(entry["name"])
        for extra in ("", *dependency.get("extra", [])):
            if (name, extra) not in seen:
                seen.add((name, extra))
                optional = entry.get("optional-dependencies") or {}
                waiting += optional.get(extra, []) if extra else entry.get("dependencies", [])
        if line := _locked_by_uv(entry):
            requirements[canonicalize_name(name)] = line
    named = dict.fromkeys(str((p.get("source") or {}).get("registry", "")) for p in packages)
    options = [("extra_index_url", url) for url in named if url.startswith(("http:", "https:"))]
    left_out = tuple(str(root["name"]) for root in roots)
    return EnvironmentSide(path.name, requirements, options=tuple(options), left_out=left_out)


def _entry(
    by_name: Mapping[str, Sequence[Mapping[str, Any]]], dependency: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """A package may be locked in several versions, each for platforms of its own."""
    entries = by_name.get(str(dependency.get("name")), ())
    wanted = dependency.get("version")
    fitting = [e for e in entries if wanted is None or e.get("version") == wanted]
    for entry in fitting:
        markers = entry.get("resolution-markers")
        if not markers or any(_applies(marker) for marker in markers):
            return entry
    return fitting[0] if fitting else None


def _locked_by_uv(package: Mapping[str, Any]) -> str | None:
    name, source = package["name"], package.get("source") or {}
    if "git" in source:
        address, _, commit = str(source["git"]).partition("#")
        return f"{name} @ git+{address.partition('?')[0]}@{commit or 'HEAD'}"
    if "url" in source:
        return f"{name} @ {source['url']}"
    return f"{name}=={package['version']}" if package.get("version") else None


def _applies(marker: object) -> bool:
    return marker is None or Marker(str(marker)).evaluate({"extra": ""})
