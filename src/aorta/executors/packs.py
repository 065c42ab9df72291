"""Directories as bytes, for machines that do not see ours.

Only the working directory and the trial's own directory travel. Run directories inside the working directory stay where
they are: they hold every earlier trial, and this one's part of them travels on its own. Standard library only.
"""

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from aorta.core.errors import InfrastructureError

MOST_BYTES = 512 * 1024 * 1024
_LOGS = frozenset({"stdout.log", "stderr.log"})
_LEFT_AT_HOME = frozenset({".git", ".aorta", ".venv", "__pycache__"})


def pack_working_directory(directory: Path) -> bytes:
    return _pack(directory, _files_to_ship(directory))


def pack_trial_directory(directory: Path) -> bytes:
    """Everything but the two logs, which travel while they are written."""
    return _pack(
        directory,
        (
            path
            for path in sorted(directory.rglob("*"))
            if not (path.parent == directory and path.name in _LOGS)
        ),
    )


def unpack(pack: bytes, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(pack), mode="r:") as archive:
        archive.extractall(directory, filter="data")


def _files_to_ship(directory: Path) -> Iterator[Path]:
    for place, directories, files in os.walk(directory):
        inside = Path(place)
        if inside != directory and (inside / ".aorta").is_dir():
            directories.clear()
            continue
        directories[:] = sorted(set(directories) - _LEFT_AT_HOME)
        yield from (inside / name for name in (*directories, *sorted(files)))


def _pack(directory: Path, paths: Iterable[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as archive:
        for path in paths:
            if path.is_symlink() or path.is_dir() or path.is_file():  # no sockets, no pipes
                archive.add(path, path.relative_to(directory), recursive=False)
            if buffer.tell() > MOST_BYTES:
                raise InfrastructureError(
                    f"{directory} holds more than {MOST_BYTES // 2**20} MiB, too much to send to each "
                    "trial; put it on a file system that the workers share"
                )
    return buffer.getvalue()
