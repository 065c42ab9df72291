"""The deciding rendezvous: torch's own c10d rendezvous, with one step more at the end of a round.

When a round is complete its rank 0 is the leader, agreed on by the round itself. The leader settles the round's outcome
on the board; everybody else reads it there. A leader that dies before it settled is no loss: the others join the next
round, whose leader finds the same facts. A round that ends the job raises `JobEndedError` on every agent alike.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, Self, cast

from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed import DistError
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import (
    C10dRendezvousBackend,
    create_backend,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousSettings,
    RendezvousTimeout,
    _Action,
    _BackendRendezvousStateHolder,
    _DistributedRendezvousOpExecutor,
    _NodeDesc,
    _RendezvousContext,
    _RendezvousExitOp,
    _RendezvousStateHolder,
)

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.exits import Exit
from aorta.launch.records import Ending, Start
from aorta.launch.store import Board, StoreLostError

log = logging.getLogger(__name__)

_LEADER_GRACE = 5.0  # beyond the decision timeout, before followers give a leader up
_SLICE = 0.5
_LOOKS_PER_SECOND = (
    160.0  # at the shared state, by all nodes together; torch's own pause is reached at 160 nodes
)
_SHORTEST_PAUSE = 0.1
_LINGER = 5.0  # at most; usually every agent has read the ending within milliseconds
_OUR_KEYS = ("torch.rendezvous", "aorta/launch")


class JobEndedError(RendezvousGracefulExitError):
    """The one way out: the store says that the job has ended."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Decider(Protocol):
    def outcome(self, board: Board, round_number: int, nodes: tuple[str, ...]) -> Start | Ending:
        """What the round leads to. Called on the leader alone; bounded in time."""

    def final(self, board: Board, start: Start) -> Ending:
        """Why the job ends with this cycle, which has no restart left. Called on the cycle's leader alone."""


class _PromptExecutor(_DistributedRendezvousOpExecutor):
    """Torch's, but where that sleeps a second between two looks at the shared state, this one sleeps `pause`."""

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


