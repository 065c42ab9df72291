"""A working directory of its own for one trial: real folders with copies of what is in the
original, but for the files that a candidate changes. A program that walks through it, or writes
into it, sees nothing of where it came from.
"""

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from aorta.engine.rundir import is_output

_LINKED = frozenset({".git", "node_modules", "venv", "site-packages"})
_VIRTUAL_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_COPIED_BYTES = 1 << 20
_MOST_FILES = 20_000


def make_workplace(original: Path, place: Path, without: Collection[str], *, copy: bool) -> None:
    """`place` becomes like `original`, without the files and folders of these relative names and
    without what a verb wrote. Large files are links to the original unless `copy`; so are
    repositories and virtual environments, and whatever is there beyond twenty thousand files.
    """
    place.mkdir(parents=True)
    seen = 0
    for folder, folders, names in os.walk(original):
        here = Path(folder)
        inside = here.relative_to(original)
        for name in list(folders):
            source, target = here / name, place / inside / name
            if (inside / name).as_posix() in without or place.is_relative_to(source):
                folders.remove(name)
            elif _is_linked(source) or seen > _MOST_FILES:
                folders.remove(name)
                target.symlink_to(source, target_is_directory=True)
            elif is_output(source):
                folders.remove(name)
            else:
                target.mkdir()
        for name in names:
            seen += 1
            if (inside / name).as_posix() not in without:
                _put(here / name, place / inside / name, copy=copy and seen <= _MOST_FILES)


def _is_linked(folder: Path) -> bool:
    if folder.name in _LINKED or folder.is_symlink():
        return True
    return any((folder / name).exists() for name in _VIRTUAL_ENVIRONMENT)


def _put(source: Path, target: Path, *, copy: bool) -> None:
    """A pipe, a socket or a file that cannot be read is linked like a large one."""
    try:
        if source.is_file() and (copy or source.stat().st_size <= _COPIED_BYTES):
            shutil.copy2(source, target)
            return
    except OSError:
        target.unlink(missing_ok=True)
    target.symlink_to(source.resolve() if source.exists() else source)
