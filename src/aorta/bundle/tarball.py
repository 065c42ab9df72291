"""The archive's bytes: one gzip stream of plain tar headers, the same bytes for the same content.

Only regular files, one top folder, no owner, one time for all. Reading rebuilds every header it
meets and accepts it only if it is byte for byte the one that writing makes, so there is nothing odd
to interpret.
"""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, BinaryIO

from aorta.bundle.manifest import BundleError

_BLOCK = 512
_RECORD = 20 * _BLOCK
_CHUNK = 2**20
_KINDS = {
    tarfile.DIRTYPE: "a folder entry",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.CONTTYPE: "a contiguous file",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
    tarfile.GNUTYPE_LONGNAME: "a long-name extension",
    tarfile.GNUTYPE_LONGLINK: "a long-name extension",
    tarfile.XHDTYPE: "an extended header",
    tarfile.XGLTYPE: "a global extended header",
}


@dataclass(frozen=True)
class Entry:
    name: str
    size: int
    executable: bool = False


class TarWriter:
    """An archive in the making: contents go to a spool first, for an archive begins with hashes of
    all of them.

    Each header and each content is a gzip member of its own, so that what is spooled is copied and
    not compressed twice.
    """

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._places: list[tuple[Entry, int, int]] = []

    def add(self, name: str, pieces: Iterable[bytes], *, executable: bool = False) -> Entry:
        start = self._spool.tell()
        packer = _packer()
        size = 0
        for piece in pieces:
            size += len(piece)
            self._spool.write(packer.compress(piece))
        self._spool.write(packer.compress(b"\0" * (-size % _BLOCK)) + packer.flush())
        entry = Entry(name, size, executable)
        self._places.append((entry, start, self._spool.tell() - start))
        return entry

    def write(self, out: IO[bytes], first: Sequence[tuple[Entry, bytes]], when: int) -> None:
        """The whole archive. `first` goes before what was spooled; `when` is the one time every
        entry carries.
        """
        written = 0
        for entry, data in first:
            out.write(_gzipped(_header(entry, when) + data + b"\0" * (-len(data) % _BLOCK)))
            written += _BLOCK + entry.size + -entry.size % _BLOCK
        for entry, start, length in sorted(self._places, key=lambda place: place[0].name):
            out.write(_gzipped(_header(entry, when)))
            written += _BLOCK + entry.size + -entry.size % _BLOCK
            self._spool.seek(start)
            out.writelines(
                self._spool.read(min(left, _CHUNK)) for left in range(length, 0, -_CHUNK)
            )
        end = 2 * _BLOCK
        out.write(_gzipped(b"\0" * (end + -(written + end) % _RECORD)))


def _packer() -> "zlib._Compress":
    """The fastest level: a log is packed at 100 MB/s instead of 20, and is a fifth larger."""
    return zlib.compressobj(1, wbits=31)


def _gzipped(data: bytes) -> bytes:
    packer = _packer()
    return packer.compress(data) + packer.flush()


class TarReader:
    """Entries of an archive that nobody vouches for, in order; each one's data is read before the
    next.
    """

    def __init__(self, file: BinaryIO, where: str, max_bytes: int) -> None:
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")
        self._where = where
        self._left = max_bytes
        self._unread = 0

    def entries(self) -> Iterator[Entry]:
        while (block := self._take(_BLOCK)) != b"\0" * _BLOCK:
            entry = self._entry(block)
            self._unread = entry.size
            yield entry
            if self._unread:
                raise BundleError(f"{entry.name!r} was not read to its end", where=self._where)
            if self._take(-entry.size % _BLOCK).strip(b"\0"):
                raise BundleError("holds data between its files", where=self._where)
        self._check_end()

    def data(self) -> Iterator[bytes]:
        """The current entry's content, piece by piece."""
        while self._unread:
            piece = self._take(min(self._unread, _CHUNK))
            self._unread -= len(piece)
            yield piece

    def _entry(self, block: bytes) -> Entry:
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.TarError, ValueError):
            raise BundleError("holds a damaged or foreign entry", where=self._where) from None
        name = found.name
        if found.type != tarfile.REGTYPE:
            kind = _KINDS.get(found.type, "an entry of an unknown kind")
            raise BundleError(f"{name!r} is {kind}; expected only files", where=self._where)
        entry = Entry(name, found.size, executable=found.mode == 0o755)
        try:
            canonical = _header(entry, int(found.mtime))
        except ValueError:
            canonical = b""
        if canonical != block:
            raise BundleError(
                f"the entry of {name!r} is not written as aorta writes it", where=self._where
            )
        return entry

    def _check_end(self) -> None:
        end = b"\0" * _BLOCK
        while piece := self._take(_BLOCK, at_end=True):
            end += piece
            if piece.strip(b"\0") or len(end) > 2 * _RECORD:
                raise BundleError("holds data after its end", where=self._where)
        if len(end) < 2 * _BLOCK:
            raise BundleError("is cut off", where=self._where)

    def _take(self, size: int, *, at_end: bool = False) -> bytes:
        """Exactly `size` bytes, and never more than the archive may unpack to."""
        if size > self._left:
            raise BundleError(
                "unpacks to more than the limit; raise --max-size if you trust it",
                where=self._where,
            )
        try:
            data = self._stream.read(size)
        except (OSError, EOFError, zlib.error):
            raise BundleError(
                "is not a whole gzip file: damaged or cut off", where=self._where
            ) from None
        if len(data) < size and not (at_end and not data):
            raise BundleError("is cut off", where=self._where)
        self._left -= len(data)
        return data


def open_tarball(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as wrong:
        raise BundleError(f"cannot be read: {wrong.strerror}", where=str(path)) from None


def _header(entry: Entry, when: int) -> bytes:
    """A plain (ustar) header, which holds every name that `portable` allows."""
    info = tarfile.TarInfo(entry.name)
    info.size = entry.size
    info.mode = 0o755 if entry.executable else 0o644
    info.mtime = when
    return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")


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
