"""Snapshots on disk."""

import os
import sys
import tempfile
from pathlib import Path

from aorta.probe.snapshot import EnvSnapshot


def write_snapshot(snapshot: EnvSnapshot, path: Path) -> None:
    """Write env.json whole or not at all, making its directory; `-` is stdout. Raises OSError."""
    if str(path) == "-":
        sys.stdout.write(snapshot.to_json())
        sys.stdout.flush()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():  # a device or a pipe is written to, not replaced
        path.write_text(snapshot.to_json(), encoding="utf-8")
        return
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(snapshot.to_json())
            file.flush()
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current
