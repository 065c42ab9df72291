"""Paths into the run directory itself stay useful: they become relative to the file they stand in.

That is what lets a shipped recipe run on another path: a relative path in a recipe is relative to the recipe.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from aorta.scrub.files import Account
from aorta.scrub.findings import Kind
from aorta.scrub.scrubber import Replacement

_CONTEXT = 40
_LONGEST_LINE = 1 << 22


def relocated(
    path: str, pieces: Iterable[bytes], roots: Sequence[str], account: Account
) -> Iterator[bytes]:
    """The file `path` with every way to a root of the run written as a relative one."""
    here = posixpath.relpath(".", str(PurePosixPath(path).parent))
    longest_first = sorted(map(_bytes, roots), key=len, reverse=True)
    one_of = b"|".join(map(re.escape, longest_first))
    pattern = re.compile(rb"(?<![\w./\-])(?:" + one_of + rb")(?![\w.\-])")
    line = 1
    for part in _lines_together(pieces):
        if not any(root in part for root in longest_first):
            yield part
        else:
            account.add(_spans(part, pattern, here, line))
            yield pattern.sub(_bytes(here).replace(b"\\", rb"\\"), part)
        line += part.count(b"\n") if account.room else 0


def _spans(part: bytes, pattern: re.Pattern[bytes], here: str, line: int) -> Iterator[Replacement]:
    for match in pattern.finditer(part):
        yield Replacement(
            f"line {line + part.count(bytes([10]), 0, match.start())}",
            _text(part[max(0, match.start() - _CONTEXT) : match.start()]).rsplit("\n", 1)[-1],
            _text(match.group()),
            _text(part[match.end() : match.end() + _CONTEXT]).split("\n", 1)[0],
            here,
            Kind.PATH,
        )


def _lines_together(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces that end where a line ends, so that no path is cut in two."""
    waiting: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        cut = piece.rfind(b"\n") + 1
        if not cut and size + len(piece) > _LONGEST_LINE:
            cut = len(piece)
        if cut:
            yield b"".join((*waiting, memoryview(piece)[:cut]))
            waiting, size = [], 0
        waiting.append(memoryview(piece)[cut:])
        size += len(piece) - cut
    if size:
        yield b"".join(waiting)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
