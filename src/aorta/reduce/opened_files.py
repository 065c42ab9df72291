"""Which files below a folder are opened while something runs, as the kernel tells it (inotify)."""

import ctypes
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

_IN_OPEN = 0x20
_IN_ISDIR, _IN_ONLYDIR = 0x40000000, 0x01000000
_HEADER = struct.Struct("iIII")
_MOST_FOLDERS = 4096
_MOST_NAMES = 20_000


@contextmanager
def watch_opened(root: Path, most_folders: int = _MOST_FOLDERS) -> Iterator[set[str]]:
    """Fills with the relative names opened, folders with a `/`; empty without kernel support."""
    opened: set[str] = set()
    libc = ctypes.CDLL(None, use_errno=True)
    handle = (
        libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(libc, "inotify_init1") else -1
    )
    if handle < 0:
        yield opened
        return
    places = list(_folders(root, most_folders))  # looking for them opens them
    folders = {number: place for place in places if (number := _watch(libc, handle, place)) >= 0}
    stop_read, stop_write = os.pipe()
    reader = threading.Thread(target=_collect, args=(handle, stop_read, folders, root, opened))
    reader.start()
    try:
        yield opened
    finally:
        os.close(stop_write)
        reader.join()
        for descriptor in (handle, stop_read):
            os.close(descriptor)


def _folders(root: Path, most: int) -> Iterator[Path]:
    for place, inside, _files in islice(os.walk(root), most):
        inside[:] = [name for name in inside if not name.startswith(".")]
        yield Path(place)


def _watch(libc: ctypes.CDLL, handle: int, place: Path) -> int:
    return int(libc.inotify_add_watch(handle, os.fsencode(place), _IN_OPEN | _IN_ONLYDIR))


def _collect(
    handle: int, stop: int, folders: dict[int, Path], root: Path, opened: set[str]
) -> None:
    """Until the other side closes `stop`, and then what is still waiting."""
    stopping = False
    while True:
        ready, _, _ = select.select([handle, stop], [], [], 0 if stopping else None)
        stopping = stopping or stop in ready
        if handle in ready:
            _note(os.read(handle, 1 << 16), folders, root, opened)
        elif stopping:
            return


def _note(events: bytes, folders: dict[int, Path], root: Path, opened: set[str]) -> None:
    at = 0
    while at < len(events):
        watch, mask, _cookie, length = _HEADER.unpack_from(events, at)
        name = events[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
        at += _HEADER.size + length
        if watch in folders and len(opened) < _MOST_NAMES:
            place = str((folders[watch] / os.fsdecode(name)).relative_to(root))
            opened.add(f"{place}/" if mask & _IN_ISDIR else place)
