"""What people have of an environment that worked, or does not: a requirements or lock file, a
snapshot, a virtual environment.

Each kind is read into one `EnvironmentSide`; and which Python a side had, and is at hand. Nothing
is installed here, and nothing is asked of an index.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from aorta.bisect.environments.locks import EnvironmentSide, read_lock
from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.names import is_variable
from aorta.runtimes.pythons import find_python, version_of

_COMMENT = re.compile(r"(^|\s)#.*$")
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
_PER_REQUIREMENT = ("--hash", "--config-settings", "--global-option", "--config-setting")
_VALUE_OPTIONS = {
    "-i": "index_url",
    "--index-url": "index_url",
    "--extra-index-url": "extra_index_url",
    "-f": "find_links",
    "--find-links": "find_links",
}
_NOT_OURS = frozenset({"aorta-triage", "pip", "uv"})  # what makes environments is no part of one
_IGNORED = frozenset({"--no-binary", "--only-binary", "--trusted-host", "--use-feature"})


def read_side(given: str, directory: Path, option: str) -> EnvironmentSide:
    """`given` as it stands on the command line."""
    path = directory / Path(given).expanduser()
    if path.is_dir():
        return _virtual_environment(path, given, option)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as wrong:
        said = wrong.strerror if isinstance(wrong, OSError) else "it is no text"
        raise UsageError(
            f"{said}; expected a requirements or lock file, an env.json of `aorta env probe`, or "
            "a virtual environment",
            where=f"{option} {given}",
        ) from None
    reader = _requirements_file
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        reader = _snapshot
    elif path.suffix in {".toml", ".lock"} or text.lstrip().startswith("version = "):
        reader = read_lock
    try:
        side = reader(path, text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as wrong:
        raise UsageError(f"it cannot be read: {wrong}", where=f"{option} {given}") from None
    except UsageError as wrong:
        raise UsageError(wrong.message, where=wrong.where or f"{option} {given}") from None
    if not side.requirements and not side.variables:
        raise UsageError("it names no package", where=f"{option} {given}")
    return replace(side, name=given)


# -- requirements.txt and pip freeze


def _requirements_file(path: Path, text: str) -> EnvironmentSide:
    requirements: dict[str, str] = {}
    options: list[tuple[str, str]] = []
    for file, number, line in _lines(path, text, set()):
        where = f"{file}:{number}"
        option = _option(line, file, where)
        if option is not None:
            options += [option] if option[0] else []
            continue
        name, requirement = _requirement(line, file, where)
        if requirements.setdefault(name, requirement) != requirement:
            raise UsageError(f"{name} stands twice, with two requirements; keep one", where=where)
    return EnvironmentSide(path.name, requirements, options=tuple(options))


def _lines(path: Path, text: str, seen: set[Path]) -> Iterator[tuple[Path, int, str]]:
    """Whole lines, without comments and with other files where they are named."""
    seen.add(path.resolve())
    held, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start if held else number
        if raw.rstrip().endswith("\\"):
            held += raw.rstrip()[:-1] + " "
            continue
        line, held = _COMMENT.sub("", held + raw).strip(), ""
        if not line:
            continue
        words = line.replace("=", " ", 1).split() if line.startswith("--") else line.split()
        if words[0] in {"-r", "--requirement"} and len(words) == 2:
            other = path.parent / words[1]
            if other.resolve() in seen:
                continue
            try:
                yield from _lines(other, other.read_text(encoding="utf-8-sig"), seen)
            except OSError as wrong:
                raise UsageError(
                    f"{wrong.strerror}: {words[1]}", where=f"{path}:{number}"
                ) from None
        else:
            yield path, start, line


def _option(line: str, file: Path, where: str) -> tuple[str, str] | None:
    """None for a requirement; an empty name for an option that decides nothing here."""
    if not line.startswith("-") or line.startswith(("-e ", "--editable")):
        return None
    word, _, value = line.replace("=", " ", 1).partition(" ")
    if word in _VALUE_OPTIONS and value.strip():
        return _VALUE_OPTIONS[word], _beside(value.strip(), file)
    if word == "--pre":
        return "pre", "yes"
    if word == "--no-index":
        return "no_index", "yes"
    if word in {"-c", "--constraint", "--require-hashes", "--prefer-binary"} or word in _IGNORED:
        return "", ""
    raise UsageError(
        f"{word!r} is no option of a requirements file that is known here; remove the line",
        where=where,
    )


def _beside(value: str, file: Path) -> str:
    """A relative directory is relative to the file that names it."""
    return value if "://" in value else str((file.parent / value).resolve())


def _requirement(line: str, file: Path, where: str) -> tuple[str, str]:
    """The canonical name and the line to install."""
    if line.startswith(("-e ", "--editable")):
        target = line.split(maxsplit=1)[1] if " " in line else line.partition("=")[2]
        egg = _EGG.search(target)
        if egg is None and "://" not in target:
            target = str((file.parent / target).resolve())
        name = egg[1] if egg else Path(target.partition("#")[0].rstrip("/")).name.partition("@")[0]
        return canonicalize_name(name.removesuffix(".git")), f"-e {target}"
    for option in _PER_REQUIREMENT:
        line = line.partition(f" {option}")[0].rstrip()
    try:
        found = Requirement(line)
    except InvalidRequirement as wrong:
        path = (file.parent / line.partition(";")[0].strip()).resolve()
        if path.suffix == ".whl" and path.exists():
            name = path.name.split("-")[0]
            return canonicalize_name(name), f"{name} @ {path.as_uri()}"
        said = str(wrong).splitlines()[0]
        raise UsageError(
            f"{line!r} is no requirement: {said}; expected name==version", where=where
        ) from None
    return canonicalize_name(found.name), line


# -- snapshots and virtual environments


def _snapshot(path: Path, text: str) -> EnvironmentSide:
    content = json.loads(text)
    if not isinstance(content, dict) or not str(content.get("schema", "")).startswith("aorta.env/"):
        raise UsageError("it is no env.json: expected what `aorta env probe -o env.json` writes")
    others = content.get("other_packages")
    packages = {**(others or {}), **(content.get("packages") or {})}
    requirements = {
        str(canonicalize_name(name)): f"{name}=={version}"
        for name, version in packages.items()
        if version and canonicalize_name(name) not in _NOT_OURS
    }
    variables = {
        name: value if value is None else str(value)
        for name, value in (content.get("env_vars") or {}).items()
        if is_variable(name)
    }
    return EnvironmentSide(
        path.name,
        requirements,
        python=content.get("python_version"),
        variables=variables,
        complete=others is not None,
    )


_ASK = """
import importlib.metadata as m, json, platform
found = {}
for d in m.distributions():
    name = d.metadata["Name"]
    if name and name not in found:
        found[name] = [d.version, d.read_text("direct_url.json")]
