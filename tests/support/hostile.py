"""Archives that somebody else made: bundles taken apart, changed and put together again."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOP = "T-1"


@dataclass
class Forged:
    """Entries as they will stand in the archive; the manifest is made to fit unless one is
    given.
    """

    entries: list[tuple[tarfile.TarInfo, bytes]] = field(default_factory=list)
    manifest: dict[str, Any] | None = None
    tail: bytes = b"\0" * 1024

    def file(self, name: str, data: bytes = b"x\n", **changes: Any) -> "Forged":
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for key, value in changes.items():
            setattr(info, key, value)
        self.entries.append((info, data))
        return self

    def write(self, path: Path) -> Path:
        files = [(info.name.removeprefix(f"{TOP}/"), data) for info, data in self.entries]
        manifest = json.dumps(self.manifest or manifest_for(files)).encode()
        first = tarfile.TarInfo(f"{TOP}/manifest.json")
        first.size = len(manifest)
        raw = b"".join(_block(info, data) for info, data in [(first, manifest), *self.entries])
        path.write_bytes(gzip.compress(raw + self.tail, mtime=0))
        return path


def manifest_for(files: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    return {
        "schema": "aorta.bundle_manifest/1",
        "aorta_version": "0.1.0",
        "ticket": "T-1",
        "verb": "reduce",
        "created": None,
        "scrubbed": {},
        "left_out": [],
        "files": [
            {
                "path": name,
                "sha256": hashlib.sha256(data).hexdigest(),
                "bytes": len(data),
                "scrubbed": {},
            }
            for name, data in files
        ],
    }


def _block(info: tarfile.TarInfo, data: bytes) -> bytes:
    is_file = info.type in {tarfile.REGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE}
    body = data if is_file else b""
    if not is_file:
        info.size = 0
    try:
        header = info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError:
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    return header + body + b"\0" * (-len(body) % 512)


def ordinary_tarball(path: Path) -> Path:
    """What `tar czf` would make of a folder: readable, and no bundle."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("folder/a.txt")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"a"))
    path.write_bytes(buffer.getvalue())
    return path
