"""A command as it runs elsewhere: programs by name, files inside the bundle, and what cannot be moved named as such."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aorta.scrub.paths import is_below_a_variable
from aorta.scrub.secrets import secrets_in
from aorta.scrub.vocabulary import announces_secret, is_secret_value

OUTSIDE = "outside"
"""The folder inside the workload for files that the command named elsewhere."""

_ABSOLUTE = re.compile(r"(?<![\w./~\-])/(?!/)[^\s\"'`;|&()<>$*?{}\[\]:,\\]+")
_SYSTEM = re.compile(r"/(?:usr|bin|sbin|lib|lib32|lib64|etc|proc|sys|dev|boot|run|opt/rocm[^/]*)/")
_PROGRAM = re.compile(r"python[\d.]*\Z|torchrun\Z")
_MOST_COPIED = 1 << 20


@dataclass
class Portable:
    """What became of the absolute paths of one command."""

    root: Path
    copied: dict[str, Path] = field(default_factory=dict)  # name in the workload -> file
    programs: list[Path] = field(default_factory=list)  # directories of what is called by name
    stays: list[str] = field(default_factory=list)  # paths of this machine that are still needed

    def text(self, text: str) -> str:
        def moved(found: re.Match[str]) -> str:
            if is_below_a_variable(text, found.start()):
                return found.group()
            return self._moved(found.group())

        return _ABSOLUTE.sub(moved, text)

    def _moved(self, path: str) -> str:
        place = Path(path)
        for root in dict.fromkeys((self.root, self.root.resolve())):
            if place == root or place.is_relative_to(root):
                inside = place.relative_to(root).as_posix()
                return "." if inside == "." else f"./{inside}"
        if _SYSTEM.match(path) or not place.exists():
            return path
        is_program = place.is_file() and os.access(place, os.X_OK)
        if is_program and (place.parent.name == "bin" or _PROGRAM.match(place.name)):
            self.programs.append(place.parent)
            return place.name
        if place.is_file() and _is_small_text(place):
            name = f"{OUTSIDE}/{place.name}"
            if self.copied.setdefault(name, place) == place:
                return f"./{name}"
        self.stays.append(path)
        return path


def made_portable(
    command: Sequence[str], root: Path, *, moved: bool
) -> tuple[tuple[str, ...], Portable]:
    """The command for a copy of `root`; as it is where it runs in `root` itself."""
    found = Portable(root)
    return tuple(map(found.text, command)) if moved else tuple(command), found


def secret_variables(variables: dict[str, str]) -> dict[str, str]:
    """Those that may not be written down: by their name, or by what they hold."""
    return {name: value for name, value in variables.items() if _is_secret(name, value)}


def lines_with(script: str, paths: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Each path with the line of the script that still needs it."""
    for path in dict.fromkeys(paths):
        for number, line in enumerate(script.splitlines(), start=1):
            if path in line and not line.startswith("#"):
                yield path, number
                break


def baked(value: str, root: Path, here: str, quote: Callable[[str], str]) -> str:
    """A shell word for a value, in which the way to `root` is the way to its copy."""
    pattern = re.compile(rf"(?<![\w./\-]){re.escape(str(root))}(?=/|:|\Z)")
    between = f'"{here}"'
    return between.join(quote(part) if part else "" for part in pattern.split(value)) or "''"


def _is_secret(name: str, value: str) -> bool:
    if announces_secret(name) and is_secret_value(name, value):
        return True
    return any(True for _ in secrets_in(f"{name}={value}"))


def _is_small_text(path: Path) -> bool:
    try:
        return path.stat().st_size <= _MOST_COPIED and b"\0" not in path.read_bytes()
    except OSError:
        return False
