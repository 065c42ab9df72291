"""What the agents of a job agree on, in a store of their own, where it is served, and calls to it
that always end: each has a deadline, and no thread that hears signals waits in C++.

Agents meet on a `TCPStore` of their own. With c10d it is the one at `--rdzv-endpoint`. With a
static rendezvous that port belongs to the workers, and the agents' store is found through it.
Workers of every cycle get a new, empty store: torch's `init_process_group` expects that of a
restart.

Every fact is written once: by compare-and-set where several agents might write it, or under a key
that only one agent owns. Keys, below one prefix per job:

| key | what it holds |
|---|---|
| `incarnation` | of this submission; the first writer wins |
| `beat/<node>` | a counter while the agent lives; empty once it has left |
| `newest_round` | the number of a round that is closed, and of which later ones may be |
| `round/<r>/joined` | the agents that want to be in round r, in the order they came |
| `round/<r>/members` | who is in it, by rank; the first writer wins, and the round is closed |
| `round/<r>` | its outcome: a start or the ending |
| `ending` | why the job ended; the first writer wins |
| `<key>/agreed` | that members, an outcome or the ending are there: every agent waits for these |
| `left` | how many agents have read the ending |
| `cycle/<n>/failed` | the first agent that saw cycle n fail, and what it saw |
| `cycle/<n>/over` | that cycle n is over, for whatever reason: every agent waits for this key |
| `cycle/<n>/evidence/<g>` | what the agent of group rank g knows about the end of its ranks |
| `cycle/<n>/reported` | the group ranks whose evidence is there |
| `cycle/<n>/done`, `dumped` | how many agents finished it, or have the dumps of hanging ranks |
| `cycle/<n>/quiet/<g>` | for how long the ranks of g have been silent |
"""

import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from torch.distributed import DistError, DistNetworkError, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend

from aorta.core.errors import InfrastructureError, UsageError
from aorta.launch.records import CycleEvidence, CycleStart, JobEnding, Node, decode, encode

T = TypeVar("T")

_NEVER = timedelta(days=20)  # the longest that the store takes
_ENDING = "ending"
_LEFT = "left"
_NOBODY = "nobody"  # of a round that is closed without members
_NEWEST = "newest_round"
_DEFAULT_JOIN, _DEFAULT_LAST_CALL, _DEFAULT_READ = 600, 30, 60  # torch's own, in seconds
_DEFAULT_INTERVAL, _DEFAULT_MISSED = 5, 3
_AGENTS_MEET_AT = "aorta/launch/store"  # in the workers' store of a static rendezvous
_PORT_FREE_WITHIN = 10.0  # seconds for the port of the cycle before
_DOES_NOT_ANSWER = "the rendezvous store does not answer; the agent that hosts it has probably died"


class StoreLostError(InfrastructureError):
    """The process that hosts the rendezvous store is gone or silent."""

    kind = "store_lost"


class StoreCalls:
    """Calls in a thread of their own, so that the caller hears signals and gives up in time."""

    def __init__(self, give_up_after: float | None) -> None:
        self._give_up_after = give_up_after
        self._thread = ThreadPoolExecutor(1, "aorta-store")
        self._is_lost = False

    def make(self, call: Callable[[], T]) -> T:
        if self._is_lost:
            raise StoreLostError(_DOES_NOT_ANSWER)
        try:
            future = self._thread.submit(call)
        except RuntimeError:  # this process is ending
            raise StoreLostError(_DOES_NOT_ANSWER) from None
        self._is_lost = not _is_done_within(future, self._give_up_after)
        if self._is_lost:
            raise StoreLostError(_DOES_NOT_ANSWER)
        try:
            return future.result()
        except DistError as lost:
            raise StoreLostError(_DOES_NOT_ANSWER) from lost


def _is_done_within(future: Future[Any], seconds: float | None) -> bool:
    return bool(wait([future], seconds).done)


class KeyWatch:
    """One blocking wait for a key, on a connection of its own."""

    def __init__(self, connect: Callable[[], Store]) -> None:
        self._connect = connect
        self._idle: queue.SimpleQueue[Store] = queue.SimpleQueue()
        self._key = ""
        self._answer: Future[None] = Future()

    def has_arrived(self, key: str, timeout: float = 0.0) -> bool:
        """Whether the key is there, waiting up to `timeout` s; signals are heard meanwhile."""
        if key != self._key:
            self._key, self._answer = key, Future()
            wanted = (key, self._answer)
            threading.Thread(
                target=self._wait_in_store, args=wanted, name="aorta-watch", daemon=True
            ).start()
        if not _is_done_within(self._answer, timeout):
            return False
        if self._answer.exception() is not None:
            raise StoreLostError(_DOES_NOT_ANSWER)
        return True

    def _wait_in_store(self, key: str, answer: "Future[None]") -> None:
        try:
            try:
                store = self._idle.get_nowait()
            except queue.Empty:
                store = self._connect()
            store.wait([key], _NEVER)
        except DistError as lost:
            answer.set_exception(lost)
        else:
            self._idle.put(store)
            answer.set_result(None)


