"""The line between the owner of trials and a supervisor on another machine: JSON lines over TCP, both ends proven.

Each end shows that it knows the run's secret before the other believes a word: a supervisor takes no order from a stranger,
and no stranger gets one. What follows goes in clear, as it does with srun. Standard library only.
"""

import hashlib
import hmac
import io
import json
import os
import secrets
import socket
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError

_DIAL_SECONDS = 60.0  # a busy owner answers late, and a wrong address costs only this
_ANSWER_SECONDS = 30.0
_LONGEST_LINE = 64 * 1024
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}

Address = tuple[str, int]


class NoChannelError(Exception):
    """Nobody who knows the secret answers at any of the addresses."""


def message(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def proof(secret: str, role: str, nonce: str, ticket: str) -> str:
    words = json.dumps([role, nonce, ticket]).encode()
    return hmac.new(secret.encode(), words, hashlib.sha256).hexdigest()


def keep_alive(line: socket.socket) -> None:
    """A machine that loses its power says no goodbye; without this the other end would wait for ever."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE.items():
        with suppress(AttributeError, OSError):  # not every kernel knows each of them
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def dial(
    addresses: Sequence[Address], ticket: str, secret: str, about: Mapping[str, Any]
) -> socket.socket:
    """A proven line to the owner, at the first address where it answers."""
    deadline = time.monotonic() + _DIAL_SECONDS
    problems: dict[Address, str] = {}
    while time.monotonic() < deadline:
        for address in addresses:
            try:
                return _introduced(address, ticket, secret, about)
            except (OSError, ValueError, KeyError) as wrong:
                problems[address] = str(wrong) or type(wrong).__name__
        time.sleep(0.5)
    tried = "; ".join(f"{host}:{port}: {problem}" for (host, port), problem in problems.items())
    raise NoChannelError(f"could not reach the machine that started this trial ({tried})")


def _introduced(
    address: Address, ticket: str, secret: str, about: Mapping[str, Any]
) -> socket.socket:
    line = socket.create_connection(address, timeout=_ANSWER_SECONDS)
    try:
        keep_alive(line)
        asked = _line_from(line)["nonce"]
        nonce = secrets.token_hex(16)
        mine = proof(secret, "supervisor", asked, ticket)
        line.sendall(message({"ticket": ticket, "nonce": nonce, "proof": mine, **about}))
        _check(_line_from(line)["proof"], proof(secret, "owner", nonce, ticket))
        line.settimeout(None)
    except BaseException:
        line.close()
        raise
    return line


def _check(shown: str, expected: str) -> None:
    if not hmac.compare_digest(shown, expected):
        raise ValueError("it does not know the secret of this run")


def _line_from(line: socket.socket) -> dict[str, Any]:
    """One message and not a byte more: what follows belongs to the supervisor."""
    received = bytearray()
    while not received.endswith(b"\n"):
        byte = line.recv(1)
        if not byte or len(received) > _LONGEST_LINE:
            raise ValueError("it hung up")
        received += byte
    content: dict[str, Any] = json.loads(received)
    return content


class Line:
    """The owner's end of one line; silent until the other end has proven itself."""

    def __init__(self, channel: socket.socket, secret: str) -> None:
        keep_alive(channel)
        self.channel = channel
        self.ticket: str | None = None
        self.about: Mapping[str, Any] = {}
        self.opened = time.monotonic()
        self._secret = secret
        self._nonce = secrets.token_hex(16)
        self._received = bytearray()
        self.send({"nonce": self._nonce})

    def send(self, content: Mapping[str, Any], pack: bytes = b"") -> None:
        """May block while the other end is slow to read; a line that broke is noticed when it is read."""
        with suppress(OSError):
            self.channel.sendall(message(content) + pack)

    def receive(self) -> bool:
        """Read what is there; False at the end of the line."""
        try:
            data = self.channel.recv(1 << 20)
        except OSError:
            return False
        self._received += data
        too_much = self.ticket is None and len(self._received) > _LONGEST_LINE
        return bool(data) and not too_much

    def messages(self) -> Iterator[dict[str, Any]]:
        """Every whole message; one that announces a pack comes with its bytes under `pack`."""
        while (end := self._received.find(b"\n")) >= 0:
            content = json.loads(self._received[:end])
            size = content.get("size", 0) if self.ticket is not None else 0
            if len(self._received) < end + 1 + size:
                return
            if size:
                content["pack"] = bytes(self._received[end + 1 : end + 1 + size])
            del self._received[: end + 1 + size]
            yield content

    def introduce(self, content: Mapping[str, Any]) -> bool:
        """Whether the first message proves the other end, which then gets our own proof."""
        try:
            ticket, nonce = str(content["ticket"]), str(content["nonce"])
            expected = proof(self._secret, "supervisor", self._nonce, ticket)
            if not hmac.compare_digest(str(content["proof"]), expected):
                return False
        except KeyError:
            return False
        self.ticket, self.about = ticket, content
        self.send({"proof": proof(self._secret, "owner", nonce, ticket)})
        return True

    def close(self) -> None:
        self.channel.close()


MOST_BYTES = 512 * 1024 * 1024
_LOGS = frozenset({"stdout.log", "stderr.log"})
_LEFT_AT_HOME = frozenset({".git", ".aorta", ".venv", "__pycache__"})


def pack_working_directory(directory: Path) -> bytes:
    return _pack(directory, _files_to_ship(directory))


def pack_trial_directory(directory: Path) -> bytes:
    """Everything but the two logs, which travel while they are written."""
    return _pack(
        directory,
        (
            path
            for path in sorted(directory.rglob("*"))
            if not (path.parent == directory and path.name in _LOGS)
        ),
    )


def unpack(pack: bytes, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(pack), mode="r:") as archive:
        archive.extractall(directory, filter="data")


def _files_to_ship(directory: Path) -> Iterator[Path]:
    for place, directories, files in os.walk(directory):
        inside = Path(place)
        if inside != directory and (inside / ".aorta").is_dir():
            directories.clear()
            continue
        directories[:] = sorted(set(directories) - _LEFT_AT_HOME)
        yield from (inside / name for name in (*directories, *sorted(files)))


def _pack(directory: Path, paths: Iterable[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as archive:
        for path in paths:
            if path.is_symlink() or path.is_dir() or path.is_file():  # no sockets, no pipes
                archive.add(path, path.relative_to(directory), recursive=False)
            if buffer.tell() > MOST_BYTES:
                raise InfrastructureError(
                    f"{directory} holds more than {MOST_BYTES // 2**20} MiB, too much to send to each "
                    "trial; put it on a file system that the workers share"
                )
    return buffer.getvalue()
