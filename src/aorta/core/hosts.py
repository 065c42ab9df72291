"""Lists of host names as schedulers write them: `n[01-04,7],login1`."""

import itertools
import math
import re
from collections.abc import Iterator

from aorta.core.errors import UsageError

_MOST = 65_536
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")


def expand_hosts(text: str, where: str) -> tuple[str, ...]:
    """Every name of a list, in its order.

    >>> expand_hosts("n[1-3,7],login", where="--nodes")
    ('n1', 'n2', 'n3', 'n7', 'login')

    Raises `UsageError` for a list that cannot be read, or that names a host twice.
    """
    if not re.fullmatch(rf"{_ITEM.pattern}(?:,{_ITEM.pattern})*", text.replace(" ", "")):
        raise UsageError(f"found {text!r}, expected names such as n[1-64] or n1,n2", where=where)
    names = [name for item in _ITEM.findall(text.replace(" ", "")) for name in _names(item, where)]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise UsageError(f"names {twice!r} twice", where=where)
    return tuple(names)


def _names(item: str, where: str) -> Iterator[str]:
    if re.fullmatch(r"\d+-\d+", item):  # devices
        item = f"[{item}]"
    plain = _BRACKET.split(item)
    ranges = [list(_range(inside, where)) for inside in plain[1::2]]
    if math.prod(len(values) for values in ranges) > _MOST:
        raise UsageError(f"{item!r} names more than {_MOST} hosts", where=where)
    for chosen in itertools.product(*ranges):
        parts = [part for pair in zip(plain[::2], (*chosen, ""), strict=True) for part in pair]
        yield "".join(parts)


def _range(inside: str, where: str) -> Iterator[str]:
    for part in inside.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not found:
            raise UsageError(f"found [{inside}], expected numbers such as [1-4,7]", where=where)
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) >= _MOST:
            raise UsageError(f"found [{part}], expected a rising range", where=where)
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
