"""What a command line and its scripts offer to shrink: numbers, data files and ranks that can be set from outside."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aorta.core.names import is_variable
from aorta.reduce.launcher import ranks_of

_READS = re.compile(
    r"""(?:environ(?:\.get)?\s*[\[(]|\benv\.get\s*\(|getenv\s*\()\s*["'](?P<python>\w+)["'](?:\s*,\s*["']?(?P<default>[^"')\s,]+))?"""
    r"""|\$\{(?P<shell>[A-Za-z_]\w*):?[-=](?P<fallback>[^}\s]+)\}"""
)
_OPTION = re.compile(r"(?P<option>--?[A-Za-z][\w\-]*)(?:=(?P<value>.*))?", re.DOTALL)
_NEVER = re.compile(
    r"(?:^|_)(?:seed|port|rank|node|nnodes|nproc|per_node|device|gpu|gpus|id|version|verbose|restarts)(?:_|$)"
    r"|^(?:OMP|MKL|CUDA|HIP|NCCL|RCCL|TORCH|PET|MASTER|AORTA|WORLD|LOCAL|PYTHON)_",
    re.IGNORECASE,
)
_DATA = (".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".list", ".lst")
_SCRIPTS = (".py", ".sh", ".bash")
_MOST_TEXT = 1 << 20


@dataclass(frozen=True)
class Proposal:
    """The command as a text for the shell, with what may shrink in it as variables, and an axis for each."""

    command: str
    axes: tuple[Mapping[str, Any], ...] = field(default=())


def proposal_for(words: Sequence[str], cwd: Path) -> Proposal:
    axes: dict[str, dict[str, Any]] = {}
    command = " ".join(_with_variables(words, cwd, axes))
    for name, default in _variables_read(words, cwd):
        value = os.environ.get(name, default)
        axis = _axis(name, value, cwd)
        if name not in axes and axis is not None:
            axes[name] = axis
    ranks = ranks_of(words)
    if ranks is not None and ranks > 1:
        axes["ranks"] = {
            "name": "ranks",
            "kind": "world_size",
            "initial": ranks,
            "floor": 1,
        }
    return Proposal(command, tuple(axes.values()))


def _with_variables(
    words: Sequence[str], cwd: Path, axes: dict[str, dict[str, Any]]
) -> Iterator[str]:
    """`--steps 500` as `--steps "$STEPS"`: only what has a name of its own becomes a variable."""
    option = ""
    for word in words:
        match = _OPTION.fullmatch(word)
        if match and match["value"] is None:
            option = match["option"]
            yield shlex.quote(word)
            continue
        name = _variable_name(match["option"] if match else option)
        value = match["value"] if match else word
        axis = _axis(name, value, cwd) if name else None
        if axis is None or name in axes:
            yield shlex.quote(word)
        else:
            axes[name] = axis
            yield f'{match["option"]}="${name}"' if match else f'"${name}"'
        option = ""


def _axis(name: str, value: str, cwd: Path) -> dict[str, Any] | None:
    if not value or not is_variable(name) or _NEVER.search(name):
        return None
    if value.isdecimal() and int(value) > 1:
        return {"name": name, "kind": "env", "type": "int", "initial": int(value), "floor": 1}
    place = cwd / value
    if value.endswith(_DATA) and place.is_file() and len(place.read_bytes().splitlines()) > 1:
        return {"name": name, "kind": "file_subset", "initial": value}
    if "/" not in value.strip("/") and place.is_dir() and sum(1 for _ in place.iterdir()) > 1:
        return {"name": name, "kind": "dir_subset", "initial": value}
    return None


def _variable_name(option: str) -> str:
    return option.lstrip("-").replace("-", "_").upper()


def _variables_read(words: Sequence[str], cwd: Path) -> Iterator[tuple[str, str]]:
    for text in (" ".join(words), *_scripts(words, cwd)):
        for match in _READS.finditer(text):
            name = match["python"] or match["shell"]
            yield name, (match["default"] or match["fallback"] or "").strip("'\"")


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
