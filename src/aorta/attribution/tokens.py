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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from aorta.core.errors import InfrastructureError, UsageError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_SHORTEST_TOKEN = 8
_DEFAULT_PORTS = {"http": 80, "https": 443}
_CONNECTIONS = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}


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
    """The file that tells this user's callers the token of the server at `port`."""
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


def user_of(caller: tuple[str, int]) -> int | None:
    """The user whose process holds the other end of a connection of this machine, as the kernel's
    table of connections has it; None where that does not say.
    """
    address = ipaddress.ip_address(caller[0])
    if not address.is_loopback:
        return None
    words = [address.packed[at : at + 4][::-1] for at in range(0, len(address.packed), 4)]
    own = f"{b''.join(words).hex()}:{caller[1]:04x}".upper()
    try:
        rows = _CONNECTIONS[address.version].read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return None
    found = (row.split() for row in rows if own in row)
    return next((int(fields[7]) for fields in found if fields[1] == own), None)
