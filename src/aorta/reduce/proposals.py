"""What a command line and its scripts offer to shrink: numbers, data files and ranks that can be
set from outside; and what the command opens without naming it, which shrinks where it lies: data
files, folders of them, and the numbers and lists of configurations.
"""

import ast
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.names import is_variable
from aorta.reduce.arrays import ARRAYS, TENSORS, tensor_rows
from aorta.reduce.config_files import (
    BETWEEN,
    CONFIGS,
    MOST_SETTINGS,
    divided,
    is_config,
    is_no_size,
    settings_in,
)
from aorta.reduce.launcher import python_of, ranks_of
from aorta.reduce.structure import JsonTree, pieces_of

_READS = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|\benv\.get\s*\(|getenv\s*\()\s*["'](?P<python>\w+)["']"""
    r"""(?:\s*,\s*(?:["'](?P<quoted>[^"']*)["']|(?P<default>[^"')\s,]+)))?"""
    r"""|\$\{(?P<shell>[A-Za-z_]\w*):?[-=](?P<fallback>[^}\s]+)\}"""
)
_OPTION = re.compile(r"(?P<option>--?[A-Za-z][\w\-]*)(?:=(?P<value>.*))?", re.DOTALL)
_DATA = re.compile(
    r"\.(?:txt|[ct]sv|jsonl?|ndjson|list|lst|ids|ya?ml|toml|ini|cfg|log|sql|xml|html|css|md"
    r"|cc?|h|cpp"
    r"|npy|npz)$"
)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_OVERRIDE = re.compile(
    r"(?P<name>\+{0,2}[A-Za-z_][\w.@-]*)=(?P<open>\[?)(?P<value>[^\[\]]+)(?P<close>\]?)"
)
_INTERPRETERS = re.compile(
    r"(?:.*/)?(?:python[\d.]*|bash|sh|node|perl|ruby|torchrun|pytest|accelerate|deepspeed)"
)
_ITEM = re.compile(r"[\w.+:/=@%-]+")
_ITEMS = re.compile(rf"{_ITEM.pattern}(?:,{_ITEM.pattern})+")
_SCRIPTS = (".py", ".sh", ".bash")
_READ_BY_OTHERS = frozenset(
    {"PATH", "HOME", "USER", "LANG", "TMPDIR", "SHELL", "PWD", "TERM", "IFS"}
)
_MOST_TEXT = 1 << 20
Axes = list[Mapping[str, Any]]
_CODE = re.compile(r"\.(?:py[ci]?|so|sh|bash|pth|egg-info|log|lock|md|cfg|ini)$")
_ALWAYS_CONFIGS = (".yaml", ".yml", ".toml")
_MOST_BYTES = 1 << 26
_MOST_LINES = 1 << 28  # bytes
_MOST_FILES = 6
_LONG = 40  # entries


@dataclass(frozen=True)
class Proposal:
    """The command as a shell text with what may shrink as variables, and an axis for each."""

    command: str
    axes: tuple[Mapping[str, Any], ...] = field(default=())


def proposal_for(
    words: Sequence[str], cwd: Path, opened: Sequence[str] = (), *, defaults: bool = False
) -> Proposal:
    """Everything that the command line and its scripts offer. `opened`: files that a run of it was
    seen to open, which may shrink where they lie. `defaults`: also options that the script has and
    nobody gave.
    """
    axes: dict[str, dict[str, Any]] = {}
    options = list(_parser_options(words, cwd))
    parts = list(_with_variables(words, cwd, axes, options))
    if defaults:
        parts += _with_defaults(words, cwd, axes, options)
    for name, default in _variables_read(words, cwd):
        value = os.environ.get(name, default)
        axis = _axis(name, value, cwd) or _words(name, value, default)
        if name not in axes and axis is not None:
            axes[name] = axis
    ranks = ranks_of(words)
    if ranks is not None and ranks > 1:
        axes["ranks"] = {"name": "ranks", "kind": "world_size", "initial": ranks, "floor": 1}
    named = {str(axis.get("initial")) for axis in axes.values()} | set(words)
    configs = [
        os.path.normpath(name)
        for name in dict.fromkeys(word.rpartition("=")[2] for word in words)
        if _is_inside(name) and is_config(cwd / name)
    ]
    others = [name for name in opened if name not in {*named, *configs}]
    tensors = [word for word in words if word.endswith(TENSORS) and _is_inside(word)]
    files = propose_files([*configs, *others, *tensors], cwd, list(axes), python_of(words))
    return Proposal(" ".join(parts), tuple(divided([*axes.values(), *files])))


def _is_inside(name: str) -> bool:
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts


Option = tuple[list[str], dict[str | None, Any]]
"""`add_argument("--steps", "-s", default=500)`: its names, and those arguments that are plain
values."""


def _parser_options(words: Sequence[str], cwd: Path) -> Iterator[Option]:
    """The options of an argument parser in the script."""
    program = _program(words, cwd)
    script = cwd / words[program] if program < len(words) else cwd
    if script.suffix != ".py" or not script.is_file() or script.stat().st_size > _MOST_TEXT:
        return
    try:
        tree = ast.parse(script.read_text("utf-8", "replace"))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [a.value for a in node.args if isinstance(a, ast.Constant)]
            given = {k.arg: k.value for k in node.keywords}
            plain = {k: v.value if isinstance(v, ast.Constant) else None for k, v in given.items()}
            yield [name for name in names if isinstance(name, str)], plain


def _with_defaults(
    words: Sequence[str], cwd: Path, axes: dict[str, dict[str, Any]], options: Sequence[Option]
) -> Iterator[str]:
    """Options of the script that were left to their defaults."""
    given = {word.partition("=")[0] for word in words[_program(words, cwd) + 1 :]}
    for names, keywords in options:
        option = next((name for name in names if name.startswith("--")), "")
        default = keywords.get("default")
        takes_one = not {"nargs", "action"} & keywords.keys() and type(default) in {int, str}
        if not option or given & set(names) or not takes_one:
            continue
        name = _variable_name(option)
        axis = _axis(name, str(default), cwd)
        if axis is not None and name not in axes:
            axes[name] = axis
            yield f'{option} "${name}"'


def _words(name: str, value: str, usual: str) -> dict[str, Any] | None:
    """A word that was given where another one is usual: which of the two matters."""
    plain = all(re.fullmatch(r"[A-Za-z][\w.+-]*", word) for word in (value, usual))
    if not plain or value == usual or not is_variable(name) or name in _READ_BY_OTHERS:
        return None
    return {"name": name, "kind": "env", "type": "choice", "choices": [value, usual]}


def _items_behind(words: Sequence[str]) -> list[str]:
    """The words up to the next option, where there are some and each is a plain one; else none."""
    behind = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    return behind if len(behind) > 1 and all(map(_ITEM.fullmatch, behind)) else []


def _with_variables(
    words: Sequence[str], cwd: Path, axes: dict[str, dict[str, Any]], options: Sequence[Option]
) -> Iterator[str]:
    """`--steps 500` as `--steps "$STEPS"`, `env STEPS=500` as `env STEPS="$STEPS"`."""
    of_many = {n for names, k in options if k.get("nargs") in {"+", "*"} for n in names}
    texts = [(names, k["default"]) for names, k in options if isinstance(k.get("default"), str)]
    usual = {name: default for names, default in texts for name in names}
    option, behind_list = "", 0
    program = _program(words, cwd)
    for number, word in enumerate(words):
        if number < behind_list:
            continue
        name, items = _variable_name(word), _items_behind(words[number + 1 :])
        if word in of_many and items and name not in axes:
            listed = {"kind": "list", "initial": " ".join(items), "separator": " "}
            axes[name] = {"name": name, **listed}
            yield f"{word} ${name}"  # without quotes: each item is a word of its own
            behind_list = number + 1 + len(items)
            continue
        assigned = _ASSIGNED.fullmatch(word)
        if assigned and number < program:
            yield _assigned(assigned, cwd, axes)
            continue
        if number > program and not option and not word.startswith("-"):
            yield _positional(word, cwd, axes)
            continue
        match = _OPTION.fullmatch(word)
        if match and match["value"] is None:
            option = match["option"]
            yield shlex.quote(word)
            continue
        option, value = (match["option"], match["value"]) if match else (option, word)
        name = _variable_name(option)
        axis = _axis(name, value, cwd) or _words(name, value, usual.get(option, ""))
        if axis is None or name in axes:
            yield shlex.quote(word)
        else:
            axes[name] = axis
            yield f'{option}="${name}"' if match else f'"${name}"'
        option = ""


def _program(words: Sequence[str], cwd: Path) -> int:
    """The index of the program: behind `env A=1` and an interpreter with its options."""
    at = 0
    while at < len(words) and (words[at] == "env" or _ASSIGNED.fullmatch(words[at])):
        at += 1
    if at < len(words) and _INTERPRETERS.fullmatch(words[at]):
        for index, word in enumerate(words[at + 1 :], at + 1):
            if word.endswith(_SCRIPTS) and (cwd / word).is_file():
                return index
    return at


def _assigned(found: re.Match[str], cwd: Path, axes: dict[str, dict[str, Any]]) -> str:
    name = found["name"]
    axis = _axis(name, found["value"], cwd)
    if axis is None or name in axes:
        return f"{name}={shlex.quote(found['value'])}"
    axes[name] = axis
    return f'{name}="${name}"'


def _overridden(word: str, cwd: Path, axes: dict[str, dict[str, Any]]) -> str | None:
    """`trainer.steps=500` and `net.layers=[4,8]`, as command lines override configurations."""
    found = _OVERRIDE.fullmatch(word)
    if found is None or bool(found["open"]) is not bool(found["close"]):
        return None
    name = _variable_name(re.sub(r"[.@]", "_", found["name"].lstrip("+")))
    axis = _axis(name, found["value"], cwd)
    if axis is None or name in axes or (found["open"] and axis["kind"] != "list"):
        return None
    axes[name] = axis
    return f'{found["name"]}="{found["open"]}${name}{found["close"]}"'


def _positional(word: str, cwd: Path, axes: dict[str, dict[str, Any]]) -> str:
    """A setting, or a file or folder given as it is or behind an @."""
    overridden = _overridden(word, cwd, axes)
    if overridden is not None:
        return overridden
    mark, path = ("@", word[1:]) if word.startswith("@") else ("", word)
    name = _variable(path, "FILE" if (cwd / path).is_file() else "DIR", set())
    # What stands behind the program is what it works on, whatever its ending says.
    axis = _axis(name, path, cwd, any_ending=True)
    if axis is None or axis["kind"] == "env" or name in axes:
        return shlex.quote(word)
    axes[name] = axis
    return f'{mark}"${name}"'


def _axis(name: str, value: str, cwd: Path, *, any_ending: bool = False) -> dict[str, Any] | None:
    if not value or not is_variable(name) or is_no_size(name):
        return None
    if value.isdecimal() and int(value) > 1:
        return {"name": name, "kind": "env", "type": "int", "initial": int(value), "floor": 1}
    if _ITEMS.fullmatch(value):
        return {"name": name, "kind": "list", "initial": value}
    place = cwd / value
    if _is_inside(value) and is_config(place):
        return None  # its numbers and lists shrink, not its lines
    if (any_ending or _DATA.search(value)) and has_lines(place):
        return {"name": name, "kind": "file_subset", "initial": value}
    is_folder = _is_inside(value) and value != "." and place.is_dir()
    if is_folder and sum(1 for _ in place.iterdir()) > 1:
        return {"name": name, "kind": "dir_subset", "initial": value}
    return None


def _variable_name(option: str) -> str:
    """A variable of its own, never one that programs read already, such as PATH."""
    name = option.lstrip("-").replace("-", "_").upper()
    return f"ARG_{name}" if name in os.environ or name in _READ_BY_OTHERS else name


def _variables_read(words: Sequence[str], cwd: Path) -> Iterator[tuple[str, str]]:
    for text in (" ".join(words), *_scripts(words, cwd)):
        for match in _READS.finditer(text):
            name = match["python"] or match["shell"]
            default = match["quoted"] or match["default"] or match["fallback"] or ""
            yield name, default.strip("'\"")


def _scripts(words: Sequence[str], cwd: Path) -> Iterator[str]:
    """The scripts that the command names, and the ones that those name."""
    seen: set[Path] = set()
    waiting = [word for part in words for word in part.split()]
    while waiting:
        word = waiting.pop(0).strip("\"'")
        path = cwd / word.rsplit("/", 1)[-1] if word.startswith("$") else cwd / word
        if not word.endswith(_SCRIPTS) or path in seen or not path.is_file():
            continue
        seen.add(path)
        if path.stat().st_size <= _MOST_TEXT:
            text = path.read_text("utf-8", "replace")
            waiting += re.findall(r"[\w./$(){}\-]+", text)
            yield text


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
