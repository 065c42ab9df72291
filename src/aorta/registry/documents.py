"""Files that users write: size, kind and encoding are checked before what they say."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from aorta.core.documents import Format, parse_document
from aorta.core.errors import SpecError

MAX_BYTES = 4 * 1024 * 1024

_FORMATS: Mapping[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def load_document(path: Path, format: Format | None = None) -> object:  # noqa: A002
    """What the file says, in dicts, lists, strings, numbers, booleans and None."""
    chosen = format or _FORMATS.get(path.suffix.lower())
    if chosen is None:
        raise SpecError(
            f"the file name ends in {path.suffix or 'no extension'!r}; expected .yaml, .yml or "
            ".json",
            where=str(path),
        )
    return parse_document(_read(path), chosen, where=str(path))


def _read(path: Path) -> str:
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a writer that may never come.
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SpecError("is not a regular file", where=str(path))
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError("there is no such file", where=str(path)) from None
    except IsADirectoryError:
        raise SpecError("is a directory, expected a file", where=str(path)) from None
    except OSError as wrong:
        raise SpecError(f"cannot be read: {wrong.strerror}", where=str(path)) from None
    if len(content) > MAX_BYTES:
        raise SpecError(f"is larger than {MAX_BYTES // 2**20} MiB", where=str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        raise SpecError("is not UTF-8 text; save it as UTF-8", where=f"{path}:{line}") from None
