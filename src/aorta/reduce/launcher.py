"""torchrun in a command line: how many ranks it starts, and where each rank's output goes.

A command is one text for a shell, or a list of words. It is read as words, as a shell would read
it, and changed only at the options of a word that is the launcher itself: where a program is
started, never where one is an argument. Where the launcher stands inside a script, torchrun's own
variables (`PET_...`) say the same.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Command = tuple[str, ...]
_Edit = Callable[[list[str]], list[str]]
"""The launcher's words behind its own name, and what shall stand there instead."""

_NAME = "torchrun"
_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_PYTHON = re.compile(r"python[\d.]*\Z")
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_RESERVED = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "time"})
# Programs that start the rest of their words as a command of its own, some behind options and
# operands of theirs.
_WRAPPERS = frozenset(
    {"env", "exec", "command", "nohup", "nice", "ionice", "chrt", "taskset", "numactl", "setsid"}
    | {"stdbuf", "timeout", "time", "srun", "mpirun", "sudo", "nsys", "ncu", "strace", "ltrace"}
    | {"rocprof", "rocprofv3"}
)
_PYTHON_VALUES = frozenset({"-W", "-X"})
_FLAGS = frozenset({"standalone", "no-python", "run-path", "help", "use-env"})  # take no value
_LAST_OPTION = frozenset({"-m", "--module"})  # what follows is the program
_NPROC, _NNODES = "nproc-per-node", "nnodes"
_LOGGING = frozenset({"log-dir", "redirects", "tee", "r", "t"})


def is_launched(argv: Sequence[str]) -> bool:
    return _launcher_words(tuple(argv)) is not None


def ranks_of(argv: Sequence[str]) -> int | None:
    """How many ranks a node the launcher starts, where the command says so in a number."""
    return _number(_value_of(_launcher_words(tuple(argv)) or [], _NPROC))


