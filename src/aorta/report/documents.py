"""Tolerant readers: a part that is missing or of another shape is absent, never an exception."""

from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]
NOTHING: Document = {}


def section(document: object, *path: str) -> Document:
    """The mapping at a path of keys, or an empty one."""
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else NOTHING


def rows(document: object, key: str) -> list[Document]:
    """The mappings in the list at `key`."""
    found = document.get(key) if isinstance(document, Mapping) else None
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def items(document: object, key: str) -> Sequence[Any]:
    found = document.get(key) if isinstance(document, Mapping) else None
    return found if isinstance(found, list | tuple) else ()


def words(document: object, key: str, otherwise: str = "") -> str:
    """The value as one text; lists and mappings are no text."""
    found = document.get(key) if isinstance(document, Mapping) else None
    if found is None or isinstance(found, list | Mapping):
        return otherwise
    return str(found)


def number(document: object, key: str) -> float | None:
    """A finite number; a bool is none."""
    found = document.get(key) if isinstance(document, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return found if abs(found) < float("inf") else None


def count(document: object, key: str) -> int:
    found = number(document, key)
    return int(found) if found is not None else 0
