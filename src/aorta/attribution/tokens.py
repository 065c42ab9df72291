"""The bearer tokens of this program's servers: where they lie, who may read them, and who needs
none.

A server that is told no token makes one and puts it where only its user can read it; callers of the
same user find it there by the address of the server. It is made anew at every start: a stranger who
took the port meanwhile learned nothing of worth.
"""

import ipaddress
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from aorta.core.errors import InfrastructureError, UsageError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_SHORTEST_TOKEN = 8
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SOCK_DIAG = getattr(socket, "NETLINK_SOCK_DIAG", 4)
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = 1  # NLM_F_REQUEST
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_ASKED = struct.Struct("=BBxxI")  # inet_diag_req_v2 before the socket's address
_ADDRESS = struct.Struct("!HH16s16s")  # inet_diag_sockid, as on the wire
_ANY_SOCKET = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, any cookie
_UID_AT = _HEADER.size + 4 + _ADDRESS.size + len(_ANY_SOCKET) + 12  # in inet_diag_msg


def read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError("the token file cannot be read as ASCII text", where=str(path)) from None
    if len(token) < _SHORTEST_TOKEN:
        raise UsageError(f"the token is shorter than {_SHORTEST_TOKEN} characters", where=str(path))
    return token


@contextmanager
def made_token(token: str, port: int) -> Iterator[Path]:
    """The file that tells this user's callers of the server at `port` its token, while it is
    served.
    """
    path = _place(socket.gethostname(), port)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    except OSError as wrong:
        raise InfrastructureError(
            f"the token cannot be kept in {path.parent} ({wrong.strerror}); give --token-file"
        ) from None
    try:
        yield path
    finally:
        with suppress(OSError, UsageError):
            if read_token(path) == token:  # else a successor has put its own there
                path.unlink()


def new_token() -> str:
    return secrets.token_urlsafe(24)


def token_for(url: str) -> str | None:
    """What a server of this user at `url` asks for, if one has left its token."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    name = socket.gethostname() if host in LOOPBACK else host
    with suppress(OSError, UsageError):
        return read_token(_place(name, port))
    return None


def _place(host: str, port: int) -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    state = Path(base) if base else Path.home() / ".local" / "state"
    return state / "aorta" / "tokens" / f"{host.split('.', maxsplit=1)[0]}-{port}"


def user_of(caller: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The user whose process holds the other end of a connection of this machine; None where the
    kernel does not say.
    """
    if not ipaddress.ip_address(caller[0]).is_loopback:
        return None
    family = socket.AF_INET6 if ":" in caller[0] else socket.AF_INET
    ends = [socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (caller, here)]
    body = _ASKED.pack(family, socket.IPPROTO_TCP, 0xFFFFFFFF)
    body += _ADDRESS.pack(caller[1], here[1], *ends) + _ANY_SOCKET
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 0, 0) + body)
            told = kernel.recv(4096)
    except (OSError, AttributeError):  # no such socket, no such kernel
        return None
    if len(told) < _UID_AT + 4 or _HEADER.unpack_from(told)[1] != _BY_FAMILY:
        return None
    uid: int = struct.unpack_from("=I", told, _UID_AT)[0]
    return uid
