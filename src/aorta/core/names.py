"""The syntax of names: slugs, variables, cells, paths in a document, lists of hosts."""

import itertools
import math
import re
from collections.abc import Iterator

from aorta.core.errors import UsageError

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MOST_HOSTS = 65_536
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
LONGEST_NAME = 200  # a file system takes 255
_PATH_SAFE = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.\-]{{0,{LONGEST_NAME - 1}}}\Z")


def slug(text: str) -> str:
    """A name as one harmless path component; different texts may share one."""
    safe = _UNSAFE.sub("_", text)
    return "_" if safe in {"", ".", ".."} else safe


def is_path_safe(name: str) -> bool:
    return bool(_PATH_SAFE.match(name))


def is_variable(name: str) -> bool:
    return bool(_VARIABLE.match(name))


def path_of(location: tuple[int | str, ...]) -> str:
    """`axes[1].floor` for ("axes", 1, "floor")."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def check_variable(name: str, value: object, *, where: str) -> str:
    """The value, if `name=value` may stand in an environment. Values are never echoed."""
    if not is_variable(name):
        raise UsageError(
            f"{name!r} is not a variable name; expected letters, digits and _, not starting with "
            "a digit",
            where=where,
        )
    if not isinstance(value, str):
        raise UsageError(
            f"the value of {name} is a {type(value).__name__}; expected a string: put it in quotes",
            where=where,
        )
    if "\0" in value:
        raise UsageError(f"the value of {name} holds a NUL byte; remove it", where=where)
    return value


def expand_hosts(text: str, where: str) -> tuple[str, ...]:
    """Every name of a list, in its order.

    >>> expand_hosts("n[1-3,7],login", where="--nodes")
    ('n1', 'n2', 'n3', 'n7', 'login')

    Raises `UsageError` for a list that cannot be read, or that names a host twice.
    """
    if not re.fullmatch(rf"{_ITEM.pattern}(?:,{_ITEM.pattern})*", text.replace(" ", "")):
        raise UsageError(f"found {text!r}, expected names such as n[1-64] or n1,n2", where=where)
    names = [
        name for item in _ITEM.findall(text.replace(" ", "")) for name in _names_of(item, where)
    ]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise UsageError(f"names {twice!r} twice", where=where)
    return tuple(names)


def _names_of(item: str, where: str) -> Iterator[str]:
    if re.fullmatch(r"\d+-\d+", item):  # devices
        item = f"[{item}]"
    plain = _BRACKET.split(item)
    ranges = [list(_numbers_in(inside, where)) for inside in plain[1::2]]
    if math.prod(len(values) for values in ranges) > _MOST_HOSTS:
        raise UsageError(f"{item!r} names more than {_MOST_HOSTS} hosts", where=where)
    for chosen in itertools.product(*ranges):
        parts = [part for pair in zip(plain[::2], (*chosen, ""), strict=True) for part in pair]
        yield "".join(parts)


def _numbers_in(inside: str, where: str) -> Iterator[str]:
    for part in inside.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not found:
            raise UsageError(f"found [{inside}], expected numbers such as [1-4,7]", where=where)
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) >= _MOST_HOSTS:
            raise UsageError(f"found [{part}], expected a rising range", where=where)
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
