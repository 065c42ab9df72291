"""Verifying and unpacking a bundle from somewhere else. Both are one reading; unpacking also keeps
what it reads.

`tarfile` reads, and its `data` filter refuses names that leave the folder, links that do, and
devices. What it lets pass and a bundle never holds is refused here: every other link, folder and
special entry, headers that change the next one, an owner or a mode of its own, names that are one
file on some systems, files that the manifest does not name or that have another size or hash, data
behind the end, and more bytes than the limit.
"""

import gzip
import hashlib
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, BinaryIO, cast

from aorta.bundle.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BundleError,
    FileEntry,
    Manifest,
    doubles,
    problem_with,
    read_manifest,
)
from aorta.core.errors import InfrastructureError, UsageError

DEFAULT_MAX_BYTES = 4 * 2**30
_MAX_FILES = 100_000
_CHUNK = 2**20
# Python 3.11 has it since 3.11.4; on an earlier one the checks below refuse the same.
_DATA_FILTER = getattr(tarfile, "data_filter", None)
_LONGEST_END = 2 * tarfile.RECORDSIZE


@dataclass(frozen=True)
class Verified:
    """An archive that is whole: every file has the hash its manifest says."""

    path: Path
    sha256: str
    top: str
    manifest: Manifest


def verify(path: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> Verified:
    return _read(path, max_bytes, None)


def unpack(path: Path, target: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[Verified, Path]:
    """Into `target/<top folder>`, which appears only when everything in it is verified."""
    with _workshop(target) as folder:
        verified = _read(path, max_bytes, folder)
        final = target / verified.top
        if final.exists() or final.is_symlink():
            raise UsageError(
                "is already there; unpack somewhere else, or remove it", where=str(final)
            )
        (folder / verified.top).rename(final)
    return verified, final


def _read(path: Path, max_bytes: int, folder: Path | None) -> Verified:
    if not path.is_file():
        raise UsageError("there is no such file; expected a bundle (.tar.gz)", where=str(path))
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            stream = cast("IO[bytes]", _Limited(file, max_bytes))
            with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="strict") as tar:
                top, manifest = _contents(tar, max_bytes, folder)
        return Verified(path, sha256, top, manifest)
    except BundleError as wrong:
        raise BundleError(wrong.message, where=str(path)) from None
    except (tarfile.TarError, ValueError):
        raise BundleError("holds a damaged or foreign entry", where=str(path)) from None
    except OSError as wrong:
        raise InfrastructureError(f"cannot unpack: {wrong.strerror}", where=str(path)) from None


class _Limited:
    """What a gzip file holds, and never more of it than it may unpack to."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")
        self._left = most + MAX_MANIFEST_BYTES

    def read(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except (OSError, EOFError, zlib.error):
            raise BundleError("is not a whole gzip file: damaged or cut off") from None
        self._left -= len(data)
        if self._left < 0:
            raise _too_large()
        return data


def _too_large() -> BundleError:
    return BundleError("unpacks to more than the limit; raise --max-size if you trust it")


def _contents(tar: tarfile.TarFile, max_bytes: int, folder: Path | None) -> tuple[str, Manifest]:
    first = tar.next()
    top, slash, name = first.name.partition("/") if first else ("", "", "")
    if first is None or not slash or name != MANIFEST:
        raise BundleError(f"does not begin with its {MANIFEST}: this is no bundle of aorta")
    if (problem := problem_with(_plain(first).name)) is not None:
        raise BundleError(f"the top folder {problem}")
    if first.size > MAX_MANIFEST_BYTES:
        raise BundleError(f"its {MANIFEST} is too large")
    raw = cast("IO[bytes]", tar.extractfile(first)).read()
    manifest = read_manifest(raw, "")
    if folder is not None:
        (folder / top).mkdir()
        (folder / top / MANIFEST).write_bytes(raw)
    expected = _expected(manifest, max_bytes)
    while (member := tar.next()) is not None:
        entry = expected.pop(_plain(member).name.removeprefix(f"{top}/"), None)
        if entry is None or member.name != f"{top}/{entry.path}":
            raise BundleError(f"{member.name!r} is not in the manifest, or is there twice")
        if member.size != entry.bytes:
            raise BundleError(f"{entry.path!r} has another size than its manifest says")
        if _digest(tar, member, folder) != entry.sha256:
            raise BundleError(f"{entry.path!r} is not the file its manifest names: another hash")
    if expected:
        raise BundleError(f"{next(iter(expected))!r} is in the manifest and not in the archive")
    _check_end(cast("IO[bytes]", tar.fileobj))
    return top, manifest


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry of a file, written as aorta writes it."""
    if _DATA_FILTER is not None:
        _DATA_FILTER(member, "/")
    if member.type != tarfile.REGTYPE:
        raise BundleError(f"{member.name!r} is no plain file; expected only files")
    has_owner = member.uid or member.gid or member.uname or member.gname
    is_extended = member.pax_headers or member.offset_data - member.offset != tarfile.BLOCKSIZE
    if has_owner or is_extended or member.mode not in (0o644, 0o755):
        raise BundleError(f"the entry of {member.name!r} is not written as aorta writes it")
    return member


def _digest(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path | None) -> str:
    """Of the file's content, which is kept in `folder`: a new file in a folder of ours."""
    content = cast("BufferedReader", tar.extractfile(member))
    if folder is not None:
        target = folder / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(content, file, _CHUNK)
        target.chmod(member.mode)
        content = target.open("rb")
    with content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _check_end(rest: IO[bytes]) -> None:
    """Nothing but zeros, and few of them."""
    length = 0
    while piece := rest.read(_CHUNK):
        length += len(piece)
        if piece.strip(b"\0") or length > _LONGEST_END:
            raise BundleError("holds data after its end")
    if not length:
        raise BundleError("is cut off")


def _expected(manifest: Manifest, max_bytes: int) -> dict[str, FileEntry]:
    """What must follow, checked before a byte of it is unpacked."""
    if len(manifest.files) > _MAX_FILES:
        raise BundleError(f"names more than {_MAX_FILES} files")
    if sum(file.bytes for file in manifest.files) > max_bytes:
        raise _too_large()
    for file in manifest.files:
        if (problem := problem_with(file.path)) is not None:
            raise BundleError(f"{file.path!r} {problem}")
    for one, other in doubles([MANIFEST, *(file.path for file in manifest.files)]):
        raise BundleError(f"{one!r} and {other!r} are one file on some systems")
    return {file.path: file for file in manifest.files}


@contextmanager
def _workshop(target: Path) -> Iterator[Path]:
    """A private folder inside `target` that is gone afterwards, whatever happens."""
    folder = target / f".unpacking-{secrets.token_hex(4)}"
    made = not target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as wrong:
        raise InfrastructureError(
            f"cannot unpack here: {wrong.strerror}", where=str(target)
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if made:
            with suppress(OSError):
                target.rmdir()  # only when nothing was unpacked into it