print(json.dumps({"python": platform.python_version(), "packages": found}))
"""


def _virtual_environment(path: Path, given: str, option: str) -> EnvironmentSide:
    where = f"{option} {given}"
    programs = [path / "bin" / name for name in ("python", "python3")]
    program = next((one for one in programs if one.exists()), None)
    if program is None:
        raise UsageError(
            "this directory is no virtual environment: it has no bin/python", where=where
        )
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        done = subprocess.run(
            (str(program), "-c", _ASK), capture_output=True, env=variables, check=False, timeout=120
        )
        content = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError):
        raise UsageError(
            f"its Python does not say what is installed; try: {shlex.quote(str(program))} -m pip "
            "list",
            where=where,
        ) from None
    requirements: dict[str, str] = {}
    for name, (version, direct) in content["packages"].items():
        if canonicalize_name(name) not in _NOT_OURS:
            requirements[canonicalize_name(name)] = _installed(name, version, direct)
    if not requirements:
        raise UsageError("nothing is installed in it", where=where)
    return EnvironmentSide(
        given, requirements, python=content["python"], interpreter=str(program.absolute())
    )


def _installed(name: str, version: str, direct: str | None) -> str:
    """What was not installed from an index is installed from where it came."""
    said = json.loads(direct) if direct else {}
    url = said.get("url", "")
    if not url:
        return f"{name}=={version}"
    vcs = said.get("vcs_info")
    if vcs:
        return f"{name} @ {vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', 'HEAD')}"
    if (said.get("dir_info") or {}).get("editable"):
        return f"-e {url.removeprefix('file://')}"
    return f"{name} @ {url}"


def interpreter_of(side: EnvironmentSide, warnings: list[str]) -> tuple[str, str]:
    """Version and program of the Python a side was made with, or of the one at hand."""
    if side.interpreter and (version := version_of(side.interpreter)):
        return version, side.interpreter
    if side.python:
        if found := find_python(side.python):
            if found[0] != side.python:
                warnings.append(f"{side.name} had Python {side.python}: {found[0]} stands for it")
            return found
        warnings.append(
            f"{side.name} had Python {side.python}, which is not on this machine: "
            "whether it matters is not found out"
        )
    for program in (shutil.which("python"), shutil.which("python3"), sys.executable):
        if program and (version := version_of(program)):
            return version, program
    raise InfrastructureError("there is no Python to make environments with")
