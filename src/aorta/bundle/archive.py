"""A bundle as a file: its `manifest.json`, which names it may hold, verifying and unpacking it.

Bundles come from strangers. `tarfile`'s `data` filter refuses names and links that leave the folder
and devices; refused here: whatever is no plain file, names that a shell or git would obey, files
unlike the manifest's name, size or hash, data behind the end, and more bytes than the limit.
"""

import gzip
import hashlib
import json
import os
import shutil
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

from pydantic import Field

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import AortaError, InfrastructureError, SpecError, UsageError
from aorta.version import __version__


class BundleError(AortaError):
    """The archive is not one that `aorta bundle` wrote, or it was changed since."""

    kind = "bundle"


class RefusedError(AortaError):
    """Files that may not be packed as they are: one line each in `problems`."""

    kind = "refused"

    def __init__(self, problems: Sequence[str], *, where: str) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problems" if len(self.problems) > 1 else "1 problem"
        super().__init__(
            f"nothing was packed ({count}): {'; '.join(self.problems[:5])}", where=where
        )


_OBEYED = frozenset({".git", ".hg", ".svn", ".ssh", ".aorta"})
MAX_PATH = 240  # bytes


def problem_with(path: str) -> str | None:
    """Why this relative path cannot be unpacked safely, or None."""
    try:
        length = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if length > MAX_PATH:
        return f"has a path of {length} bytes; at most {MAX_PATH} unpack everywhere"
    if not path.isprintable() or "\\" in path:
        return "has a character in its name that some systems forbid, or that cannot be seen"
    for part in path.split("/"):
        if not part.strip(".") or part[0] in "-~" or part.casefold() in _OBEYED:
            return "has a name that a shell or another program would obey"
    return None


MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 32 * 2**20
MAX_TICKET = 100


class FileEntry(StrictModel):
    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    scrubbed: dict[str, int] = Field(default_factory=dict)
    unscrubbed: bool = False  # binary, shipped as it is because the site says so
    left_out_bytes: int = Field(default=0, ge=0)  # of the middle of a long log


class Checked(StrictModel):
    reproduced: int = Field(ge=0)
    of: int = Field(ge=0)
    why: str = ""  # it did not fail the same way, or, of 0 runs, could not be run

    @property
    def reproduces(self) -> bool:
        return self.reproduced > 0


class Manifest(StrictModel):
    schema_: Literal["aorta.bundle_manifest/1"] = Field(
        default="aorta.bundle_manifest/1", alias="schema"
    )
    aorta_version: str = __version__
    ticket: str = Field(min_length=1, max_length=MAX_TICKET, pattern=r"^[^\x00-\x1f\x7f]*$")
    verb: str
    created: str | None = None
    scrubbed: dict[str, int]
    left_out: list[str] = Field(default_factory=list)
    checked: Checked | None = None  # None: it was not run, or there is nothing to run
    files: list[FileEntry]

    def to_bytes(self) -> bytes:
        document = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


DEFAULT_MAX_BYTES = 4 * 2**30
_CHUNK = 2**20
# Since Python 3.11.4; what it refuses is in no manifest either.
_DATA_FILTER = getattr(tarfile, "data_filter", None)


@dataclass(frozen=True)
class BundleReport:
    """An archive that is whole: every file has the hash its manifest says."""

    path: Path
    sha256: str
    top: str  # the one folder in it
    manifest: Manifest

    @property
    def checked(self) -> Checked | None:
        return self.manifest.checked

    def summary(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "sha256": self.sha256,
            "ticket": self.manifest.ticket,
            "files": len(self.manifest.files),
            "bytes": sum(file.bytes for file in self.manifest.files),
            "scrubbed": self.manifest.scrubbed,
        }

    def to_json(self) -> dict[str, Any]:
        return {
            **self.summary(),
            "left_out": len(self.manifest.left_out),
            "checked": self.checked.model_dump() if self.checked else None,
        }


