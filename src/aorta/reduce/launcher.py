"""torchrun in a command line: how many ranks it starts, and where each rank's output goes.

A command is one text for a shell, or a list of words. It is changed only at the options of a word
that is the launcher itself: where a program is started, never where one is an argument. Where the
launcher stands inside a script, torchrun's own variables (`PET_...`) say the same.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Command = tuple[str, ...]
_NAME = "torchrun"
_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
_PYTHON = re.compile(r"python[\d.]*\Z")
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
# What may stand before the program: assignments, and the shell's own words.
_BEFORE = re.compile(r"[A-Za-z_]\w*\+?=.*|if|then|else|elif|while|until|do|!|\{|time", re.DOTALL)
# Programs that start the rest of their words as a command of its own, some behind options and
# operands of theirs.
_WRAPPERS = frozenset(
    {"env", "exec", "command", "nohup", "nice", "ionice", "chrt", "taskset", "numactl", "setsid"}
    | {"stdbuf", "timeout", "time", "srun", "mpirun", "sudo", "nsys", "ncu", "strace", "ltrace"}
    | {"rocprof", "rocprofv3"}
)
_FLAGS = frozenset({"standalone", "no-python", "run-path", "help", "use-env"})  # take no value
_LAST_OPTION = frozenset({"-m", "--module"})  # what follows is the program
_NPROC, _NNODES = "nproc-per-node", "nnodes"
_LOGGING = frozenset({"log-dir", "redirects", "tee", "r", "t"})
_TOKEN = re.compile(
    r"""(?P<word>(?:[^\s'"\\;&|()<>#]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?<=[^\s;&|()<>])\#)+)"""
    r"""|(?P<end>[;&|()\n])|[ \t]|\\\n|\d*[<>]+&?-?|\#[^\n]*""",
    re.DOTALL,
)


@dataclass(frozen=True)
class _Launcher:
    """The launcher's own options in a command, and the command with others in their place."""

    options: list[str]
    with_options: Callable[[Sequence[str]], Command]


def is_launched(argv: Sequence[str]) -> bool:
    return _launcher_of(tuple(argv)) is not None


def ranks_of(argv: Sequence[str]) -> int | None:
    """How many ranks a node the launcher starts, where the command says so in a number."""
    found = _launcher_of(tuple(argv))
    return _number(_value_of(found.options, _NPROC)) if found is not None else None


def with_world_size(argv: Command, ranks: int) -> Command:
    """The command with so many ranks: as few nodes as the original's ranks a node allow."""
    found = _launcher_of(argv)
    if found is None:
        return argv
    options = found.options
    most = _number(_value_of(options, _NPROC)) or ranks
    nodes = next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= most)
    if _value_of(options, _NNODES) is not None:
        options = _with_value(options, _NNODES, str(nodes))
    return found.with_options(_with_value(options, _NPROC, str(ranks // nodes)))


def world_size_variables(ranks: int) -> dict[str, str]:
    """For launchers inside scripts: what torchrun reads by itself."""
    return {"PET_NPROC_PER_NODE": str(ranks), "NPROC_PER_NODE": str(ranks)}


def with_rank_logs(argv: Command, folder: Path) -> Command:
    """Each rank's output also in files of its own, unless the command says where it goes."""
    found = _launcher_of(argv)
    if found is None or any(name in _LOGGING for _, name in _options(found.options)):
        return argv
    logs = ["--log-dir", shlex.quote(str(folder)), "--tee", "3"]
    return found.with_options([*logs, *found.options])


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
        found.append((index, _name(word)))
        index += _width(word)
    return found


def _name(option: str) -> str:
    return option.lstrip("-").partition("=")[0].replace("_", "-")


def _width(option: str) -> int:
    """Of how many words it is."""
    return 1 if "=" in option or _name(option) in _FLAGS else 2


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


def _launcher_of(argv: Command) -> _Launcher | None:
    """None where the command starts none."""
    if len(argv) == 1:
        return _launcher_in(argv[0])
    found = _launcher_in(shlex.join(argv))
    if found is None:
        return None
    return _Launcher(found.options, lambda words: tuple(shlex.split(found.with_options(words)[0])))


def _launcher_in(text: str) -> _Launcher | None:
    found = (_launcher_among(text, words) for words in _commands(text))
    return next(filter(None, found), None)


def _launcher_among(text: str, words: Sequence[re.Match[str]]) -> _Launcher | None:
    """In one command of the text."""
    values = [_unquoted(word[0]) for word in words]
    at = next((i for i, value in enumerate(values) if not _BEFORE.fullmatch(value)), None)
    while at is not None:
        name = values[at].rpartition("/")[2]
        if name in _SHELLS:
            return _inside(text, words, values, at + 1)
        if name == _NAME:
            return _launcher_at(text, words, at + 1)
        if _PYTHON.match(name):
            behind = _behind_module(values, at + 1)
            return None if behind is None else _launcher_at(text, words, behind)
        at = _wrapped(values, at + 1) if name in _WRAPPERS else None
    return None


def _launcher_at(text: str, words: Sequence[re.Match[str]], at: int) -> _Launcher:
    """Its options begin at this word."""
    every = [word[0] for word in words[at:]]
    known = _options(every)
    count = min(len(every), known[-1][0] + _width(every[known[-1][0]])) if known else 0
    start = words[at - 1].end()
    end = words[at + count - 1].end()

    def with_options(options: Sequence[str]) -> Command:
        return (f"{text[:start]}{''.join(f' {word}' for word in options)}{text[end:]}",)

    return _Launcher(every[:count], with_options)


def _inside(
    text: str, words: Sequence[re.Match[str]], values: Sequence[str], at: int
) -> _Launcher | None:
    """`bash -c TEXT`: the text is a command of its own. `bash FILE` is not ours to read."""
    while at < len(values) and re.fullmatch(r"--.*|-[^c]*", values[at]):
        at += 1
    is_text = at + 1 < len(values) and values[at].startswith("-")
    found = _launcher_in(values[at + 1]) if is_text else None
    if found is None:
        return None
    before, behind = text[: words[at + 1].start()], text[words[at + 1].end() :]
    inner = found.with_options
    return _Launcher(found.options, lambda new: (f"{before}{shlex.quote(inner(new)[0])}{behind}",))


def _wrapped(values: Sequence[str], start: int) -> int | None:
    """The command that a wrapper starts; a word behind an option may be its value."""
    for index in range(start, len(values)):
        name, before = values[index].rpartition("/")[2], values[index - 1]
        matters = name in {_NAME, *_SHELLS, *_WRAPPERS} or _PYTHON.match(name)
        if matters and (not before.startswith("-") or "=" in before or before == "--"):
            return index
    return None


def _behind_module(values: Sequence[str], index: int) -> int | None:
    """Behind `-m torch.distributed.run` among an interpreter's options."""
    while index + 1 < len(values) and values[index].startswith("-"):
        if values[index] == "-m":
            return index + 2 if values[index + 1] in _MODULES else None
        index += 2 if values[index] in {"-W", "-X"} else 1
    return None


def _commands(text: str) -> Iterator[list[re.Match[str]]]:
    """The commands of a shell text, each as its words, up to what cannot be read as words."""
    words: list[re.Match[str]] = []
    at = 0
    while token := _TOKEN.match(text, at):
        at = token.end()
        if token["word"]:
            words.append(token)
        elif token["end"] and words:
            yield words
            words = []
    if words:
        yield words


def _unquoted(raw: str) -> str:
    try:
        return "".join(shlex.split(raw))
    except ValueError:
        return raw
