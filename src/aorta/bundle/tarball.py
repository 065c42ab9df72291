"""The archive's bytes: one gzip stream of plain tar headers, the same bytes for the same content.

Only regular files, one top folder, no owner, one time for all.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO


@dataclass(frozen=True)
class Entry:
    name: str
    size: int
    executable: bool = False


class TarWriter:
    """An archive in the making: contents go to a spool first, for an archive begins with hashes of
    all of them.
    """

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._places: list[tuple[Entry, int]] = []

    def add(self, name: str, pieces: Iterable[bytes], *, executable: bool = False) -> Entry:
        start = self._spool.seek(0, io.SEEK_END)
        self._spool.writelines(pieces)
        entry = Entry(name, self._spool.tell() - start, executable)
        self._places.append((entry, start))
        return entry

    def write(self, out: IO[bytes], first: Sequence[tuple[Entry, bytes]], when: int) -> None:
        """The whole archive. `first` goes before what was spooled; `when` is every entry's time.

        The fastest level of gzip packs a log at 100 MB/s instead of 20, a fifth larger.
        """
        with (
            gzip.GzipFile("", "wb", 1, out, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for entry, data in first:
                tar.addfile(_header(entry, when), io.BytesIO(data))
            for entry, start in sorted(self._places, key=lambda place: place[0].name):
                self._spool.seek(start)
                tar.addfile(_header(entry, when), self._spool)


def _header(entry: Entry, when: int) -> tarfile.TarInfo:
    """A plain one (ustar), which holds every name that `manifest.problem_with` lets pass."""
    info = tarfile.TarInfo(entry.name)
    info.size = entry.size
    info.mode = 0o755 if entry.executable else 0o644
    info.mtime = when
    return info


class Hashing:
    """Pieces on their way, and the hash of all that went by."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._hash.update(piece)
            yield piece

    def finish(self) -> None:
        for _ in self:
            continue

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