def verify(path: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> BundleReport:
    return _read(path, max_bytes, None)


def unpack(
    path: Path, target: Path, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[BundleReport, Path]:
    """Into `target/<top folder>`, which appears only when everything in it is verified."""
    made = not target.exists()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".unpacking-") as scratch:
            verified = _read(path, max_bytes, Path(scratch))
            final = target / verified.top
            if os.path.lexists(final):
                raise UsageError(
                    "is already there; unpack somewhere else, or remove it", where=str(final)
                )
            (Path(scratch) / verified.top).rename(final)
    except OSError as wrong:
        raise InfrastructureError(
            f"cannot unpack here: {wrong.strerror}", where=str(target)
        ) from None
    finally:
        if made:
            with suppress(OSError):
                target.rmdir()  # only when nothing was unpacked into it
    return verified, final


def _read(path: Path, max_bytes: int, folder: Path | None) -> BundleReport:
    if not path.is_file():
        raise UsageError("there is no such file; expected a bundle (.tar.gz)", where=str(path))
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            stream = _Limited(file, max_bytes)
            with tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="strict") as tar:
                top, manifest = _contents(tar, max_bytes, folder)
        return BundleReport(path, sha256, top, manifest)
    except BundleError as wrong:
        raise BundleError(wrong.message, where=str(path)) from None
    except (tarfile.TarError, ValueError, gzip.BadGzipFile, EOFError, zlib.error):
        raise BundleError("is damaged, cut off or no bundle of aorta", where=str(path)) from None


class _Limited(gzip.GzipFile):
    def __init__(self, file: BinaryIO, most: int) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._left = most + MAX_MANIFEST_BYTES

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large()
        return data


def _too_large() -> BundleError:
    return BundleError("unpacks to more than the limit; raise --max-size if you trust it")


def _contents(tar: tarfile.TarFile, max_bytes: int, folder: Path | None) -> tuple[str, Manifest]:
    first = tar.next()
    top, slash, name = first.name.partition("/") if first else ("", "", "")
    if first is None or not slash or name != MANIFEST or problem_with(first.name):
        raise BundleError(f"does not begin with its {MANIFEST}: this is no bundle of aorta")
    if first.size > MAX_MANIFEST_BYTES:
        raise BundleError(f"its {MANIFEST} is too large")
    raw = _content(tar, first).read()
    try:
        manifest = validated(Manifest, json.loads(raw), file=MANIFEST)
    except (ValueError, RecursionError, SpecError):
        raise BundleError(f"its {MANIFEST} is not valid") from None
    if folder is not None:
        (folder / top).mkdir()
        (folder / top / MANIFEST).write_bytes(raw)
    expected = _expected(manifest, max_bytes)
    while (member := tar.next()) is not None:
        entry = expected.pop(member.name.removeprefix(f"{top}/"), None)
        if entry is None or member.name != f"{top}/{entry.path}":
            raise BundleError(f"{member.name!r} is not in the manifest, or is there twice")
        if member.size != entry.bytes or _digest(tar, member, folder) != entry.sha256:
            raise BundleError(f"{entry.path!r} is not the file its manifest names: another hash")
    if expected:
        raise BundleError(f"{next(iter(expected))!r} is in the manifest and not in the archive")
    # To the end, where gzip has its own check.
    while rest := cast("IO[bytes]", tar.fileobj).read(_CHUNK):
        if rest.strip(b"\0"):
            raise BundleError("holds data after its end")
    return top, manifest


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> BufferedReader:
    if _DATA_FILTER is not None:
        _DATA_FILTER(member, "/")
    if member.type != tarfile.REGTYPE:
        raise BundleError(f"{member.name!r} is no plain file; expected only files")
    return cast("BufferedReader", tar.extractfile(member))


def _digest(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path | None) -> str:
    content = _content(tar, member)
    if folder is not None:
        target = folder / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(content, file, _CHUNK)
        target.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
        content = target.open("rb")
    with content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _expected(manifest: Manifest, max_bytes: int) -> dict[str, FileEntry]:
    if sum(file.bytes for file in manifest.files) > max_bytes:
        raise _too_large()
    for file in manifest.files:
        if (problem := problem_with(file.path)) is not None:
            raise BundleError(f"{file.path!r} {problem}")
    return {file.path: file for file in manifest.files if file.path != MANIFEST}
