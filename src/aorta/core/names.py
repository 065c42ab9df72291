"""One place for the syntax of names: slugs, variable names, cell names, paths inside a document."""

import re

from aorta.core.errors import UsageError

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PATH_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\Z")


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
