"""The one way to write a file that others may read at any moment: whole or not at all.

Standard library only, and little of it: it also runs inside the user's own process and in
containers.
"""

import fcntl
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

_LONGEST_BEGINNING = 100  # of a name that has more to carry
_MOST_WRITERS = 1000  # of one file at a time


def write_whole(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Readers see the old file or the new one, also after a kill, a full disk or a power cut.
    Raises OSError.

    Text that is no UTF-8, of a word or a file name, is written as an escape: in JSON it reads back
    as the same word. `durable`: the new one is there to stay when this returns; otherwise a power
    cut may bring the old one back.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    draft, handle = _claim_draft(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            draft.replace(path)  # while the draft is still locked: it is nobody else's
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    if durable:
        _sync_directory(path.parent)


def whole_lines(path: Path) -> list[bytes]:
    """Of a file that is only appended to, if there is one; a torn last line is cut off."""
    content = path.read_bytes() if path.is_file() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    return whole.splitlines()


def _claim_draft(path: Path) -> tuple[Path, int]:
    """The first draft beside `path` that no living writer has, emptied, and its handle."""
    for number in count():
        draft = path.with_name(f".{path.name[:_LONGEST_BEGINNING]}.{number}.draft")
        try:
            handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except PermissionError:
            if number < _MOST_WRITERS and draft.exists():
                continue  # the draft of another user
            raise
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(draft, handle):
                os.ftruncate(handle, 0)
                return draft, handle
        except BlockingIOError:
            pass
        except OSError:
            os.close(handle)
            raise
        os.close(handle)
    raise AssertionError("counting has no end")


def _is_still(draft: Path, handle: int) -> bool:
    """Whether the name still means what was opened: another writer may have moved it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(draft.stat(), os.fstat(handle))
    return False


def _sync_directory(folder: Path) -> None:
    """A rename is on the disk when its directory is. Some file systems cannot say so."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
