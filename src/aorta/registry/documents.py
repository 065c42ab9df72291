"""The one strict reader of the files users write, YAML or JSON, and the writer whose files it reads back.

YAML is read by the rules of its version 1.2: `on` and `12:30` are text, `1e-3` is a number, dates are text. Keys are
text and stand once. A file that is too big, too deep, doubled or damaged is refused in one line that says where.
What the keys mean is somebody else's business.
"""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aorta.core.errors import SpecError
from aorta.core.names import path_of

if TYPE_CHECKING:
    from yaml.error import Mark

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 60
MAX_VALUES = 200_000  # aliases can make a small file stand for a very large one

Format = Literal["yaml", "json"]
_FORMATS: Mapping[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def load_document(path: Path, format: Format | None = None) -> object:  # noqa: A002 - it is the format
    """What the file says, in dicts, lists, strings, numbers, booleans and None."""
    chosen = format or _format_of(path)
    text = _read(path)
    try:
        document = _from_json(text, path) if chosen == "json" else _from_yaml(text, path)
        _check(document, path)
    except RecursionError:
        raise SpecError(f"is nested deeper than {MAX_DEPTH} levels", where=str(path)) from None
    return document


def dump_yaml(document: object) -> str:
    """YAML that `load_document` reads back as the same values. Keys keep their order."""
    import yaml

    from aorta.core.yaml_rules import Dumper

    return yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def _format_of(path: Path) -> Format:
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise SpecError(
            f"the file name ends in {path.suffix or 'no extension'!r}; expected .yaml, .yml or .json",
            where=str(path),
        )
    return found


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


class _DoubledKey(dict[str, object]):
    """A JSON object that names a key twice; kept until the walk knows where it stands."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


def _object_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            return _DoubledKey(key)
        seen[key] = value
    return seen


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _from_json(text: str, path: Path) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object_of, parse_constant=_no_constant)
    except json.JSONDecodeError as wrong:
        place = f"{path}:{wrong.lineno}:{wrong.colno}"
        raise SpecError(f"is not valid JSON: {wrong.msg}", where=place) from None
    except ValueError:
        raise SpecError(
            "is not valid JSON: it holds NaN, Infinity or a number of thousands of digits",
            where=str(path),
        ) from None


def _from_yaml(text: str, path: Path) -> object:
    import yaml

    from aorta.core.yaml_rules import Loader

    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.MarkedYAMLError as wrong:
        said = wrong.problem or "cannot be parsed"
        raise SpecError(
            f"is not valid YAML: {said}", where=f"{path}{_at(wrong.problem_mark)}"
        ) from None
    except yaml.reader.ReaderError as wrong:
        line = text.count("\n", 0, wrong.position) + 1
        raise SpecError(
            f"is not valid YAML: the character U+{wrong.character:04X} is not allowed",
            where=f"{path}:{line}",
        ) from None


def _at(mark: "Mark | None") -> str:
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


def _check(document: object, path: Path) -> None:
    """Refuse what no reader of a document should have to think about, naming the place inside it."""
    left: list[tuple[tuple[str | int, ...], object]] = [((), document)]
    count = 0
    while left:
        place, value = left.pop()
        count += 1
        if count > MAX_VALUES:
            raise SpecError(f"stands for more than {MAX_VALUES} values", where=str(path))
        if len(place) > MAX_DEPTH:
            raise SpecError(f"is nested deeper than {MAX_DEPTH} levels", where=str(path))
        problem = _problem(value)
        if problem:
            inside = path_of(place)
            raise SpecError(problem, where=f"{path}: {inside}" if inside else str(path))
        if isinstance(value, dict):
            left.extend(((*place, key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            left.extend(((*place, index), item) for index, item in reversed([*enumerate(value)]))


def _problem(value: object) -> str | None:
    if isinstance(value, _DoubledKey):
        return f"the key {value.key!r} stands twice; keep one"
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, str)), None)
        if odd is not None or None in value:
            return f"the key {odd!r} is not text; put it in quotes"
        if any(not _is_unicode(key) for key in value):
            return "a key holds half of a surrogate pair, which is not text"
    if isinstance(value, str) and not _is_unicode(value):
        return "the text holds half of a surrogate pair, which is not text"
    return None


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
