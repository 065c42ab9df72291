"""The Pythons of this machine: which one is meant, which releases there are, and what markers say
of another.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_MINOR = re.compile(r"\d+")


def active_environment() -> str:
    """The environment that `python` on the path belongs to."""
    if active := os.environ.get("VIRTUAL_ENV"):
        return active
    program = shutil.which("python") or shutil.which("python3") or sys.executable
    done = subprocess.run(
        (program, "-c", "import sys; print(sys.prefix)"),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or sys.prefix


def this_python() -> str:
    return ".".join(str(part) for part in sys.version_info[:3])


def marker_environment(python: str) -> dict[str, str]:
    """What markers are judged by, for another Python on this machine."""
    from packaging.markers import default_environment

    around = {name: str(value) for name, value in default_environment().items()}
    parts = python.split(".")
    around["python_version"] = ".".join(parts[:2])
    around["python_full_version"] = python if len(parts) > 2 else f"{python}.0"
    return around


@cache
def version_of(program: str) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        ask = "import platform; print(platform.python_version())"
        done = subprocess.run(
            (program, "-I", "-c", ask), capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def pythons_between(good: str, bad: str) -> list[str]:
    """Both, and one of each minor version between that is on this machine."""
    ends = [tuple(int(part) for part in re.findall(r"\d+", one)[:2]) for one in (good, bad)]
    low, high = sorted(ends)
    minors = range(low[1] + 1, high[1]) if low[0] == high[0] else range(0)
    found = [one[0] for minor in minors if (one := find_python(f"{low[0]}.{minor}"))]
    return [good, *(found if ends[0] == low else reversed(found)), bad]


@cache
def find_python(version: str) -> tuple[str, str] | None:
    """That very release, or another of the same minor version."""
    minor = _MINOR.findall(version)[:2]
    programs = ((version_of(program), program) for program in _programs(version))
    found = [(v, p) for v, p in programs if v and _MINOR.findall(v)[:2] == minor]
    return next((one for one in found if one[0] == version), found[0] if found else None)


def _programs(version: str) -> Iterator[str]:
    minor = ".".join(re.findall(r"\d+", version)[:2])
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from (str(p) for p in sorted(pyenv.glob(f"versions/{version}/bin/python")))
    if uv := find_uv():
        for wanted in (version, minor):
            asking = (uv, "python", "find", "--no-project", "--no-python-downloads", wanted)
            done = subprocess.run(asking, capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.strip():
                yield done.stdout.strip()
    if program := shutil.which(f"python{minor}"):
        yield program
    yield from (str(p) for p in sorted(pyenv.glob(f"versions/{minor}.*/bin/python"), reverse=True))


def find_uv() -> str | None:
    """The one that AORTA_UV names (empty: none, pip instead), else beside this Python, where its
    wheel puts it, else on the path.
    """
    if (named := os.environ.get("AORTA_UV")) is not None:
        return named or None
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")
