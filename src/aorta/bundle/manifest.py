"""`manifest.json`: what a bundle holds, with a hash of every file, and what was taken out of each;
which names inside a bundle every system can unpack, to one and the same file; and why a bundle was
not made, or is not trusted.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from aorta.core.documents import StrictModel, validated
from aorta.core.errors import AortaError, SpecError
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


_FORBIDDEN = re.compile(r"[<>:\"|?*\\\x00-\x1f\x7f]")
_WINDOWS_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|\Z)", re.IGNORECASE)
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_TAKEN = frozenset({".git", ".hg", ".svn", ".ssh", ".aorta", "git~1"})
_MAX_PART = 200  # bytes; room for a suffix below the 255 of most file systems
MAX_PATH = 240  # bytes; below the limit of Windows and of a plain tar header


def problem_with(path: str) -> str | None:
    """Why this relative path cannot be unpacked safely everywhere, or None."""
    if not path or path.startswith("/") or path.endswith("/"):
        return "is not a relative path to a file"
    try:
        length = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if length > MAX_PATH:
        return f"has a path of {length} bytes; at most {MAX_PATH} unpack everywhere"
    return next((found for part in path.split("/") if (found := _problem_with_part(part))), None)


def doubles(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that a case-blind or Unicode-normalising system takes for one: two files, or
    a file and a folder.
    """
    files: dict[str, str] = {}
    for path in paths:
        if (folded := _folded(path)) in files:
            yield files[folded], path
        files[folded] = path
    for path in paths:
        for folder in PurePosixPath(_folded(path)).parents:
            if str(folder) in files:
                yield files[str(folder)], path


def _problem_with_part(part: str) -> str | None:
    if part in {"", ".", ".."}:
        return f"has {part or 'an empty name'!r} inside its path"
    if part[0] in "-~" or part.casefold() in _TAKEN:
        return "has a name that a shell or another program would obey"
    if _FORBIDDEN.search(part):
        return (
            'has a character in its name that some systems forbid (one of < > : " | ? * \\ or '
            "a control character)"
        )
    if any(unicodedata.category(char) in _HIDDEN_CATEGORIES for char in part):
        return "has an invisible character in its name"
    if unicodedata.normalize("NFC", part) != part:
        return "has a name that is not in the usual Unicode form (NFC)"
    look = unicodedata.normalize("NFKC", part)
    if look != part and (look in {".", ".."} or _FORBIDDEN.search(look) or "/" in look):
        return "has a character in its name that looks like a path separator"
    if _WINDOWS_DEVICE.match(part) or part[-1] in ". " or part[0] == " ":
        return "has a name that Windows cannot hold"
    if len(part.encode("utf-8")) > _MAX_PART:
        return f"has a name longer than {_MAX_PART} bytes"
    return None


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", path).casefold())


MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 32 * 2**20
MAX_TICKET = 100
SCHEMA = "aorta.bundle_manifest/1"


class FileEntry(StrictModel):
    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    scrubbed: dict[str, int] = Field(default_factory=dict)
    unscrubbed: bool = False  # binary, shipped as it is because the site says so
    left_out_bytes: int = Field(default=0, ge=0)  # of the middle of a long log


class Checked(StrictModel):
    """What came of running the reproducer from where it was unpacked."""

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
    # When the run began: the moment of packing would make two equal bundles differ.
    created: str | None = None
    scrubbed: dict[str, int]
    left_out: list[str] = Field(default_factory=list)
    logs_only: bool = False  # nothing in it can be run
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
