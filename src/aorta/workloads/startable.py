"""Whether a command can be started at all, said before anything runs, with what may be meant."""

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from aorta.core.errors import UsageError

_SHELL = re.compile(r"[|&;<>$`*?\s]")


def check_startable(command: Sequence[str] | str, cwd: Path, path: str | None = None) -> None:
    """Raises `UsageError` where the first of these words is no program of this machine. A text for
    a shell is left to the shell. `path`: where programs are looked for, if not in PATH.
    """
    if isinstance(command, str) or not command:
        return
    name = command[0]
    where = os.fspath(cwd / name) if "/" in name else name
    if shutil.which(where, path=path) is not None:
        return
    raise UsageError(f"{name!r} cannot be started: {_why(name, command, cwd, path)}", where="--")


def _why(name: str, command: Sequence[str], cwd: Path, path: str | None) -> str:
    if len(command) == 1 and _SHELL.search(name):
        return f"that is a text for a shell; expected: -- bash -c {shlex.quote(name)}"
    file = cwd / name
    if file.is_file():
        with_python = f"python {name}" if name.endswith(".py") else f"bash {name}"
        return f"it is a file that may not be executed; expected such as: -- {with_python}"
    near = difflib.get_close_matches(Path(name).name, set(_programs(path)), 1, 0.7)
    return f"there is no such program{f'; did you mean {near[0]!r}?' if near else ''}"


def _programs(path: str | None) -> Iterator[str]:
    for folder in map(Path, (path or os.environ.get("PATH", os.defpath)).split(os.pathsep)):
        if folder.is_dir():
            yield from (program.name for program in folder.iterdir())
