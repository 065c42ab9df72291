"""The elastic agent: torch's local agent with its own main loop.

The loop differs from torch's in four ways: cycle number and restart budget come from the store; a
failure anywhere is noticed everywhere because the store tells; evidence is collected and
attribution triggered before anything is restarted; and the job ends only by what the store says.
How processes are started, watched and stopped is torch's business.
"""

import logging
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)

from aorta.core.errors import Exit
from aorta.executors.process_tree import adopt_orphans, descendants
from aorta.launch.cycle import COLLECT_WITHIN, AgentCycle, HangWatch, collect_dumps
from aorta.launch.cycle_dir import complain_once, sign_as_leader, write_cycle_info
from aorta.launch.decision import AttributionSources
from aorta.launch.output import CycleLogs
from aorta.launch.records import HANG, CycleEvidence, CycleStart, FailedCycle, JobEnding, WorkerEnd
from aorta.launch.rendezvous import DecidingRendezvous, JobEndedError
from aorta.launch.store import StoreLostError
from aorta.launch.torch_elastic import TorchAgent, set_aside_if_broken

log = logging.getLogger(__name__)

_SETTLE = 1.0  # how long a trigger waits for the other ranks to end, so that it sees whole logs
_LAST_WORDS = 1.0  # at most; a service that does not answer holds nobody who leaves
# Seconds for killed processes to be gone; what hangs in the kernel longer is left to it.
_ENOUGH = 5.0
_WELL = {WorkerState.HEALTHY, WorkerState.SUCCEEDED}


