"""The one place that touches what torch elastic promises to nobody. Other modules know no
underscore of torch's.

| what | of | holds for |
|---|---|---|
| `_invoke_run`, `_worker_group`, `_remaining_restarts` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_initialize_workers`, `_restart_workers`, `_rendezvous` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_start_workers`, `_monitor_workers`, `_pcontext` | `LocalElasticAgent` | 2.4 to 2.15 |
| `_stop_workers(group)` | `LocalElasticAgent` | since 2.9; in 2.4 `(group, is_restart)` |
| `_shutdown(signal, timeout)` | `LocalElasticAgent` | since 2.12; older take fewer |
| `_shutdown_timeout` | `SimpleElasticAgent` | since 2.12 |
| `_pc` | `MultiprocessContext` | 2.4 to 2.15 |
| `_terminate_process_handler` | `multiprocessing.api` | 2.4 to 2.15 |
| `_matches_machine_hostname` | `rendezvous.utils` | 2.4 to 2.15 |
"""

import inspect
import json
import logging
import signal
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import (
    DEFAULT_ROLE,
    RunResult,
    WorkerGroup,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import (
    MultiprocessContext,
    SubprocessContext,
    _terminate_process_handler,
)
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname
from torch.distributed.launcher.api import LaunchConfig

log = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 30  # seconds that workers have to end; before 2.12 torch knows no other
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"  # that torchrun hears; before 2.10 it has no option


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

    @abstractmethod
    def go(self) -> RunResult:
        """The whole job; called once, by torch's `run`."""

    def begin_cycle(self, group: WorkerGroup) -> None:
        """A round is complete and the ranks of this agent's workers are known."""

    def before_stop(self, *, again: bool) -> None:
        """The workers will be stopped; `again`: a second signal came while that was done."""

    def after_stop(self) -> None:
        """They have ended."""

    @property
    def group(self) -> WorkerGroup:
        return self._worker_group

    @property
    def processes(self) -> object:
        """Those of the running cycle, or of the last one; None before the first."""
        return self._pcontext

    def start_first(self) -> None:
        self._initialize_workers(self._worker_group)

    def start_again(self) -> None:
        """Stops what runs, meets the other agents, and starts what comes of it."""
        self._restart_workers(self._worker_group)

    def stop(self) -> None:
        self._stop_workers(self._worker_group)

    def look(self) -> RunResult:
        result: RunResult = self._monitor_workers(self._worker_group)
        return result

    def set_restarts_so_far(self, count: int) -> None:
        """Torch derives TORCHELASTIC_RESTART_COUNT from what it believes to be left."""
        self._remaining_restarts = self._worker_group.spec.max_restarts - count

    def return_codes(self) -> dict[int, int | None]:
        """The return code of every rank here; None while it runs."""
        context = self._pcontext
        codes: dict[int, int | None] = {}
        if isinstance(context, SubprocessContext):
            codes = {n: each.proc.poll() for n, each in context.subprocess_handlers.items()}
        elif isinstance(context, MultiprocessContext) and context._pc is not None:  # noqa: SLF001
            processes = context._pc.processes  # noqa: SLF001
            codes = {n: each.exitcode for n, each in enumerate(processes)}
        return self._by_rank(codes)

    def pids(self) -> dict[int, int]:
        return self._by_rank(self._pcontext.pids()) if self._pcontext is not None else {}

    def _by_rank(self, values: dict[int, T]) -> dict[int, T]:
        ranks = {worker.local_rank: worker.global_rank for worker in self._worker_group.workers}
        return {ranks[local]: value for local, value in values.items() if local in ranks}

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        return self.go()

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Torch's, until all members of a round live long enough to hand out the ranks."""
        while True:
            try:
                super()._rendezvous(worker_group)
                break
            except DistError:
                log.warning("a node was lost before the ranks were assigned; joining again")
        self.begin_cycle(worker_group)

    def _stop_workers(self, worker_group: WorkerGroup, is_restart: bool = True) -> None:
        del worker_group, is_restart
        self._shutdown()

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, *_: object, **__: object
    ) -> None:
        takes = inspect.signature(super()._shutdown).parameters
        patience = {"timeout": getattr(self, "_shutdown_timeout", _PATIENCE)}
        self.before_stop(again=self._is_stopping)
        self._is_stopping = True
        super()._shutdown(death_sig, **(patience if "timeout" in takes else {}))
        self._is_stopping = False
        self.after_stop()

    _is_stopping = False


def set_aside_if_broken(error_file: Path) -> None:
    """Torch reads a rank's error file and falls over anything that is not its JSON."""
    try:
        message = json.loads(error_file.read_text())["message"]
        broken = not (isinstance(message, str) or "extraInfo" in message)
    except OSError:
        return
    except (ValueError, KeyError, TypeError):
        broken = True
    if broken:
        with suppress(OSError):
            error_file.replace(error_file.with_suffix(".broken"))
