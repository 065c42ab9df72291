"""Numbers and lists that stand in a configuration (YAML, JSON, TOML), and the same text with other
values in their place.

A setting is read line by line, so that whatever else the file holds, comments too, stays as it is.
A list that took several lines leaves blank ones: every setting stays in its line.

Numbers that are no sizes are known by their names: a seed, a port, a period. Made smaller they make
a run another one, or a slower one, and nothing smaller.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONFIGS = (".yaml", ".yml", ".json", ".toml")
BETWEEN = ", "
MOST_SETTINGS = 24
_KEY = r"""^\s*["']?(?P<key>[\w.\-]+)["']?\s*[:=]\s*"""
_END = r"\s*,?\s*(?:\#.*)?$"
_ITEM = r"""(?:"[\w.+ -]*"|'[\w.+ -]*'|[\w.+-]+)"""
_NUMBER = re.compile(rf"{_KEY}(?P<value>\d+){_END}")
_LIST = re.compile(rf"{_KEY}(?P<list>\[\s*(?P<items>{_ITEM}(?:\s*,\s*{_ITEM})+)\s*,?\s*\]){_END}")
_LIST_BEGINS = re.compile(rf"{_KEY}(?P<list>\[)\s*$")
_LIST_GOES_ON = re.compile(rf"^\s*{_ITEM}(?:\s*,\s*{_ITEM})*\s*,?\s*$")
_LIST_ENDS = re.compile(r"^\s*\]")
_BLOCK_BEGINS = re.compile(rf"{_KEY}$")
_BLOCK_GOES_ON = re.compile(rf"^(?P<indent>\s*)-\s+(?P<item>{_ITEM})\s*$")
_MOST_BYTES = 1 << 18
_MOST_LIST = 1 << 14  # characters
_WORDS = (
    *("seed", "port", "rank", "node", "nodes", "nnodes", "nproc", "per_node", "device", "devices"),
    *("gpu", "gpus", "id", "version", "schema", "verbose", "restarts", "every", "interval"),
    *("intervals", "freq", "frequency", "period", "cycle", "patience", "timeout", "retries"),
    *("world_size", "year", "hash"),
)
_NO_SIZE = re.compile(
    rf"(?:^|_)(?:{'|'.join(_WORDS)})(?:_|$)"
    # What is done once in so many steps: `logging_steps`, `save_steps`.
    r"|(?:^|_)(?:log|logging|save|saving|eval|checkpoint|print)_(?:steps|iters|batches|epochs)$"
    r"|^(?:OMP|MKL|CUDA|HIP|NCCL|RCCL|TORCH|PET|MASTER|AORTA|WORLD|LOCAL|PYTHON)_",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Setting:
    """One value: its key, its line from 1 on, and the part of the text that it takes."""

    key: str
    line: int
    initial: int | tuple[str, ...]
    start: int
    end: int

    @property
    def may_shrink(self) -> bool:
        if is_no_size(self.key):
            return False
        if isinstance(self.initial, int):
            return self.initial > 1
        return len(self.initial) > 1 and len(BETWEEN.join(self.initial)) <= _MOST_LIST

    def written(self, value: str, text: str) -> str:
        """What stands in its place: the value, in brackets where it is a list."""
        if isinstance(self.initial, int):
            return value
        return f"[{value}]" + "\n" * text.count("\n", self.start, self.end)


def is_config(path: Path) -> bool:
    """A configuration has a few settings; what has more of them is data."""
    return path.name.endswith(CONFIGS) and 0 < len(settings_in(path)) <= MOST_SETTINGS


def settings_in(path: Path) -> list[Setting]:
    """Every whole number and plain list that may shrink; none where the file is not sound."""
    try:
        text = path.read_text("utf-8") if path.stat().st_size <= _MOST_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return []
    if not _is_sound(path, text):
        return []
    lines = text.splitlines(keepends=True)
    found = [*_numbers(lines), *_lists(lines)]
    if path.suffix in {".yaml", ".yml"}:
        found += _blocks(lines)
    return [setting for setting in found if setting.may_shrink]


def rewritten(text: str, values: Mapping[Setting, str]) -> str:
    """The text with these values in the place of the settings' own."""
    for setting in sorted(values, key=lambda one: one.start, reverse=True):
        new = setting.written(values[setting], text)
        text = f"{text[: setting.start]}{new}{text[setting.end :]}"
    return text


def _numbers(lines: Sequence[str]) -> Iterator[Setting]:
    """`steps: 500`, `"steps": 500,` and `steps = 500`."""
    at = 0
    for number, line in enumerate(lines, 1):
        found = _NUMBER.match(line)
        if found:
            span = (at + found.start("value"), at + found.end("value"))
            yield Setting(found["key"], number, int(found["value"]), *span)
        at += len(line)


def _lists(lines: Sequence[str]) -> Iterator[Setting]:
    """`layers: [4, 8, 15]`, in one line or with its items in lines of their own."""
    at = 0
    for number, line in enumerate(lines, 1):
        whole, begun = _LIST.match(line), _LIST_BEGINS.match(line)
        if whole:
            span = (at + whole.start("list"), at + whole.end("list"))
            yield Setting(whole["key"], number, _items(whole["items"]), *span)
        elif begun:
            inside = list(_taken_while(_LIST_GOES_ON, lines[number:]))
            last = number + len(inside)
            end = _LIST_ENDS.match(lines[last]) if last < len(lines) else None
            if end:
                behind = at + len(line) + sum(map(len, inside)) + end.end()
                items = _items(",".join(inside))
                yield Setting(begun["key"], number, items, at + begun.start("list"), behind)
        at += len(line)


def _blocks(lines: Sequence[str]) -> Iterator[Setting]:
    """`layers:` with `- 4`, `- 8` and `- 15` below it."""
    at = 0
    for number, line in enumerate(lines, 1):
        begun = _BLOCK_BEGINS.match(line)
        inside = list(_taken_while(_BLOCK_GOES_ON, lines[number:])) if begun else []
        found = [match for item in inside if (match := _BLOCK_GOES_ON.match(item))]
        behind = lines[number + len(inside)] if number + len(inside) < len(lines) else ""
        if begun and found and not _belongs(behind, found[0]["indent"]):
            start = at + len(line.rstrip())
            end = at + len(line) + sum(map(len, inside))
            items = tuple(match["item"] for match in found)
            yield _Block(begun["key"], number, items, start, end)
        at += len(line)


class _Block(Setting):
    def written(self, value: str, text: str) -> str:
        """Behind the colon, in one line."""
        return f" [{value}]" + "\n" * text.count("\n", self.start, self.end)


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


def is_no_size(name: str) -> bool:
    """Whether a number of this name is to be left alone.

    >>> [is_no_size(name) for name in ("max_steps", "eval_every", "save-steps", "maxSeed")]
    [False, True, True, True]
    """
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return _NO_SIZE.search(re.sub(r"\W", "_", snake)) is not None


_DIVIDED = (
    (
        re.compile(r"(?i)hidden|embed|embd|(?:^|_)dim|d_?model|width|channels"),
        re.compile(r"(?i)heads?$|groups"),
    ),
    (re.compile(r"(?i)batch"), re.compile(r"(?i)micro|accum")),
)


def divided(axes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The axes, of which one that another divides by its name and value goes in steps of that: a
    hidden size that is no multiple of the heads is another failure.

    >>> axes = [{"name": "HIDDEN", "initial": 96}, {"name": "NUM_HEADS", "initial": 12}]
    >>> divided(axes)[0]
    {'name': 'HIDDEN', 'initial': 96, 'floor': 12, 'step': 12}
    """
    return [_in_steps(axis, axes) for axis in axes]


def _in_steps(axis: Mapping[str, Any], axes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    whole = axis.get("initial")
    for wholes, parts in _DIVIDED:
        if not isinstance(whole, int) or not wholes.search(axis["name"]):
            continue
        if parts.search(axis["name"]):
            continue
        named = [other.get("initial") for other in axes if parts.search(other["name"])]
        fitting = [n for n in named if isinstance(n, int) and 1 < n < whole and whole % n == 0]
        if fitting:
            return {**axis, "floor": max(fitting), "step": max(fitting)}
    return axis
