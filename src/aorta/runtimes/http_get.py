"""One whole answer of a server; credentials go to the host that they are for and to no other."""

import base64
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from urllib.parse import unquote, urlsplit, urlunsplit

_PATIENCE = 60.0


@dataclass(frozen=True)
class Answered:
    body: bytes
    headers: Message


class HttpRefusedError(Exception):
    """The server answered, but not with what it was asked for."""

    def __init__(self, code: int, reason: str, headers: Message) -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.headers = code, headers


class HttpUnansweredError(Exception):
    """No server answered, or it broke off; the words say why."""

    def __init__(self, reason: object) -> None:
        super().__init__(str(reason))
        self.timed_out = isinstance(reason, TimeoutError)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def read(
    url: str,
    *,
    accept: str,
    authorization: str | None = None,
    method: str = "GET",
    body: bytes | None = None,
    timeout: float = _PATIENCE,
    redirected: bool = True,
    most: int | None = None,
) -> Answered:
    """The first `most` bytes; no redirection sees the credentials; `body` is of type `accept`."""
    # The address is the caller's own.
    request = urllib.request.Request(url, body, {"Accept": accept}, method=method)  # noqa: S310
    if body is not None:
        request.add_header("Content-Type", accept)
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    opener = urllib.request.build_opener(*(() if redirected else (_NoRedirect,)))
    try:
        with opener.open(request, timeout=timeout) as answer:
            return Answered(answer.read(most), answer.headers)
    except urllib.error.HTTPError as refused:
        refused.close()
        raise HttpRefusedError(refused.code, str(refused.reason), refused.headers) from None
    except (OSError, HTTPException) as wrong:
        raise HttpUnansweredError(getattr(wrong, "reason", wrong)) from None


def basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def without_credentials(url: str) -> str:
    """An address as it may be shown."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def credentials_in(url: str) -> str | None:
    """The header that carries what `http://user:password@host` says."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return f"Basic {basic(unquote(parts.username), unquote(parts.password or ''))}"
