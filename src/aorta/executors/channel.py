"""The channel between the owner of trials and a worker on another machine: framed JSON over TCP,
both ends proven.

Each end shows that it knows the run's secret before the other believes a word: a worker takes no
order from an unknown peer, and no unknown peer gets one. What follows goes in clear, as it does
with srun. Directories travel over it as bytes: only the working directory and the trial's own. Run
directories inside the working directory stay where they are: they hold every earlier trial, and
this one's part of them travels on its own. Standard library only.
"""

import hashlib
import hmac
import io
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError
from aorta.executors.framing import Frames, frame

_DIAL_SECONDS = 60.0  # a busy owner answers late, and a wrong address costs only this
ANSWER_SECONDS = 30.0
LONGEST_INTRODUCTION = 64 * 1024
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}

MOST_BYTES = 512 * 1024 * 1024
_LOGS = frozenset({"stdout.log", "stderr.log"})
_LEFT_AT_HOME = frozenset({".git", ".aorta", ".venv", "__pycache__"})

Address = tuple[str, int]


class NoChannelError(Exception):
    """Nobody who knows the secret answers at any of the addresses."""


def proof(secret: str, role: str, nonce: str, ticket: str) -> bytes:
    words = json.dumps([role, nonce, ticket]).encode()
    return hmac.new(secret.encode(), words, hashlib.sha256).hexdigest().encode()


def proves(content: Mapping[str, Any], expected: bytes) -> bool:
    """Whatever a peer sent: a proof need not be text, and text need not be ASCII."""
    shown = content.get("proof")
    return isinstance(shown, str) and hmac.compare_digest(
        shown.encode("utf-8", "surrogatepass"), expected
    )


def keep_alive(line: socket.socket) -> None:
    """A machine that loses its power says no goodbye; without this the other end would wait for
    ever.
    """
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE.items():
        with suppress(AttributeError, OSError):  # not every kernel knows each of them
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


# -- the worker's end


def dial(
    addresses: Sequence[Address], ticket: str, secret: str, about: Mapping[str, Any]
) -> socket.socket:
    """A proven channel to the owner, at the first address where it answers."""
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
    line = socket.create_connection(address, timeout=ANSWER_SECONDS)
    try:
        keep_alive(line)
        asked = str(_first_line(line)["nonce"])
        nonce = os.urandom(16).hex()
        mine = proof(secret, "worker", asked, ticket).decode()
        line.sendall(frame({"ticket": ticket, "nonce": nonce, "proof": mine, **about}))
        _check(_first_line(line), proof(secret, "owner", nonce, ticket))
        line.settimeout(None)
    except BaseException:
        line.close()
        raise
    return line


def _check(content: Mapping[str, Any], expected: bytes) -> None:
    if not proves(content, expected):
        raise ValueError("it does not know the secret of this run")


def _first_line(line: socket.socket) -> dict[str, Any]:
    """One message and not a byte more: what follows belongs to the supervisor."""
    frames = Frames(LONGEST_INTRODUCTION)
    while (content := frames.next()) is None:
        byte = line.recv(1)
        if not byte:
            raise ValueError("it hung up")
        frames.feed(byte)
    return content


# -- directories as bytes


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
    # like all that only a trial that is sent needs: most are not, and each has a process of its own
    import tarfile

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
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:") as archive:
        for path in paths:
            if path.is_symlink() or path.is_dir() or path.is_file():  # no sockets, no pipes
                archive.add(path, path.relative_to(directory), recursive=False)
            if buffer.tell() > MOST_BYTES:
                raise InfrastructureError(
                    f"{directory} holds more than {MOST_BYTES // 2**20} MiB, too much to send to "
                    "each "
                    "trial; put it on a file system that the workers share"
                )
    return buffer.getvalue()


def append_log(trial_dir: Path, message: Mapping[str, Any]) -> None:
    name = "stdout.log" if message["stream"] == "stdout" else "stderr.log"
    with (trial_dir / name).open("ab") as log:
        log.write(message.get("payload", b""))


def keep_files(trial_dir: Path, message: Mapping[str, Any]) -> None:
    """What a trial that ended elsewhere left there."""
    if "payload" in message:
        unpack(message["payload"], trial_dir)
    for name in ("stdout.log", "stderr.log"):  # a silent trial has empty logs, not none
        (trial_dir / name).touch()
