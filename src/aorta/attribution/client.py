"""HTTP client of this program's services: JSON both ways.

Credentials in an address are sent as a header and never shown. Redirects are not followed: they
would carry a token to another server. A server without a token makes one at every start, in a file
that only its user can read.
"""

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aorta.core.errors import InfrastructureError, UsageError
from aorta.runtimes.http_get import (
    HttpRefusedError,
    HttpUnansweredError,
    credentials_in,
    read,
    without_credentials,
)

_LARGEST_ANSWER = 8 << 20


class HttpError(Exception):
    """No usable answer. `status` is None where none came at all."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class JsonClient:
    """Speaks to one service. `url` is its base, and what may be shown of it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        find_token: Callable[[str], str | None] | None = None,  # a server may be new
    ) -> None:
        self.url = without_credentials(url).rstrip("/")
        self._given = f"Bearer {token}" if token else credentials_in(url)
        self._find_token = find_token

    def call(
        self, method: str, path: str, timeout: float, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """The JSON object that is answered; whatever else happens is an `HttpError`."""
        where = f"{method} {path.split('?', maxsplit=1)[0]}"
        found = self._find_token(self.url) if self._find_token and not self._given else None
        try:
            said = read(
                self.url + path,
                accept="application/json",
                authorization=f"Bearer {found}" if found else self._given,
                method=method,
                body=None if body is None else json.dumps(body).encode(),
                timeout=timeout,
                redirected=False,
                most=_LARGEST_ANSWER,
            )
            answer = json.loads(said.body)
        except HttpRefusedError as refused:
            raise HttpError(f"{where}: HTTP {refused.code}", refused.code) from None
        except HttpUnansweredError as silent:
            late = f"no answer within {timeout:g} s"
            raise HttpError(late if silent.timed_out else f"unreachable: {silent}") from None
        except (ValueError, RecursionError):
            raise HttpError(f"{where}: the answer is not JSON") from None
        if not isinstance(answer, Mapping):
            raise HttpError(f"{where}: the answer is not a JSON object")
        return answer


LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_SHORTEST_TOKEN = 8
_DEFAULT_PORTS = {"http": 80, "https": 443}


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
