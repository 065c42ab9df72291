"""Virtual environments: the Pythons of this machine, what an environment has, and making one.

Also a program (its file: an `EnvironmentJob`), run and killed like a trial; standard library only.
An environment counts as made once its mark is written, after everything else.
"""

import importlib.metadata
import json
import marshal
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aorta.core.errors import InfrastructureError
from aorta.runtimes.checkout import GIT_FAULT
from aorta.runtimes.programs import heard

if TYPE_CHECKING:  # started for every state: what reads an index is half of its imports
    from aorta.runtimes.package_index import Sources

# The exit code that says: the index could not be read, whatever the packages.
UNREACHABLE = GIT_FAULT
_NETWORK = re.compile(
    r"error sending request|dns error|failed to lookup address|Connection refused"
    r"|operation timed out|No space left on device"
)
_MOST_REASON = 400
# The constraints of a project around us are not of the two environments.
_QUIETLY = ("--quiet", "--no-config")


# -- Pythons


def uv_program() -> str:
    """The one beside this Python, else on the path; raises `InfrastructureError`."""
    beside = Path(sys.executable).parent / "uv"
    if found := str(beside) if os.access(beside, os.X_OK) else shutil.which("uv"):
        return found
    raise InfrastructureError(
        "uv makes the environments, and it is not installed; install it with: "
        "pip install 'aorta-triage[environments]'"
    )


def active_environment() -> str:
    """The environment that `python` on the path belongs to."""
    if active := os.environ.get("VIRTUAL_ENV"):
        return active
    program = shutil.which("python") or shutil.which("python3") or sys.executable
    return _said_by(program, "import sys; print(sys.prefix)") or sys.prefix


@cache
def version_of(program: str) -> str | None:
    return _said_by(program, "import platform; print(platform.python_version())")


