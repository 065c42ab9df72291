"""Which agents of a job live: heartbeats in the store, and a connection that closes with its
process.

A node is taken for dead when its counter in the store stands still for the keep-alive time, on the
clock of who looks; a process that was killed is missed at once, because its kernel closes its
connections.
"""

import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from aorta.launch.records import Node
from aorta.launch.store import JobStore
from aorta.launch.store_calls import StoreLostError

_CONNECT_WITHIN = 2.0


@dataclass
class _Heard:
    beat: bytes = b""
    silent_for: float = 0.0


@dataclass
class Heartbeats:
    """This agent's own, and what was seen of the others'."""

    store: JobStore
    node: Node
    interval: float  # seconds between two beats
    most_missed: int  # beats of a node that may fail to come
    _heard: dict[str, _Heard] = field(default_factory=dict)
    _last_look: float = 0.0
    _stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """The first beat is in the store when this returns."""
        self.store.beat(self.node.id, "0")
        threading.Thread(target=self._beat, name="aorta-beat", daemon=True).start()

    def _beat(self) -> None:
        count = 0
        while not self._stopped.wait(self.interval):
            count += 1
            with suppress(StoreLostError):  # who needs the store finds out
                if not self._stopped.is_set():
                    self.store.beat(self.node.id, str(count))

    def leave(self) -> None:
        """Nobody needs to wait until this agent is missed."""
        self._stopped.set()
        self.store.mark_gone(self.node.id)

    def silent(self, nodes: Sequence[Node]) -> frozenset[Node]:
        """Those that have left, or were silent for the keep-alive time. One request.

        A probe that was frozen itself counts no more than two intervals for the time it missed.
        """
        if not nodes:
            return frozenset()
        now = time.monotonic()
        passed = min(now - self._last_look, 2 * self.interval) if self._last_look else 0.0
        self._last_look = now
        beats = self.store.beats([node.id for node in nodes])
        return frozenset(
            node
            for node, beat in zip(nodes, beats, strict=True)
            if self._missed(node, beat, passed)
        )

    def _missed(self, node: Node, beat: bytes, passed: float) -> bool:
        heard = self._heard.setdefault(node.id, _Heard())
        heard.silent_for = heard.silent_for + passed if beat == heard.beat else 0.0
        heard.beat = beat
        is_other = node.id != self.node.id
        return is_other and (not beat or heard.silent_for >= self.interval * self.most_missed)


class LivingProcess:
    """A port that listens as long as this process lives. Others hold a connection to it while this
    agent leads: when the process is killed its kernel closes them at once, where heartbeats would
    be missed only after their time."""

    def __init__(self) -> None:
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._listener = socket.create_server(
            ("", 0), family=family, backlog=1024, dualstack_ipv6=family == socket.AF_INET6
        )
        self.port: int = self._listener.getsockname()[1]
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, name="aorta-alive", daemon=True).start()

    def _accept(self) -> None:
        while True:
            with suppress(OSError):
                fresh, _ = self._listener.accept()
                self._held = [each for each in self._held if not _has_closed(each)]
                self._held.append(fresh)


class LeaderConnection:
    """A connection to the leader's `LivingProcess`. One that merely broke is made again; only an
    address where nobody listens any more counts as a dead leader."""

    def __init__(self, leader: Node) -> None:
        self._address = (leader.address, leader.port)
        self._socket: socket.socket | None = None
        with suppress(OSError):
            self._connect()

    def is_refused(self) -> bool:
        """Whether the leader's process is gone for certain."""
        if self._socket is None or not _has_closed(self._socket):
            return False
        self.close()
        try:
            self._connect()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, _CONNECT_WITHIN)
        self._socket.setblocking(False)


def _has_closed(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:  # nothing was said, and nothing ever is
        return False
    except OSError:
        return True


def names(nodes: Iterable[Node]) -> str:
    return ", ".join(sorted({node.address for node in nodes}))
