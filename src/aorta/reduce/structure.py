"""A data file as pieces that may go, by its own structure: the rows of a CSV file below their
header, the elements of a JSON document at every depth, the rows of arrays, else lines. It gives the
bytes of what is left; it knows no axis and no trial. What the indentation of lines tells, of YAML
too, the search sees itself.
"""

import csv
import io
import json
import re
import subprocess
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

_FEWEST = 2  # pieces, for a structure to be worth more than lines
_SPACE = re.compile(r"[ \t\r\n]*")


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
    """By the ending of `name`; by lines where its content is not what the ending says. `header`: so
    many first lines always stay (None: those that look like one).
    """
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
class _Node:
    """An element or member of a container: where it stands in the text, its key with it."""

    start: int
    value: int
    end: int
    children: tuple["_Node", ...] = ()

    @cached_property
    def size(self) -> int:
        """How many elements it holds, at any depth."""
        return sum(1 + child.size for child in self.children)


@dataclass(frozen=True)
class JsonTree:
    """A JSON document whose items are all its elements and members, each before what is in it. One
    that goes takes its separator along; one of which anything stays, stays around that.

    >>> pieces_of("a.json", b'{"a": [1, 2, 3], "b": {"c": 4}}').without_all_but({0, 2})
    b'{"a": [2]}'
    """

    text: str = field(repr=False)
    root: _Node = field(repr=False)

    @property
    def longest(self) -> int:
        """How many elements the longest container has."""
        waiting, most = [self.root], 0
        while waiting:
            node = waiting.pop()
            most = max(most, len(node.children))
            waiting += node.children
        return most

    @cached_property
    def items(self) -> tuple[str, ...]:
        """For people, and for the search: what is in an item is indented below it."""
        found: list[str] = []
        waiting = [(child, 0) for child in reversed(self.root.children)]
        while waiting:
            node, depth = waiting.pop()
            said = " ".join(self.text[node.start : min(node.end, node.start + _SHOWN)].split())
            found.append("  " * depth + said)
            waiting += [(child, depth + 1) for child in reversed(node.children)]
        return tuple(found)

    def without_all_but(self, kept: Collection[int]) -> bytes:
        written = self._written(self.root, 0, sorted(kept))
        return f"{self.text[: self.root.start]}{written}{self.text[self.root.end :]}".encode()

    def _written(self, node: _Node, number: int, kept: Sequence[int]) -> str:
        """`number` is that of its first child."""
        text, children = self.text, node.children
        if not children:
            return text[node.start : node.end]
        parts: list[str] = []
        before = -1
        for index, child in enumerate(children):
            behind = number + 1 + child.size
            if bisect_left(kept, number) < bisect_left(kept, behind):
                near = before if before == index - 1 else 0
                if parts:
                    parts.append(text[children[near].end : children[near + 1].start])
                parts.append(self._written(child, number + 1, kept))
                before = index
            number = behind
        if not parts:
            return f"{text[node.start : node.value + 1]}{text[node.end - 1]}"
        begin, end = text[node.start : children[0].start], text[children[-1].end : node.end]
        return f"{begin}{''.join(parts)}{end}"


_DECODER = json.JSONDecoder()
_MOST_NODES = 200_000
_SHOWN = 60  # characters


def _of_json(content: bytes) -> JsonTree | None:
    """As deep as there are not too many elements."""
    try:
        text = content.decode("utf-8-sig")
        for depth in (_DEEPEST, 2, 1):
            root = _node(text, at := _after_space(text, 0), at, depth)
            if root.size <= _MOST_NODES:
                break
    except (ValueError, RecursionError, IndexError):
        return None
    return JsonTree(text, root) if root.size >= _FEWEST else None


_DEEPEST = 60


def _node(text: str, start: int, at: int, depth: int) -> _Node:
    """What begins at `at`, with what is in it down to so many levels."""
    value, end = _DECODER.raw_decode(text, at)
    if not depth or not value or not isinstance(value, list | dict):
        return _Node(start, at, end)
    children = []
    here = _after_space(text, at + 1)
    while here < end - 1:
        begun = here
        if isinstance(value, dict):
            _, here = _DECODER.raw_decode(text, here)
            here = _after_space(text, _after_space(text, here) + 1)
        child = _node(text, begun, here, depth - 1)
        children.append(child)
        here = _after_space(text, child.end)
        if text[here] == ",":
            here = _after_space(text, here + 1)
    return _Node(start, at, end, tuple(children))


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


# -- arrays that NumPy or torch wrote, as rows along their first dimension. The Python that runs the
# trials reads and writes them: it has the library that its program needs.

ARRAYS = (".npy", ".npz", ".pt")
_SERVER = """
import io, json, sys
path = sys.argv[1]
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
def select(part, kept):
    if columns and not (is_array(part) and len(part) == length):
        return part
    if is_array(part):
        return part[kept].clone() if hasattr(part, "clone") else part[kept]
    return type(part)(part[i] for i in kept)
def only(kept):
    if not columns:
        return select(data, kept)
    if isinstance(data, dict):
        return {key: select(part, kept) for key, part in data.items()}
    return type(data)(select(part, kept) for part in data)
print(length, flush=True)
for line in sys.stdin:
    out = io.BytesIO()
    save(only(json.loads(line)), out)
    sys.stdout.buffer.write(b"%d\\n" % out.tell() + out.getvalue())
    sys.stdout.buffer.flush()
"""


@dataclass(frozen=True)
class ArrayRows:
    """The rows of an array, of arrays of one length beside each other, or the elements of a list. A
    process of that interpreter holds them, and ends with this one.
    """

    process: "subprocess.Popen[bytes]"
    length: int

    @property
    def items(self) -> tuple[str, ...]:
        return tuple(f"row {number}" for number in range(self.length))

    def without_all_but(self, kept: Collection[int]) -> bytes:
        """The file with only these rows."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(sorted(kept)).encode() + b"\n")
        stdin.flush()
        return stdout.read(int(stdout.readline()))


@lru_cache(8)
def array_rows(python: str | None, path: Path) -> ArrayRows | None:
    """None where that Python lacks the library, or the file has nothing along a first dimension."""
    if python is None:
        return None
    process = subprocess.Popen(
        (python, "-c", _SERVER, str(path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if said.isdigit() and int(said) > 1:
        return ArrayRows(process, int(said))
    process.kill()
    process.communicate()
    return None
