"""Whole numbers in a configuration (YAML, JSON, TOML), and the same text with one of them changed.

Known by name and left alone: seeds, ports, periods, which made smaller make another run, not a
smaller one; and bounds of data such as a vocabulary, below which any row fails like the bad one.
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
_MOST_SETTINGS = 24
_MOST_BYTES = 1 << 18
_LONGEST_LIST = 40  # entries; what has more is data
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEY = re.compile(r"[\w.\-]+")
_OF_TOML = re.compile(
    r"""^[ \t]*(?:\[{1,2}(?P<table>[\w.\-]+)\]{1,2}"""
    r"""|["']?(?P<key>[\w.\-]+)["']?[ \t]*=[ \t]*(?P<value>\d+))[ \t]*(?:\#.*)?$""",
    re.MULTILINE,
)
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
    """One number: its full key (`train.steps`) and the part of the text that it takes."""

    key: str
    initial: int
    start: int
    end: int

    def replaced(self, text: str, value: str) -> str:
        return f"{text[: self.start]}{value}{text[self.end :]}"


def sizes_in(path: Path) -> list[Setting] | None:
    """The settings that may shrink; None where the file is no configuration, but data."""
    found = settings_in(path)
    if found is None:
        return None
    sizes = [s for s in found if s.initial > 1 and not is_no_size(s.key) and not is_bound(s.key)]
    return sizes if len(sizes) <= _MOST_SETTINGS else None


def settings_in(path: Path) -> list[Setting] | None:
    """Whole numbers whose key occurs once; None for a file of data, a large or an invalid one."""
    try:
        if path.suffix not in CONFIGS or path.stat().st_size > _MOST_BYTES:
            return None
        text = path.read_text("utf-8")
        found = list(_of_toml(text) if path.suffix == ".toml" else _of_yaml(text, path.suffix))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    often = Counter(setting.key for setting in found)
    return sorted((s for s in found if often[s.key] == 1), key=lambda setting: setting.start)


def _of_toml(text: str) -> Iterator[Setting]:
    tomllib.loads(text)
    table = ""
    for found in _OF_TOML.finditer(text):
        if found["table"]:
            table = f"{found['table']}."
        else:
            yield Setting(f"{table}{found['key']}", int(found["value"]), *found.span("value"))


def _of_yaml(text: str, suffix: str) -> Iterator[Setting]:
    """Of mappings outside of lists; JSON is YAML but for its tabs, a list of objects is data."""
    if suffix == ".json":
        json.loads(text)
    waiting: list[tuple[str, Any]] = [("", yaml.compose(text.replace("\t", " "), Loader=_LOADER))]
    known: set[int] = set()
    for above, node in waiting:
        if isinstance(node, yaml.SequenceNode):
            rows = suffix == ".json" and any(isinstance(n, yaml.MappingNode) for n in node.value)
            if rows or len(node.value) > _LONGEST_LIST:
                raise ValueError("rows of data")
        for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
            # What is known already is an alias.
            if id(value) in known or not _KEY.fullmatch(str(key.value)):
                continue
            known.add(id(value))
            start, end = value.start_mark.index, value.end_mark.index
            if isinstance(value, yaml.ScalarNode) and text[start:end].isdecimal():
                yield Setting(f"{above}{key.value}", int(text[start:end]), start, end)
            waiting.append((f"{above}{key.value}.", value))


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
    """Of `net.maxSeed` the last part, in small words."""
    last = name.rpartition(".")[2]
    return re.sub(r"\W", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", last))


_PARTS = re.compile(r"(?i)heads?$|groups|micro|accum")
_WHOLES = re.compile(r"(?i)hidden|embed|embd|(?:^|_)dim|d_?model|width|channels|batch")


def divided(axes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The axes, of which those that divide others by their names stay, and the others go in steps
    of them: a hidden size that is no multiple of the heads is another failure.

    >>> hidden = {"name": "HIDDEN", "type": "int", "initial": 96, "floor": 1}
    >>> heads = {"name": "NUM_HEADS", "type": "int", "initial": 12, "floor": 1}
    >>> [axis["floor"] for axis in divided([hidden, heads])]
    [12, 12]
    """
    sizes = {axis["name"]: axis["initial"] for axis in axes if axis.get("type") == "int"}
    parts = {name: size for name, size in sizes.items() if _PARTS.search(name)}
    found = [dict(axis) for axis in axes]
    for axis in found:
        name = axis["name"]
        if name in parts:
            axis["floor"] = parts[name]
        elif name in sizes and _WHOLES.search(name):
            steps = [n for n in parts.values() if n < sizes[name] and sizes[name] % n == 0]
            axis.update({"floor": max(steps), "step": max(steps)} if steps else {})
    return found
