"""Verifying and unpacking a bundle from somewhere else. Both are one reading; unpacking also keeps
what it reads.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Protocol

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
from aorta.bundle.tarball import Entry, Hashing, TarReader, open_tarball
from aorta.core.errors import InfrastructureError, UsageError

DEFAULT_MAX_BYTES = 4 * 2**30
_MAX_FILES = 100_000


class Sink(Protocol):
    def put(self, path: str, executable: bool, pieces: Iterator[bytes]) -> None:
        """Keep, or only look at, the content of one file."""


@dataclass(frozen=True)
class Verified:
    """An archive that is whole: every file has the hash its manifest says."""

    path: Path
    sha256: str
    top: str
    manifest: Manifest


def verify(path: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> Verified:
    return _read(path, max_bytes, _Nowhere())


def unpack(path: Path, target: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[Verified, Path]:
    """Into `target/<top folder>`, which appears only when everything in it is verified."""
    with _workshop(target) as folder:
        verified = _read(path, max_bytes, _Folder(folder))
        final = target / verified.top
        if final.exists() or final.is_symlink():
            raise UsageError(
                "is already there; unpack somewhere else, or remove it", where=str(final)
            )
        folder.chmod(0o755)
        folder.rename(final)
    return verified, final


def _read(path: Path, max_bytes: int, sink: Sink) -> Verified:
    where = str(path)
    if not path.is_file():
        raise UsageError("there is no such file; expected a bundle (.tar.gz)", where=where)
    with open_tarball(path) as file:
        reader = TarReader(file, where, max_bytes)
        entries = reader.entries()
        top, manifest = _opening(entries, reader, where)
        sink.put(MANIFEST, False, iter((manifest.raw,)))
        expected = _expected(manifest.content, max_bytes, where)
        for entry in entries:
            relative = entry.name.removeprefix(f"{top}/")
            _check_file(entry, expected.pop(relative, None), top, where)
            hashing = Hashing(reader.data())
            sink.put(relative, entry.executable, iter(hashing))
            if hashing.digest != manifest.hashes[relative]:
                raise BundleError(
                    f"{relative!r} is not the file its manifest names: another hash", where=where
                )
        if expected:
            raise BundleError(
                f"{next(iter(expected))!r} is in the manifest and not in the archive", where=where
            )
        return Verified(path, _sha256_of(file), top, manifest.content)


@dataclass(frozen=True)
class _ReadManifest:
    raw: bytes
    content: Manifest
    hashes: dict[str, str] = field(default_factory=dict)


def _opening(entries: Iterator[Entry], reader: TarReader, where: str) -> tuple[str, _ReadManifest]:
    first = next(entries, None)
    top, slash, name = first.name.partition("/") if first else ("", "", "")
    if first is None or not slash or name != MANIFEST:
        raise BundleError(
            f"does not begin with its {MANIFEST}: this is no bundle of aorta", where=where
        )
    if (problem := problem_with(first.name)) is not None:
        raise BundleError(f"the top folder {problem}", where=where)
    if first.size > MAX_MANIFEST_BYTES:
        raise BundleError(f"its {MANIFEST} is too large", where=where)
    raw = b"".join(reader.data())
    manifest = read_manifest(raw, where)
    return top, _ReadManifest(raw, manifest, {file.path: file.sha256 for file in manifest.files})


def _expected(manifest: Manifest, max_bytes: int, where: str) -> dict[str, FileEntry]:
    """What must follow, checked before a byte of it is unpacked."""
    if len(manifest.files) > _MAX_FILES:
        raise BundleError(f"names more than {_MAX_FILES} files", where=where)
    if sum(file.bytes for file in manifest.files) > max_bytes:
        raise BundleError(
            "unpacks to more than the limit; raise --max-size if you trust it", where=where
        )
    for file in manifest.files:
        if (problem := problem_with(file.path)) is not None:
            raise BundleError(f"{file.path!r} {problem}", where=where)
    for one, other in doubles([MANIFEST, *(file.path for file in manifest.files)]):
        raise BundleError(f"{one!r} and {other!r} are one file on some systems", where=where)
    return {file.path: file for file in manifest.files}


def _check_file(entry: Entry, expected: FileEntry | None, top: str, where: str) -> None:
    if not entry.name.startswith(f"{top}/"):
        raise BundleError(f"{entry.name!r} is outside the top folder {top!r}", where=where)
    if expected is None:
        raise BundleError(f"{entry.name!r} is not in the manifest, or is there twice", where=where)
    if entry.size != expected.bytes:
        raise BundleError(f"{expected.path!r} has another size than its manifest says", where=where)


class _Nowhere:
    def put(self, path: str, executable: bool, pieces: Iterator[bytes]) -> None:
        for _piece in pieces:
            continue


@dataclass(frozen=True)
class _Folder:
    """Files that did not exist before, in folders that nobody else put there."""

    root: Path

    def put(self, path: str, executable: bool, pieces: Iterator[bytes]) -> None:
        target = self.root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            handle = os.open(target, flags, 0o755 if executable else 0o644)
            with os.fdopen(handle, "wb") as file:
                for piece in pieces:
                    file.write(piece)
        except OSError as wrong:
            raise InfrastructureError(f"cannot unpack: {wrong.strerror}", where=path) from None


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


def _sha256_of(file: BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
