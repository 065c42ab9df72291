"""A text as pieces that may go, by its own structure: the rows of a CSV file below their header,
the elements of a JSON document with the commas between them, the entries of a YAML document, else
lines. It reads bytes and gives bytes; it knows no axis and no trial.
"""

import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import yaml

from aorta.reduce.arrays import ARRAYS, Arrays, arrays_of

_FEWEST = 2  # pieces, for a structure to be worth more than lines
_MOST_YAML = 1 << 22  # bytes: it is read by a slow parser
_SPACE = re.compile(r"[ \t\r\n]*")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Pieces:
    """`parts` in their order; those that do not always stay may go. `between` stands between two
    of those that are left.

    >>> pieces_of("a.json", b"[1, 2, 3]").without_all_but({0, 2})
    b'[1, 3]'
    """

    parts: Sequence[bytes] = field(repr=False)
    stays: Sequence[bool] = field(repr=False)
    between: bytes = b""

    @property
    def items(self) -> tuple[str, ...]:
        """What may go, for people."""
        return tuple(
            part.decode("utf-8", "replace").rstrip("\r\n")
            for part, stays in zip(self.parts, self.stays, strict=True)
            if not stays
        )

    def without_all_but(self, kept: Collection[int]) -> bytes:
        """The text with only these of its items."""
        content, index, begun = [], 0, False
        for part, stays in zip(self.parts, self.stays, strict=True):
            if stays or index in kept:
                content += [self.between, part] if begun and not stays else [part]
                begun |= not stays
            index += not stays
        return b"".join(content)


def pieces_of(
    name: str, content: bytes, header: int | None = None, comments: str | None = None
) -> "Pieces | Arrays":
    """By the ending of `name`; by lines where its content is not what the ending says. `header`: so
    many first lines always stay (None: those that look like one); `comments`: lines that begin so
    do.
    """
    ending = name.rpartition(".")[2].lower()
    if name.endswith(ARRAYS):
        arrays = arrays_of(content)
        if arrays is not None:
            return arrays
    if comments is None and not header:
        found = None
        if ending == "json":
            found = _of_json(content)
        elif ending in {"yaml", "yml"}:
            found = _of_yaml(content)
        if found is not None:
            return found
    rows = content.splitlines(keepends=True)
    if ending in {"csv", "tsv"}:
        rows = _records(rows)
        header = _has_header(rows, "\t" if ending == "tsv" else ",") if header is None else header
    mark = comments.encode() if comments else None
    stays = [
        number < (header or 0) or (mark is not None and row.lstrip().startswith(mark))
        for number, row in enumerate(rows)
    ]
    return Pieces(rows, stays)


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


# -- JSON: the container with the most elements, wherever it stands


def _of_json(content: bytes) -> Pieces | None:
    try:
        text = content.decode("utf-8-sig")
        spans = max(_containers(text, _after_space(text, 0)), key=len, default=[])
    except (ValueError, RecursionError, IndexError):
        return None
    if len(spans) < _FEWEST:
        return None
    ends = {text[a[1] : b[0]].encode() for a, b in pairwise(spans)}
    between = min(ends, key=len) if len(ends) == 1 else b",\n"
    parts = [text[a:b].encode() for a, b in spans]
    around = text[: spans[0][0]].encode(), text[spans[-1][1] :].encode()
    return Pieces([around[0], *parts, around[1]], [True, *[False] * len(parts), True], between)


_Spans = list[tuple[int, int]]
_DECODER = json.JSONDecoder()


def _containers(text: str, at: int) -> Iterator[_Spans]:
    """The places of the elements of every array, and of the members of every object."""
    if text[at] not in "[{":
        return
    close, spans, inner = "]" if text[at] == "[" else "}", [], []
    at = _after_space(text, at + 1)
    while text[at] != close:
        begun = at
        if close == "}":
            _, at = _DECODER.raw_decode(text, at)
            at = _after_space(text, at)
            if text[at] != ":":
                raise ValueError("no colon")
            at = _after_space(text, at + 1)
        value, end = _DECODER.raw_decode(text, at)
        if isinstance(value, list | dict) and value:
            inner.append(at)
        spans.append((begun, end))
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    yield spans
    if len(inner) <= _FEW_INSIDE:  # the elements of a long list are not looked into
        for place in inner:
            yield from _containers(text, place)


_FEW_INSIDE = 64


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


# -- YAML: the block with the most entries, each as its lines


def _of_yaml(content: bytes) -> Pieces | None:
    if len(content) > _MOST_YAML:
        return None
    try:
        text = content.decode("utf-8")
        root = yaml.compose(text, Loader=_LOADER)
    except (ValueError, yaml.YAMLError, RecursionError):
        return None
    lines = text.splitlines(keepends=True)
    starts, end = max(_blocks(root, lines), key=lambda block: len(block[0]), default=([], 0))
    if len(starts) < _FEWEST or len({*starts}) != len(starts):
        return None
    bounds = [*starts, min(end, len(lines))]
    parts = ["".join(lines[a:b]).encode() for a, b in pairwise(bounds)]
    around = "".join(lines[: starts[0]]).encode(), "".join(lines[bounds[-1] :]).encode()
    return Pieces([around[0], *parts, around[1]], [True, *[False] * len(parts), True])


def _blocks(node: yaml.Node | None, lines: Sequence[str]) -> Iterator[tuple[list[int], int]]:
    """Of every collection whose entries have lines of their own: where each begins, and where it
    ends.
    """
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return
    entries = node.value
    if isinstance(node, yaml.MappingNode):
        keys, inside, mark = [key for key, _ in entries], [value for _, value in entries], ""
    else:
        keys, inside, mark = entries, entries, "-"
    starts = [key.start_mark for key in keys]
    if all(lines[start.line][: start.column].strip() == mark for start in starts):
        yield [start.line for start in starts], node.end_mark.line + (node.end_mark.column > 0)
    for child in inside:
        yield from _blocks(child, lines)
