"""Which variables may differ between the trials of one host: those that nothing it imported can
have read.
"""

from __future__ import annotations

import os

from aorta_warm_reads import ALL, Recording

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_CHUNK = 1 << 22
_OF_THE_LOADER = ("PYTHON", "LD_", "GLIBC_", "MALLOC_")


class Variables:
    """A variable that nothing imported so far can have read may have another value in a trial than
    it has here.
    """

    def __init__(self, own: list[str], given: list[str]) -> None:
        self._known = dict.fromkeys(own, True)  # aorta's own: read by nobody but the program
        self._given = given  # a launcher's: binaries read them when ranks meet, whatever they hold

    def refuse(self, names: set[str]) -> str | None:
        new = [name for name in names if name not in self._known]
        if ALL in Recording.asked and new:
            return new[0]
        binaries = _names_in_binaries(new) if new else set()
        for name in new:
            self._known[name] = not (
                name in Recording.asked
                or (name in binaries and name not in self._given)
                or name.startswith((*_OF_THE_LOADER, *Recording.prefixes))
            )
        return next((name for name in sorted(names) if not self._known[name]), None)


def _names_in_binaries(names: list[str]) -> set[str]:
    """Which of these names stand as text in a program or library that is mapped here: `getenv` is
    asked with such texts.
    """
    wanted = {name: os.fsencode(name) + b"\0" for name in names}
    found: set[str] = set()
    with open("/proc/self/maps", "rb") as maps:
        files = {line.split(None, 5)[5].rstrip(b"\n") for line in maps if b" /" in line}
    for file in files:
        try:
            for text in _constants(file):
                found.update(name for name, word in wanted.items() if _stands_in(word, text))
        except (OSError, ValueError, IndexError):
            continue
    return found


def _stands_in(word: bytes, text: bytes) -> bool:
    """As a text of its own, not as the end of a longer name."""
    at = text.find(word)
    while at >= 0:
        before = text[at - 1 : at]
        if not (before.isalnum() or before == b"_"):
            return True
        at = text.find(word, at + 1)
    return False


def _constants(file: bytes) -> Iterator[bytes]:
    """The sections of a 64-bit ELF file that hold constants; nothing of any other file."""
    with open(file, "rb", buffering=0) as binary:
        head = binary.read(64)
        if head[:5] != b"\x7fELF\x02":
            return
        table, size, count, names = (
            int.from_bytes(head[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62), (62, 64))
        )
        binary.seek(table)
        raw = binary.read(size * count)
        headers = [raw[i * size : (i + 1) * size] for i in range(count)]

        def place(header: bytes) -> tuple[int, int]:
            return int.from_bytes(header[24:32], "little"), int.from_bytes(header[32:40], "little")

        start, length = place(headers[names])
        binary.seek(start)
        texts = binary.read(length)
        for header in headers:
            name = texts[int.from_bytes(header[:4], "little") :].split(b"\0", 1)[0]
            if name.startswith((b".rodata", b".data")) and header[4] == 1:
                yield from _chunks(binary, *place(header))


def _chunks(binary: Any, start: int, length: int) -> Iterator[bytes]:
    """A chunk begins with the end of the one before: a name may lie across the cut."""
    binary.seek(start)
    before = b""
    while length > 0:
        data = binary.read(min(_CHUNK, length))
        if not data:
            return
        length -= len(data)
        yield before + data
        before = data[-256:]
