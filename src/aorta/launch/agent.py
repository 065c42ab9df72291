"""The elastic agent: torch's local agent with its own main loop.

The loop differs from torch's in four ways: cycle number and restart budget come from the store; a
failure anywhere is noticed everywhere because the store tells; evidence is collected and
attribution triggered before anything is restarted; and the job ends only by what the store says.
How processes are started, watched and stopped is torch's business.

This is the one file that touches what torch elastic promises to nobody:

| what | of | holds for |
|---|---|---|
| `_invoke_run`, `_worker_group`, `_remaining_restarts` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_initialize_workers`, `_restart_workers`, `_rendezvous` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_assign_worker_ranks(store, rank, size, spec)` | `SimpleElasticAgent` | 2.4 to 2.15 |
| `_start_workers`, `_pcontext` | `LocalElasticAgent` | 2.4 to 2.15 |
| `_stop_workers(group)` | `LocalElasticAgent` | since 2.9; in 2.4 `(group, is_restart)` |
| `_shutdown(signal, timeout)` | `LocalElasticAgent` | since 2.12; older take fewer |
| `_shutdown_timeout` | `SimpleElasticAgent` | since 2.12 |
| `_terminate_process_handler` | `multiprocessing.api` | 2.4 to 2.15 |
"""

import inspect
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from torch.distributed.launcher.api import LaunchConfig

from aorta.core.errors import Exit
from aorta.executors.process_tree import adopt_orphans, descendants
from aorta.launch.decision import AttributionSources
from aorta.launch.hangs import COLLECT_WITHIN, HangWatch, collect_dumps
from aorta.launch.output import CycleLogs
from aorta.launch.records import (
    HANG,
    CycleDir,
    CycleEvidence,
    CycleStart,
    FailedCycle,
    JobEnding,
    WorkerEnd,
    is_there,
    write_cycle_info,
)
from aorta.launch.rendezvous import DecidingRendezvous, JobEndedError

log = logging.getLogger(__name__)

T = TypeVar("T")

_SETTLE = 1.0  # how long a trigger waits for the other ranks to end, so that it sees whole logs
_LAST_WORDS = 1.0  # at most; a service that does not answer holds nobody who leaves
_MOST_TAILS = 8  # of failed ranks, sent along for readers on other machines
_WELL = {WorkerState.HEALTHY, WorkerState.SUCCEEDED}
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


def raise_on_signals(names: str) -> None:
    """From the first moment on, as torch does it once workers run: one way out for every signal."""
    for name in names.split(","):
        number = getattr(signal, name.strip(), None)
        if isinstance(number, signal.Signals):
            signal.signal(number, _terminate_process_handler)


@dataclass
class AgentCycle:
    """What one agent knows about the cycle it is in."""

    start: CycleStart
    group_rank: int
    directory: CycleDir
    logs: CycleLogs
    hang_watch: HangWatch | None
    failure: str = ""  # what went wrong first, as far as this agent knows
    failed_at: float = math.inf  # when this agent knew it, on the clock of `ended_at`
    died_first: frozenset[int] = frozenset()  # ranks that failed before this agent stopped any
    ended_at: dict[int, float] = field(default_factory=dict)  # rank -> when this agent saw it ended
    hung_rank: int | None = None
    triggered: bool = False
    dumps: tuple[str, ...] = ()
    evidence: CycleEvidence | None = None  # once all ranks here are down
    down: threading.Event = field(default_factory=threading.Event)
    is_over: bool = False
    is_recorded: bool = False  # its end stands in cycle_info.json
    looked: bool = False  # just now, after the other nodes
    next_look: float = 0.0

    @property
    def is_leader(self) -> bool:
        return self.group_rank == 0

    @property
    def node(self) -> str:
        return self.start.nodes[self.group_rank]

    def ends(self, codes: Mapping[int, int | None]) -> list[WorkerEnd]:
        """How ranks exited, by return code; those failing after a known failure were stopped."""
        ends = []
        for rank, status in codes.items():
            if status is not None:
                error_file = self.directory.file(rank, "error.json")
                known = str(error_file) if is_there(error_file) else None
                stopped = bool(self.failure) and status != 0 and rank not in self.died_first
                moment = self.ended_at.setdefault(rank, time.time())
                if stopped:  # how long it took to end says nothing of how far it came by itself
                    moment = min(moment, self.failed_at)
                code, number = (None, -status) if status < 0 else (status, None)
                ends.append(WorkerEnd(rank, code, number, known, stopped, moment))
        return ends

    def evidence_of(self, ranks: Sequence[int], ends: Sequence[WorkerEnd]) -> CycleEvidence:
        """What this agent knows of the cycle, failed ranks first; from memory if a file is cut."""
        failed = [end.rank for end in ends if end.failed]
        incomplete = self.logs.pump.incomplete
        in_order = [rank for rank in dict.fromkeys((*failed, *ranks)) if rank not in incomplete]
        files, told = self.directory, (*failed[:_MOST_TAILS], *incomplete)
        logs = [files.file(rank, kind) for rank in in_order for kind in ("err", "out")]
        return CycleEvidence(
            agent=f"{self.node}:{os.getpid()}",
            node=self.node,
            group_rank=self.group_rank,
            ranks=tuple(ranks),
            ends=tuple(ends),
            log_paths=tuple(str(path) for path in logs if is_there(path)),
            tails={rank: self.logs.pump.tail_of(rank) for rank in told},
            hung_rank=self.hung_rank,
            dumps=self.dumps,
            step=self.logs.furthest_step(),
            note=self.failure,
        )


