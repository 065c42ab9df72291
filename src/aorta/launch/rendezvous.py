"""The deciding rendezvous: torch's own c10d rendezvous, with one step more at the end of a round.

When a round is complete its rank 0 is the leader, agreed on by the round itself. The leader settles
the round's outcome in the store; everybody else reads it there. A leader that dies before it
settled is no loss: the others join the next round, whose leader finds the same facts. A round that
ends the job raises `JobEndedError` on every agent alike.
"""

import logging
import socket
import threading
import time
from contextlib import suppress
from typing import Protocol

from torch.distributed import DistError, Store  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

from aorta.core.errors import Exit, InfrastructureError, UsageError
from aorta.launch.records import CycleStart, JobEnding
from aorta.launch.store import JobStore
from aorta.launch.store_calls import DeadlineStore, StoreCalls, StoreLostError, StorePatience
from aorta.launch.torch_elastic import ElasticHandler, another_connection, rendezvous_settings

log = logging.getLogger(__name__)

_LEADER_GRACE = 5.0  # beyond the decision timeout, before followers give a leader up
_SLICE = 0.5
_FIRST_LOOK, _LONGEST_LOOK = 0.5, 5.0  # at the shared state, while the leader decides
_LINGER = 5.0  # at most; usually every agent has read the ending within milliseconds
_CONNECT_WITHIN = 2.0
_DEFAULT_READ_TIMEOUT = 60  # torch's own, for one answer of the store
_OUR_KEYS = ("torch.rendezvous", "aorta/launch")


class JobEndedError(RendezvousGracefulExitError):
    """The one way out: the store says that the job has ended."""

    def __init__(self, ending: JobEnding) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Decider(Protocol):
    def outcome(
        self, store: JobStore, round_number: int, nodes: tuple[str, ...]
    ) -> CycleStart | JobEnding:
        """What the round leads to. Called on the leader alone; bounded in time."""

    def final(self, store: JobStore, start: CycleStart) -> JobEnding:
        """Why the job ends with this cycle, which has no restart left. Called on the cycle's leader
        alone.
        """


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

    def __init__(self, address: str, port: int) -> None:
        self._address = (address, port)
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


