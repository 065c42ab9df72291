"""Makes one virtual environment with one set of packages.

Runs as a process of its own, told by a file (standard library only), so that it goes through the
executor like a trial and can be killed like one. An environment counts as made only once its mark
is written, after everything else; the mark says where it is. `uv` makes them where it can be had,
by hard links from its cache; else `venv` and pip do.
"""

import json
import marshal
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from aorta.runtimes.checkout import GIT_FAULT, TreeJob
from aorta.runtimes.pythons import find_uv

if TYPE_CHECKING:  # started for every state: what reads an index is half of its imports
    from aorta.runtimes.package_index import Sources

# The exit code that says: the index could not be read, whatever the packages.
UNREACHABLE = GIT_FAULT
_NETWORK = re.compile(
    r"error sending request|dns error|failed to lookup address|Connection refused|"
    r"NewConnectionError"
    r"|Max retries exceeded|operation timed out|Read timed out|No space left on device"
)
_REASON = re.compile(r"(cause: )?Because |ERROR: (Cannot|Could|No) ")
_MOST_REASON = 400
# The constraints of a project around us are not of the two sides.
_UV_QUIETLY = ("--quiet", "--no-config")


@dataclass(frozen=True)
class EnvironmentJob:
    """`loose` is tried where `requirements` cannot be installed together. `overrides` are
    requirements that no package may contradict. `trees` are checkouts that are installed over it,
    by their build command or as they are.
    """

    place: str
    python: str
    requirements: Sequence[str]
    loose: Sequence[str] = ()
    overrides: Sequence[str] = ()
    indexes: Sequence[str] = ()
    find_links: Sequence[str] = ()
    pre: bool = False
    no_deps: bool = False  # tried last: what is there was installed so, whatever it asks for
    trees: Sequence[TreeJob] = ()
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
    told = Path(sys.argv[1])
    content = marshal.loads(told.read_bytes())  # noqa: S302 - from a process of ours
    content["trees"] = [TreeJob(**tree) for tree in content["trees"]]
    make(EnvironmentJob(**content), told.parent)


def make(job: EnvironmentJob, beside: Path) -> None:
    """`beside`: where the files of requirements go that the installer reads."""
    place = Path(job.place)
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    _install(job, beside)
    found = {name: version for name, version, _, _ in distributions(place)}
    # What was installed is what is judged: another version is another state.
    for name, (version, had) in other_versions(job.firm, found).items():
        print(f"{name} {version} was asked for, and {had} was installed", file=sys.stderr)
        raise SystemExit(1)
    if job.listed is not None:
        Path(job.listed).parent.mkdir(parents=True, exist_ok=True)
        Path(job.listed).write_text(json.dumps(found), encoding="utf-8")
    for tree in job.trees:
        tree.check_out()
        _install_tree(job, tree)
    if job.mark is not None:
        Path(job.mark).write_text(place.name, encoding="utf-8")


