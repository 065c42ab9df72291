"""Run an ASGI application on a socket until it is told to stop."""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aorta.attribution.service.guard import CALLER
from aorta.attribution.tokens import user_of
from aorta.core.errors import InfrastructureError

_BACKLOG = 4096  # a whole cluster may report at once
_WHOLE_REQUEST = 30.0  # seconds for eight megabytes over a bad line


def listen(host: str, port: int) -> socket.socket:
    """Port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as wrong:
        listener.close()
        raise InfrastructureError(f"cannot listen on {host}:{port}: {wrong.strerror}") from None
    listener.listen(_BACKLOG)
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: Any, listener: socket.socket) -> None:
    """Blocks until it is told to stop."""
    _allow_many_connections()
    config = uvicorn.Config(
        app,
        http=_Connection,
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
    gc.collect()
    gc.freeze()  # what is loaded by now stays: looking through it again stops all answers for 50 ms
    with listener, asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve([listener]))
    if not server.started:
        raise InfrastructureError("the server could not start; what is above says why")


def leave() -> NoReturn:
    """End this process without waiting for threads and workers that hang in a mount."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class _Connection(HttpToolsProtocol):
    """A connection whose requests come whole within a time, so that none is held open."""

    _late: asyncio.TimerHandle | None = None
    _caller: int | None = None

    # The type of a transport is uvicorn's.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            self._caller = user_of(self.client)
        self._expect()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # ASGI lets a scope hold more.
        self.scope[CALLER] = self._caller  # type: ignore[literal-required]
        if self._late is None:
            self._expect()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _expect(self) -> None:
        self._late = self.loop.call_later(_WHOLE_REQUEST, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: uvicorn would raise them again after the shutdown."""
        yield


def _stop_when_told(server: uvicorn.Server) -> None:
    """SIGTERM and Ctrl-C both end it cleanly: what was taken is answered and committed.

    From here on no handler raises: in a task of the loop, or in what the garbage collector calls,
    that is lost. Started in the background by a shell, with Ctrl-C ignored, it stays deaf to it.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True  # the server looks ten times a second

    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def _allow_many_connections() -> None:
    """As many as the administrator lets us have: each agent of a cluster holds one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
