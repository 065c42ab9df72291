"""Programs that stand where a vendor's tools would, and a machine made of files, for the probes to
look at.
"""

import stat
import textwrap
from collections.abc import Mapping
from pathlib import Path


def put_tool(directory: Path, name: str, script: str) -> Path:
    """An executable shell script of that name."""
    directory.mkdir(parents=True, exist_ok=True)
    tool = directory / name
    tool.write_text("#!/bin/sh\n" + textwrap.dedent(script))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return tool


def put_files(root: Path, files: Mapping[str, str]) -> Path:
    """A file system as the kernel or an installer would leave it, under a root of its own."""
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root
