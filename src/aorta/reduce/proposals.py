"""Axes that a command line, its scripts and the files it opens offer to shrink."""

import ast
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.names import is_variable
from aorta.reduce.config_files import Setting, divided, is_bound, is_no_size, sizes_in
from aorta.reduce.launcher import python_of, ranks_of
from aorta.reduce.structure import ARRAYS, array_rows

_READS = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|\benv\.get\s*\(|getenv\s*\()\s*["'](?P<python>\w+)["']"""
    r"""(?:\s*,\s*(?:["'](?P<quoted>[^"']*)["']|(?P<default>[^"')\s,]+)))?"""
    r"""|\$\{(?P<shell>[A-Za-z_]\w*):?[-=](?P<fallback>[^}\s]+)\}"""
)
_OPTION = re.compile(r"(?P<option>--?[A-Za-z][\w\-]*)(?:=(?P<value>.*))?", re.DOTALL)
_DATA = re.compile(r"\.(?:txt|[ct]sv|jsonl?|ndjson|list|lst|ids|ya?ml|toml|log|npy|npz|pt)$")
_NUMBER_IN_TEXT = re.compile(
    r"(?<!\S)(?P<option>--[A-Za-z][\w-]*)(?P<sep>[ =])(?P<value>\d+)(?![\w.])"
)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_OVERRIDE = re.compile(r"(?P<name>\+{0,2}[A-Za-z_][\w.@-]*)=(?P<value>[^\[\]]+)")
_INTERPRETERS = re.compile(
    r"(?:.*/)?(?:python[\d.]*|bash|sh|node|perl|ruby|torchrun|pytest|accelerate|deepspeed)"
)
_SHELL = re.compile(r"(?:.*/)?(?:ba)?sh")
_ITEMS = re.compile(r"[\w.+:/=@%-]+(?:,[\w.+:/=@%-]+)+")
_SCRIPTS = (".py", ".sh", ".bash")
_READ_BY_OTHERS = frozenset(
    {"PATH", "HOME", "USER", "LANG", "TMPDIR", "SHELL", "PWD", "TERM", "IFS"}
)
_NO_DATA = re.compile(r"\.(?:py[ci]?|so|sh|bash|pth|egg-info|log|lock|md|cfg|ini)$")
_CONFIGS = (".yaml", ".yml", ".toml")
_MOST_TEXT = 1 << 20
_MOST_BYTES = 1 << 28
_MOST_OPENED = 1 << 26  # bytes: each candidate copies what it is to find in its place
_MOST_FILES = 6
_FEW = 3  # files
Axes = list[Mapping[str, Any]]


@dataclass(frozen=True)
class Proposal:
    """The command as a shell text with what may shrink as variables, and an axis for each."""

    command: str
    axes: tuple[Mapping[str, Any], ...] = field(default=())


def proposal_for(
    words: Sequence[str], cwd: Path, opened: Sequence[str] = (), *, defaults: bool = False
) -> Proposal:
    """`opened`: files that a run opened. `defaults`: also options of the script nobody gave."""
    line = _CommandLine(words, cwd)
    parts = [*line.with_variables(), *(line.with_defaults() if defaults else ())]
    line.add_variables_read()
    axes = line.axes
    ranks = ranks_of(words)
    if ranks is not None and ranks > 1:
        axes["ranks"] = {"name": "ranks", "kind": "world_size", "initial": ranks, "floor": 1}
    given = {os.path.relpath(cwd / word, cwd) for word in words if word}
    taken = {
        os.path.relpath(cwd / axis["initial"], cwd)
        for axis in axes.values()
        if axis["kind"] in {"file_subset", "dir_subset"}
    }
    configs = [
        os.path.normpath(name)
        for name in dict.fromkeys(word.rpartition("=")[2] for word in words)
        if _is_inside(name) and sizes_in(cwd / name)
    ]
    others = [
        name
        for name in opened
        if name not in {*given, *configs} and not taken & {name, *map(str, Path(name).parents)}
    ]
    files = propose_files([*configs, *others], cwd, list(axes), line.python)
    return Proposal(" ".join(parts), tuple(divided([*axes.values(), *files])))


class _CommandLine:
    """A command, and the axes that were found in it so far, by their variables."""

    def __init__(self, words: Sequence[str], cwd: Path) -> None:
        self.words, self.cwd = words, cwd
        self.axes: dict[str, dict[str, Any]] = {}
        self.python = python_of(words)
        self._program = self._index_of_program()
        self._options = list(self._parser_options())

    def _index_of_program(self) -> int:
        """Behind `env A=1` and an interpreter with its options."""
        words, at = self.words, 0
        while at < len(words) and (words[at] == "env" or _ASSIGNED.fullmatch(words[at])):
            at += 1
        if at < len(words) and _INTERPRETERS.fullmatch(words[at]):
            for index, word in enumerate(words[at + 1 :], at + 1):
                if word.endswith(_SCRIPTS) and (self.cwd / word).is_file():
                    return index
        return at

    def _parser_options(self) -> Iterator[tuple[list[str], dict[str | None, Any]]]:
        """`add_argument("--steps", "-s", default=500)`: names, and arguments with plain values."""
        named = self.words[self._program : self._program + 1]
        script = self.cwd.joinpath(*named)
        if script.suffix != ".py" or not script.is_file() or script.stat().st_size > _MOST_TEXT:
            return
        try:
            tree = ast.parse(script.read_text("utf-8", "replace"))
        except (SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                names = [a.value for a in node.args if isinstance(a, ast.Constant)]
                plain = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                yield [name for name in names if isinstance(name, str)], plain

    def _added(self, name: str, axis: dict[str, Any] | None) -> bool:
        """Whether there is an axis, and none of this name yet."""
        if axis is None or name in self.axes:
            return False
        self.axes[name] = axis
        return True

    def with_variables(self) -> Iterator[str]:
        """`--steps 500` as `--steps "$STEPS"`, `env STEPS=500` as `env STEPS="$STEPS"`."""
        option, positions = "", 0
        for number, word in enumerate(self.words):
            assigned, found = _ASSIGNED.fullmatch(word), _OPTION.fullmatch(word)
            if assigned and number < self._program:
                name, value = assigned["name"], assigned["value"]
                added = self._added(name, self._axis(name, value))
                yield f'{name}="${name}"' if added else f"{name}={shlex.quote(value)}"
            elif number > self._program and not option and not word.startswith("-"):
                positions += 1
                yield self._positional(word, f"ARG_{positions}")
            elif found and found["value"] is None:
                option = found["option"]
                yield shlex.quote(word)
            elif option == "-c" and _SHELL.fullmatch(self.words[0]):
                yield shlex.quote(_NUMBER_IN_TEXT.sub(self._in_text, word))
                option = ""
            else:
                option, value = (found["option"], found["value"]) if found else (option, word)
                name = _variable_name(option)
                axis = self._axis(name, value) or _words(name, value, self._usual(option))
                variable = f'{option}="${name}"' if found else f'"${name}"'
                yield variable if self._added(name, axis) else shlex.quote(word)
                option = ""

    def _usual(self, option: str) -> str:
        """What an option of the script is where nobody gives it, if that is a word."""
        found = (k.get("default") for names, k in self._options if option in names)
        return next((default for default in found if isinstance(default, str)), "")

    def with_defaults(self) -> Iterator[str]:
        """Options of the script that were left to their defaults."""
        given = {word.partition("=")[0] for word in self.words[self._program + 1 :]}
        for names, keywords in self._options:
            option = next((name for name in names if name.startswith("--")), "")
            default = keywords.get("default")
            takes_one = not {"nargs", "action"} & keywords.keys() and type(default) in {int, str}
            if option and takes_one and not given & set(names):
                name = _variable_name(option)
                if self._added(name, self._axis(name, str(default))):
                    yield f'{option} "${name}"'

    def add_variables_read(self) -> None:
        """Those that the command and its scripts read from the environment."""
        for text in (" ".join(self.words), *_scripts(self.words, self.cwd)):
            for match in _READS.finditer(text):
                name = match["python"] or match["shell"]
                default = match["quoted"] or match["default"] or match["fallback"] or ""
                default = default.strip("'\"")
                value = os.environ.get(name, default)
                self._added(name, self._axis(name, value) or _words(name, value, default))

    def _in_text(self, found: re.Match[str]) -> str:
        """`--steps 500` in a text for a shell, which reads the variable itself."""
        name = _variable_name(found["option"])
        added = self._added(name, self._axis(name, found["value"]))
        return f'{found["option"]}{found["sep"]}"${name}"' if added else found[0]

    def _positional(self, word: str, numbered: str) -> str:
        """A setting such as `trainer.steps=500`, a number, or a file or folder."""
        if overridden := _OVERRIDE.fullmatch(word):
            given, value = overridden["name"], overridden["value"]
            name = _variable_name(re.sub(r"[.@]", "_", given.lstrip("+")))
            added = self._added(name, self._axis(name, value))
            return f'{given}="${name}"' if added else shlex.quote(word)
        is_file = (self.cwd / word).is_file()
        name = numbered if word.isdecimal() else _stem(word, "FILE" if is_file else "DIR")
        # What stands behind the program is what it works on, whatever its ending says.
        added = self._added(name, self._axis(name, word, any_ending=True))
        return f'"${name}"' if added else shlex.quote(word)

    def _axis(self, name: str, value: str, *, any_ending: bool = False) -> dict[str, Any] | None:
        if not value or not is_variable(name) or is_no_size(name):
            return None
        if value.isdecimal() and int(value) > 1 and not is_bound(name):
            return _number(name, int(value))
        if _ITEMS.fullmatch(value):
            return {"name": name, "kind": "list", "initial": value}
        place = self.cwd / value
        if _is_inside(value) and sizes_in(place):
            return None  # its numbers shrink, not its lines
        if (any_ending or _DATA.search(value)) and may_lose_parts(place, self.python):
            return {"name": name, "kind": "file_subset", "initial": value}
        is_folder = _is_inside(value) and value != "." and place.is_dir()
        if is_folder and sum(1 for _ in place.iterdir()) > 1:
            return {"name": name, "kind": "dir_subset", "initial": value}
        return None


def _number(name: str, initial: int, **more: str) -> dict[str, Any]:
    axis = {"name": name, "kind": "env", "type": "int", "initial": initial, "floor": 1}
    return {**axis, **more}


def _is_inside(name: str) -> bool:
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts


def _words(name: str, value: str, usual: str) -> dict[str, Any] | None:
    """A word that was given where another one is usual: which of the two matters."""
    plain = all(re.fullmatch(r"[A-Za-z][\w.+-]*", word) for word in (value, usual))
    if not plain or value == usual or not is_variable(name) or name in _READ_BY_OTHERS:
        return None
    return {"name": name, "kind": "env", "type": "choice", "choices": [value, usual]}


def _variable_name(option: str) -> str:
    """A variable of its own, never one that programs read already, such as PATH."""
    name = option.lstrip("-").replace("-", "_").upper()
    return f"ARG_{name}" if name in os.environ or name in _READ_BY_OTHERS else name


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
    """Axes for data and configurations that a run opened; `python` is the one that runs it."""
    names = set(taken)
    data = [name for name in sorted(opened) if _is_data(cwd / name)]
    folders = _folders(data, cwd)
    found = [[_in_place(folder, "DIR", "dir_subset", names)] for folder in folders]
    for name in data:
        if any(name.startswith(f"{folder}/") for folder in folders):
            continue
        sizes = sizes_in(cwd / name)
        if sizes is not None:
            found.append([_in_config(name, size, names) for size in sizes])
        elif may_lose_parts(cwd / name, python):
            found.append([_in_place(name, "FILE", "file_subset", names)])
    return [axis for axes in list(filter(None, found))[:_MOST_FILES] for axis in axes]


def _in_config(file: str, size: Setting, taken: set[str]) -> Mapping[str, Any]:
    name = _free(f"CONFIG_{_plain(size.key.rpartition('.')[2])}", taken)
    return _number(name, size.initial, file=file, key=size.key)


def _in_place(path: str, ending: str, kind: str, taken: set[str]) -> Mapping[str, Any]:
    name = _free(_stem(path, ending), taken)
    return {"name": name, "kind": kind, "initial": path, "in_place": True}


def _is_data(path: Path) -> bool:
    if any(part.startswith(".") or part == "__pycache__" for part in path.parts[-3:]):
        return False
    is_small = path.is_file() and path.stat().st_size <= _MOST_OPENED
    return is_small and not _NO_DATA.search(path.name)


def may_lose_parts(path: Path, python: str | None) -> bool:
    """Whether it is a file that can lose lines, or rows of arrays that this Python can read."""
    if path.name.endswith(ARRAYS):
        return path.is_file() and array_rows(python, path.absolute()) is not None
    with suppress(OSError):
        content = path.read_bytes() if path.stat().st_size <= _MOST_BYTES else b""
        return b"\0" not in content[:4096] and len(content.splitlines()) > 1
    return False


def _folders(data: Sequence[str], cwd: Path) -> list[str]:
    """Folders of data of which several files were opened. YAML and TOML files are configuration."""
    parents = (str(Path(name).parent) for name in data if not name.endswith(_CONFIGS))
    return [
        folder
        for folder, count in Counter(parents).items()
        if folder != "." and count >= _FEW and all(map(_is_part, (cwd / folder).iterdir()))
    ]


def _is_part(entry: Path) -> bool:
    """Of a folder of data; hidden files are no matter."""
    return entry.name.startswith(".") or (entry.is_file() and not _NO_DATA.search(entry.name))


def _plain(text: str) -> str:
    """Letters and digits, as in the name of a variable."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()


def _stem(path: str, ending: str) -> str:
    """`data/rows.csv` as `ROWS_FILE`."""
    stem = _plain(Path(path).name.partition(".")[0]) or "DATA"
    return f"{stem}_{ending}" if not stem[0].isdigit() else f"DATA_{stem}_{ending}"


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_2"
    taken.add(name)
    return name