def other_versions(
    wanted: "Mapping[str, str]", found: "Mapping[str, str]"
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
    first = ""
    for requirements, no_deps in ways:
        shutil.rmtree(job.place, ignore_errors=True)
        _run(_new_environment(job))
        if not requirements:
            return
        words = _installing(job, requirements, beside, no_deps=no_deps)
        variables = _where_from(job)
        if job.overrides:
            variables["UV_OVERRIDE"] = _file(beside / "overrides.txt", job.overrides)
        code, said = _run(words, variables, may_fail=True)
        if code == 0:
            return
        first = first or said
        if _NETWORK.search(said):
            break
    for line in _conflict(first):
        print(line, file=sys.stderr)
    raise SystemExit(UNREACHABLE if _NETWORK.search(first) else 1)


def _conflict(said: str) -> list[str]:
    """What the installer said, with its reason as the last line."""
    lines = [re.sub(r"^\W+(?=\w)", "", line).strip() for line in said.splitlines()]
    lines = [line for line in lines if line]
    starts = (place for place, line in enumerate(lines) if _REASON.match(line))
    first = next(starts, max(0, len(lines) - 1))
    reason = " ".join(lines[first : first + 3]).removeprefix("cause: ")
    return [*lines, reason[:_MOST_REASON]]


def _new_environment(job: EnvironmentJob) -> list[str]:
    if uv := find_uv():
        return [uv, "venv", *_UV_QUIETLY, "--no-project", "--python", job.python, job.place]
    return [job.python, "-m", "venv", "--without-pip", job.place]


def _installing(
    job: EnvironmentJob, requirements: Sequence[str], beside: Path, *, no_deps: bool
) -> list[str]:
    listed = _file(beside / "requirements.txt", requirements)
    words = [*installer(f"{job.place}/bin/python"), "-r", listed]
    if find_uv():
        words += [word for place in job.find_links for word in ("--find-links", place)]
        words += [] if job.indexes else ["--no-index"]
    words += ["--no-deps"] if no_deps or (job.overrides and not find_uv()) else []
    if job.pre:
        words += ["--prerelease=allow"] if find_uv() else ["--pre"]
    return words


def _install_tree(job: EnvironmentJob, tree: TreeJob) -> None:
    words = ["sh", "-c", str(tree.build)]
    if tree.build is None:
        words = [*installer(f"{job.place}/bin/python"), "--no-deps", str(tree.tree)]
    path = f"{job.place}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = {**os.environ, **_where_from(job), "VIRTUAL_ENV": job.place, "PATH": path}
    if subprocess.run(words, cwd=tree.tree, env=variables, check=False).returncode:
        raise SystemExit(1)


def distributions(place: Path) -> Iterator[tuple[str, str, list[str], str | None]]:
    """Name, version, requirements and Pythons of all that is installed there."""
    for file in sorted(place.glob("lib*/python*/site-packages/*.dist-info/METADATA")):
        said = HeaderParser().parsestr(file.read_text(encoding="utf-8", errors="replace"))
        name, version = said.get("Name"), said.get("Version")
        if name and version:
            asked = [str(line) for line in said.get_all("Requires-Dist", [])]
            yield name, version, asked, said.get("Requires-Python")


def installer(python: str) -> list[str]:
    """The words that install into the environment of this Python, up to what is installed."""
    if uv := find_uv():
        return [uv, "pip", "install", *_UV_QUIETLY, "--python", python]
    words = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    return [*words, "--disable-pip-version-check", "--no-input"]


def _where_from(job: EnvironmentJob) -> dict[str, str]:
    """Where packages come from, as variables: command lines can be read by other users."""
    first, extra = next(iter(job.indexes), ""), " ".join(job.indexes[1:])
    if find_uv():
        said = {"UV_DEFAULT_INDEX": first, "UV_INDEX": extra}
        said["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # several indexes are alike, as pip has it
    else:
        said = {"PIP_INDEX_URL": first, "PIP_NO_INDEX": "" if first else "1"}
        said |= {"PIP_EXTRA_INDEX_URL": extra, "PIP_FIND_LINKS": " ".join(job.find_links)}
    return {name: value for name, value in said.items() if value or name.startswith("PIP_")}


def index_options(indexes: Sequence[str], find_links: Sequence[str], *, uv: bool) -> list[str]:
    """The same for people, who type it."""
    words = [word for place in find_links for word in ("--find-links", place)]
    if not indexes:
        return [*words, "--no-index"]
    first, extra = ("--default-index", "--index") if uv else ("--index-url", "--extra-index-url")
    words += [first, indexes[0]]
    words += [word for index in indexes[1:] for word in (extra, index)]
    return [*words, "--index-strategy", "unsafe-best-match"] if uv else words


def _file(path: Path, lines: Sequence[str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def _run(
    words: Sequence[str], variables: Mapping[str, str] | None = None, *, may_fail: bool = False
) -> tuple[int, str]:
    done = subprocess.run(
        words,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode and not may_fail:
        print(said, file=sys.stderr)
        raise SystemExit(1)
    return done.returncode, said
