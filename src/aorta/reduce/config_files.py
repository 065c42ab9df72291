"""Numbers and lists that stand in a configuration (YAML, JSON, TOML), and the same text with other
values in their place.

Only the characters of a value are replaced, so that whatever else the file holds, comments too,
stays as it is. A list that took several lines leaves blank ones: every setting stays in its line.

Numbers that are no sizes are known by their names: a seed, a port, a period. Made smaller they make
a run another one, or a slower one, and nothing smaller. So are bounds of what data may hold, such
as a vocabulary: with a smaller one any row fails like the bad one.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONFIGS = (".yaml", ".yml", ".json", ".toml")
BETWEEN = ", "
MOST_SETTINGS = 24
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEY = re.compile(r"[\w.\-]+")
_ITEM = re.compile(r"""(?:"[\w.+ -]*"|'[\w.+ -]*'|[\w.+-]+)""")
# `steps = 500` and `layers = [4, 8]`, whose items may have lines of their own.
_OF_TOML = re.compile(
    rf"""^[ \t]*["']?(?P<key>[\w.\-]+)["']?[ \t]*=[ \t]*"""
    rf"(?P<value>\d+|\[\s*{_ITEM.pattern}(?:\s*,\s*{_ITEM.pattern})*\s*,?\s*\])"
    r"[ \t]*(?:\#.*)?$",
    re.MULTILINE,
)
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
_BOUND = re.compile(
    r"(?:^|_)(?:vocab|vocabulary|n?classes|nlabels|embeddings|categories|cardinality)(?:_|$)"
    r"|(?:^|_)(?:n|num|max)_(?:labels|positions)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Setting:
    """One value: its key, the line of that from 1 on, and the part of the text that it takes."""

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
            return self.initial > 1 and not is_bound(self.key)
        return len(self.initial) > 1 and len(BETWEEN.join(self.initial)) <= _MOST_LIST

    def replaced(self, text: str, value: str) -> str:
        """The text with this value in its place, in brackets where it is a list."""
        if not isinstance(self.initial, int):
            before = "" if text[self.start] == "[" else " "
            value = f"{before}[{value}]" + "\n" * text.count("\n", self.start, self.end)
        return f"{text[: self.start]}{value}{text[self.end :]}"


def is_config(path: Path) -> bool:
    """A configuration has a few settings; what has more of them is data."""
    return path.name.endswith(CONFIGS) and 0 < len(settings_in(path)) <= MOST_SETTINGS


def settings_in(path: Path) -> list[Setting]:
    """Every whole number and plain list that may shrink; none where the file is not sound."""
    return [setting for setting in all_settings_in(path) if setting.may_shrink]


def all_settings_in(path: Path) -> list[Setting]:
    """With those that are as small as they can be, or are no sizes; without those that share both
    line and key with another.
    """
    try:
        text = path.read_text("utf-8") if path.stat().st_size <= _MOST_BYTES else ""
        found = list(_of_toml(text) if path.suffix == ".toml" else _of_yaml(text, path.suffix))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return []
    often = Counter((setting.line, setting.key) for setting in found)
    alone = [setting for setting in found if often[setting.line, setting.key] == 1]
    return sorted(alone, key=lambda setting: setting.start)


def _of_toml(text: str) -> Iterator[Setting]:
    tomllib.loads(text)
    for found in _OF_TOML.finditer(text):
        value, line = found["value"], text.count("\n", 0, found.start("key")) + 1
        items = tuple(_ITEM.findall(value))
        initial = int(value) if value.isdecimal() else items
        yield Setting(found["key"], line, initial, *found.span("value"))


def _of_yaml(text: str, suffix: str) -> Iterator[Setting]:
    """Of its mappings at every depth, but for those in lists; a JSON document with a list of
    objects is data. JSON is YAML but for its tabs.
    """
    if suffix == ".json":
        json.loads(text)
    waiting: list[Any] = [yaml.compose(text.replace("\t", " "), Loader=_LOADER)]
    known = {id(waiting[0])}
    for node in waiting:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        yield from filter(None, (_setting(text, key, value) for key, value in pairs))
        inside = [value for _, value in pairs if id(value) not in known]  # or it is an alias
        known.update(map(id, inside))
        waiting += inside
        is_list = suffix == ".json" and isinstance(node, yaml.SequenceNode)
        if is_list and any(isinstance(item, yaml.MappingNode) for item in node.value):
            raise ValueError("rows of data")


def _setting(text: str, key: Any, value: Any) -> Setting | None:
    """A whole number, or a list of plain items: in brackets, or one a line below its key."""
    if not isinstance(key, yaml.ScalarNode) or not _KEY.fullmatch(key.value):
        return None
    line, start, end = key.start_mark.line + 1, value.start_mark.index, value.end_mark.index
    if isinstance(value, yaml.ScalarNode) and text[start:end].isdecimal():
        return Setting(key.value, line, int(text[start:end]), start, end)
    if not isinstance(value, yaml.SequenceNode) or not value.value:
        return None
    parts = [(item.start_mark.index, item.end_mark.index) for item in value.value]
    items = tuple(text[begin:stop].strip() for begin, stop in parts)
    if not all(map(_ITEM.fullmatch, items)):
        return None
    if not value.flow_style:
        start, end = text.index(":", key.end_mark.index) + 1, parts[-1][1]
    return Setting(key.value, line, items, start, end)


def is_no_size(name: str) -> bool:
    """Whether a number of this name is to be left alone.

    >>> [is_no_size(name) for name in ("max_steps", "eval_every", "save-steps", "maxSeed")]
    [False, True, True, True]
    """
    return _NO_SIZE.search(_snake(name)) is not None


def is_bound(name: str) -> bool:
    """Whether a number of this name says what data may hold, not how much of it there is.

    >>> [is_bound(name) for name in ("vocab_size", "numClasses", "num_labels")]
    [True, True, True]
    >>> [is_bound(name) for name in ("steps", "embed_dim", "tokens", "labels")]
    [False, False, False, False]
    """
    return _BOUND.search(_snake(name)) is not None


def _snake(name: str) -> str:
    return re.sub(r"\W", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))


_DIVIDED = (
    (
        re.compile(r"(?i)hidden|embed|embd|(?:^|_)dim|d_?model|width|channels"),
        re.compile(r"(?i)heads?$|groups"),
    ),
    (re.compile(r"(?i)batch"), re.compile(r"(?i)micro|accum")),
)


def divided(axes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The axes, of which one that another divides by its name and value goes in steps of that,
    and the other stays: a hidden size that is no multiple of the heads is another failure.

    >>> axes = [{"name": "HIDDEN", "initial": 96}, {"name": "NUM_HEADS", "initial": 12}]
    >>> divided(axes)[0]
    {'name': 'HIDDEN', 'initial': 96, 'floor': 12, 'step': 12}
    >>> divided(axes)[1]
    {'name': 'NUM_HEADS', 'initial': 12, 'floor': 12}
    """
    found = []
    for axis in axes:
        parts = [other["initial"] for other in axes if _divides(other, axis)]
        more: dict[str, int] = {}
        if parts:
            more = {"floor": max(parts), "step": max(parts)}
        elif any(_divides(axis, other) for other in axes):
            more = {"floor": axis["initial"]}
        found.append({**axis, **more})
    return found


def _divides(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    small, large = part.get("initial"), whole.get("initial")
    if not isinstance(small, int) or not isinstance(large, int) or not 1 < small < large:
        return False
    named = any(
        parts.search(part["name"]) and wholes.search(whole["name"])
        for wholes, parts in _DIVIDED
        if not parts.search(whole["name"])
    )
    return named and large % small == 0
