"""The one place that touches what torch elastic does not promise: its private classes.
`versions.py` says which versions have them.

`ElasticHandler` is torch's own c10d rendezvous handler with a store that can be given up, prompt
looks at the shared state, and a way to say that a node is known to be dead. Other modules use these
names and know no underscore of torch's.
"""

import inspect
import logging
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

import torch
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.events.handlers import get_logging_handler
from torch.distributed.elastic.multiprocessing.api import (
    MultiprocessContext,
    PContext,
    SubprocessContext,
    _terminate_process_handler,
)
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousSettings,
    _Action,
    _BackendRendezvousStateHolder,
    _DistributedRendezvousOpExecutor,
    _NodeDesc,
    _RendezvousContext,
    _RendezvousExitOp,
    _RendezvousStateHolder,
)
from torch.distributed.elastic.rendezvous.utils import (
    _matches_machine_hostname,
    parse_rendezvous_endpoint,
)
from torch.distributed.launcher.api import LaunchConfig

from aorta.launch.store_calls import DeadlineStore

log = logging.getLogger(__name__)

_LOOKS_PER_SECOND = 160.0  # at the shared state, by all nodes together while they meet
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25  # for a key that the leader will write
_LOOK_AT_STATE = 1.0
_WITHDRAW_WITHIN = 0.5
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

_SHUTDOWN_TAKES = inspect.signature(LocalElasticAgent._shutdown).parameters  # noqa: SLF001


def where_known(config: LaunchConfig, *names: str) -> dict[str, Any]:
    """Options that this torch has; older ones have fewer."""
    return {
        name: getattr(config, name) for name in names if getattr(config, name, None) is not None
    }


def shutdown_options(timeout: int) -> dict[str, Any]:
    """Of `_shutdown`, which knows one since 2.12."""
    return {"timeout": timeout} if "timeout" in _SHUTDOWN_TAKES else {}


def another_connection(store: Store) -> Store:
    """To the same store."""
    cloned: Store = cast("Any", store).clone()
    return cloned


def raise_on_signals(names: str) -> None:
    """From the first moment on, as torch does it once workers run: one way out for every signal."""
    for name in names.split(","):
        number = getattr(signal, name.strip(), None)
        if isinstance(number, signal.Signals):
            signal.signal(number, _terminate_process_handler)


def hosts_the_store(parameters: RendezvousParameters) -> bool:
    """Whether others may need this process to read how the job ended. Torch guesses the host in the
    same way.
    """
    told = parameters.get_as_bool("is_host")
    if told is not None:
        return told
    host, _ = parse_rendezvous_endpoint(parameters.endpoint, default_port=0)
    return bool(_matches_machine_hostname(host))


def return_codes(context: PContext) -> dict[int, int | None]:
    """The return code of every local rank; None while it runs."""
    if isinstance(context, SubprocessContext):
        handlers = context.subprocess_handlers
        return {local: handler.proc.poll() for local, handler in handlers.items()}
    if isinstance(context, MultiprocessContext) and context._pc is not None:  # noqa: SLF001
        return {local: each.exitcode for local, each in enumerate(context._pc.processes)}  # noqa: SLF001
    return {}


class _StateHolder(_BackendRendezvousStateHolder):
    """Torch's, which takes a node for dead when its heartbeats stop; this one can also be told."""

    dead: frozenset[_NodeDesc] = frozenset()

    def _sanitize(self) -> None:
        for node in self.dead:
            if node in self._state.last_heartbeats:
                self._state.last_heartbeats[node] = _LONG_AGO
        super()._sanitize()


class _PromptExecutor(_DistributedRendezvousOpExecutor):
    """Torch's, but where that sleeps a second between two looks at the shared state, this one
    sleeps `pause`.
    """

    def __init__(
        self,
        node: _NodeDesc,
        holder: _RendezvousStateHolder,
        settings: RendezvousSettings,
        pause: float,
    ) -> None:
        super().__init__(node, holder, settings)
        self._pause = pause

    def run(
        self,
        state_handler: Callable[[_RendezvousContext, float], _Action],
        deadline: float,
        update_deadline: Callable[[timedelta], float] | None = None,
    ) -> None:
        def promptly(context: _RendezvousContext, until: float) -> _Action:
            action = state_handler(context, until)
            while action is _Action.SYNC:
                time.sleep(self._pause)
                self._state_holder.sync()
                self._state = self._state_holder.state
                context = _RendezvousContext(self._node, self._state, self._settings)
                action = state_handler(context, until)
            return action

        super().run(promptly, deadline, update_deadline)


class _RoundStore(DeadlineStore):
    """What the agents of one round tell each other. A key that only a lost node would write is
    given up.
    """

    def __init__(self, store: DeadlineStore, prefix: str, is_hopeless: Callable[[], bool]) -> None:
        super().__init__(PrefixStore(prefix, store.torch_store), store.calls)
        self._is_hopeless = is_hopeless

    def get(self, key: str) -> bytes:
        self._wait_for([key])
        return super().get(key)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._wait_for(keys)
        return super().multi_get(keys)

    def _wait_for(self, keys: list[str]) -> None:
        pause = _FIRST_LOOK
        while not self.check(keys):
            if self._is_hopeless():
                raise torch.distributed.DistStoreError("a node of this round was lost")
            time.sleep(pause)
            pause = min(pause * 1.5, _LAST_LOOK)


