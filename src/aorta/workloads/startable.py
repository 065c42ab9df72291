"""Whether a command can be started at all, said before anything runs, with what may be meant."""

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, dropwhile
from pathlib import Path

from aorta.core.errors import UsageError

_SHELL = re.compile(r"[|&;<>$`*?\s]")
_INTERPRETER = re.compile(r"python[\d.]*|bash|sh")
_SWITCH = re.compile(r"-[uBOEIsSqvbex]+")


def check_startable(
    command: Sequence[str] | str,
    cwd: Path,
    path: str | None = None,
    comes_later: Callable[[str], bool] = lambda _file: False,
    where: str = "--",
) -> None:
    """Raises `UsageError` where the first word is no program here (`path`: in place of PATH), or is
    an interpreter without its script. Text for a shell is not checked. `comes_later`: whether a
    file will be there when it runs.
    """
    if isinstance(command, str) or not command:
        return
    name = command[0]
    place = os.fspath(cwd / name) if "/" in name else name
    if shutil.which(place, path=path) is None and not ("/" in name and comes_later(name)):
        why = _why(name, command, cwd, path)
        raise UsageError(f"{name!r} cannot be started: {why}", where=where)
    script = _script_of(command)
    if script is not None and not (cwd / script).exists() and not comes_later(script):
        near = did_you_mean(Path(script).name, _names_in((cwd / script).parent))
        raise UsageError(f"there is no file {script!r} for {name!r} to run{near}", where=where)


def _script_of(command: Sequence[str]) -> str | None:
    """The file that an interpreter is given right behind its name and its switches."""
    if _INTERPRETER.fullmatch(Path(command[0]).name) is None:
        return None
    words = dropwhile(_SWITCH.fullmatch, command[1:])
    script = next(words, "-")
    return None if script.startswith("-") else script


def did_you_mean(name: str, others: Iterable[str]) -> str:
    """The end of a sentence that names the nearest of the others; empty where none is near."""
    near = difflib.get_close_matches(name, set(others), 1, 0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def _why(name: str, command: Sequence[str], cwd: Path, path: str | None) -> str:
    if len(command) == 1 and _SHELL.search(name):
        return f"that is a text for a shell; expected: -- bash -c {shlex.quote(name)}"
    file = cwd / name
    if file.is_file():
        with_python = f"python {name}" if name.endswith(".py") else f"bash {name}"
        return f"it is a file that may not be executed; expected such as: -- {with_python}"
    folders = [file.parent] if "/" in name else _folders_of(path)
    near = did_you_mean(file.name, chain.from_iterable(map(_names_in, folders)))
    return f"there is no such program{near}"


def _folders_of(path: str | None) -> list[Path]:
    return [Path(each) for each in (path or os.environ.get("PATH", os.defpath)).split(os.pathsep)]


def _names_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()] if folder.is_dir() else []
