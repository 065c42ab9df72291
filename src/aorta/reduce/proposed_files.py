"""What a command opens without naming it, made to shrink where it lies: data files, folders of
them, and the numbers and lists of configurations.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aorta.reduce.arrays import ARRAYS, TENSORS, tensor_rows
from aorta.reduce.config_files import BETWEEN, CONFIGS, MOST_SETTINGS, settings_in
from aorta.reduce.structure import JsonTree, pieces_of

Axes = list[Mapping[str, Any]]
_CODE = re.compile(r"\.(?:py[ci]?|so|sh|bash|pth|egg-info|log|lock|md|cfg|ini)$")
_ALWAYS_CONFIGS = (".yaml", ".yml", ".toml")
_MOST_BYTES = 1 << 26
_MOST_LINES = 1 << 28  # bytes
_MOST_FILES = 6
_LONG = 40  # entries


def propose_files(
    opened: Sequence[str], cwd: Path, taken: Sequence[str], python: str | None
) -> Axes:
    """Axes for the data and the configurations among files that a run opened, seen from its working
    directory. `python` runs it.
    """
    names = set(taken)
    data = [name for name in sorted(opened) if _is_data(cwd / name)]
    folders = _folders(data, cwd)
    alone = [name for name in data if not any(name.startswith(f"{f}/") for f in folders)]
    found = [[_in_place(folder, "DIR", "dir_subset", names)] for folder in folders]
    for name in alone:
        if name.endswith(CONFIGS) and not _is_long(cwd / name):
            found.append(_settings(name, cwd, names))
        elif name.endswith(TENSORS):
            if tensor_rows(python, (cwd / name).absolute()) is not None:
                found.append([_in_place(name, "FILE", "file_subset", names)])
        elif has_lines(cwd / name):
            found.append([_in_place(name, "FILE", "file_subset", names)])
    found = [axes for axes in found if axes]
    return [axis for axes in found[:_MOST_FILES] for axis in axes]


def _in_place(path: str, ending: str, kind: str, taken: set[str]) -> Mapping[str, Any]:
    name = _variable(path, ending, taken)
    return {"name": name, "kind": kind, "initial": path, "in_place": True}


def _settings(name: str, cwd: Path, taken: set[str]) -> Axes:
    """An axis for each whole number and list that stands alone with its key."""
    axes: Axes = []
    for setting in settings_in(cwd / name)[:MOST_SETTINGS]:
        variable = "CONFIG_" + re.sub(r"\W+", "_", setting.key).strip("_").upper()
        while variable in taken:
            variable += "_2"
        taken.add(variable)
        initial = setting.initial
        value: dict[str, Any] = {"kind": "env", "type": "int", "initial": initial, "floor": 1}
        if isinstance(initial, tuple):
            value = {"kind": "list", "initial": BETWEEN.join(initial), "separator": BETWEEN}
        axes.append({"name": variable, **value, "file": name, "line": setting.line})
    return axes


def _is_data(path: Path) -> bool:
    if any(part.startswith(".") or part == "__pycache__" for part in path.parts[-3:]):
        return False
    if _CODE.search(path.name):
        return False
    try:
        return path.is_file() and 0 < path.stat().st_size <= _MOST_BYTES
    except OSError:
        return False


def _is_long(path: Path) -> bool:
    """Data that is written as a configuration: one long list."""
    try:
        pieces = pieces_of(path.name, path.read_bytes())
    except OSError:
        return False
    if isinstance(pieces, JsonTree):
        return pieces.longest > _LONG
    is_yaml = path.suffix in {".yaml", ".yml"}
    return sum(not is_yaml or item.lstrip().startswith("- ") for item in pieces.items) > _LONG


def has_lines(path: Path) -> bool:
    """Whether it is a file that can lose lines, or rows."""
    if path.name.endswith(ARRAYS):
        return path.is_file()
    try:
        content = path.read_bytes() if path.stat().st_size <= _MOST_LINES else b""
    except OSError:
        return False
    return b"\0" not in content[:4096] and len(content.splitlines()) > 1


def _folders(data: Sequence[str], cwd: Path) -> list[str]:
    """Folders of which several files were opened and that hold nothing but data. A program that
    opens many YAML or TOML files puts its configuration together from them: each has numbers of its
    own.
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
        if all(entry.is_file() and not _CODE.search(entry.name) for entry in inside):
            found.append(folder)
    return found


def _variable(path: str, kind: str, taken: set[str]) -> str:
    stem = re.sub(r"\W+", "_", Path(path).name.partition(".")[0]).strip("_").upper() or "DATA"
    name = f"{stem}_{kind}" if not stem[0].isdigit() else f"DATA_{stem}_{kind}"
    while name in taken:
        name += "_2"
    taken.add(name)
    return name