class DecidingAgent(LocalElasticAgent):
    def __init__(
        self,
        spec: WorkerSpec,
        logs: CycleLogs,
        rendezvous: DecidingRendezvous,
        sources: AttributionSources,
        hang_timeout: float | None,
        **torch_options: Any,
    ) -> None:
        super().__init__(spec=spec, logs_specs=logs, **torch_options)
        self._families = WorkerFamilies()
        self._is_stopping = False
        self._swept: object = None  # the processes of which nothing is left
        self._logs = logs
        self._handler = rendezvous
        self._sources = sources
        self._hang_timeout = hang_timeout
        self._pause = spec.monitor_interval
        self.ending: JobEnding | None = None
        self._cycle: AgentCycle | None = None
        self._last_result: RunResult | None = None

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """The whole job; called once, by torch's `run`."""
        del role
        try:
            return self._go_through_cycles()
        except JobEndedError as ended:
            self.ending = ended.ending
            if self._cycle is None:
                # Torch would report about workers that never had a rank.
                self._worker_group.workers = []
            if ended.ending.exit_code == Exit.OK:
                return RunResult(WorkerState.SUCCEEDED)
            known = self._last_result.failures if self._last_result is not None else {}
            return RunResult(WorkerState.FAILED, failures=known)

    def _go_through_cycles(self) -> RunResult:
        self._initialize_workers(self._worker_group)
        while True:
            time.sleep(self._pause)
            # Before torch looks: tell the others and attribution of a dead rank, stop its siblings.
            if dead := [end for end in self._ends() if end.failed]:
                self._note_failure(", ".join(end.words for end in dead), dead)
                self._shutdown()
            result = self._look()
            self._worker_group.state = result.state
            if result.state is WorkerState.FAILED:
                self._last_result = result
            if result.state is WorkerState.SUCCEEDED and self._every_agent_succeeded():
                return result
            if result.state not in _WELL or self._fails_elsewhere():
                self._recover()
            elif self._is_left_for_another():
                log.info("the nodes of this job change; the workers restart with them")
                self._handler.job_store.announce_over(self._current().start.cycle)
                self._restart_workers(self._worker_group)

    def _fails_elsewhere(self) -> bool:
        """Whether the cycle failed although the ranks here are well."""
        cycle = self._current()
        store = self._handler.job_store
        late = self._handler.decider.late_ending(cycle.start)
        if late is not None:
            self.end_for_everybody(late)
        hang = cycle.hang_watch.found(self._running()) if cycle.hang_watch else None
        if hang is not None:
            words, cycle.hung_rank = hang
            self._note_failure(words)
        number = cycle.start.cycle
        cycle.looked = time.monotonic() >= cycle.next_look
        if cycle.looked:
            cycle.next_look = time.monotonic() + self._handler.seconds_between_looks
            lost = self._handler.lost_nodes()
            # Unless it said why it leaves: its process may be seen to end before its word is.
            if lost and store.failure_of(number) is None:
                self._note_failure(f"the agent on {', '.join(sorted(set(lost)))} was lost")
            cycle.is_over |= store.look_whether_over(number)
        cycle.is_over |= store.is_over(number)
        if not cycle.is_over:
            return False
        ending = store.ending()
        if ending is not None and ending.exit_code != Exit.OK:
            self.record_interruption(ending)
            raise JobEndedError(ending)
        said = store.failure_of(number)
        if said is not None and not cycle.failure:
            cycle.failure = said
            log.info("cycle %s failed elsewhere: %s", cycle.start.cycle_id, said)
        return said is not None

    def _is_left_for_another(self) -> bool:
        """Whether this cycle ends because nodes wait to join: seen here, or announced."""
        cycle = self._current()
        if cycle.is_over:
            return True
        return cycle.is_leader and cycle.looked and self._handler.num_nodes_waiting() > 0

    def _every_agent_succeeded(self) -> bool:
        """Wait for the other agents; a failure there means that this cycle failed here too."""
        cycle = self._current()
        store, number = self._handler.job_store, cycle.start.cycle
        agents = len(cycle.start.nodes)
        self._logs.pump.stop()
        store.give_evidence(number, self._evidence(cycle))
        if store.finished(number, more=1) >= agents:
            store.announce_over(number)
        while not (cycle.is_over or store.is_over(number, self._pause)):
            if self._fails_elsewhere():
                return False
        if self._fails_elsewhere() or store.finished(number) < agents:
            return False
        if cycle.is_leader:
            write_cycle_info(self._logs.log_dir, cycle.start, store.evidence(cycle.start))
            cycle.is_recorded = True
        self.ending = self._handler.end(JobEnding(Exit.OK, "every rank succeeded"))
        return True

    def _recover(self) -> None:
        """From a failed cycle to the next one, or to the end of the job."""
        cycle = self._current()
        if not cycle.failure:
            self._note_failure(f"the workers are {self._worker_group.state.value}")
        hangs = cycle.failure.startswith(HANG)
        if hangs:
            cycle.dumps = collect_dumps(cycle.directory, self._running())
            self._let_others_collect(cycle)
        self._trigger(cycle)
        # Neither a rank that hangs nor one that waits for it hears a polite signal.
        self._shutdown(signal.SIGKILL if hangs else signal.SIGTERM)
        cycle.evidence = self._evidence(cycle)
        cycle.down.set()
        self._handler.job_store.give_evidence(cycle.start.cycle, cycle.evidence)
        cycle.is_recorded = True  # by the agent that decides
        if cycle.start.restarts_left <= 0:
            raise JobEndedError(self._handler.end_after(cycle.start, is_leader=cycle.is_leader))
        self._restart_workers(self._worker_group)

    def _let_others_collect(self, cycle: AgentCycle) -> None:
        """Ending a rank takes its peers out of their collective: let them dump first."""
        store, number = self._handler.job_store, cycle.start.cycle
        store.dumped(number, more=1)
        deadline = time.monotonic() + COLLECT_WITHIN
        while store.dumped(number) < len(cycle.start.nodes) and time.monotonic() < deadline:
            time.sleep(self._pause)

    def _note_failure(self, what: str, dead: list[WorkerEnd] | None = None) -> None:
        """The first moment this agent knows: all that can run in parallel starts here."""
        cycle = self._current()
        if cycle.failure:
            return
        cycle.failure, cycle.failed_at = what, time.time()
        cycle.died_first = frozenset(end.rank for end in dead or ())
        if dead:
            self._trigger(cycle)
        self._handler.job_store.announce_failure(cycle.start.cycle, what)
        log.warning("cycle %s failed: %s", cycle.start.cycle_id, what)

    def _trigger(self, cycle: AgentCycle) -> None:
        """Attribution hears of a cycle once from every agent, and nobody waits for it."""
        if not cycle.triggered:
            cycle.triggered = True
            self._sources.trigger(lambda: self._own_evidence(cycle))

    def _own_evidence(self, cycle: AgentCycle) -> FailedCycle:
        """With whole logs where the ranks end soon; ranks that take their time hold nothing up."""
        cycle.down.wait(_SETTLE)
        return FailedCycle(cycle.start, (cycle.evidence or self._evidence(cycle),))

    def _evidence(self, cycle: AgentCycle) -> CycleEvidence:
        ranks = [worker.global_rank for worker in self._worker_group.workers]
        return cycle.evidence_of(ranks, self._ends())

    def _ends(self) -> list[WorkerEnd]:
        """How the ranks of this agent have ended so far."""
        return self._cycle.ends(self.return_codes()) if self._cycle is not None else []

    def _running(self) -> dict[int, int]:
        """The process of every rank here that still runs."""
        codes = self.return_codes()
        return {rank: pid for rank, pid in self.pids().items() if codes.get(rank, 0) is None}

    def _current(self) -> AgentCycle:
        assert self._cycle is not None, "no cycle before the first rendezvous"
        return self._cycle

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """A round is complete when torch's returns, and the ranks of the workers here are known."""
        super()._rendezvous(worker_group)
        start = self._handler.start
        assert start is not None, "a round that was joined has an outcome"
        # Torch derives TORCHELASTIC_RESTART_COUNT from what it believes to be left.
        restarts = start.cycle - start.first_cycle
        self._remaining_restarts = worker_group.spec.max_restarts - restarts
        group_rank = worker_group.group_rank or 0
        directory = self._logs.prepare(start)
        watch = None
        if self._hang_timeout is not None:
            store = self._handler.job_store
            watch = HangWatch(self._hang_timeout, store, start, group_rank, self._logs)
        self._cycle = AgentCycle(start, group_rank, directory, self._logs, watch)
        if self._cycle.is_leader:
            self._logs.log_dir.lead()
            write_cycle_info(self._logs.log_dir, start, running=True)

    def finish_triggers(self) -> None:
        """A service that keeps the history of a job should hear of its last cycle too."""
        if self._cycle is not None:
            self._cycle.down.set()  # nothing here is still to end
        self._sources.finish_triggers(_LAST_WORDS)

    def leave_job(self, why: str) -> None:
        """Leave so that the others need not wait until this agent is missed."""
        if self._cycle is not None and not self._cycle.failure:
            what = f"the agent on {self._cycle.node} {why}"
            self._handler.job_store.announce_failure(self._cycle.start.cycle, what)
        self._handler.withdraw()

    def record_interruption(self, ending: JobEnding) -> None:
        """A cycle cut short by a signal or a lost store is recorded as its leader saw it."""
        cycle = self._cycle
        if cycle is not None and cycle.is_leader and not cycle.is_recorded:
            evidence = (self._evidence(cycle),)
            write_cycle_info(self._logs.log_dir, cycle.start, evidence, ending=ending)

    def end_for_everybody(self, ending: JobEnding) -> None:
        self._handler.end(ending)
        if self._cycle is not None:
            self._cycle.is_over = True
            self._handler.job_store.announce_over(self._cycle.start.cycle)

    # -- torch's agent

    def _look(self) -> RunResult:
        """How the workers here are, by their return codes."""
        codes, pids = self.return_codes(), self.pids()
        failed = {rank: self._failure(rank, pids[rank], c) for rank, c in codes.items() if c}
        if failed:
            return RunResult(WorkerState.FAILED, failures=failed)
        state = WorkerState.HEALTHY if None in codes.values() else WorkerState.SUCCEEDED
        return RunResult(state, return_values=codes)

    def _failure(self, rank: int, pid: int, code: int) -> ProcessFailure:
        """With what the rank reported of it, where that is torch's JSON and the disk answers."""
        try:
            file = self._current().directory.file(rank, "error.json")
            return ProcessFailure(rank, pid, code, str(file))
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            log.warning("what rank %d reported of its failure cannot be read: %s", rank, wrong)
            return ProcessFailure(rank, pid, code, "")

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

    def _assign_worker_ranks(
        self, store: object, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """As torch does it, without asking: every member said how many workers it has."""
        del store, group_world_size
        nodes = self._handler.members
        before, world = nodes[:group_rank], sum(node.workers for node in nodes)
        first = sum(node.workers for node in before)
        first_of_role = sum(node.workers for node in before if node.role == spec.role)
        of_role = sum(node.workers for node in nodes if node.role == spec.role)
        return [
            Worker(local, first + local, first_of_role + local, world, of_role)
            for local in range(spec.local_world_size)
        ]

    def _stop_workers(self, *_: object, **__: object) -> None:
        self._shutdown()

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, *_: object, **__: object
    ) -> None:
        """End the workers; with SIGTERM they have the shutdown timeout to do so themselves."""
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
        self._logs.pump.stop()

    def kill_leftovers(self) -> None:
        """Nothing that the ranks started stays. Once a cycle: pids are reused later."""
        self._kill_process_groups()
        self._swept = self._pcontext

    def _kill_process_groups(self) -> None:
        if self._pcontext is not self._swept:
            mark = f"AORTA_JOB_ID={self._current().start.job_id}"
            self._families.kill(self.pids().values(), mark)


class WorkerFamilies:
    """Everything that ranks started ends with them: the agent adopts orphans, and knows them by
    their environment or as once seen below a rank.
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
        while time.monotonic() < deadline:
            here = set(descendants(os.getpid())) - ended
            left = {pid for pid in here if pid in self._seen or _is_marked(pid, mark.encode())}
            if not left:
                break
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= left
            time.sleep(0.01)
        for pid in killed:  # orphans are this process's to reap
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen.clear()


def _is_marked(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False