def _said_by(program: str, code: str) -> str | None:
    """What a Python prints, whatever variables say; None where it does not run."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = heard((program, "-I", "-c", code), timeout=60)
        if done.returncode == 0:
            return done.stdout.strip()
    return None


@cache
def find_python(version: str) -> tuple[str, str] | None:
    """Version and program of that release, or of its minor version, as found here by uv."""
    for wanted in (version, ".".join(version.split(".")[:2])):
        asking = (uv_program(), "python", "find", "--no-project", "--no-python-downloads", wanted)
        done = heard(asking)
        program = done.stdout.strip()
        if done.returncode == 0 and (found := version_of(program)):
            return found, program
    return None


# -- what an environment has


@dataclass(frozen=True)
class Distribution:
    """One installed package. `line` installs it again from where it came; `asks`: requirements."""

    name: str
    version: str
    line: str
    asks: Sequence[str] = ()
    requires_python: str | None = None


def search_path(place: Path) -> list[str]:
    """Where an environment that was made here has its packages."""
    return [str(folder) for folder in sorted(place.glob("lib/python*/site-packages"))]


def search_path_of(program: str) -> list[str]:
    """Where a Python looks for packages; empty where it does not run."""
    printed = _said_by(program, "import json, sys; print(json.dumps(sys.path))")
    found: list[str] = json.loads(printed) if printed else []
    return found


def distributions(paths: Sequence[str]) -> Iterator[Distribution]:
    """All that is installed there; of a name that stands twice the first, as an import finds it."""
    seen: set[str] = set()
    for found in importlib.metadata.distributions(path=list(paths)):
        metadata = found.metadata
        name = metadata["Name"] if "Name" in metadata else None  # noqa: SIM401 - it has no get
        if name and name not in seen:
            seen.add(name)
            line = _line(name, found.version, found.read_text("direct_url.json"))
            key = "Requires-Python"
            python = metadata[key] if key in metadata else None  # noqa: SIM401
            yield Distribution(name, found.version, line, found.requires or (), python)


def _line(name: str, version: str, direct: str | None) -> str:
    origin = json.loads(direct) if direct else {}
    url = origin.get("url", "")
    if not url:
        return f"{name}=={version}"
    if vcs := origin.get("vcs_info"):
        return f"{name} @ {vcs.get('vcs', 'git')}+{url}@{vcs.get('commit_id', 'HEAD')}"
    if (origin.get("dir_info") or {}).get("editable"):
        return f"-e {url.removeprefix('file://')}"
    return f"{name} @ {url}"


# -- making one


@dataclass(frozen=True)
class EnvironmentJob:
    """`loose` is tried where `requirements` and `files` conflict; `overrides` win over packages."""

    place: str
    python: str
    requirements: Sequence[str] = ()
    files: Sequence[str] = ()
    loose: Sequence[str] = ()
    overrides: Sequence[str] = ()
    indexes: Sequence[str] = ()
    find_links: Sequence[str] = ()
    pre: bool = False
    no_deps: bool = False  # tried last: what is there was installed so, whatever it asks for
    mark: str | None = None
    # By name the versions without which it is no such environment.
    firm: Mapping[str, str] = field(default_factory=dict)
    listed: str | None = None  # where it is written what is in it: a resolver may have had a say

    def of(self, sources: "Sources") -> "EnvironmentJob":
        """The same, with packages from these places."""
        return replace(
            self, indexes=sources.indexes, find_links=sources.find_links, pre=sources.pre
        )


def main() -> None:
    job_file = Path(sys.argv[1])
    content = marshal.loads(job_file.read_bytes())  # noqa: S302 - from a process of ours
    make(EnvironmentJob(**content), job_file.parent)


def make(job: EnvironmentJob, beside: Path) -> None:
    """`beside`: where the files of requirements go that the installer reads."""
    place = Path(job.place)
    place.parent.mkdir(parents=True, exist_ok=True)
    _install(job, beside)
    found = {one.name: one.version for one in distributions(search_path(place))}
    # What was installed is what is judged: another version is another state.
    for name, (version, had) in other_versions(job.firm, found).items():
        print(f"{name} {version} was asked for, and {had} was installed", file=sys.stderr)
        raise SystemExit(1)
    if job.listed is not None:
        Path(job.listed).parent.mkdir(parents=True, exist_ok=True)
        Path(job.listed).write_text(json.dumps(found), encoding="utf-8")
    if job.mark is not None:
        Path(job.mark).touch()


def other_versions(
    wanted: Mapping[str, str], found: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """By name what was wanted and what is there instead."""
    have = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found.items()}
    return {
        name: (version, have.get(name, "nothing"))
        for name, version in wanted.items()
        if _plain(have.get(name, "")) != _plain(version)
    }


def _plain(version: str) -> str:
    """`1.0` is `1.0.0`, and what was built here is the release it was built of."""
    return re.sub(r"(\.0)+$", "", version.lower().partition("+")[0])


def _install(job: EnvironmentJob, beside: Path) -> None:
    """As asked; else with the dependants free to move. Errors are those of the first try."""
    ways = [(job.requirements, False)]
    ways += [(job.loose, False)] if job.loose else []
    ways += [(job.requirements, True)] if job.no_deps else []
    # As variables: command lines can be read by other users. Indexes are alike, as pip has it.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    if job.indexes:
        variables |= {"UV_DEFAULT_INDEX": job.indexes[0], "UV_INDEX": " ".join(job.indexes[1:])}
    if job.overrides:
        variables["UV_OVERRIDE"] = _file(beside / "overrides.txt", job.overrides)
    first = ""
    for requirements, no_deps in ways:
        shutil.rmtree(job.place, ignore_errors=True)
        new = (uv_program(), "venv", *_QUIETLY, "--no-project", "--python", job.python, job.place)
        if failed := _failure(new):
            print(failed, file=sys.stderr)
            raise SystemExit(1)
        words = _installing(job, requirements, beside, no_deps=no_deps)
        failure = _failure(words, variables) if words else None
        if failure is None:
            return
        first = first or failure
        if _NETWORK.search(failure):
            break
    for line in _conflict(first):
        print(line, file=sys.stderr)
    raise SystemExit(UNREACHABLE if _NETWORK.search(first) else 1)


def _installing(
    job: EnvironmentJob, requirements: Sequence[str], beside: Path, *, no_deps: bool
) -> list[str]:
    """The words of one try; none where there is nothing to install."""
    files = list(job.files)
    if requirements:
        files.append(_file(beside / "requirements.txt", requirements))
    if not files:
        return []
    words = [*installer(f"{job.place}/bin/python")]
    words += [word for file in files for word in ("-r", file)]
    words += [word for place in job.find_links for word in ("--find-links", place)]
    words += [] if job.indexes else ["--no-index"]
    words += ["--no-deps"] if no_deps else []
    return [*words, "--prerelease=allow"] if job.pre else words


def _conflict(output: str) -> list[str]:
    """What the installer said, with its reason as the last line."""
    lines = [re.sub(r"^\W+(?=\w)", "", line).strip() for line in output.splitlines()]
    lines = [line for line in lines if line]
    because = (at for at, line in enumerate(lines) if line.startswith("cause: Because "))
    errors = (at for at, line in enumerate(lines) if line.startswith("error: "))
    first = next(because, next(errors, max(0, len(lines) - 1)))
    reason = " ".join(lines[first:]).removeprefix("cause: ").removeprefix("error: ")
    return [*lines, reason[:_MOST_REASON]]


def installer(python: str) -> list[str]:
    """The words that install into the environment of this Python, up to what is installed."""
    return [uv_program(), "pip", "install", *_QUIETLY, "--python", python]


def _file(path: Path, lines: Sequence[str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _failure(words: Sequence[str], variables: Mapping[str, str] | None = None) -> str | None:
    """What it said, if it failed."""
    done = heard(words, env={**os.environ, **(variables or {})})
    return done.stdout + done.stderr if done.returncode else None
