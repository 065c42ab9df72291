"""What a command opens without naming it, made to shrink: the command is run in a place where that
is replaced.

A place is a temporary directory of links to everything in the working directory, but for the files
that shrink and for configurations (YAML, JSON, TOML), which are written anew with other numbers and
lists in them. It is plain shell and sed, so that the reproducer that ships needs nothing else.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONFIGS = (".yaml", ".yml", ".json", ".toml")
_FIXED = re.compile(
    r"(?:^|_)(?:seed|port|rank|device|devices|gpu|gpus|id|version|verbose|nodes|workers|"
    r"schema)(?:_|$)",
    re.IGNORECASE,
)
_KEY = r"""^\s*["']?(?P<key>[\w.\-]+)["']?\s*[:=]\s*"""
_END = r"\s*,?\s*(?:\#.*)?$"
_ITEM = (
    r"""(?:"[\w.+ -]*"|'[\w.+ -]*'|[\w.+-]+)"""  # nothing that sed or a shell reads anything into
)
_NUMBER = re.compile(rf"{_KEY}(?P<value>\d+){_END}")
_LIST = re.compile(rf"{_KEY}\[\s*(?P<items>{_ITEM}(?:\s*,\s*{_ITEM})+)\s*,?\s*\]{_END}")
_LIST_BEGINS = re.compile(rf"{_KEY}\[\s*$")
_LIST_GOES_ON = re.compile(rf"^\s*{_ITEM}(?:\s*,\s*{_ITEM})*\s*,?\s*$")
_LIST_ENDS = re.compile(r"^\s*\]\s*(?P<comma>,?)\s*$")
_BLOCK_BEGINS = re.compile(rf"{_KEY}$")
_BLOCK_GOES_ON = re.compile(rf"^(?P<indent>\s*)-\s+(?P<item>{_ITEM})\s*$")
_BETWEEN = ", "
_MOST_CONFIG_BYTES = 1 << 18
_MOST_SETTINGS = 24
_MOST_LIST = 1 << 14  # characters of one variable


@dataclass(frozen=True)
class _Setting:
    key: str
    initial: int | tuple[str, ...]
    edits: tuple[str, ...]  # of sed, with NAME for the variable

    @property
    def may_shrink(self) -> bool:
        if _FIXED.search(self.key):
            return False
        if isinstance(self.initial, int):
            return self.initial > 1
        return len(self.initial) > 1 and len(_BETWEEN.join(self.initial)) <= _MOST_LIST

    def axis(self, name: str) -> Mapping[str, Any]:
        if isinstance(self.initial, int):
            return {"name": name, "kind": "env", "type": "int", "initial": self.initial, "floor": 1}
        initial = _BETWEEN.join(self.initial)
        return {"name": name, "kind": "list", "initial": initial, "separator": _BETWEEN}


def is_config(path: Path) -> bool:
    """A configuration has a few settings; what has more of them is data."""
    return path.name.endswith(CONFIGS) and 0 < len(_settings(path)) <= _MOST_SETTINGS


def settings_of(path: Path, taken: set[str]) -> tuple[list[Mapping[str, Any]], list[str]]:
    """An axis for each whole number and list that stands alone with its key, and what puts it into
    the file.
    """
    axes: list[Mapping[str, Any]] = []
    edits: list[str] = []
    for setting in _settings(path)[:_MOST_SETTINGS]:
        name = "CONFIG_" + re.sub(r"\W+", "_", setting.key).strip("_").upper()
        while name in taken:
            name += "_2"
        taken.add(name)
        axes.append(setting.axis(name))
        edits += (edit.replace("NAME", f"${name}") for edit in setting.edits)
    return axes, edits


def _settings(path: Path) -> list[_Setting]:
    try:
        text = path.read_text("utf-8") if path.stat().st_size <= _MOST_CONFIG_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return []
    if not _is_sound(path, text):
        return []
    lines = text.splitlines()
    found = [*_numbers(lines), *_lists(lines)]
    if path.suffix in {".yaml", ".yml"}:
        found += _blocks(lines)
    return [setting for setting in found if setting.may_shrink]


def _numbers(lines: Sequence[str]) -> Iterator[_Setting]:
    """`steps: 500`, `"steps": 500,` and `steps = 500`."""
    for number, line in enumerate(lines, 1):
        found = _NUMBER.match(line)
        if found:
            edit = rf"{number}s/\([:=][[:space:]]*\){found['value']}/\1NAME/"
            yield _Setting(found["key"], int(found["value"]), (edit,))


def _lists(lines: Sequence[str]) -> Iterator[_Setting]:
    """`layers: [4, 8, 15]`, in one line or with its items in lines of their own."""
    for number, line in enumerate(lines, 1):
        whole, begun = _LIST.match(line), _LIST_BEGINS.match(line)
        if whole:
            edit = rf"{number}s/\[[^]]*\]/[NAME]/"
            yield _Setting(whole["key"], _items(whole["items"]), (edit,))
        elif begun:
            behind = list(_taken_while(_LIST_GOES_ON, lines[number:]))
            last = number + len(behind)
            end = _LIST_ENDS.match(lines[last]) if last < len(lines) else None
            if end:
                items = _items(",".join(behind))
                edits = (rf"{number}s/\[.*/[NAME]{end['comma']}/", f"{number + 1},{last + 1}d")
                yield _Setting(begun["key"], items, edits)


def _blocks(lines: Sequence[str]) -> Iterator[_Setting]:
    """`layers:` with `- 4`, `- 8` and `- 15` below it."""
    for number, line in enumerate(lines, 1):
        begun = _BLOCK_BEGINS.match(line)
        items = list(_taken_while(_BLOCK_GOES_ON, lines[number:])) if begun else []
        found = [match for item in items if (match := _BLOCK_GOES_ON.match(item))]
        behind = lines[number + len(items)] if number + len(items) < len(lines) else ""
        if begun and found and not _belongs(behind, found[0]["indent"]):
            edits = (f"{number}s/:.*/: [NAME]/", f"{number + 1},{number + len(items)}d")
            yield _Setting(begun["key"], tuple(match["item"] for match in found), edits)


def _belongs(line: str, indent: str) -> bool:
    """Whether a line goes on with a block of that indent, in a way that is not read here."""
    return line.startswith((f"{indent}-", f"{indent} ", f"{indent}#"))


def _items(text: str) -> tuple[str, ...]:
    return tuple(re.findall(_ITEM, text))


def _taken_while(pattern: re.Pattern[str], lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if not pattern.match(line):
            return
        yield line


def _is_sound(path: Path, text: str) -> bool:
    try:
        if path.suffix == ".json":
            json.loads(text)
        elif path.suffix == ".toml":
            tomllib.loads(text)
        else:
            yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        return False
    return True


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
    """Something in the working directory that another thing takes the place of: a variable's file,
    or a rewritten text.
    """

    path: str
    variable: str = ""
    edits: tuple[str, ...] = ()  # of a configuration: sed's


@dataclass(frozen=True)
class FileProposal:
    axes: tuple[Mapping[str, Any], ...] = ()
    replaced: tuple[Replaced, ...] = ()


def propose_files(opened: Sequence[str], cwd: Path, taken: Sequence[str]) -> FileProposal:
    """Axes for the data and the configurations among files that a run opened, seen from its working
    directory.
    """
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
        # in a trial: its own
        'place="$(mktemp -d ${AORTA_STEP_TIMES:+-p "${AORTA_STEP_TIMES%/*}"})"',
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
