"""What a command opens without naming it, made to shrink: the command is run in a place where that is replaced.

A place is a temporary directory of links to everything in the working directory, but for the files that shrink and for
configurations, which are written anew with other numbers and lists in them. It is plain shell, so that the reproducer that ships needs nothing else.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.reduce.proposed_configs import CONFIGS, settings_of

_CODE = (
    ".py",
    ".pyc",
    ".pyi",
    ".so",
    ".sh",
    ".bash",
    ".pth",
    ".egg-info",
    ".log",
    ".lock",
    ".md",
    ".cfg",
    ".ini",
)
_ALWAYS_CONFIGS = (".yaml", ".yml", ".toml")
_MOST_BYTES = 1 << 26
_MOST_FILES = 6


@dataclass(frozen=True)
class Replaced:
    """Something in the working directory that another thing takes the place of: a variable's file, or a rewritten text."""

    path: str
    variable: str = ""
    edits: tuple[str, ...] = ()  # of a configuration: sed's


@dataclass(frozen=True)
class FileProposal:
    axes: tuple[Mapping[str, Any], ...] = ()
    replaced: tuple[Replaced, ...] = ()


def propose_files(opened: Sequence[str], cwd: Path, taken: Sequence[str]) -> FileProposal:
    """Axes for the data and the configurations among files that a run opened, seen from its working directory."""
    names = set(taken)
    data = [name for name in sorted(opened) if _is_data(cwd / name)]
    folders = _folders(data, cwd)
    alone = [name for name in data if not any(name.startswith(f"{f}/") for f in folders)]
    found = [_folder(folder, names) for folder in folders] + [
        _config(name, cwd, names) if name.endswith(CONFIGS) else _file(name, cwd, names)
        for name in alone
    ]
    kept = [one for one in found if one.axes][:_MOST_FILES]
    return FileProposal(
        tuple(axis for one in kept for axis in one.axes),
        tuple(replaced for one in kept for replaced in one.replaced),
    )


def _folder(name: str, taken: set[str]) -> FileProposal:
    variable = _variable(name, "DIR", taken)
    axis = {"name": variable, "kind": "dir_subset", "initial": name}
    return FileProposal((axis,), (Replaced(name, variable),))


def _config(name: str, cwd: Path, taken: set[str]) -> FileProposal:
    axes, edits = settings_of(cwd / name, taken)
    return FileProposal(tuple(axes), (Replaced(name, edits=tuple(edits)),))


def _file(name: str, cwd: Path, taken: set[str]) -> FileProposal:
    if not _has_lines(cwd / name):
        return FileProposal()
    variable = _variable(name, "FILE", taken)
    axis = {"name": variable, "kind": "file_subset", "initial": name}
    return FileProposal((axis,), (Replaced(name, variable),))


def in_a_place(command: str, replaced: Sequence[Replaced]) -> str:
    """The command, run where each of these is replaced."""
    if not replaced:
        return command
    lines = [
        'place="$(mktemp -d ${AORTA_STEP_TIMES:+-p "${AORTA_STEP_TIMES%/*}"})"',  # in a trial: its own
        "trap 'rm -rf \"$place\"' EXIT",
        'for entry in "$PWD"/* "$PWD"/.[!.]*; do [ -e "$entry" ] && ln -s "$entry" "$place/"; done',
    ]
    opened: set[Path] = set()
    for one in replaced:
        for parent in reversed(Path(one.path).parents[:-1]):
            if parent not in opened:
                lines += _as_folder(shlex.quote(str(parent)))
                opened.add(parent)
        target = f'"$place"/{shlex.quote(one.path)}'
        lines.append(f"rm -f {target}")
        if one.variable:
            lines.append(f'ln -s "$(realpath "${one.variable}")" {target}')
        else:
            edits = " ".join(f'-e "{edit}"' for edit in one.edits)
            lines.append(f"sed {edits} {shlex.quote(one.path)} > {target}")
    return "\n".join([*lines, 'cd "$place"', command])


def _as_folder(name: str) -> list[str]:
    """A link to a folder becomes a folder of links."""
    here = f'"$place"/{name}'
    return [
        f"[ -L {here} ] && rm {here}; mkdir -p {here}",
        f'for entry in "$PWD"/{name}/*; do [ -e "$entry" ] && ln -s "$entry" {here}/; done',
    ]


def _is_data(path: Path) -> bool:
    if any(part.startswith(".") or part == "__pycache__" for part in path.parts[-3:]):
        return False
    if path.name.endswith(_CODE):
        return False
    try:
        return path.is_file() and 0 < path.stat().st_size <= _MOST_BYTES
    except OSError:
        return False


def _has_lines(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return b"\0" not in content[:4096] and len(content.splitlines()) > 1


def _folders(data: Sequence[str], cwd: Path) -> list[str]:
    """Folders of which several files were opened and that hold nothing but data. A program that opens many YAML or TOML files
    puts its configuration together from them: each has numbers of its own.
    """
    counted: dict[str, int] = {}
    for name in data:
        if name.endswith(_ALWAYS_CONFIGS):
            continue
        parent = str(Path(name).parent)
        counted[parent] = counted.get(parent, 0) + 1
    found = []
    for folder, count in counted.items():
        if folder == "." or count < 3:
            continue
        inside = [entry for entry in (cwd / folder).iterdir() if not entry.name.startswith(".")]
        if all(entry.is_file() and not entry.name.endswith(_CODE) for entry in inside):
            found.append(folder)
    return found


def _variable(path: str, kind: str, taken: set[str]) -> str:
    stem = re.sub(r"\W+", "_", Path(path).name.partition(".")[0]).strip("_").upper() or "DATA"
    name = f"{stem}_{kind}" if not stem[0].isdigit() else f"DATA_{stem}_{kind}"
    while name in taken:
        name += "_2"
    taken.add(name)
    return name
