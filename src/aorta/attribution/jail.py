"""Which files may be read on behalf of others, and how. A refusal never repeats the path.

A path is judged by its name when it is reported, and opened much later; between the two anybody who
may write there can put a link in its place. What keeps others' files closed is that `open_straight`
follows no link.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from aorta.core.errors import UsageError

_WALK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold us up


class PathRefusedError(UsageError):
    """`code` is for machines: `invalid_path` or `outside_root`."""

    kind = "path"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PathJail:
    """Log paths are served only from under the allowed roots, by their true name."""

    def __init__(self, roots: Sequence[Path]) -> None:
        given = [str(root.absolute()).rstrip("/") for root in roots]
        real = [os.path.realpath(root).rstrip("/") for root in roots]
        # A root may itself be a link, its owner chose it: both of its names open the same files.
        self._roots = tuple({*zip(given, real, strict=True), *zip(real, real, strict=True)})

    def admit(self, text: str) -> Path:
        """The path, if it is absolute, holds no `..` and no link, and lies under a root."""
        root, inside = self.check_name(text)
        if self.leads_through_a_link(text):
            raise PathRefusedError("outside_root", "a log path may not lead through a link")
        return Path(f"{root}/{inside}")

    def leads_through_a_link(self, text: str) -> bool:
        """Whether any part of a path below its root is a link, as far as the path exists."""
        path, inside = self.check_name(text)
        with suppress(OSError):
            for part in inside.split("/") if inside else ():
                path = f"{path}/{part}"
                if stat.S_ISLNK(os.lstat(path).st_mode):
                    return True
        return False

    def is_allowed(self, text: str) -> bool:
        """Whether a path lies under a root by its name."""
        try:
            self.check_name(text)
        except PathRefusedError:
            return False
        return True

    def check_name(self, text: str) -> tuple[str, str]:
        """The root a path lies under by its name, and the rest of it. Looks at no file."""
        if "\0" in text or not text.startswith("/") or ".." in text.split("/"):
            raise PathRefusedError(
                "invalid_path", "a log path must be absolute and hold no '..' and no NUL"
            )
        path = os.path.normpath(text)
        for given, real in self._roots:
            if path == given or path.startswith(given + "/"):
                return real, path[len(given) + 1 :]
        raise PathRefusedError("outside_root", "the log lies outside the allowed roots")


def open_straight(path: Path) -> BinaryIO:
    """Open a regular file without following any link. Raises OSError for anything else."""
    *parents, name = path.parts[1:]
    directory = os.open("/", _WALK)
    try:
        for parent in parents:
            inner = os.open(parent, _WALK, dir_fd=directory)
            os.close(directory)
            directory = inner
        descriptor = os.open(name, _READ, dir_fd=directory)
    finally:
        os.close(directory)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file