class DecidingRendezvous(ElasticHandler):
    """`connect` gives it the job's store and the decider; until then it is torch's own handler."""

    job_store: JobStore
    _decider: Decider
    _decision_timeout: float

    def connect(
        self,
        job_store: JobStore,
        decider: Decider,
        decision_timeout: float,
        fixed_rank: int | None,
    ) -> None:
        self.job_store = job_store
        self._decider = decider
        self._decision_timeout = decision_timeout
        self._fixed_rank = fixed_rank
        self._leader: LeaderConnection | None = None
        self._alive = LivingProcess()
        self.start: CycleStart | None = None

    def next_rendezvous(self) -> RendezvousInfo:
        while True:
            info = self._join()
            if info is not None:
                outcome = self._lead() if info.rank == 0 else self._follow()
                if isinstance(outcome, JobEnding):
                    raise JobEndedError(outcome)
                if outcome is not None:
                    self.start = outcome
                    return info
            log.warning("the leader of the round was lost before it decided; joining again")

    def end_after(self, start: CycleStart, *, is_leader: bool) -> JobEnding:
        """The ending of a job whose last cycle failed: nothing is left to meet for, so no round is
        joined.
        """
        if is_leader:
            return self._end(self._decider.final(self.job_store, start))
        deadline = time.monotonic() + self._decision_timeout + _LEADER_GRACE
        while time.monotonic() < deadline and not self.leader_is_gone():
            if self.job_store.expect_ending(_SLICE):
                break
        ending = self.job_store.ending()
        if ending is not None:
            return ending
        failure = self.job_store.failure_of(start.cycle) or "a rank failed"
        reason = f"the job failed ({failure}); its leader is gone"
        return self._end(JobEnding(Exit.FAILED, reason, start.cycle_id))

    def succeed(self, start: CycleStart) -> JobEnding:
        return self._end(JobEnding(Exit.OK, "every rank succeeded", start.cycle_id))

    def fail(self, ending: JobEnding) -> JobEnding:
        """End the job for everybody: this agent itself broke."""
        return self._end(ending)

    def lost_nodes(self) -> int:
        """How many nodes of the running cycle have stopped to beat. Nodes that wait for a new round
        are not lost.
        """
        if self.start is None:
            return 0
        return max(0, len(self.start.nodes) - self.present())

    def leader_is_gone(self) -> bool:
        """Whether the process of this round's leader is known to have ended. Asks nobody but the
        kernel.
        """
        if self._leader is None or not self._leader.is_refused():
            return False
        self._drop_leader()
        self.declare_leader_dead()
        return True

    def round_has_lost_a_node(self) -> bool:
        return self.leader_is_gone() or super().round_has_lost_a_node()

    def linger(self) -> None:
        """For the host of the store: stay until every agent has read how the job ended.

        Also those of the last cycle whose heartbeats are missing: a host that was frozen itself has
        missed them.
        """
        deadline = time.monotonic() + _LINGER
        last = len(self.start.nodes) if self.start is not None else 0
        while time.monotonic() < deadline and self.job_store.left() < max(last, self.present()):
            time.sleep(0.05)

    def _join(self) -> RendezvousInfo | None:
        """The next complete round, or None where its leader was lost before it told where workers
        meet.
        """
        self._drop_leader()
        try:
            info = self.join_round()
        except (RendezvousGracefulExitError, RendezvousClosedError):
            ending = self.job_store.ending()
            if ending is None:
                ending = JobEnding(Exit.FAILED, "the rendezvous was closed by another agent")
            raise JobEndedError(ending) from None
        except RendezvousTimeoutError:
            raise InfrastructureError(
                f"fewer than {self.settings.min_nodes} nodes met within the join timeout "
                f"({self.settings.timeout.join.total_seconds():g} s); start more agents, or lower "
                "--nnodes"
            ) from None
        except RendezvousConnectionError as lost:
            raise StoreLostError("the rendezvous store was lost while joining") from lost
        except DistError:
            self.job_store.ending()  # raises where not the leader but the store was lost
            return None
        return info

    def _drop_leader(self) -> None:
        if self._leader is not None:
            self._leader.close()
            self._leader = None

    def _lead(self) -> CycleStart | JobEnding:
        self.job_store.tell_leader(self.round, f"{self.address} {self._alive.port}")
        ending = self.job_store.ending()
        decided = ending or self._decider.outcome(self.job_store, self.round, self.addresses())
        if self._fixed_rank is not None:
            self._empty_worker_store()
        if isinstance(decided, JobEnding):
            decided = self._end(decided)
        return self.job_store.settle(self.round, decided)

    def _follow(self) -> CycleStart | JobEnding | None:
        deadline = time.monotonic() + self._decision_timeout + _LEADER_GRACE
        world = len(self.addresses())
        pause = _FIRST_LOOK
        next_look = time.monotonic() + pause
        while time.monotonic() < deadline:
            arrived = self.job_store.expect_outcome(self.round, timeout=_SLICE)
            self._connect_to_leader()
            if arrived:
                return self.job_store.outcome(self.round)
            if self.leader_is_gone():
                return self.job_store.outcome(self.round)
            if time.monotonic() >= next_look:
                if self.participants() < world:
                    return None
                pause = min(pause * 2, _LONGEST_LOOK)
                next_look = time.monotonic() + pause
        return None

    def _connect_to_leader(self) -> None:
        """Not where ranks are fixed: there the leader hosts the store, whose loss tells the
        same.
        """
        if self._leader is not None or self._fixed_rank is not None:
            return
        told = self.job_store.leader_of(self.round)
        if told is not None:
            address, _, port = told.rpartition(" ")
            self._leader = LeaderConnection(address, int(port))

    def _end(self, ending: JobEnding) -> JobEnding:
        stands = self.job_store.end(ending)
        self.set_closed()
        return stands

    def _empty_worker_store(self) -> None:
        """That store must be as good as new for every cycle: all workers are down when a round is
        complete.
        """
        for key in self.deadline_store.list_keys():
            if not key.lstrip("/").startswith(_OUR_KEYS):
                self.deadline_store.delete_key(key)


def create_rendezvous(parameters: RendezvousParameters) -> tuple[DecidingRendezvous, JobStore]:
    """Torch's `create_handler`, for our class, and the job's store beside it."""
    try:
        settings = rendezvous_settings(parameters)
        read_timeout = parameters.get_as_int("read_timeout", _DEFAULT_READ_TIMEOUT)
        patience = StorePatience(
            parameters.endpoint,
            say_after=settings.keep_alive_interval.total_seconds()
            * max(1, settings.keep_alive_max_attempt - 1),
            give_up_after=float(read_timeout or _DEFAULT_READ_TIMEOUT),
        )
        store = _connected(parameters)
        calls = StoreCalls(patience)
        handler = DecidingRendezvous.on(
            DeadlineStore(store, calls), settings, parameters.local_addr
        )
        return handler, JobStore(lambda: another_connection(store), settings.run_id, patience)
    except ValueError as wrong:
        raise UsageError(f"the rendezvous options are wrong: {wrong}") from None
    except RendezvousConnectionError as unreachable:
        raise StoreLostError(
            f"no rendezvous store at {parameters.endpoint}; start the agent that hosts it, "
            "or correct --rdzv-endpoint (or --master-addr and --master-port)"
        ) from unreachable


def _connected(parameters: RendezvousParameters) -> Store:
    """Torch waits for the store's host up to its read timeout; signals are heard meanwhile."""
    never = StorePatience(parameters.endpoint, say_after=1e6, give_up_after=1e6)
    _, store = StoreCalls(never).make(lambda: create_backend(parameters))
    return store
