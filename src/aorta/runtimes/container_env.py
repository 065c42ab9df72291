"""How variables get into a container without a value ever standing in a process list.

`--env NAME` makes the client pass on a variable of its own environment: nothing is quoted, nothing touches the disk, and a
value may hold newlines. Variables that the client or its loader would itself obey (PATH, LD_LIBRARY_PATH, DOCKER_HOST ...)
must not be set for it; they go through a file that only the caller can read and that is removed with the container.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aorta.core.errors import UsageError
from aorta.core.names import check_variable
from aorta.runtimes.engine import Engine

_OBEYED = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
_OBEYED_PREFIXES = (
    "BUILDKIT",
    "CONTAINER",
    "DBUS_",
    "DOCKER_",
    "GCONV_",
    "GLIBC_",
    "GO",
    "LC_",
    "LD_",
    "LISTEN_",
    "MALLOC_",
    "NOTIFY_",
    "OTEL_",
    "PODMAN_",
    "REGISTRY_",
    "SSH_",
    "SSL_",
    "STORAGE_",
    "XDG_",
    "_CONTAINERS",
)


@dataclass(frozen=True)
class PassedVariables:
    """Options of `run`, the client's side of them, and what removes the traces."""

    options: tuple[str, ...]
    client_env: Mapping[str, str]
    client_unset: frozenset[str]
    cleanup: tuple[tuple[str, ...], ...]


def passed_variables(
    engine: Engine, variables: Mapping[str, str], directory: Path
) -> PassedVariables:
    for name, value in variables.items():
        check_variable(name, value, where="env")
    by_file = {name: value for name, value in variables.items() if _client_obeys(name)}
    by_name = {name: value for name, value in variables.items() if name not in by_file}
    kept_out = [name for name in engine.keeps_out if name not in variables]
    options = [f"--env={name}" for name in (*sorted(by_name), *kept_out)]
    cleanup: list[tuple[str, ...]] = []
    if by_file:
        path = _written(by_file, directory)
        options.append(f"--env-file={path}")
        cleanup.append(("rm", "-f", str(path)))
    return PassedVariables(tuple(options), by_name, frozenset(kept_out), tuple(cleanup))


def _client_obeys(name: str) -> bool:
    return name in _OBEYED or name.startswith(_OBEYED_PREFIXES)


def _written(variables: Mapping[str, str], directory: Path) -> Path:
    for name, value in variables.items():
        if "\n" in value or "\r" in value:
            raise UsageError(
                f"the value of {name} holds a line break, which a container engine cannot take for "
                "a variable that its own client obeys; set it inside the command instead",
                where="env",
            )
    path = directory / "container.env"
    path.unlink(missing_ok=True)  # an earlier one may have wider permissions
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{name}={value}\n" for name, value in sorted(variables.items()))
    return path
