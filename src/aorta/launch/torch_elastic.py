"""The one place that touches what torch elastic promises to nobody. Other modules know no
underscore of torch's.

| what | of | holds for |
|---|---|---|
| `_invoke_run`, `_worker_group`, `_remaining_restarts` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_initialize_workers`, `_restart_workers`, `_rendezvous` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_assign_worker_ranks(store, rank, size, spec)` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_start_workers`, `_monitor_workers`, `_pcontext` | `LocalElasticAgent` | 2.4 to 2.15 |
| `_stop_workers(group)` | `LocalElasticAgent` | since 2.9; in 2.4 `(group, is_restart)` |
| `_shutdown(signal, timeout)` | `LocalElasticAgent` | since 2.12; older take fewer |
| `_shutdown_timeout` | `SimpleElasticAgent` | since 2.12 |
| `_terminate_process_handler` | `multiprocessing.api` | 2.4 to 2.15 |
| `_matches_machine_hostname` | `rendezvous.utils` | 2.4 to 2.15 |
"""

import inspect
import logging
import os
import signal
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.elastic.agent.server.api import (
    DEFAULT_ROLE,
    RunResult,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import (
    SubprocessContext,
    _terminate_process_handler,
)
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname
from torch.distributed.launcher.api import LaunchConfig

from aorta.executors.process_tree import adopt_orphans, descendants
from aorta.launch.records import Node

log = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 30  # seconds that workers have to end; before 2.12 torch knows no other
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # that torchrun hears; before 2.10 it has no option
# Seconds for killed processes to be gone; what hangs in the kernel longer is left to it.
_ENOUGH = 5.0


def where_known(config: LaunchConfig, taker: Any, *names: str) -> dict[str, Any]:
    """Options of torchrun that this torch has; older ones have fewer."""
    takes = inspect.signature(taker).parameters
    known = {name: getattr(config, name, None) for name in names if name in takes}
    return {name: value for name, value in known.items() if value is not None}


def signals_to_handle(config: LaunchConfig) -> str:
    return getattr(config, "signals_to_handle", _SIGNALS)


def event_log_handler(config: LaunchConfig) -> str:
    return getattr(config, "event_log_handler", "null")


def is_this_machine(host: str) -> bool:
    return bool(_matches_machine_hostname(host))


def raise_on_signals(names: str) -> None:
    """From the first moment on, as torch does it once workers run: one way out for every signal."""
    for name in names.split(","):
        number = getattr(signal, name.strip(), None)
        if isinstance(number, signal.Signals):
            signal.signal(number, _terminate_process_handler)


class TorchAgent(LocalElasticAgent):
    """Torch's local agent, under names of our own. A subclass says what happens in `go` and around
    the start and the stop of the workers.
    """

    _is_stopping = False
    _swept: object = None  # the processes of which nothing is left

    def __init__(self, spec: WorkerSpec, **torch_options: Any) -> None:
        super().__init__(spec=spec, **torch_options)
        self._families = WorkerFamilies()

    @abstractmethod
    def go(self) -> RunResult:
        """The whole job; called once, by torch's `run`."""

    @abstractmethod
    def begin_cycle(self, group: WorkerGroup) -> None:
        """A round is complete and the ranks of this agent's workers are known."""

    @abstractmethod
    def members(self) -> Sequence[Node]:
        """Of the round, by rank."""

    @abstractmethod
    def after_stop(self) -> None:
        """The workers have ended."""

    @abstractmethod
    def job_mark(self) -> str:
        """A variable and its value that everything has which the workers of this job start."""

    @property
    def group(self) -> WorkerGroup:
        return self._worker_group

    def start_first(self) -> None:
        self._initialize_workers(self._worker_group)

    def start_again(self) -> None:
        """Stops what runs, meets the other agents, and starts what comes of it."""
        self._restart_workers(self._worker_group)

    def stop(self, death_sig: signal.Signals = signal.SIGTERM) -> None:
        """End the workers; with SIGTERM they have the shutdown timeout to do so themselves."""
        self._shutdown(death_sig)

    def look(self) -> RunResult:
        """How the workers here are. Torch reads the error files of ranks that failed; where one is
        no JSON of torch's, or the disk does not answer, their return codes count.
        """
        try:
            result: RunResult = self._monitor_workers(self._worker_group)
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            log.warning("what a rank reported of its failure cannot be read: %s", wrong)
            return self._by_return_codes()
        return result

    def _by_return_codes(self) -> RunResult:
        codes, pids = self.return_codes(), self.pids()
        failed = {
            rank: ProcessFailure(rank, pids[rank], code, "") for rank, code in codes.items() if code
        }
        if failed:
            return RunResult(WorkerState.FAILED, failures=failed)
        running = None in codes.values()
        return RunResult(WorkerState.HEALTHY if running else WorkerState.SUCCEEDED)

    def set_restarts_so_far(self, count: int) -> None:
        """Torch derives TORCHELASTIC_RESTART_COUNT from what it believes to be left."""
        self._remaining_restarts = self._worker_group.spec.max_restarts - count

    def return_codes(self) -> dict[int, int | None]:
        """The return code of every rank here; None while it runs."""
        if not isinstance(self._pcontext, SubprocessContext):
            return {}
        workers = self._pcontext.subprocess_handlers
        return self._by_rank({local: each.proc.poll() for local, each in workers.items()})

    def pids(self) -> dict[int, int]:
        return self._by_rank(self._pcontext.pids()) if self._pcontext is not None else {}

    def _by_rank(self, values: dict[int, T]) -> dict[int, T]:
        ranks = {worker.local_rank: worker.global_rank for worker in self._worker_group.workers}
        return {ranks[local]: value for local, value in values.items() if local in ranks}

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        return self.go()

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        super()._rendezvous(worker_group)
        self.begin_cycle(worker_group)

    def _assign_worker_ranks(
        self, store: object, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """As torch does it, without asking: every member said how many workers it has."""
        del store, group_world_size
        nodes = self.members()
        before, world = nodes[:group_rank], sum(node.workers for node in nodes)
        first = sum(node.workers for node in before)
        first_of_role = sum(node.workers for node in before if node.role == spec.role)
        of_role = sum(node.workers for node in nodes if node.role == spec.role)
        return [
            Worker(local, first + local, first_of_role + local, world, of_role)
            for local in range(spec.local_world_size)
        ]

    def _stop_workers(self, worker_group: WorkerGroup, is_restart: bool = True) -> None:
        del worker_group, is_restart
        self._shutdown()

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, *_: object, **__: object
    ) -> None:
        if self._is_stopping:  # a second signal: no more patience
            self._kill_process_groups()
        elif self._pcontext is not self._swept:
            self._families.remember(self.pids().values())
        self._is_stopping = True
        takes = inspect.signature(super()._shutdown).parameters
        patience = {"timeout": getattr(self, "_shutdown_timeout", _PATIENCE)}
        super()._shutdown(death_sig, **(patience if "timeout" in takes else {}))
        self._is_stopping = False
        self.kill_leftovers()
        self.after_stop()

    def kill_leftovers(self) -> None:
        """Nothing that the ranks started stays. Once a cycle: pids are reused later."""
        self._kill_process_groups()
        self._swept = self._pcontext

    def _kill_process_groups(self) -> None:
        if self._pcontext is not self._swept:
            self._families.kill(self.pids().values(), self.job_mark())


class WorkerFamilies:
    """Everything that ranks started ends with them, in whatever session it is.

    The agent adopts orphans, so that what a rank put into a session of its own stays below the
    agent when the rank is dead. It is known by its environment, or because it was seen below a rank
    while that lived.
    """

    def __init__(self) -> None:
        adopt_orphans()
        self._seen: set[int] = set()

    def remember(self, ranks: Iterable[int]) -> None:
        """Look who belongs to these ranks, before they are stopped."""
        self._seen |= {child for rank in ranks for child in descendants(rank)}

    def kill(self, ranks: Iterable[int], mark: str) -> None:
        """Kill the ranks' process groups and their descendants. The ranks have exited."""
        ended = set(ranks)
        for pid in ended:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(os.getpid()) != pid:
                    os.killpg(pid, signal.SIGKILL)
        deadline = time.monotonic() + _ENOUGH
        killed: set[int] = set()
        while (left := self._left(mark.encode()) - ended) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= left
            time.sleep(0.01)
        for pid in killed:  # orphans are this process's to reap
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen.clear()

    def _left(self, mark: bytes) -> set[int]:
        here = descendants(os.getpid())
        return {pid for pid in here if pid in self._seen or _is_marked(pid, mark)}


def _is_marked(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
