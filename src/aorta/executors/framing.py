"""Messages between our own processes: a JSON object a line, and behind it as many bytes as its
`size` says.

The one place that knows this form. Text that is no UTF-8 (a file name, a word of a command)
survives it. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

TYPE_CHECKING = False  # as `typing` has it, which a supervisor need not load
if TYPE_CHECKING:
    from typing import Any


class FrameError(ValueError):
    """What came is not our language."""


def frame(content: Mapping[str, Any], payload: bytes = b"") -> bytes:
    sized = {**content, "size": len(payload)} if payload else content
    return json.dumps(sized).encode("ascii") + b"\n" + payload


class Frames:
    """Bytes in as they come, whole messages out; the bytes that one brings are under `payload`."""

    def __init__(self, longest: int | None = None) -> None:
        self.longest = longest  # bytes that may wait for the rest of a message; None: any
        self._received = bytearray()

    def feed(self, data: bytes) -> None:
        self._received += data
        if self.longest is not None and len(self._received) > self.longest:
            raise FrameError(f"more than {self.longest} bytes without a message")

    @property
    def has_line(self) -> bool:
        return b"\n" in self._received

    def next(self) -> dict[str, Any] | None:
        """The next whole message; None until more has come."""
        end = self._received.find(b"\n")
        if end < 0:
            return None
        content = _object(bytes(self._received[:end]))
        size = content.get("size", 0)
        if not isinstance(size, int) or size < 0:
            raise FrameError(f"a message with a size of {size!r}")
        if len(self._received) < end + 1 + size:
            return None
        if size:
            content["payload"] = bytes(self._received[end + 1 : end + 1 + size])
        del self._received[: end + 1 + size]
        return content

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (content := self.next()) is not None:
            yield content


def _object(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise FrameError("a line that is no JSON") from None
    if not isinstance(content, dict):
        raise FrameError(f"a JSON {type(content).__name__} instead of an object")
    return content
