"""The one way to write a file whole or not at all. Standard library only: containers run it too."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

_LONGEST_BEGINNING = 100  # of a name that has more to carry


def write_whole(path: Path, content: str | bytes) -> None:
    """Readers see the old file or the new one, also after a kill, a full disk or a power cut; the
    new one is there to stay when this returns. Two writers wait for each other. Text that is no
    UTF-8 is escaped, and JSON reads it back. Raises OSError.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name[:_LONGEST_BEGINNING]}.draft")
    with os.fdopen(_locked(draft), "wb") as file:
        try:
            file.truncate(0)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            draft.replace(path)  # while the draft is still locked: it is nobody else's
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    _sync_directory(path.parent)


def _locked(draft: Path) -> int:
    """A handle of the draft, which no other writer has."""
    while True:
        handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # The writer before us may have moved it into its place meanwhile.
            with suppress(FileNotFoundError):
                if os.path.samestat(draft.stat(), os.fstat(handle)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def whole_lines(path: Path) -> list[bytes]:
    """Of a file that is only appended to, if there is one; a torn last line is cut off."""
    content = path.read_bytes() if path.is_file() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    return whole.splitlines()


def _sync_directory(folder: Path) -> None:
    """A rename is on the disk when its directory is. Some file systems cannot say so."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
