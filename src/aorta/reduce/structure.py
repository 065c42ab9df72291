"""A data file as removable pieces: CSV rows, JSON elements at any depth, array rows, or lines."""

import csv
import io
import json
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from aorta.core.documents import object_of

_FEWEST = 2  # pieces, for a structure to be worth more than lines


@dataclass(frozen=True)
class Pieces:
    """`parts` in their order; those behind the header may go.

    >>> pieces_of("a.txt", b"1\\n2\\n3\\n").without_all_but({0, 2})
    b'1\\n3\\n'
    """

    parts: Sequence[bytes] = field(repr=False)
    header: int = 0

    @property
    def items(self) -> tuple[str, ...]:
        """What may go, for people."""
        behind = self.parts[self.header :]
        return tuple(part.decode("utf-8", "replace").rstrip("\r\n") for part in behind)

    def without_all_but(self, kept: Collection[int]) -> bytes:
        """The text with only these of its items."""
        first = -self.header
        numbered = enumerate(self.parts, first)
        return b"".join(part for number, part in numbered if number < 0 or number in kept)


def pieces_of(name: str, content: bytes, header: int | None = None) -> "Pieces | JsonTree":
    """By the ending of `name`, else by lines. `header`: first lines that stay (None: guessed)."""
    ending = name.rpartition(".")[2].lower()
    found = _of_json(content) if ending == "json" and not header else None
    if found is not None:
        return found
    rows = content.splitlines(keepends=True)
    if ending in {"csv", "tsv"}:
        rows = _records(rows)
        header = _has_header(rows, "\t" if ending == "tsv" else ",") if header is None else header
    return Pieces(rows, header or 0)


def _records(lines: Sequence[bytes]) -> list[bytes]:
    """A field in quotes may hold line ends: its lines belong together."""
    records: list[bytes] = []
    is_open = False
    for line in lines:
        if is_open:
            records[-1] += line
        else:
            records.append(line)
        is_open ^= line.count(b'"') % 2 == 1
    return records if not is_open else list(lines)


def _has_header(rows: Sequence[bytes], mark: str) -> int:
    """1 where the first row names columns: each cell once, none of them a number."""
    if len(rows) < _FEWEST:
        return 0
    text = rows[0].decode("utf-8-sig", "replace")
    cells = next(iter(csv.reader(io.StringIO(text), delimiter=mark)), [])
    named = all(re.fullmatch(r"[^\d\W][^\n]{0,60}", cell.strip()) for cell in cells)
    return int(bool(cells) and named and len({*cells}) == len(cells) and len(cells) > 1)


# -- JSON: every element of every array, and every member of every object


@dataclass(frozen=True)
class JsonTree:
    """A JSON document whose items are all its elements and members down to `depth`, each before
    what is in it. One of which anything stays, stays around that.

    >>> pieces_of("a.json", b'{"a": [1, 2, 3], "b": {"c": 4}}').without_all_but({0, 2})
    b'{"a": [2]}'
    """

    text: str = field(repr=False)
    document: Any = field(repr=False)
    depth: int

    @cached_property
    def items(self) -> tuple[str, ...]:
        """For people, and for the search: what is in an item is indented below it."""
        return tuple(self._said(self.document, 0))

    def _said(self, value: Any, depth: int) -> Iterator[str]:
        for key, child in _children(value) if depth < self.depth else ():
            is_container = isinstance(child, dict | list) and child
            said = "..." if is_container else json.dumps(child, ensure_ascii=False)[:_SHOWN]
            yield "  " * depth + (f"{json.dumps(key)}: {said}" if isinstance(key, str) else said)
            yield from self._said(child, depth + 1)

    def without_all_but(self, kept: Collection[int]) -> bytes:
        if len(kept) == len(self.items):
            return self.text.encode()
        indent = 1 if "\n" in self.text else None
        left, _ = self._left(self.document, 0, {*kept}, count())
        text = json.dumps(left, indent=indent, ensure_ascii=self.text.isascii())
        return text.encode("utf-8", "backslashreplace")

    def _left(
        self, value: Any, depth: int, kept: Collection[int], numbers: Iterator[int]
    ) -> tuple[Any, bool]:
        """What stays of the value, and whether any of its items does."""
        if depth == self.depth or not isinstance(value, dict | list):
            return value, False
        stays = []
        for key, child in _children(value):
            is_kept = next(numbers) in kept
            left, has_kept = self._left(child, depth + 1, kept, numbers)
            if is_kept or has_kept:
                stays.append((key, left))
        pruned = dict(stays) if isinstance(value, dict) else [left for _, left in stays]
        return pruned, bool(stays)