class JobStore:
    """The agreements of one job. Every method may raise `StoreLostError`."""

    def __init__(
        self, store: Store, another: Callable[[], Store], run_id: str, calls: StoreCalls
    ) -> None:
        prefix = f"aorta/launch/{run_id}"
        self.torch_store = PrefixStore(prefix, store)
        self.calls = calls
        self._watch = KeyWatch(lambda: PrefixStore(prefix, another()))

    def mint(self, incarnation: str) -> str:
        """The id of this submission: the first one that an agent proposed."""
        return self._first("incarnation", incarnation).decode()

    def decide_round(
        self, round_number: int, outcome: CycleStart | JobEnding
    ) -> CycleStart | JobEnding:
        """Write a round's outcome unless it is written; returns what stands."""
        key = "start" if isinstance(outcome, CycleStart) else "end"
        said = f"{key} {encode(outcome)}"
        return _decode_outcome(self._agree(f"round/{round_number}", said))

    def outcome(self, round_number: int) -> CycleStart | JobEnding | None:
        found = self._get(f"round/{round_number}")
        return _decode_outcome(found) if found is not None else None

    def beat(self, node: str, count: str) -> None:
        """An empty count says that the agent has left."""
        self._set(f"beat/{node}", count)

    def beats(self, nodes: Sequence[str]) -> list[bytes]:
        """Of agents that have beaten at least once, or left."""
        return self._multi_get([f"beat/{node}" for node in nodes])

    def newest_round(self) -> int:
        """A round that is closed, or -1."""
        return int(self._get(_NEWEST) or -1)

    def join(self, round_number: int, node: Node) -> int:
        """Ask to be a member; returns how many have asked so far."""
        self._call("append", f"round/{round_number}/joined", f"{encode(node)}\n")
        return self._count(f"round/{round_number}/count", 1)

    def joined(self, round_number: int) -> list[Node]:
        found = self._get(f"round/{round_number}/joined") or b""
        return list(dict.fromkeys(decode(Node, line) for line in found.splitlines()))

    def close_round(self, round_number: int, members: Sequence[Node]) -> tuple[Node, ...]:
        """Write who is in it unless it is written; returns who is."""
        said = "\n".join(map(encode, members))
        stands = self._agree(f"round/{round_number}/members", said or _NOBODY)
        self._set(_NEWEST, str(round_number))
        return _decode_members(stands)

    def members(self, round_number: int) -> tuple[Node, ...] | None:
        """None while the round is open."""
        found = self._get(f"round/{round_number}/members")
        return _decode_members(found) if found is not None else None

    def expect_members(self, round_number: int, timeout: float) -> bool:
        """Whether a round is closed, waiting for it up to `timeout` seconds."""
        return self._is_agreed(f"round/{round_number}/members", timeout)

    def expect_outcome(self, round_number: int, timeout: float) -> bool:
        """Whether a round has its outcome, waiting for it up to `timeout` seconds."""
        return self._is_agreed(f"round/{round_number}", timeout)

    def last_start(self, before_round: int) -> CycleStart | None:
        """The newest cycle that was started; rounds without a decision are passed over."""
        for number in range(before_round - 1, -1, -1):
            outcome = self.outcome(number)
            if isinstance(outcome, CycleStart):
                return outcome
        return None

    def end(self, ending: JobEnding) -> JobEnding:
        return decode(JobEnding, self._agree(_ENDING, encode(ending)))

    def ending(self) -> JobEnding | None:
        found = self._get(_ENDING)
        return decode(JobEnding, found) if found is not None else None

    def expect_ending(self, timeout: float) -> bool:
        return self._is_agreed(_ENDING, timeout)

    def left(self, more: int = 0) -> int:
        """How many agents have read the ending, with `more` that have now."""
        return self._count(_LEFT, more)

    def announce_failure(self, cycle: int, what: str) -> None:
        """Mark a cycle as failed; what the first agent said stands."""
        self._first(f"cycle/{cycle}/failed", what)
        self.announce_over(cycle)

    def failure_of(self, cycle: int) -> str | None:
        found = self._get(f"cycle/{cycle}/failed")
        return found.decode() if found is not None else None

    def announce_over(self, cycle: int) -> None:
        """Wake every agent: this cycle failed, succeeded everywhere, or is left for another."""
        self._set(f"cycle/{cycle}/over", "1")

    def is_over(self, cycle: int, timeout: float = 0.0) -> bool:
        """Whether a cycle was announced as over. It costs no request: the store itself tells."""
        return self._watch.has_arrived(f"cycle/{cycle}/over", timeout)

    def look_whether_over(self, cycle: int) -> bool:
        """Ask the store, for the case that its word was lost on the way."""
        return bool(self._call("check", [f"cycle/{cycle}/over"]))

    def give_evidence(self, cycle: int, evidence: CycleEvidence) -> None:
        """And say that it is there: who asks for everybody's then needs no question for each."""
        self._set(_evidence_key(cycle, evidence.group_rank), encode(evidence))
        self._call("append", f"cycle/{cycle}/reported", f"{evidence.group_rank} ")

    def has_all_evidence(self, start: CycleStart) -> bool:
        return len(self._reported(start.cycle)) == len(start.nodes)

    def evidence(self, start: CycleStart) -> tuple[CycleEvidence, ...]:
        """What is there: agents give theirs before they join, so nothing is waited for."""
        keys = [_evidence_key(start.cycle, group) for group in self._reported(start.cycle)]
        if not keys:
            return ()
        return tuple(decode(CycleEvidence, text) for text in self._multi_get(keys))

    def forget_evidence(self, cycle: int) -> None:
        """Evidence of cycles that are long decided would pile up in the store's memory."""
        keys = [_evidence_key(cycle, group) for group in self._reported(cycle)]
        if keys:
            self._call("multi_set", keys, [""] * len(keys))

    def _reported(self, cycle: int) -> list[int]:
        """The groups that gave their evidence."""
        return sorted(
            {int(group) for group in (self._get(f"cycle/{cycle}/reported") or b"").split()}
        )

    def finished(self, cycle: int, more: int = 0) -> int:
        """How many agents have ranks that all succeeded."""
        return self._count(f"cycle/{cycle}/done", more)

    def dumped(self, cycle: int, more: int = 0) -> int:
        """How many agents have asked their ranks where they hang, and need them no longer."""
        return self._count(f"cycle/{cycle}/dumped", more)

    def report_quiet(self, cycle: int, group_rank: int, seconds: float) -> None:
        self._set(f"cycle/{cycle}/quiet/{group_rank}", f"{seconds:.1f}")

    def quiet(self, cycle: int, group_rank: int) -> float:
        """How long a group has been silent, by its own agent's clock; 0 before it said so."""
        found = self._get(f"cycle/{cycle}/quiet/{group_rank}")
        return float(found) if found is not None else 0.0

    def _agree(self, key: str, value: str) -> bytes:
        """The first value wins; a second key wakes who waits: torch 2.4 wakes nobody for it."""
        stands = self._first(key, value)
        self._set(f"{key}/agreed", "1")
        return stands

    def _first(self, key: str, value: str) -> bytes:
        stands: bytes = self._call("compare_set", key, "", value)
        return stands

    def _count(self, key: str, more: int = 0) -> int:
        return int(self._call("add", key, more))

    def _is_agreed(self, key: str, timeout: float) -> bool:
        return self._watch.has_arrived(f"{key}/agreed", timeout)

    def _get(self, key: str) -> bytes | None:
        return self._multi_get([key])[0] if self._call("check", [key]) else None

    def _multi_get(self, keys: list[str]) -> list[bytes]:
        found: list[bytes] = self._call("multi_get", keys)
        return found

    def _set(self, key: str, value: str) -> None:
        self._call("set", key, value)

    def _call(self, method: str, *words: Any) -> Any:
        return self.calls.make(partial(getattr(self.torch_store, method), *words))


def _evidence_key(cycle: int, group_rank: int) -> str:
    return f"cycle/{cycle}/evidence/{group_rank}"


def _decode_members(text: bytes) -> tuple[Node, ...]:
    return tuple(decode(Node, line) for line in text.splitlines() if line != _NOBODY.encode())


def _decode_outcome(text: bytes) -> CycleStart | JobEnding:
    key, _, record = text.partition(b" ")
    return decode(CycleStart, record) if key == b"start" else decode(JobEnding, record)


# -- where it is served


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
            rank=rank,
            **more,
        )


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
