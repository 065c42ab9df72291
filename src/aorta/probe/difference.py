"""What is different between two snapshots, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aorta.core.names import path_of

_NOT_COMPARED = frozenset({"captured_at"})


@dataclass(frozen=True)
class Difference:
    path: str
    change: str  # changed | added | removed
    before: Any = None
    after: Any = None


_Place = tuple[int | str, ...]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Every leaf that differs, in the order of the keys. The moment of capture is no difference."""
    return list(
        _between(
            {key: value for key, value in before.items() if key not in _NOT_COMPARED},
            {key: value for key, value in after.items() if key not in _NOT_COMPARED},
            (),
        )
    )


def _between(before: Any, after: Any, place: _Place) -> Iterator[Difference]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _between_keyed(before, after, place)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _between_keyed(dict(enumerate(before)), dict(enumerate(after)), place)
    elif before != after or type(before) is not type(after):
        yield Difference(path_of(place), "changed", before, after)


def _between_keyed(
    before: Mapping[Any, Any], after: Mapping[Any, Any], place: _Place
) -> Iterator[Difference]:
    for key in dict.fromkeys([*before, *after]):
        inside = (*place, key)
        if key not in after:
            yield Difference(path_of(inside), "removed", before=before[key])
        elif key not in before:
            yield Difference(path_of(inside), "added", after=after[key])
        else:
            yield from _between(before[key], after[key], inside)
