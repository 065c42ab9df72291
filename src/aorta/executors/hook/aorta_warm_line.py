"""The line between a warm host and its supervisor: a length, then marshal's second format, which
every Python 3 reads.
"""

from __future__ import annotations

import _socket
import marshal
import sys

TYPE_CHECKING = False  # without `typing`, which the program may not import
if TYPE_CHECKING:
    from typing import Any


def send(line: _socket.socket, content: dict[str, Any], descriptors: list[int] = []) -> None:  # noqa: B006
    data = marshal.dumps(content, 2)
    data = len(data).to_bytes(4, "big") + data
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if descriptors else []
    sent = line.sendmsg([data], ancillary)
    line.sendall(data[sent:])


def receive(line: _socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and the descriptors that came with it. EOFError when nobody is there any
    more.
    """
    data, ancillary, _, _ = line.recvmsg(4, _socket.CMSG_SPACE(3 * 4))
    descriptors = [
        int.from_bytes(rights[at : at + 4], sys.byteorder)
        for _, _, rights in ancillary
        for at in range(0, len(rights), 4)
    ]
    data = rest(line, data, 4)
    return marshal.loads(rest(line, b"", int.from_bytes(data, "big"))), descriptors


def rest(line: _socket.socket, data: bytes, size: int) -> bytes:
    parts = [data]
    while size > sum(map(len, parts)):
        more = line.recv(min(1 << 16, size - sum(map(len, parts))))
        if not more:
            raise EOFError
        parts.append(more)
    return b"".join(parts)