def _children(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


_MOST_NODES = 200_000
_DEEPEST = 60
_SHOWN = 60  # characters


def _of_json(content: bytes) -> JsonTree | None:
    """As deep as there are not too many elements."""
    try:
        text = content.decode("utf-8-sig")
        document = json.loads(text, object_pairs_hook=object_of)
        for depth in (_DEEPEST, 2, 1):
            tree = JsonTree(text, document, depth)
            if len(tree.items) <= _MOST_NODES:
                break
    except (ValueError, RecursionError):
        return None
    return tree if len(tree.items) >= _FEWEST else None


# -- rows of NumPy and torch arrays; the trials' Python reads and writes them: it has the library

ARRAYS = (".npy", ".npz", ".pt")
_SELECT = """
import json, sys
path = sys.argv[1]
kept = json.loads(sys.stdin.read())
if path.endswith(".pt"):
    import torch
    data, save = torch.load(path, map_location="cpu", weights_only=True), torch.save
else:
    import numpy
    data = numpy.load(path)
    data = dict(data) if path.endswith(".npz") else data
    def save(data, out):
        numpy.savez(out, **data) if isinstance(data, dict) else numpy.save(out, data)
def is_array(part):
    return getattr(part, "ndim", 0) > 0
parts = [] if is_array(data) else list(data.values() if isinstance(data, dict) else data)
lengths = [len(part) for part in parts if is_array(part)]
# A checkpoint of torch has tensors of many lengths, and no rows.
alike = len(lengths) == len(parts) and len({*lengths}) == 1
columns = bool(lengths) and (alike or path.endswith(".npz"))
length = 0 if isinstance(data, dict) else len(data)
if columns:
    length = max(lengths, key=lambda n: (lengths.count(n), n))
def select(part):
    if columns and not (is_array(part) and len(part) == length):
        return part
    if is_array(part):
        return part[kept].clone() if hasattr(part, "clone") else part[kept]
    return type(part)(part[i] for i in kept)
if kept is None:
    print(length)
elif columns and isinstance(data, dict):
    save({key: select(part) for key, part in data.items()}, sys.stdout.buffer)
else:
    save(type(data)(map(select, data)) if columns else select(data), sys.stdout.buffer)
"""


@dataclass(frozen=True)
class ArrayRows:
    """The rows of an array or of arrays of one length side by side, or the elements of a list."""

    python: str
    path: Path
    length: int

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(f"row {number}" for number in range(self.length))

    def without_all_but(self, kept: Collection[int]) -> bytes:
        """The file with only these rows."""
        return _selected(self.python, self.path, sorted(kept))


@lru_cache(8)
def array_rows(python: str | None, path: Path) -> ArrayRows | None:
    """None where that Python lacks the library, or the file has nothing along a first dimension."""
    if python is None:
        return None
    try:
        length = int(_selected(python, path, None))
    except (ValueError, subprocess.CalledProcessError):
        return None
    return ArrayRows(python, path, length) if length > 1 else None


def _selected(python: str, path: Path, kept: Sequence[int] | None) -> bytes:
    """The file with these rows alone; how many it has, where none are named."""
    words, given = (python, "-c", _SELECT, str(path)), json.dumps(kept).encode()
    return subprocess.run(words, input=given, capture_output=True, check=True).stdout
