"""Who may ask, how often and how much. Nothing here ever repeats a token to the caller."""

import hmac
import ipaddress
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LARGEST_BODY = 8 << 20
CALLER = (
    "aorta.caller"  # in a scope: the user at the other end of the connection, where it is known
)
OPEN_TO_ALL = frozenset({"/healthz"})
_MOST_CLIENTS = 4096


class ApiError(Exception):
    """An answer other than success, in the form both wires share."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message

    def response(self) -> JSONResponse:
        headers = {"Retry-After": "1"} if self.status in {429, 503} else None
        if self.status == 401:
            headers = {"WWW-Authenticate": "Bearer"}
        body = {"error_code": self.code, "message": self.message, "details": None}
        return JSONResponse(body, self.status, headers)


@dataclass
class _Allowance:
    left: float
    since: float


@dataclass
class RateLimit:
    """A token bucket for each client address; `per_second` 0 is no limit."""

    per_second: float
    clock: Callable[[], float] = time.monotonic
    _clients: OrderedDict[str, _Allowance] = field(default_factory=OrderedDict)

    def take(self, client: str) -> bool:
        if self.per_second <= 0:
            return True
        now = self.clock()
        allowance = self._clients.pop(client, None) or _Allowance(self.per_second, now)
        refilled = allowance.left + (now - allowance.since) * self.per_second
        left = min(self.per_second, refilled)
        granted = left >= 1
        self._clients[client] = _Allowance(left - 1 if granted else left, now)
        while len(self._clients) > _MOST_CLIENTS:
            self._clients.popitem(last=False)
        return granted


class Guard:
    """ASGI middleware: the token, the rate, and the size of bodies, before anything is parsed.

    `own_user_is_free`: processes of the user who serves need no token over the loopback interface,
    where the kernel says whose they are.
    """

    def __init__(
        self, app: Any, *, token: str | None, limit: RateLimit, own_user_is_free: bool = False
    ) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._limit = limit
        self._own_user_is_free = own_user_is_free

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(receive)

        async def answer(message: MutableMapping[str, Any]) -> None:
            if not body.too_large:  # what the framework says of a body that was cut off
                await send(message)

        try:
            self._check(scope)
            await self._app(scope, body, answer)
            if body.too_large:
                raise _too_large()
        except ApiError as refused:
            await refused.response()(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if not self._limit.take((scope.get("client") or ("local", 0))[0]):
            raise ApiError(429, "rate_limited", "too many requests; try again in a second")
        if scope["path"] not in OPEN_TO_ALL:
            self._check_caller(scope, headers)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > LARGEST_BODY:
            raise _too_large()

    def _check_caller(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        if self._token is None:
            return
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if hmac.compare_digest(given, self._token):
            return
        if not self._own_user_is_free or scope.get(CALLER) not in {os.getuid(), 0}:
            raise ApiError(401, "unauthorized", "a valid bearer token is needed")
        if b"origin" in headers or not _is_ours(headers.get(b"host", b"")):
            raise ApiError(403, "web_page", "web pages may not ask without a bearer token")


def _is_ours(host: bytes) -> bool:
    """Whether a caller meant this machine: a web page may reach us under another name."""
    try:
        name = urlsplit(f"//{host.decode('ascii')}").hostname or ""
    except ValueError:
        return False
    if name in {"localhost", socket.gethostname().lower()}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Body:
    """What is received, counted as it comes: a body may have no length."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._seen = 0
        self.too_large = False

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        self.too_large = self._seen > LARGEST_BODY
        if self.too_large:
            raise _too_large()
        return message


def _too_large() -> ApiError:
    return ApiError(413, "too_large", f"the body is larger than {LARGEST_BODY} bytes")
