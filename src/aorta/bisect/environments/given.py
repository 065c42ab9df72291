"""An environment as given: requirements file, snapshot or venv. Installs nothing, asks no index."""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from aorta.bisect.spec import EnvironmentsSpec
from aorta.core.errors import UsageError
from aorta.core.names import is_variable
from aorta.runtimes.package_index import Sources, sources_of
from aorta.runtimes.venvs import distributions, find_python, search_path_of, version_of

_COMMENT = re.compile(r"(^|\s)#.*$")
_PINNED = re.compile(r"-e |[^;]* @ |[\w.-]+(\[.*\])?\s*===?\s*[^\s*,;]+(\s|;|$)")
_OPTIONS = {
    "-i": "index_url",
    "--index-url": "index_url",
    "--extra-index-url": "extra_index_url",
    "-f": "find_links",
    "--find-links": "find_links",
    "--pre": "pre",
    "--no-index": "no_index",
}
_OTHER_FILES = ("-r", "--requirement", "-c", "--constraint", "--editable")
_NOT_OURS = frozenset({"aorta-triage", "pip", "uv"})  # what makes environments is no part of one


@dataclass(frozen=True)
class GivenEnvironment:
    """`file` is installed if given. `variables`: None if not known; a value of None: not set."""

    name: str
    requirements: tuple[str, ...]
    file: Path | None = None
    options: tuple[tuple[str, str], ...] = ()  # index_url, extra_index_url, find_links, pre
    python: str | None = None
    interpreter: str | None = None  # the program, where it is an environment of this machine
    variables: Mapping[str, str | None] | None = None

    @property
    def is_pinned(self) -> bool:
        return all(_PINNED.match(line) for line in self.requirements)

    def interpreter_at_hand(self, warnings: list[str]) -> tuple[str, str]:
        """Version and program of the Python it was made with, or of the one at hand."""
        if self.interpreter and (version := version_of(self.interpreter)):
            return version, self.interpreter
        found = find_python(self.python) if self.python else None
        program = shutil.which("python") or shutil.which("python3") or sys.executable
        version, program = found or (version_of(program) or "", program)
        if self.python and version != self.python:
            warnings.append(f"{self.name} had Python {self.python}: {version} is used")
        return version, program


@dataclass(frozen=True)
class GivenEnvironments:
    """Both of them, and where packages come from."""

    good: GivenEnvironment
    bad: GivenEnvironment
    sources: Sources

    @property
    def both(self) -> tuple[GivenEnvironment, GivenEnvironment]:
        return self.good, self.bad

    @property
    def are_alike(self) -> bool:
        """Whether both say the same: then nothing has to be installed to know it."""
        good, bad = self.good, self.bad
        if any(line.startswith(_OTHER_FILES) for line in good.requirements):
            return False
        same = sorted(good.requirements) == sorted(bad.requirements) and good.python == bad.python
        return same and (not self.with_variables or good.variables == bad.variables)

    @property
    def with_variables(self) -> bool:
        """Variables are candidates where both say how they were set."""
        return self.good.variables is not None and self.bad.variables is not None

    def variables_of(self, one: GivenEnvironment) -> dict[str, str | None]:
        return dict(one.variables or {}) if self.with_variables else {}

    @classmethod
    def of(cls, spec: EnvironmentsSpec, directory: Path) -> "GivenEnvironments":
        good = read_environment(spec.good, directory, "--good-env")
        bad = read_environment(spec.bad, directory, "--bad-env")
        options: dict[str, list[str]] = {}
        for option, value in (*good.options, *bad.options):
            options.setdefault(option, []).append(value)
        if spec.index_url:  # what is said now is said instead of what the files say
            options.pop("extra_index_url", None)
        sources = sources_of(
            spec.index_url or next(iter(options.get("index_url", ())), None),
            [*spec.extra_index_url, *options.get("extra_index_url", ())],
            [
                *(p if "://" in p else os.path.normpath(directory / p) for p in spec.find_links),
                *options.get("find_links", ()),
            ],
            no_index=spec.no_index or "no_index" in options,
            pre=spec.pre or "pre" in options,
        )
        return cls(good, bad, sources)


def read_environment(given: str, directory: Path, option: str) -> GivenEnvironment:
    """`given` as it stands on the command line; raises `UsageError` for what is none of them."""
    path, where = directory / Path(given).expanduser(), f"{option} {given}"
    if path.is_dir():
        return _virtual_environment(path, given, where)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) else "it is no text"
        raise UsageError(
            f"{reason}; expected a requirements file, an env.json of `aorta env probe`, or a "
            "virtual environment",
            where=where,
        ) from None
    is_snapshot = path.suffix == ".json" or text.lstrip().startswith("{")
    found = _snapshot(text, given, where) if is_snapshot else _requirements_file(path, text, given)
    if not found.requirements and not found.variables:
        raise UsageError("it names no package", where=where)
    return found


def _requirements_file(path: Path, text: str, given: str) -> GivenEnvironment:
    """The installer reads the file itself; here it is read for where packages come from."""
    requirements: list[str] = []
    options: list[tuple[str, str]] = []
    for raw in re.sub(r"\\\s*\n", " ", text).splitlines():
        line = _COMMENT.sub("", raw).strip()
        word, _, value = line.replace("=", " ", 1).partition(" ")
        if word in _OPTIONS:
            options.append((_OPTIONS[word], _beside(value.strip(), path)))
        elif line and (not line.startswith("--") or word in _OTHER_FILES):
            requirements.append(line.partition(" --")[0].strip())
    return GivenEnvironment(given, tuple(requirements), path.absolute(), tuple(options))


def _beside(value: str, file: Path) -> str:
    """A relative directory is relative to the file that names it."""
    return value if "://" in value or not value else str((file.parent / value).resolve())


def _snapshot(text: str, given: str, where: str) -> GivenEnvironment:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as wrong:
        raise UsageError(f"it cannot be read: {wrong}", where=where) from None
    if not isinstance(content, dict) or not str(content.get("schema", "")).startswith("aorta.env/"):
        raise UsageError(
            "it is no env.json: expected what `aorta env probe -o env.json` writes", where=where
        )
    packages = {**content.get("other_packages", {}), **content.get("packages", {})}
    variables = {
        name: value if value is None else str(value)
        for name, value in (content.get("env_vars") or {}).items()
        if is_variable(name)
    }
    lines = {name: f"{name}=={version}" for name, version in packages.items() if version}
    python = content.get("python_version")
    return GivenEnvironment(given, _without_ours(lines), python=python, variables=variables)


def _virtual_environment(path: Path, given: str, where: str) -> GivenEnvironment:
    programs = [path / "bin" / name for name in ("python", "python3")]
    program = next((str(one.absolute()) for one in programs if one.exists()), None)
    if program is None:
        raise UsageError(
            "this directory is no virtual environment: it has no bin/python", where=where
        )
    found = distributions(search_path_of(program))
    requirements = _without_ours({one.name: one.line for one in found})
    if not requirements:
        raise UsageError("nothing is installed in it, or its Python does not run", where=where)
    python = version_of(program)
    return GivenEnvironment(given, requirements, python=python, interpreter=program)


def _without_ours(lines: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(line for name, line in lines.items() if canonicalize_name(name) not in _NOT_OURS)


def version_in(line: str, version: str) -> str:
    """What tells two installations apart: the version, or the commit or address it came from."""
    url = line[3:].strip() if line.startswith("-e ") else line.partition(" @ ")[2]
    address, at, commit = url.partition("#")[0].rpartition("@")
    is_commit = at and url.startswith("git+") and "/" in address.partition("://")[2]
    return (commit if is_commit else url) or version
