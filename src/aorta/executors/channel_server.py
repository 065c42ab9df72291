"""The owner's end of channels: who is let in, what waits to be sent, and where what blocks is done
instead.
"""

import asyncio
import queue
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aorta.core.errors import InfrastructureError
from aorta.executors import channel
from aorta.executors.framing import FrameError, Frames, frame

_CHUNK = 1 << 20

_T = TypeVar("_T")


@dataclass(eq=False)
class Connection:
    """The owner's end of one channel. What is sent waits in a queue of its own, so a worker that
    does not read holds up nobody else."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ticket: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    _frames: Frames = field(default_factory=Frames)

    def send(self, content: Mapping[str, Any], payload: bytes = b"") -> None:
        if not self.writer.is_closing():
            self.writer.write(frame(content, payload))

    async def sent(self) -> None:
        """Until the other end has taken most of what was sent."""
        await self.writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the channel."""
        while (content := self._frames.next()) is None:
            data = await self.reader.read(_CHUNK)
            if not data:
                return None
            self._frames.feed(data)
        return content

    async def introduced(self, secret: str) -> bool:
        """Whether the other end proves within its time that it knows the secret; then it gets our
        own proof.
        """
        channel.keep_alive(self.writer.get_extra_info("socket"))
        nonce = secrets.token_hex(16)
        self._frames.longest = channel.LONGEST_INTRODUCTION
        self.send({"nonce": nonce})
        try:
            async with asyncio.timeout(channel.ANSWER_SECONDS):
                content = await self.receive()
        except (FrameError, OSError, TimeoutError):
            return False
        if content is None or "payload" in content:
            return False
        ticket, theirs = content.get("ticket"), content.get("nonce")
        if not isinstance(ticket, str) or not isinstance(theirs, str):
            return False
        if not channel.proves(content, channel.proof(secret, "worker", nonce, ticket)):
            return False
        self._frames.longest = None
        self.ticket, self.about = ticket, content
        self.send({"proof": channel.proof(secret, "owner", theirs, ticket).decode()})
        return True

    def close(self) -> None:
        """At once, whatever still waits to be sent."""
        self.writer.transport.abort()


def listening(ports: Sequence[int]) -> socket.socket:
    for port in ports or (0,):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.bind(("", port))
        except OSError:
            listener.close()
            continue
        listener.listen(1024)
        return listener
    raise InfrastructureError(
        f"no port of {ports[0]}-{ports[-1]}, the SrunPortRange of this cluster, is free on this "
        "machine"
    )


class BlockingThread:
    """A thread for what may block: one piece of work after another. Nobody waits for it at the end
    of the program.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def do(self, what: Callable[[], _T]) -> Awaitable[_T]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_T] = loop.create_future()

        def settle(result: _T | None, wrong: BaseException | None) -> None:
            if done.done():
                return
            if wrong is not None:
                done.set_exception(wrong)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result, problem = None, None
            try:
                result = what()
            except BaseException as wrong:  # noqa: BLE001 - raised again where it is awaited
                problem = wrong
            with suppress(RuntimeError):  # the loop has ended, and nobody waits for it
                loop.call_soon_threadsafe(settle, result, problem)

        self._work.put(work)
        return done

    def end(self) -> None:
        self._work.put(None)
