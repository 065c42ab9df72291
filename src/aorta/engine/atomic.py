"""The one way to write a file that others may read at any moment: whole or not at all.

Standard library only, and little of it: it also runs inside the user's own process and in containers.
"""

import os
from contextlib import suppress
from pathlib import Path

_DRAFT = ".draft"
_LONGEST_BEGINNING = 100  # of a name that has more to carry
_FORGOTTEN = 3600.0  # seconds after which the draft of another process is nobody's


def write_whole(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Readers see the old file or the new one, also after a kill, a full disk or a power cut. Raises OSError.

    Text that is no UTF-8, of a word or a file name, is written as an escape: in JSON it reads back as the same word.
    `durable`: the new one is there to stay when this returns; otherwise a power cut may bring the old one back.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    draft = path.with_name(f"{_beginning(path)}{os.urandom(6).hex()}{_DRAFT}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _remove_forgotten(path, draft)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    if durable:
        _sync_directory(path.parent)


def _beginning(path: Path) -> str:
    return f".{path.name[:_LONGEST_BEGINNING]}."


def _remove_forgotten(path: Path, draft: Path) -> None:
    """A killed process leaves its draft. Ages are told by the clock of the file system, which other hosts may share."""
    with suppress(OSError):
        now = draft.stat().st_mtime
        for entry in os.scandir(path.parent):
            if entry.name.startswith(_beginning(path)) and entry.name.endswith(_DRAFT):
                with suppress(OSError):
                    if now - entry.stat().st_mtime > _FORGOTTEN:
                        Path(entry.path).unlink()


def _sync_directory(folder: Path) -> None:
    """A rename is on the disk when its directory is. Some shared file systems cannot say; they do it themselves."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
