"""Which files may be read on behalf of others. A refusal never repeats the path."""

import os
from collections.abc import Sequence
from pathlib import Path

from aorta.core.errors import UsageError


class PathRefusedError(UsageError):
    """`code` is for machines: `invalid_path` or `outside_root`."""

    kind = "path"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PathJail:
    """Log paths are served only from under the allowed roots, by their true name."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def admit(self, text: str) -> Path:
        """The path, if it is absolute, holds no `..` and no link, and lies under a root."""
        path = Path(text)
        if "\0" in text or not path.is_absolute() or ".." in path.parts:
            raise PathRefusedError("invalid_path", "a log path must be absolute and hold no '..'")
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(root) for root in self._roots):
            raise PathRefusedError("outside_root", "the log lies outside the allowed roots")
        if self._has_link(path):
            raise PathRefusedError(
                "outside_root", "a log path may not lead through a symbolic link"
            )
        return real

    def allows(self, text: str) -> bool:
        try:
            self.admit(text)
        except PathRefusedError:
            return False
        return True

    def _has_link(self, path: Path) -> bool:
        """Whether a link stands below the root; the root itself may be one, its owner chose it."""
        inside = [
            part
            for part in (path, *path.parents)
            if any(Path(os.path.realpath(part)) != root for root in self._roots)
            and not any(root.is_relative_to(os.path.realpath(part)) for root in self._roots)
        ]
        return any(part.is_symlink() for part in inside)