class DecidingAgent(TorchAgent):
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
        self._logs = logs
        self._handler = rendezvous
        self._sources = sources
        self._hang_timeout = hang_timeout
        self._families = WorkerFamilies()
        self.ending: JobEnding | None = None
        self._cycle: AgentCycle | None = None
        self._last_result: RunResult | None = None
        self._swept: object = None

    def go(self) -> RunResult:
        try:
            return self._go_through_cycles()
        except JobEndedError as ended:
            self.ending = ended.ending
            if self._cycle is None:
                self.group.workers = []  # torch would report about workers that never had a rank
            if ended.ending.exit_code == Exit.OK:
                return RunResult(WorkerState.SUCCEEDED)
            known = self._last_result.failures if self._last_result is not None else {}
            return RunResult(WorkerState.FAILED, failures=known)

    def _go_through_cycles(self) -> RunResult:
        self.start_first()
        while True:
            time.sleep(self.group.spec.monitor_interval)
            self._notice_dead_ranks()
            result = self._look()
            self.group.state = result.state
            if result.state is WorkerState.FAILED:
                self._last_result = result
            if result.state is WorkerState.SUCCEEDED and self._every_agent_succeeded():
                return result
            if result.state not in _WELL or self._fails_elsewhere():
                self._recover()
            elif self._is_left_for_another():
                log.info("the nodes of this job change; the workers restart with them")
                self._handler.job_store.announce_over(self._current().start.cycle)
                self.start_again()

    def _notice_dead_ranks(self) -> None:
        """Before torch looks: tell the others and attribution of a dead rank, stop its siblings."""
        dead = [end for end in self._ends() if end.failed]
        if dead:
            self._note_failure(", ".join(end.words for end in dead), dead)
            self.stop()
            for end in self._ends():
                set_aside_if_broken(self._current().directory.error_file(end.rank))

    def _look(self) -> RunResult:
        """Torch's; it reads the error files of ranks that failed, and the disk may not answer."""
        try:
            return self.look()
        except OSError as wrong:
            complain_once("what a rank reported of its failure", wrong)
            codes = self.return_codes().values()
            if any(codes):
                return RunResult(WorkerState.FAILED)
            running = any(code is None for code in codes)
            return RunResult(WorkerState.HEALTHY if running else WorkerState.SUCCEEDED)

    def _fails_elsewhere(self) -> bool:
        """Whether this cycle has failed although the ranks here are well: a hang, a peer's failure,
        a lost node, a verdict on the cycle before.
        """
        cycle = self._current()
        store = self._handler.job_store
        late = self._handler.late_ending()
        if late is not None:
            self.end_for_everybody(late)
        hang = cycle.hang_watch.found(self._running()) if cycle.hang_watch else None
        if hang is not None:
            words, cycle.hung_rank = hang
            self._note_failure(words)
        number = cycle.start.cycle
        if cycle.is_time_to_look(self._handler.keep_alive):
            self._note_lost(self._handler.lost_nodes())
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

    def _note_lost(self, nodes: tuple[str, ...]) -> None:
        """Unless it said why it leaves: its process may be seen to end before its word is."""
        if nodes and self._handler.job_store.failure_of(self._current().start.cycle) is None:
            self._note_failure(f"the agent on {', '.join(sorted(set(nodes)))} was lost")

    def _is_left_for_another(self) -> bool:
        """Whether this cycle ends because nodes wait to join: seen here, or announced."""
        cycle = self._current()
        if cycle.is_over:
            return True
        return cycle.looks_after_all and cycle.looked and self._handler.num_nodes_waiting() > 0

    def _every_agent_succeeded(self) -> bool:
        """Wait for the other agents; a failure there means that this cycle failed here too."""
        cycle = self._current()
        store, number = self._handler.job_store, cycle.start.cycle
        agents = len(cycle.start.nodes)
        self._logs.pump.stop()
        store.give_evidence(self._evidence(cycle))
        if store.finished(number, more=1) >= agents:
            store.announce_over(number)
        while not (cycle.is_over or store.is_over(number, self.group.spec.monitor_interval)):
            if self._fails_elsewhere():
                return False
        if self._fails_elsewhere() or store.finished(number) < agents:
            return False
        if cycle.is_leader:
            write_cycle_info(self._logs.log_dir.path, cycle.start, store.evidence(cycle.start))
            cycle.is_recorded = True
        self.ending = self._handler.end(JobEnding(Exit.OK, "every rank succeeded"))
        return True

    def _recover(self) -> None:
        """From a failed cycle to the next one, or to the end of the job."""
        cycle = self._current()
        if not cycle.failure:
            self._note_failure(f"the workers are {self.group.state.value}")
        if cycle.failure.startswith(HANG):
            cycle.dumps = collect_dumps(cycle.directory, self._running())
            self._let_others_collect(cycle)
        self._trigger(cycle)
        self.stop()
        cycle.evidence = self._evidence(cycle)
        cycle.down.set()
        self._handler.job_store.give_evidence(cycle.evidence)
        cycle.is_recorded = True  # by whoever decides
        if cycle.start.restarts_left <= 0:
            raise JobEndedError(self._handler.end_after(cycle.start, is_leader=cycle.is_leader))
        self.start_again()

    def _let_others_collect(self, cycle: AgentCycle) -> None:
        """Ending a rank takes its peers out of their collective: let them dump first."""
        store, number = self._handler.job_store, cycle.start.cycle
        store.dumped(number, more=1)
        deadline = time.monotonic() + COLLECT_WITHIN
        while store.dumped(number) < len(cycle.start.nodes) and time.monotonic() < deadline:
            time.sleep(self.group.spec.monitor_interval)

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
            everybody = self._everybodys_evidence if cycle.is_leader else None
            self._sources.trigger(lambda: self._own_evidence(cycle), everybody)

    def _own_evidence(self, cycle: AgentCycle) -> FailedCycle:
        """With whole logs where the ranks end soon; ranks that take their time hold nothing up."""
        cycle.down.wait(_SETTLE)
        return FailedCycle(cycle.start, (cycle.evidence or self._evidence(cycle),))

    def _everybodys_evidence(self, start: CycleStart) -> FailedCycle | None:
        """What all agents know about a cycle, once all have reported; None while some have not."""
        store = self._handler.job_store
        with suppress(StoreLostError):
            if store.has_all_evidence(start):
                return FailedCycle(start, store.evidence(start))
        return None

    def _evidence(self, cycle: AgentCycle) -> CycleEvidence:
        ranks = [worker.global_rank for worker in self.group.workers]
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

    def begin_cycle(self, group: WorkerGroup) -> None:
        start = self._handler.start
        assert start is not None, "a round that was joined has an outcome"
        self.set_restarts_so_far(start.cycle - start.first_cycle)
        group_rank = group.group_rank or 0
        if self._cycle is None:
            self._logs.log_dir.claim(start.job_id, start.first_cycle)
        directory = self._logs.prepare(start)
        watch = None
        if self._hang_timeout is not None:
            store = self._handler.job_store
            watch = HangWatch(self._hang_timeout, store, start, group_rank, self._logs)
        self._cycle = AgentCycle(start, group_rank, directory, self._logs, watch)
        if self._cycle.is_leader:
            sign_as_leader(self._logs.log_dir.path, start.job_id)
            write_cycle_info(self._logs.log_dir.path, start, running=True)

    def before_stop(self, *, again: bool) -> None:
        if again:  # a second signal: no more patience
            self._kill_process_groups()
        elif self.processes is not self._swept:
            self._families.remember(self.pids().values())

    def after_stop(self) -> None:
        self.kill_leftovers()
        self._logs.pump.stop()

    def _kill_process_groups(self) -> None:
        if self.processes is not self._swept and self._cycle is not None:
            self._families.kill(self.pids().values(), self._cycle.start.job_id)

    def kill_leftovers(self) -> None:
        """Nothing that the ranks started stays. Once a cycle: pids are reused later."""
        self._kill_process_groups()
        self._swept = self.processes

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
            write_cycle_info(
                self._logs.log_dir.path, cycle.start, (self._evidence(cycle),), ending=ending
            )

    def end_for_everybody(self, ending: JobEnding) -> None:
        self._handler.end(ending)
        if self._cycle is not None:
            self._cycle.is_over = True
            self._handler.job_store.announce_over(self._cycle.start.cycle)


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

    def kill(self, ranks: Iterable[int], job_id: str) -> None:
        """Kill the ranks' process groups and their descendants. The ranks have exited."""
        ended = set(ranks)
        mark = f"AORTA_JOB_ID={job_id}".encode()
        for pid in ended:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(os.getpid()) != pid:
                    os.killpg(pid, signal.SIGKILL)
        deadline = time.monotonic() + _ENOUGH
        killed: set[int] = set()
        while (left := self._left(mark) - ended) and time.monotonic() < deadline:
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
