"""Snapshots on disk."""

import sys
from pathlib import Path

from aorta.core.atomic import write_whole
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
    write_whole(path, snapshot.to_json(), durable=False)