class ElasticHandler(DynamicRendezvousHandler):
    """Torch's handler on a store whose calls end."""

    deadline_store: DeadlineStore
    _fixed_rank: int | None = None
    _round_nodes = 0
    _next_look = 0.0

    @classmethod
    def on(cls, store: DeadlineStore, settings: RendezvousSettings, local_addr: str | None) -> Self:
        """Torch's `from_backend`, looking at the shared state more often than once a second."""
        pause = min(max(settings.max_nodes / _LOOKS_PER_SECOND, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        node = cls._node_desc_generator.generate(local_addr)
        backend = C10dRendezvousBackend(cast("Store", store), settings.run_id)
        seconds = cast("int", pause)  # torch means a number of seconds and writes int
        holder = _StateHolder(backend, settings, cache_duration=seconds)
        handler = cls(node, settings, backend.name, store.torch_store, holder)
        handler._op_executor = _PromptExecutor(node, holder, settings, pause)
        handler.deadline_store = store
        if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
            for part in (handler, holder, handler._op_executor):
                _record_nothing(part)
        return handler

    @property
    def round(self) -> int:
        return self._state_holder.state.round

    @property
    def address(self) -> str:
        """Where others reach this node."""
        return self._this_node.addr

    @property
    def keep_alive(self) -> float:
        """Seconds between two heartbeats of a node."""
        return self._settings.keep_alive_interval.total_seconds()

    def addresses(self) -> tuple[str, ...]:
        """Of the round's nodes, by rank."""
        by_rank = sorted(self._state_holder.state.participants.items(), key=lambda item: item[1])
        return tuple(node.addr for node, _ in by_rank)

    def present(self) -> int:
        """How many nodes are in this round or wait for the next one. One request at most."""
        with self._heartbeat_lock:
            self._state_holder.sync()
            state = self._state_holder.state
        return len({*state.participants, *state.wait_list, *state.redundancy_list})

    @property
    def nodes_waiting(self) -> int:
        """How many nodes wait for the next round, as was seen last."""
        return len(self._state_holder.state.wait_list)

    def participants(self) -> int:
        with self._heartbeat_lock:
            self._state_holder.sync()
            return len(self._state_holder.state.participants)

    def declare_leader_dead(self) -> None:
        """Its process is known to be gone: nobody needs to wait until its heartbeats are missed."""
        state = self._state_holder.state
        leaders = {node for node, rank in state.participants.items() if rank == 0}
        if isinstance(self._state_holder, _StateHolder):
            self._state_holder.dead |= leaders - {self._this_node}

    def withdraw(self) -> None:
        """Step out of the running round, so that the others can complete the next one without
        waiting.
        """
        self._stop_heartbeats()
        self._op_executor.run(_RendezvousExitOp(), time.monotonic() + _WITHDRAW_WITHIN)

    def join_round(self) -> RendezvousInfo:
        """Torch's `next_rendezvous`, with a fresh store for the workers of every round.

        Torch keeps the workers' store across rounds, and restarted workers then read addresses of
        dead ones.
        """
        self._bootstrap_store_info = None
        self._shared_tcp_store_server = None
        try:
            return super().next_rendezvous()
        finally:  # what was said of the round before does not hold for this one
            if isinstance(self._state_holder, _StateHolder):
                self._state_holder.dead = frozenset()

    def _get_store(self) -> Store:
        """Torch waits in it for what others of the round will say; a lost one never will."""
        prefix = f"torch.rendezvous.{self._settings.run_id}.{self.round}"
        self._round_nodes = len(self._state_holder.state.participants)
        self._next_look = time.monotonic() + _LOOK_AT_STATE
        return cast("Store", _RoundStore(self.deadline_store, prefix, self.round_has_lost_a_node))

    def round_has_lost_a_node(self) -> bool:
        """Whether a node of the round that was just joined is gone; looks at the shared state once
        a second.
        """
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOK_AT_STATE
        return self.participants() < self._round_nodes

    def _get_world(self) -> tuple[int, int]:
        rank, world_size = super()._get_world()
        return (rank if self._fixed_rank is None else self._fixed_rank), world_size

    def _create_tcp_store_server(self, master_addr: str, master_port: int) -> TCPStore:
        """Workers of a static rendezvous meet where the user said: at the store that is already
        there.
        """
        if self._fixed_rank is not None and isinstance(self._store, TCPStore):
            return self._store
        fresh: TCPStore = super()._create_tcp_store_server(master_addr, master_port)
        return fresh


def _record_nothing(part: Any) -> None:
    """Where nobody hears torch's events. For each of them it looks through the whole stack (2 ms)
    while a change of the shared state is at stake: with many nodes, somebody else's change then
    comes first nearly always."""

    def unheard(*_: object, **__: object) -> None:
        pass

    part._record = unheard  # noqa: SLF001


def rendezvous_settings(parameters: RendezvousParameters) -> RendezvousSettings:
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout

    return RendezvousSettings(
        run_id=parameters.run_id,
        min_nodes=parameters.min_nodes,
        max_nodes=parameters.max_nodes,
        timeout=RendezvousTimeout(**_timeouts(parameters)),
        keep_alive_interval=timedelta(seconds=parameters.get_as_int("keep_alive_interval") or 5),
        keep_alive_max_attempt=parameters.get_as_int("keep_alive_max_attempt") or 3,
    )


def _timeouts(parameters: RendezvousParameters) -> dict[str, Any]:
    names = ("join", "last_call", "close", "heartbeat")
    seconds = {name: parameters.get_as_int(f"{name}_timeout") for name in names}
    return {name: timedelta(seconds=value) for name, value in seconds.items() if value is not None}
