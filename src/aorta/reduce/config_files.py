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
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONFIGS = (".yaml", ".yml", ".json", ".toml")
BETWEEN = ", "
MOST_SETTINGS = 24
_KEY = r"""^[ \t]*["']?(?P<key>[\w.\-]+)["']?[ \t]*"""
_ITEM = r"""(?:"[\w.+ -]*"|'[\w.+ -]*'|[\w.+-]+)"""
# `steps: 500`, `"steps": 500,` and `layers = [4, 8]`, whose items may have lines of their own.
_SETTING = re.compile(
    rf"{_KEY}[:=][ \t]*(?P<value>\d+|\[\s*{_ITEM}(?:\s*,\s*{_ITEM})*\s*,?\s*\])"
    r"[ \t]*,?[ \t]*(?:\#.*)?$",
    re.MULTILINE,
)
# `layers:` with `- 4` and `- 8` below it, and nothing else that belongs to it.
_BLOCK = re.compile(
    rf"{_KEY}:(?P<value>[ \t]*\n(?P<indent>[ \t]*)-[ \t]+{_ITEM}[ \t]*"
    rf"(?:\n(?P=indent)-[ \t]+{_ITEM}[ \t]*)*)$(?!\n(?P=indent)[-# ])",
    re.MULTILINE,
)
# `"width": 256` beside others in a line of JSON; or a text, which may hold what looks like one.
_BESIDE = re.compile(
    r'"(?P<key>[\w.\-]+)"\s*:\s*'
    rf"(?P<value>\d+(?![\w.+-])|\[\s*{_ITEM}(?:\s*,\s*{_ITEM})*\s*\])"
    r'|"(?:[^"\\]|\\.)*"'
)
_ROWS = re.compile(r"\[\s*\{")
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
        before = "" if text[self.start] == "[" else " "
        return f"{before}[{value}]" + "\n" * text.count("\n", self.start, self.end)


def is_config(path: Path) -> bool:
    """A configuration has a few settings; what has more of them is data."""
    return path.name.endswith(CONFIGS) and 0 < len(settings_in(path)) <= MOST_SETTINGS


def settings_in(path: Path) -> list[Setting]:
    """Every whole number and plain list that may shrink; none where the file is not sound."""
    return [setting for setting in all_settings_in(path) if setting.may_shrink]


def all_settings_in(path: Path) -> list[Setting]:
    """With those that are as small as they can be, or are no sizes."""
    try:
        text = path.read_text("utf-8") if path.stat().st_size <= _MOST_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return []
    if not _is_sound(path, text):
        return []
    found = [_setting(text, match) for match in _SETTING.finditer(text)]
    if path.suffix in {".yaml", ".yml"}:
        found += [_setting(text, match) for match in _BLOCK.finditer(text)]
    if path.suffix == ".json":
        found += _beside_others(text, {setting.start for setting in found})
    return found


def _beside_others(text: str, known: Collection[int]) -> list[Setting]:
    """Those of a JSON document that share their line with others, each the only one of its key
    there. A document that holds a list of objects is data: none.
    """
    if _ROWS.search(text):
        return []
    found = [_setting(text, match) for match in _BESIDE.finditer(text) if match["key"]]
    often = Counter((setting.line, setting.key) for setting in found)
    return [
        setting
        for setting in found
        if setting.start not in known and often[setting.line, setting.key] == 1
    ]


def _setting(text: str, found: re.Match[str]) -> Setting:
    value, line = found["value"], text.count("\n", 0, found.start("key")) + 1
    items = re.findall(rf"(?<![\w.+-]){_ITEM}", re.sub(r"(?m)^[ \t]*-[ \t]", "", value))
    initial = int(value) if value.isdecimal() else tuple(items)
    return Setting(found["key"], line, initial, *found.span("value"))


def rewritten(text: str, values: Mapping[Setting, str]) -> str:
    """The text with these values in the place of the settings' own."""
    for setting in sorted(values, key=lambda one: one.start, reverse=True):
        new = setting.written(values[setting], text)
        text = f"{text[: setting.start]}{new}{text[setting.end :]}"
    return text


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
    """The axes, of which one that another divides by its name and value goes in steps of that,
    and the other stays: a hidden size that is no multiple of the heads is another failure.

    >>> axes = [{"name": "HIDDEN", "initial": 96}, {"name": "NUM_HEADS", "initial": 12}]
    >>> divided(axes)[0]
    {'name': 'HIDDEN', 'initial': 96, 'floor': 12, 'step': 12}
    >>> divided(axes)[1]
    {'name': 'NUM_HEADS', 'initial': 12, 'floor': 12}
    """
    return [_in_steps(axis, axes) or _as_it_is(axis, axes) or axis for axis in axes]


_Axis = Mapping[str, Any]


def _in_steps(axis: _Axis, axes: Sequence[_Axis]) -> _Axis | None:
    parts = [other["initial"] for other in axes if _divides(other, axis)]
    return {**axis, "floor": max(parts), "step": max(parts)} if parts else None


def _as_it_is(axis: _Axis, axes: Sequence[_Axis]) -> _Axis | None:
    parted = any(_divides(axis, other) for other in axes)
    return {**axis, "floor": axis["initial"]} if parted else None


def _divides(part: _Axis, whole: _Axis) -> bool:
    small, large = part.get("initial"), whole.get("initial")
    if not isinstance(small, int) or not isinstance(large, int) or not 1 < small < large:
        return False
    named = any(
        parts.search(part["name"]) and wholes.search(whole["name"])
        for wholes, parts in _DIVIDED
        if not parts.search(whole["name"])
    )
    return named and large % small == 0
