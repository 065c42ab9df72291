"""`manifest.json`: what a bundle holds, with a hash of every file, and what was taken out of each."""

import json
from typing import Literal

from pydantic import Field

from aorta.bundle.errors import BundleError
from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError
from aorta.version import __version__

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 32 * 2**20
MAX_TICKET = 100
SCHEMA = "aorta.bundle_manifest/1"


class FileEntry(StrictModel):
    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    scrubbed: dict[str, int] = Field(default_factory=dict)
    unscrubbed: bool = False  # binary, shipped as it is by the site's own policy


class Checked(StrictModel):
    """What came of running the reproducer from where it was unpacked."""

    reproduced: int = Field(ge=0)
    of: int = Field(ge=0)
    why: str = ""  # it did not fail the same way

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
    created: str | None = (
        None  # when the run began: the moment of packing would make two equal bundles differ
    )
    scrubbed: dict[str, int]
    left_out: list[str] = Field(default_factory=list)
    checked: Checked | None = None  # None: it was not run, or there is nothing to run
    files: list[FileEntry]

    def to_bytes(self) -> bytes:
        document = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def read_manifest(data: bytes, where: str) -> Manifest:
    """The manifest of somebody else's archive, or one line saying that it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BundleError(f"{MANIFEST} is not valid JSON", where=where) from None
    said = document.get("schema") if isinstance(document, dict) else None
    if isinstance(said, str) and said != SCHEMA and said.startswith("aorta.bundle_manifest/"):
        raise BundleError(
            f"{MANIFEST} is of schema {said!r}, this aorta reads {SCHEMA}; use a newer aorta",
            where=where,
        )
    try:
        return validated(Manifest, document, file=MANIFEST)
    except SpecError as wrong:
        raise BundleError(f"{wrong}", where=where) from None