class DecidingRendezvous(DynamicRendezvousHandler):
    """`connect` gives it the board and the decider; until then it is torch's own handler."""

    board: Board
    _decider: Decider
    _decision_timeout: float
    _fixed_rank: int | None = None

    @classmethod
    def on(
        cls,
        store: Store,
        backend: C10dRendezvousBackend,
        settings: RendezvousSettings,
        local_addr: str | None,
    ) -> Self:
        """Torch's `from_backend`, looking at the shared state more often than once a second."""
        pause = min(max(settings.max_nodes / _LOOKS_PER_SECOND, _SHORTEST_PAUSE), 1.0)
        node = cls._node_desc_generator.generate(local_addr)
        seconds = cast("int", pause)  # torch means a number of seconds and writes int
        holder = _BackendRendezvousStateHolder(backend, settings, cache_duration=seconds)
        handler = cls(node, settings, backend.name, store, holder)
        handler._op_executor = _PromptExecutor(node, holder, settings, pause)
        return handler

    def connect(
        self,
        decider: Decider,
        decision_timeout: float,
        fixed_rank: int | None,
    ) -> None:
        self.board = Board(self._store, self._settings.run_id)
        self._decider = decider
        self._decision_timeout = decision_timeout
        self._fixed_rank = fixed_rank
        self.start: Start | None = None

    def next_rendezvous(self) -> RendezvousInfo:
        while True:
            info = self._join()
            if info is not None:
                outcome = self._lead() if info.rank == 0 else self._follow()
                if isinstance(outcome, Ending):
                    raise JobEndedError(outcome)
                if outcome is not None:
                    self.start = outcome
                    return info
            log.warning("the leader of the round was lost before it decided; joining again")

    def end_after(self, start: Start, *, is_leader: bool) -> Ending:
        """The ending of a job whose last cycle failed: nothing is left to meet for, so no round is joined."""
        if is_leader:
            return self._end(self._decider.final(self.board, start))
        deadline = time.monotonic() + self._decision_timeout + _LEADER_GRACE
        while time.monotonic() < deadline:
            ending = self.board.ending()
            if ending is not None:
                return ending
            time.sleep(0.05)
        failure = self.board.failure_of(start.cycle) or "a rank failed"
        reason = f"the job failed ({failure}); its leader is gone"
        return self._end(Ending(Exit.FAILED, reason, start.cycle_id))

    def succeed(self, start: Start) -> Ending:
        return self._end(Ending(Exit.OK, "every rank succeeded", start.cycle_id))

    def lost_nodes(self) -> int:
        """How many nodes of the running cycle have stopped to beat. Nodes that wait for a new round are not lost."""
        if self.start is None:
            return 0
        with self._heartbeat_lock:
            self._state_holder.sync()
            state = self._state_holder.state
            present = len(state.participants) + len(state.wait_list) + len(state.redundancy_list)
        return max(0, len(self.start.nodes) - present)

    def withdraw(self) -> None:
        """Step out of the running round, so that the others can complete the next one without waiting."""
        self._stop_heartbeats()
        self._op_executor.run(_RendezvousExitOp(), time.monotonic() + _SLICE)

    def linger(self) -> None:
        """For the host of the store: stay until every agent has read how the job ended."""
        deadline = time.monotonic() + _LINGER
        while time.monotonic() < deadline and self.board.left() < self._known_agents():
            time.sleep(0.05)

    def _known_agents(self) -> int:
        with self._heartbeat_lock:
            self._state_holder.sync()
            state = self._state_holder.state
        return len({*state.participants, *state.wait_list, *state.redundancy_list})

    def _join(self) -> RendezvousInfo | None:
        """The next complete round, or None where its leader was lost before it told where workers meet."""
        # Torch keeps the workers' store across rounds, and restarted workers then read addresses of dead ones.
        self._bootstrap_store_info = None
        self._shared_tcp_store_server = None
        try:
            return super().next_rendezvous()
        except (RendezvousGracefulExitError, RendezvousClosedError):
            ending = self.board.ending()
            if ending is None:
                ending = Ending(Exit.FAILED, "the rendezvous was closed by another agent")
            raise JobEndedError(ending) from None
        except RendezvousTimeoutError:
            raise InfrastructureError(
                f"fewer than {self._settings.min_nodes} nodes met within the join timeout "
                f"({self._settings.timeout.join.total_seconds():g} s); start more agents, or lower --nnodes"
            ) from None
        except RendezvousConnectionError as lost:
            raise StoreLostError("the rendezvous store was lost while joining") from lost
        except DistError:
            return None

    def _lead(self) -> Start | Ending:
        round_number = self._state_holder.state.round
        ending = self.board.ending()
        decided = ending or self._decider.outcome(self.board, round_number, self._nodes())
        if self._fixed_rank is not None:
            self._empty_worker_store()
        if isinstance(decided, Ending):
            decided = self._end(decided)
        return self.board.settle(round_number, decided)

    def _follow(self) -> Start | Ending | None:
        round_number = self._state_holder.state.round
        deadline = time.monotonic() + self._decision_timeout + _LEADER_GRACE
        world = len(self._state_holder.state.participants)
        while time.monotonic() < deadline:
            outcome = self.board.outcome(round_number, timeout=_SLICE)
            if outcome is not None:
                return outcome
            with self._heartbeat_lock:
                self._state_holder.sync()
                if len(self._state_holder.state.participants) < world:
                    return None
        return None

    def _end(self, ending: Ending) -> Ending:
        stands = self.board.end(ending)
        self.set_closed()
        return stands

    def _nodes(self) -> tuple[str, ...]:
        by_rank = sorted(self._state_holder.state.participants.items(), key=lambda item: item[1])
        return tuple(node.addr for node, _ in by_rank)

    def _get_world(self) -> tuple[int, int]:
        rank, world_size = super()._get_world()
        return (rank if self._fixed_rank is None else self._fixed_rank), world_size

    def _create_tcp_store_server(self, master_addr: str, master_port: int) -> TCPStore:
        """Workers of a static rendezvous meet where the user said: at the store that is already there."""
        if self._fixed_rank is not None and isinstance(self._store, TCPStore):
            return self._store
        fresh: TCPStore = super()._create_tcp_store_server(master_addr, master_port)
        return fresh

    def _empty_worker_store(self) -> None:
        """That store must be as good as new for every cycle: all workers are down when a round is complete."""
        for key in self._store.list_keys():
            if not key.lstrip("/").startswith(_OUR_KEYS):
                self._store.delete_key(key)


def create_rendezvous(parameters: RendezvousParameters) -> DecidingRendezvous:
    """Torch's `create_handler`, for our class."""
    try:
        settings = _settings(parameters)
        backend, store = create_backend(parameters)
    except ValueError as wrong:
        raise UsageError(f"the rendezvous options are wrong: {wrong}") from None
    except RendezvousConnectionError as unreachable:
        raise StoreLostError(
            f"no rendezvous store at {parameters.endpoint}; start the agent that hosts it, "
            "or correct --rdzv-endpoint (or --master-addr and --master-port)"
        ) from unreachable
    return DecidingRendezvous.on(store, backend, settings, parameters.local_addr)


def _settings(parameters: RendezvousParameters) -> RendezvousSettings:
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
