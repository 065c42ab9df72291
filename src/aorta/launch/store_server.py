"""Where agents and workers meet: the servers of torch's `TCPStore`, and what was said about them on
the command line.

Agents meet on a store of their own. With c10d it is the one at `--rdzv-endpoint`. With a static
rendezvous that port belongs to the workers, and the agents' store is found through it. Workers of
every cycle get a new, empty store: torch's `init_process_group` expects that of a restart.
"""

import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from torch.distributed import DistError, DistNetworkError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from aorta.core.errors import UsageError
from aorta.launch.store import JobStore, StoreCalls, StoreLostError

_DEFAULT_JOIN, _DEFAULT_LAST_CALL, _DEFAULT_READ = 600, 30, 60  # torch's own, in seconds
_DEFAULT_INTERVAL, _DEFAULT_MISSED = 5, 3
_AGENTS_MEET_AT = "aorta/launch/store"  # in the workers' store of a static rendezvous
_PORT_FREE_WITHIN = 10.0  # seconds for the port of the cycle before


@dataclass(frozen=True)
class Meeting:
    """One job's rendezvous, from `--nnodes`, `--rdzv-*`, `--node-rank` and `--master-*`."""

    parameters: RendezvousParameters  # as torch's c10d store needs them
    run_id: str
    least: int  # nodes
    most: int
    join_timeout: float
    last_call: float
    keep_alive: float
    most_missed: int
    read_timeout: float
    address: str  # of this node, as others reach it
    endpoint: str
    hosts: bool  # whether others may need this process to read how the job ended
    workers: int = 1  # of this node
    role: str = "default"
    rank: int | None = None  # of this node, where the user numbered them
    master: tuple[str, int] | None = None  # where workers meet, where the user said so

    @classmethod
    def of(
        cls, parameters: RendezvousParameters, rank: int | None = None, **more: Any
    ) -> "Meeting":
        def seconds(name: str, default: int, least: int = 1) -> float:
            given = str(parameters.get(name, default))
            if not given.isdecimal() or int(given) < least:
                raise UsageError(f"--rdzv-conf {name}={given}: expected a number from {least} on")
            return float(given)

        return cls(
            parameters=parameters,
            run_id=parameters.run_id,
            least=parameters.min_nodes,
            most=parameters.max_nodes,
            join_timeout=seconds("join_timeout", _DEFAULT_JOIN),
            last_call=seconds("last_call_timeout", _DEFAULT_LAST_CALL, least=0),
            keep_alive=seconds("keep_alive_interval", _DEFAULT_INTERVAL),
            most_missed=int(seconds("keep_alive_max_attempt", _DEFAULT_MISSED)),
            read_timeout=seconds("read_timeout", _DEFAULT_READ),
            address=parameters.local_addr or socket.getfqdn(),
            endpoint=parameters.endpoint,
            hosts=_hosts(parameters) if rank is None else rank == 0,
            rank=rank,
            **more,
        )


def _hosts(parameters: RendezvousParameters) -> bool:
    """As torch guesses it, where the user does not say."""
    given = parameters.get_as_bool("is_host")
    if given is not None:
        return given
    host, _ = parse_rendezvous_endpoint(parameters.endpoint, default_port=0)
    return _is_of_this_machine(host)


def _is_of_this_machine(host: str) -> bool:
    """Whether a socket can be bound to one of its addresses."""
    with suppress(OSError):  # a name that nobody knows
        for family, *_, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with suppress(OSError), socket.socket(family) as probe:
                probe.bind(address)
                return True
    return False


class WorkerStore:
    """Where the workers of a cycle meet, on the agent that leads it."""

    def __init__(self, meeting: Meeting, agents: TCPStore) -> None:
        self._meeting = meeting
        self._agents_port = agents.port
        self._server: TCPStore | None = None
        if meeting.master is not None and meeting.rank == 0:
            self.renew()

    def renew(self) -> tuple[str, int]:
        """An empty store; returns where workers of all nodes find it."""
        meeting = self._meeting
        if meeting.master is None:
            self._server = TCPStore(meeting.address, 0, is_master=True, wait_for_workers=False)
            return meeting.address, self._server.port
        host, port = meeting.master
        self._server = None  # which frees the port
        self._server = _served_at(host, port)
        self._server.set(_AGENTS_MEET_AT, str(self._agents_port))
        return host, port


def _served_at(host: str, port: int) -> TCPStore:
    """On the user's own port, which a store of the cycle before may just be leaving."""
    deadline = time.monotonic() + _PORT_FREE_WITHIN
    while True:
        try:
            return TCPStore(host, port, is_master=True, wait_for_workers=False)
        except DistNetworkError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def connect(meeting: Meeting) -> tuple[JobStore, WorkerStore]:
    """The agents' store, hosted here or elsewhere, and the workers'. Signals are heard."""
    try:
        store = StoreCalls(None).make(lambda: _agents_store(meeting))
        calls = StoreCalls(meeting.read_timeout)
        another = partial(_client, store.host, store.port, meeting)
        return JobStore(store, another, meeting.run_id, calls), WorkerStore(meeting, store)
    except ValueError as wrong:
        raise UsageError(f"the rendezvous options are wrong: {wrong}") from None
    except (RendezvousConnectionError, DistError, StoreLostError) as unreachable:
        correct = "correct --rdzv-endpoint (or --master-addr and --master-port)"
        none = f"no rendezvous store at {meeting.endpoint}"
        what = f"{none}; start the agent that hosts it, or {correct}"
        if meeting.rank == 0:
            what = (
                f"{none} can be opened: another program has the port, or another agent "
                f"--node-rank 0 too; {correct} or --node-rank"
            )
        raise StoreLostError(what) from unreachable


def _agents_store(meeting: Meeting) -> TCPStore:
    if meeting.master is None:
        _, store = create_backend(meeting.parameters)
        if not isinstance(store, TCPStore):
            raise ValueError("store_type must be tcp")
        return store
    host, port = meeting.master
    if meeting.rank == 0:
        return TCPStore(host, 0, is_master=True, wait_for_workers=False)
    workers = _client(host, port, meeting)
    return _client(host, int(workers.get(_AGENTS_MEET_AT)), meeting)


def _client(host: str, port: int, meeting: Meeting) -> TCPStore:
    patience = timedelta(seconds=meeting.read_timeout)
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=patience)
