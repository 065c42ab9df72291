"""An ASGI server with limits: token, rate, size of bodies, allowed folders; and the MCP server."""

import asyncio
import hmac
import math
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import uvicorn
from pydantic import BaseModel
from starlette.responses import JSONResponse

from aorta.attribution import Evidence, attribute
from aorta.attribution.client import HttpError, JsonClient
from aorta.attribution.documents import attribution_document
from aorta.attribution.evidence import failures_of, find_logs
from aorta.core.errors import AortaError, InfrastructureError, UsageError
from aorta.version import __version__

if TYPE_CHECKING:
    from mcp.server import MCPServer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LARGEST_BODY = 8 << 20
OPEN_TO_ALL = frozenset({"/healthz"})


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


class ErrorBody(BaseModel):
    error_code: str
    message: str
    details: None = None


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorBody} for code in (400, 401, 403, 404, 411, 413, 429, 503)
}


class RateLimit:
    """Requests of each client address in one second; `per_second` 0 is no limit."""

    def __init__(self, per_second: float) -> None:
        self._most = max(1.0, per_second) if per_second > 0 else math.inf
        self._second, self._taken = 0, Counter[str]()

    def take(self, client: str) -> bool:
        now = int(time.monotonic())
        if now != self._second:
            self._second, self._taken = now, Counter()
        self._taken[client] += 1
        return self._taken[client] <= self._most


class Guard:
    """ASGI middleware: the token, the rate, and the size of bodies, before anything is parsed."""

    def __init__(self, app: Any, *, token: str | None, limit: RateLimit) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except ApiError as refused:
            await refused.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if not self._limit.take((scope.get("client") or ("local", 0))[0]):
            raise ApiError(429, "rate_limited", "too many requests; try again in a second")
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        is_open = self._token is None or scope["path"] in OPEN_TO_ALL
        if not is_open and not hmac.compare_digest(given, self._token or b""):
            raise ApiError(401, "unauthorized", "a valid bearer token is needed")
        if b"transfer-encoding" in headers:
            raise ApiError(411, "length_required", "a body must say how long it is")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > LARGEST_BODY:
            raise ApiError(413, "too_large", f"the body is larger than {LARGEST_BODY} bytes")


class PathRefusedError(UsageError):
    """`code` is for machines: `invalid_path` or `outside_root`."""

    kind = "path"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PathJail:
    """Log paths are served only from under the allowed roots, by their true name."""

    def __init__(self, roots: Sequence[Path]) -> None:
        given = [str(root.absolute()).rstrip("/") for root in roots]
        real = [os.path.realpath(root).rstrip("/") for root in roots]
        # A root may itself be a link, its owner chose it: both of its names open the same files.
        self._roots = tuple({*zip(given, real, strict=True), *zip(real, real, strict=True)})

    def admit(self, text: str) -> Path:
        """The path, if it is absolute, holds no `..` and no link, and lies under a root."""
        path = os.path.normpath("/".join(self.check_name(text)))
        if os.path.realpath(path) != path:
            raise PathRefusedError("outside_root", "a log path may not lead through a link")
        return Path(path)

    def check_name(self, text: str) -> tuple[str, str]:
        """The root a path lies under by its name, and the rest of it. Looks at no file."""
        if "\0" in text or not text.startswith("/") or ".." in text.split("/"):
            raise PathRefusedError(
                "invalid_path", "a log path must be absolute and hold no '..' and no NUL"
            )
        path = os.path.normpath(text)
        for given, real in self._roots:
            if path == given or path.startswith(given + "/"):
                return real, path[len(given) + 1 :]
        raise PathRefusedError("outside_root", "the log lies outside the allowed roots")


# ---- attribution as tools for an assistant

_INSTRUCTIONS = "Start with attribute_log on the logs of all ranks of a training job that failed."


def create_mcp_server(roots: Sequence[Path], service: JsonClient | None = None) -> "MCPServer":
    """Needs the extra `mcp`. Decisions that a service keeps are asked of that service."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer(
        "aorta", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    jail = PathJail(roots)

    @server.tool()
    def attribute_log(
        log_paths: list[str], failures: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """What killed this cycle, who began it, and whether to restart.

        log_paths: logs of all ranks, or a directory of rank_<r>.out/.err. failures: [{"rank",
        "exit_code", "signal"}].
        """
        try:
            logs = find_logs([jail.admit(path) for path in log_paths])
            ended = failures_of(failures or [], "failures")
        except AortaError as wrong:
            raise ToolError(str(wrong)) from None
        evidence = Evidence(logs=logs, failures=ended, follow_links=False)
        return attribution_document(attribute(evidence))

    @server.tool()
    def get_decision(job_id: str, cycle_id: str, wait: float = 0.0) -> dict[str, Any]:
        """The decision the service gave for a cycle; waits up to `wait` seconds for it."""
        if service is None:
            raise ToolError("no attribution service is configured; start with --service-url")
        where = f"/v1/cycles/{quote(job_id, safe='')}/{quote(cycle_id, safe='')}/decision"
        try:
            path = f"{where}?wait={min(max(wait, 0.0), 60.0)}"
            return dict(service.call("GET", path, wait + 10))
        except HttpError as wrong:
            raise ToolError(f"the attribution service did not answer: {wrong}") from None

    return server


# ---- on a socket

_BACKLOG = 4096  # a whole cluster may report at once
_DEAD_AFTER = 60  # seconds of silence after which the kernel asks whether a peer is still there


def listen(host: str, port: int) -> socket.socket:
    """Port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as wrong:
        raise InfrastructureError(f"cannot listen on {host}:{port}: {wrong.strerror}") from None
    # A node that lost its power never hangs up. Connections inherit this.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _DEAD_AFTER)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Any, listener: socket.socket) -> None:
    """Blocks until it is told to stop."""
    config = uvicorn.Config(
        app,
        ws="none",
        backlog=_BACKLOG,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # a caller must not choose the address its rate is counted for
        timeout_keep_alive=75,  # agents are silent between two cycles
        timeout_graceful_shutdown=5,
    )
    server = _Server(config)
    _stop_when_told(server)
    with listener, asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve([listener]))
    if not server.started:
        raise InfrastructureError("the server could not start; what is above says why")


def leave() -> NoReturn:
    """End this process without waiting for threads and workers that hang in a mount."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: uvicorn would raise them again after the shutdown."""
        yield


def _stop_when_told(server: uvicorn.Server) -> None:
    """SIGTERM and Ctrl-C end it cleanly, unless a shell told it to ignore them."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True  # the server looks ten times a second

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
