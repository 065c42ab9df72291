"""Names inside a bundle: which ones every system can unpack, to one and the same file."""

import re
import unicodedata
from collections.abc import Iterable, Iterator

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


def doubles(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of names that a system without case, or with another Unicode form, takes for one; also file and folder."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        folded = _folded(path)
        if folded in seen:
            yield seen[folded], path
        elif folded in folders:
            yield folders[folded], path
        seen.setdefault(folded, path)
        parents = folded.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            folder = "/".join(parents[:depth])
            if folder in seen:
                yield seen[folder], path
            folders.setdefault(folder, path)


def _problem_with_part(part: str) -> str | None:
    if part in {"", ".", ".."}:
        return f"has {part or 'an empty name'!r} inside its path"
    if part[0] in "-~" or part.casefold() in _TAKEN:
        return "has a name that a shell or another program would obey"
    if _FORBIDDEN.search(part):
        return 'has a character in its name that some systems forbid (one of < > : " | ? * \\ or a control character)'
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
