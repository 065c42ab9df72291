"""The workload's files that a reproducer needs: those the command names, those they name, and those
a run opened. And its command and imports as they run elsewhere; what cannot be moved is named.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from aorta.engine.rundir import is_output
from aorta.runtimes.programs import heard
from aorta.scrub.paths import is_below_a_variable
from aorta.scrub.secrets import secrets_in
from aorta.scrub.vocabulary import announces_secret, is_secret_value

MOST_FILES_SEEN = 20_000
MOST_BYTES_TAKEN = 32 << 20
_MOST_TEXT = 1 << 20
_PACKAGES = frozenset({"node_modules", "venv", "site-packages"})
_VIRTUAL_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_PACKAGE = "__init__.py"
_WORD = re.compile(r"[\w.+\-/]+")


@dataclass(frozen=True)
class WorkloadFiles:
    """Files below `root`, by their relative names."""

    root: Path
    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()  # needed too, and too large to copy

    def copy_to(self, folder: Path) -> None:
        for name in self.names:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.root / name, target)


def needed_files(
    root: Path,
    command: Sequence[str],
    globs: Sequence[str] | None,
    apart: Sequence[Path],
    opened: Collection[str] = (),
) -> WorkloadFiles:
    """What to copy of `root` but `apart`, smallest first; `opened`: files that a run opened."""
    files = dict(_walk(root, apart))
    if globs is not None:
        names = {name for name in files if any(fnmatchcase(name, glob) for glob in globs)}
    else:
        names = set(_named(root, files, " ".join(command).replace(f"{root}/", "")))
    names |= files.keys() & set(opened)
    # The `__init__.py` of every package that a module lies in: importing it imports them.
    folders = {parent for name in names for parent in Path(name).parents} - {Path()}
    names |= files.keys() & {(folder / _PACKAGE).as_posix() for folder in folders}
    taken, total = [], 0
    for name in sorted(names, key=files.__getitem__):
        total += files[name]
        if total <= MOST_BYTES_TAKEN:
            taken.append(name)
    left_out = names.difference(taken)
    return WorkloadFiles(root, tuple(sorted(taken)), tuple(sorted(left_out)))


def _walk(root: Path, apart: Sequence[Path]) -> Iterator[tuple[str, int]]:
    left_out = {path.resolve() for path in apart}
    seen = 0
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not _is_no_workload(here / name) and (here / name).resolve() not in left_out
        )
        for name in sorted(names):
            path = here / name
            seen += 1
            if seen > MOST_FILES_SEEN:
                return
            if path.is_file() and path.resolve() not in left_out:
                yield str(path.relative_to(root)), path.stat().st_size


def _is_no_workload(folder: Path) -> bool:
    """Hidden folders, virtual environments, and whatever a verb of ours wrote."""
    if folder.name == "__pycache__" or folder.name.startswith("."):
        return True
    return is_installed(folder) or is_output(folder)


def is_installed(folder: Path) -> bool:
    """Packages of others, or a virtual environment."""
    if folder.name in _PACKAGES:
        return True
    return any((folder / name).exists() for name in _VIRTUAL_ENVIRONMENT)


def _named(root: Path, files: dict[str, int], command: str) -> list[str]:
    known_as = _names_of(files)
    of_many_words = [name for name in known_as if not _WORD.fullmatch(name)]
    found: dict[str, None] = {}
    waiting = [command]
    while waiting:
        text = waiting.pop()
        words = {word.rstrip(".") for word in _WORD.findall(text)}
        parts = {part for word in words for part in (word, word.rsplit("/", 1)[-1])}
        parts |= {name for name in of_many_words if name in text}
        for name in sorted({file for part in parts for file in known_as.get(part, ())}):
            if name not in found:
                found[name] = None
                waiting.append(_text_of(root / name))
    return list(found)


def _names_of(files: dict[str, int]) -> dict[str, list[str]]:
    """Under which words a file may be named: its path, its name, and for Python the module."""
    found: dict[str, list[str]] = {}
    for name in files:
        words = {name, f"./{name}", name.rsplit("/", 1)[-1]} - {_PACKAGE}
        if name.endswith(".py") and name != _PACKAGE:
            module = name.removesuffix(f"/{_PACKAGE}").removesuffix(".py").replace("/", ".")
            words |= {module, module.rsplit(".", 1)[-1]}
            words |= {module.removesuffix(".__main__")}  # `python -m package`
        for word in words:
            found.setdefault(word, []).append(name)
    return found


def _text_of(path: Path) -> str:
    """What a small text file says; data is not read for names."""
    try:
        if path.stat().st_size > _MOST_TEXT:
            return ""
        content = path.read_bytes()
    except OSError:
        return ""
    return "" if b"\0" in content else content.decode("utf-8", "replace")


OUTSIDE = "outside"
"""The folder inside the workload for files that the command named elsewhere."""

_SHELL = re.compile(r"#!.*\b(?:ba|da|z|k)?sh\b")
_ABSOLUTE = re.compile(r"(?<![\w./~\-])(?<!#!)/(?!/)[^\s\"'`;|&()<>$*?{}\[\]:,\\]+")
_SYSTEM = re.compile(  # /dev/shm is where jobs stage their data
    r"/(?:usr|bin|sbin|lib|lib32|lib64|etc|proc|sys|dev(?!/shm/)|boot|run|opt/rocm[^/]*)/"
)
_PROGRAM = re.compile(r"python[\d.]*\Z|torchrun\Z")


@dataclass
class Portable:
    """What became of the absolute paths of one command."""

    root: Path
    copied: dict[str, Path] = field(default_factory=dict)  # name in the workload -> file
    programs: list[Path] = field(default_factory=list)  # directories of what is called by name
    stays: list[str] = field(default_factory=list)  # paths of this machine that are still needed
    scripts: dict[str, str] = field(default_factory=dict)  # that called a program by its path

    def call_by_name(self, files: WorkloadFiles) -> None:
        """Strips paths of programs in shell scripts: other machines lack them."""
        for name in files.names:
            script = _text_of(files.root / name)
            if not (name.endswith(".sh") or _SHELL.match(script)):
                continue
            named = _with_paths(script, lambda path: self._name_of(path) or path)
            if named != script:
                self.scripts[name] = named

    def text(self, text: str) -> str:
        return _with_paths(text, self._moved)

    def _moved(self, path: str) -> str:
        place = Path(path)
        for root in dict.fromkeys((self.root, self.root.resolve())):
            if place == root or place.is_relative_to(root):
                inside = place.relative_to(root).as_posix()
                return "." if inside == "." else f"./{inside}"
        if _SYSTEM.match(path) or not place.exists():
            return path
        if name := self._name_of(path):
            return name
        if place.is_file() and _text_of(place):
            name = f"{OUTSIDE}/{place.name}"
            if self.copied.setdefault(name, place) == place:
                return f"./{name}"
        self.stays.append(path)
        return path

    def _name_of(self, path: str) -> str | None:
        """What a program of this machine is called where it is found by its name."""
        place = Path(path)
        if _SYSTEM.match(path) or not (place.is_file() and os.access(place, os.X_OK)):
            return None
        if place.parent.name != "bin" and not _PROGRAM.match(place.name):
            return None
        self.programs.append(place.parent)
        return place.name


def _with_paths(text: str, moved: Callable[[str], str]) -> str:
    """The text, with something else in the place of each of its absolute paths."""

    def instead(found: re.Match[str]) -> str:
        path = found.group()
        return path if is_below_a_variable(text, found.start()) else moved(path)

    return _ABSOLUTE.sub(instead, text)


def made_portable(command: Sequence[str], root: Path) -> tuple[tuple[str, ...], Portable]:
    """The command for a copy of `root`."""
    found = Portable(root)
    return tuple(map(found.text, command)), found


def secret_variables(variables: dict[str, str]) -> dict[str, str]:
    """Those that may not be written down: by their name, or by what they hold."""
    return {
        name: value
        for name, value in variables.items()
        if (announces_secret(name) and is_secret_value(name, value))
        or any(True for _ in secrets_in(f"{name}={value}"))
    }


def baked(value: str, root: Path, here: str, quote: Callable[[str], str]) -> str:
    """A shell word for a value, in which the way to `root` is the way to its copy."""
    pattern = re.compile(rf"(?<![\w./\-]){re.escape(str(root))}(?=/|:|\Z)")
    between = f'"{here}"'
    return between.join(quote(part) if part else "" for part in pattern.split(value)) or "''"


# -- the installed packages that Python files import, in the releases that they had when it failed

_ASK = """\
import importlib.metadata as m, json
print(json.dumps({n: [[d, m.version(d)] for d in sorted(set(ds))]
                  for n, ds in m.packages_distributions().items()}))
"""
_SECONDS_TO_LIST = 60


def requirements(files: Sequence[Path], python: str | None) -> dict[str, list[str]]:
    """The packages (`name==version`) behind each imported module; {} if `python` fails to say."""
    own = {file.stem for file in files} | {file.parent.name for file in files}
    wanted = {name for file in files for name in _imported(file)} - own - sys.stdlib_module_names
    installed = _installed(python) if python and wanted else {}
    return {
        name: [f"{package}=={version}" for package, version in installed[name]]
        for name in sorted(wanted & installed.keys())
    }


def requirements_text(found: Mapping[str, Sequence[str]]) -> str:
    """As a `requirements.txt`, one package a line."""
    return "".join(f"{line}\n" for line in sorted({line for one in found.values() for line in one}))


def _imported(file: Path) -> Iterator[str]:
    """The packages at the top of what a file imports; of one that does not parse, none."""
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_text("utf-8", "replace"))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@lru_cache(4)
def _installed(python: str) -> dict[str, list[tuple[str, str]]]:
    """By what is imported: the packages that bring it, with their versions."""
    try:
        return dict(json.loads(heard((python, "-c", _ASK), timeout=_SECONDS_TO_LIST).stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