def with_world_size(argv: Command, ranks: int) -> Command:
    """The command with so many ranks: as few nodes as the original's ranks a node allow."""
    words = _launcher_words(argv)
    if words is None:
        return argv
    most = _number(_value_of(words, _NPROC)) or ranks
    nodes = next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= most)

    def resized(options: list[str]) -> list[str]:
        if _value_of(options, _NNODES) is not None:
            options = _with_value(options, _NNODES, str(nodes))
        return _with_value(options, _NPROC, str(ranks // nodes))

    return _edited(argv, resized)


def world_size_variables(ranks: int) -> dict[str, str]:
    """For launchers inside scripts: what torchrun reads by itself."""
    return {"PET_NPROC_PER_NODE": str(ranks), "NPROC_PER_NODE": str(ranks)}


def with_rank_logs(argv: Command, folder: Path) -> Command:
    """Each rank's output also in files of its own, unless the command says where it goes."""
    words = _launcher_words(argv)
    if words is None or any(name in _LOGGING for _, name in _options(words)):
        return argv
    return _edited(
        argv, lambda options: ["--log-dir", shlex.quote(str(folder)), "--tee", "3", *options]
    )


def python_of(command: str | Sequence[str]) -> str | None:
    """The Python that a command names, as this machine finds it."""
    words = command.split() if isinstance(command, str) else command
    named = next((word for word in words if _PYTHON.match(word.rpartition("/")[2])), None)
    return shutil.which(named) if named is not None else None


# -- options of the launcher


def _options(words: Sequence[str]) -> list[tuple[int, str]]:
    """(index, name) of each of its own options, up to the program that it starts."""
    found = []
    index = 0
    while index < len(words) and words[index].startswith("-"):
        word = words[index]
        if word in _LAST_OPTION:
            break
        name = word.lstrip("-").partition("=")[0].replace("_", "-")
        found.append((index, name))
        index += 1 if "=" in word or name in _FLAGS else 2
    return found


def _value_of(words: Sequence[str], wanted: str) -> str | None:
    for index, name in _options(words):
        if name == wanted:
            word = words[index]
            return word.partition("=")[2] if "=" in word else "".join(words[index + 1 : index + 2])
    return None


def _with_value(words: list[str], wanted: str, value: str) -> list[str]:
    for index, name in _options(words):
        if name == wanted:
            if "=" in words[index]:
                changed = [f"{words[index].partition('=')[0]}={value}"]
                return [*words[:index], *changed, *words[index + 1 :]]
            return [*words[: index + 1], value, *words[index + 2 :]]
    return [f"--{wanted}", value, *words]


def _number(text: str | None) -> int | None:
    digits = re.match(r"\d+", text or "")
    return int(digits.group()) if digits else None


# -- where the launcher stands


def _launcher_words(argv: Command) -> list[str] | None:
    """The words behind the launcher; None where the command starts none."""
    seen: list[list[str]] = []

    def looked_at(words: list[str]) -> list[str]:
        seen.append(words)
        return words

    _edited(argv, looked_at)
    return seen[0] if seen else None


def _edited(argv: Command, edit: _Edit) -> Command:
    """The command with the first launcher's words replaced; as it is where there is none."""
    if len(argv) == 1:
        return (_edited_text(argv[0], edit) or argv[0],)
    raw = [shlex.quote(word) for word in argv]
    changed = _edited_words(list(argv), raw, edit)
    return argv if changed is None else tuple("".join(shlex.split(word)) for word in changed)


def _edited_words(values: list[str], raw: list[str], edit: _Edit) -> list[str] | None:
    """One simple command, its words as the shell hands them on and as they are written."""
    at = _program(values)
    while at is not None and at < len(values):
        name = values[at].rpartition("/")[2]
        if name == _NAME:
            return [*raw[: at + 1], *edit(raw[at + 1 :])]
        if _PYTHON.match(name):
            behind = _behind_module(values, at + 1)
            return None if behind is None else [*raw[:behind], *edit(raw[behind:])]
        if name in _SHELLS:
            return _edited_inside(values, raw, at + 1, edit)
        at = _wrapped(values, at + 1) if name in _WRAPPERS else None
    return None


def _program(values: Sequence[str]) -> int | None:
    """The index of the word that is started: behind assignments and the shell's own words."""
    return next(
        (
            i
            for i, word in enumerate(values)
            if not _ASSIGNMENT.match(word) and word not in _RESERVED
        ),
        None,
    )


def _wrapped(values: Sequence[str], start: int) -> int | None:
    """The command that a wrapper starts; a word behind an option may be its value."""
    for index in range(start, len(values)):
        word, before = values[index], values[index - 1]
        name = word.rpartition("/")[2]
        matters = name == _NAME or _PYTHON.match(name) or name in _SHELLS or name in _WRAPPERS
        if matters and (not before.startswith("-") or "=" in before or before == "--"):
            return index
    return None


def _behind_module(values: Sequence[str], index: int) -> int | None:
    """Behind `-m torch.distributed.run` among an interpreter's options."""
    while index < len(values) and values[index].startswith("-"):
        if values[index] == "-m":
            return (
                index + 2
                if values[index + 1 : index + 2] and values[index + 1] in _MODULES
                else None
            )
        index += 2 if values[index] in _PYTHON_VALUES else 1
    return None


def _edited_inside(values: list[str], raw: list[str], index: int, edit: _Edit) -> list[str] | None:
    """`bash -c TEXT`: the text is a command of its own. `bash FILE` is not ours to read."""
    while index < len(values) and values[index].startswith("-"):
        if values[index].startswith("--") or "c" not in values[index]:
            index += 1
            continue
        text = values[index + 1] if index + 1 < len(values) else ""
        changed = _edited_text(text, edit)
        return (
            None
            if changed is None
            else [*raw[: index + 1], shlex.quote(changed), *raw[index + 2 :]]
        )
    return None


def _edited_text(text: str, edit: _Edit) -> str | None:
    for words in _simple_commands(text):
        changed = _edited_words([w.value for w in words], [w.raw for w in words], edit)
        if changed is not None:
            return _with_words(text, words, changed)
    return None


def _with_words(text: str, words: Sequence["_Word"], changed: Sequence[str]) -> str:
    """The text with these words in place of one command's own; the rest is untouched."""
    same = [old.raw == new for old, new in zip(words, changed, strict=False)]
    before = same.index(False) if False in same else len(same)
    rest, now = words[before:], changed[before:]
    behind = 0
    while behind < min(len(rest), len(now)) and rest[-1 - behind].raw == now[-1 - behind]:
        behind += 1
    start = words[before - 1].end  # the launcher's own name always stays
    end = rest[len(rest) - behind - 1].end if len(rest) > behind else start
    inserted = "".join(f" {word}" for word in now[: len(now) - behind])
    return f"{text[:start]}{inserted}{text[end:]}"


# -- a shell's words


@dataclass(frozen=True)
class _Word:
    start: int
    end: int
    raw: str
    value: str


_WORD = re.compile(
    r"""(?:[^\s'"\\;&|()<>#]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?<=[^\s;&|()<>])\#)+""", re.DOTALL
)
_BETWEEN = re.compile(r"(?:[ \t]|\\\n|\d*[<>]+&?-?)+")
_COMMENT = re.compile(r"#[^\n]*")


def _simple_commands(text: str) -> list[list[_Word]]:
    """The commands of a shell text, each as its words, up to what cannot be read as words."""
    commands: list[list[_Word]] = [[]]
    at = 0
    while at < len(text):
        if between := _BETWEEN.match(text, at):
            at = between.end()
        elif word := _WORD.match(text, at):
            commands[-1].append(_Word(at, word.end(), word[0], _unquoted(word[0])))
            at = word.end()
        elif comment := _COMMENT.match(text, at):
            at = comment.end()
        elif text[at] in ";&|()\n":
            commands.append([])
            at += 1
        else:  # an open quote
            break
    return [command for command in commands if command]


def _unquoted(raw: str) -> str:
    try:
        return "".join(shlex.split(raw))
    except ValueError:
        return raw
