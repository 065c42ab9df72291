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
        given = [str(root.absolute()).rstrip("/") for root in roots]
        real = [os.path.realpath(root).rstrip("/") for root in roots]
        # A root may itself be a link, its owner chose it: both of its names open the same files.
        self._roots = {*zip(real, given, strict=True), *zip(real, real, strict=True)}

    def admit(self, text: str) -> Path:
        """The path, if it is absolute, holds no `..` and no link, and lies under a root."""
        if "\0" in text or not text.startswith("/") or ".." in text.split("/"):
            raise PathRefusedError(
                "invalid_path", "a log path must be absolute and hold no '..' and no NUL"
            )
        path = str(Path(text))
        real = os.path.realpath(path)
        if not any(_lies_under(real, root) for root, _ in self._roots):
            raise PathRefusedError("outside_root", "the log lies outside the allowed roots")
        straight = {
            root + path.removeprefix(given)
            for root, given in self._roots
            if _lies_under(path, given)
        }
        if real not in straight:
            raise PathRefusedError("outside_root", "a log path may not lead through a link")
        return Path(real)

    def allows(self, text: str) -> bool:
        try:
            self.admit(text)
        except PathRefusedError:
            return False
        return True


def _lies_under(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")
