"""The elastic agent: torch's local agent with its own main loop.

The loop differs from torch's in four ways: cycle number and restart budget come from the store; a failure anywhere is
noticed everywhere through the board; evidence is collected and attribution triggered before anything is restarted; and
the job ends only by what the board says. How processes are started, watched and stopped is torch's business.
"""

import inspect
import logging
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import (
    DEFAULT_ROLE,
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import PContext

from aorta.core.exits import Exit
from aorta.launch.cycle_dir import write_cycle_info
from aorta.launch.evidence import gather
from aorta.launch.hang import COLLECT_WITHIN, HangWatch, SignsOfLife, collect_dumps
from aorta.launch.logs import CycleDir, CycleLogs
from aorta.launch.output import Follower
from aorta.launch.presence import lead
from aorta.launch.records import HANG, Ending, Evidence, RankEnd, Start
from aorta.launch.rendezvous import DecidingRendezvous, JobEndedError
from aorta.launch.sources import FailedCycle
from aorta.launch.sources.panel import Panel
from aorta.launch.worker_processes import kill_process_groups, set_aside_if_broken, statuses

log = logging.getLogger(__name__)

_PATIENCE = 30  # seconds that workers have to end; before 2.13 torch knows no other
_TAKES_PATIENCE = "timeout" in inspect.signature(LocalElasticAgent._shutdown).parameters  # noqa: SLF001 - its subclass asks
_SETTLE = 1.0  # how long a trigger waits for the other ranks to end, so that it sees whole logs
_LAST_WORDS = 1.0  # how long a leaving agent waits for its trigger to arrive
_LOST_FOR = 2.0  # a node between two rounds is away for a moment; a lost one stays away


@dataclass
class _Cycle:
    """What this agent knows about the cycle it is in."""

    start: Start
    group_rank: int
    directory: CycleDir
    signs: SignsOfLife
    hang_watch: HangWatch | None
    failure: str = ""  # what went wrong first, as far as this agent knows
    died_first: frozenset[int] = frozenset()  # ranks that failed before this agent stopped any
    hung_rank: int | None = None
    triggered: bool = False
    dumps: tuple[str, ...] = ()
    evidence: Evidence | None = None  # once all ranks here are down
    down: threading.Event = field(default_factory=threading.Event)
    follower: Follower | None = None
    lost_since: float | None = None

    @property
    def is_leader(self) -> bool:
        return self.group_rank == 0

    def misses_a_node(self, lost: int) -> bool:
        """Whether nodes have been away for so long that they will not come back by themselves."""
        if not lost:
            self.lost_since = None
            return False
        self.lost_since = self.lost_since or time.monotonic()
        return time.monotonic() - self.lost_since >= _LOST_FOR


class DecidingAgent(LocalElasticAgent):
    def __init__(
        self,
        spec: WorkerSpec,
        logs: CycleLogs,
        rendezvous: DecidingRendezvous,
        panel: Panel,
        hang_timeout: float | None,
        **torch_options: Any,
    ) -> None:
        super().__init__(spec=spec, logs_specs=logs, **torch_options)
        self._logs = logs
        self._handler = rendezvous
        self._panel = panel
        self._log_dir = Path(logs.root_log_dir)
        self._hang_timeout = hang_timeout
        self.ending: Ending | None = None
        self._cycle: _Cycle | None = None
        self._telling: threading.Thread | None = None
        self._shutting_down = False
        self._swept: PContext | None = None

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Torch's `run` knows that the job ended, but not how."""
        try:
            return self._go_through_cycles()
        except JobEndedError as ended:
            self.ending = ended.ending
            raise

    def _go_through_cycles(self) -> RunResult:
        group = self._worker_group
        self._initialize_workers(group)
        while True:
            time.sleep(group.spec.monitor_interval)
            result = self._monitor_workers(group)
            group.state = result.state
            if result.state is WorkerState.SUCCEEDED and self._every_agent_succeeded():
                return result
            if result.state is not WorkerState.HEALTHY or self._fails_elsewhere():
                self._recover(group)
            elif self._handler.num_nodes_waiting() > 0:
                log.info("new nodes are waiting; the workers restart with them")
                self._restart_workers(group)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Before torch looks: if a rank has died, tell the others and attribution, and stop its siblings."""
        dead = [end for end in self._ends() if end.failed]
        if dead:
            self._note_failure(", ".join(end.words for end in dead), dead)
            self._stop_workers(worker_group)
            for end in self._ends():
                set_aside_if_broken(self._current().directory.error_file(end.rank))
        result: RunResult = super()._monitor_workers(worker_group)
        return result

    def _fails_elsewhere(self) -> bool:
        """Whether this cycle is over although the ranks here are well: a hang, a peer's failure, a lost node."""
        cycle = self._current()
        board = self._handler.board
        ending = board.ending()
        if ending is not None and ending.exit_code != Exit.OK:
            raise JobEndedError(ending)
        hang = cycle.hang_watch.found(self._running_ranks()) if cycle.hang_watch else None
        if hang is not None:
            cycle.hung_rank = hang.rank
            self._note_failure(hang.words)
        elif cycle.misses_a_node(self._handler.lost_nodes()):
            self._note_failure("a node was lost")
        said = board.failure_of(cycle.start.cycle)
        if said is not None and not cycle.failure:
            cycle.failure = said
            log.info("cycle %s failed elsewhere: %s", cycle.start.cycle_id, said)
        return said is not None

    def _every_agent_succeeded(self) -> bool:
        """Wait for the other agents; a failure there means that this cycle failed here too."""
        cycle = self._current()
        board = self._handler.board
        self._show_the_rest()
        board.give_evidence(self._evidence(cycle))
        board.finish(cycle.start.cycle)
        while board.finished(cycle.start.cycle) < len(cycle.start.nodes):
            if self._fails_elsewhere():
                return False
            time.sleep(self._worker_group.spec.monitor_interval)
        if cycle.is_leader:
            write_cycle_info(self._log_dir, cycle.start, board.evidence(cycle.start))
        self.ending = self._handler.succeed(cycle.start)
        return True

    def _recover(self, group: WorkerGroup) -> None:
        """From a failed cycle to the next one, or to the end of the job."""
        cycle = self._current()
        if not cycle.failure:
            self._note_failure(f"the workers are {group.state.value}")
        if cycle.failure.startswith(HANG):
            cycle.dumps = collect_dumps(cycle.directory, self._live_pids())
            self._let_others_collect(cycle)
        self._trigger(cycle)
        self._stop_workers(group)
        cycle.evidence = self._evidence(cycle)
        cycle.down.set()
        self._handler.board.give_evidence(cycle.evidence)
        if cycle.start.restarts_left <= 0:
            raise JobEndedError(self._handler.end_after(cycle.start, is_leader=cycle.is_leader))
        self._restart_workers(group)

    def _let_others_collect(self, cycle: _Cycle) -> None:
        """A rank that is ended takes its peers out of their collective: not before they have been asked, too."""
        board, number = self._handler.board, cycle.start.cycle
        board.say_dumped(number)
        deadline = time.monotonic() + COLLECT_WITHIN
        while board.dumped(number) < len(cycle.start.nodes) and time.monotonic() < deadline:
            time.sleep(self._worker_group.spec.monitor_interval)

    def _note_failure(self, what: str, dead: list[RankEnd] | None = None) -> None:
        """The first moment this agent knows: everything that can run beside the rest starts here."""
        cycle = self._current()
        if cycle.failure:
            return
        cycle.failure = what
        cycle.died_first = frozenset(end.rank for end in dead or ())
        self._handler.board.announce_failure(cycle.start.cycle, what)
        log.warning("cycle %s failed: %s", cycle.start.cycle_id, what)
        if dead:
            self._trigger(cycle)

    def _trigger(self, cycle: _Cycle) -> None:
        """Attribution hears of a cycle once from every agent, and nobody waits for it."""
        if not cycle.triggered:
            cycle.triggered = True
            self._telling = threading.Thread(target=self._tell_panel, args=(cycle,), daemon=True)
            self._telling.start()

    def _tell_panel(self, cycle: _Cycle) -> None:
        """With whole logs where the ranks end soon; ranks that take their time hold nothing up."""
        cycle.down.wait(_SETTLE)
        evidence = cycle.evidence or self._evidence(cycle)
        self._panel.trigger(FailedCycle(cycle.start, (evidence,)))

    def _evidence(self, cycle: _Cycle) -> Evidence:
        return gather(
            cycle.start,
            cycle.directory,
            agent=f"{cycle.start.nodes[cycle.group_rank]}:{os.getpid()}",
            group_rank=cycle.group_rank,
            ranks=[worker.global_rank for worker in self._worker_group.workers],
            ends=self._ends(),
            hung_rank=cycle.hung_rank,
            dumps=cycle.dumps,
            step=cycle.signs.step(),
            note=cycle.failure,
        )

    def _ends(self) -> list[RankEnd]:
        """How the ranks of this agent have ended so far."""
        if self._pcontext is None or self._cycle is None:
            return []
        cycle = self._cycle
        ranks = {worker.local_rank: worker.global_rank for worker in self._worker_group.workers}
        ends = []
        for local, status in statuses(self._pcontext).items():
            if status is not None and local in ranks:
                rank = ranks[local]
                error_file = cycle.directory.error_file(rank)
                known = str(error_file) if error_file.exists() else None
                stopped = bool(cycle.failure) and status != 0 and rank not in cycle.died_first
                ends.append(RankEnd.of(rank, status, known, stopped=stopped))
        return ends

    def _running_ranks(self) -> list[int]:
        return list(self._live_pids())

    def _live_pids(self) -> dict[int, int]:
        """The process of every rank here that still runs."""
        if self._pcontext is None:
            return {}
        running = {local for local, end in statuses(self._pcontext).items() if end is None}
        ranks = {worker.local_rank: worker.global_rank for worker in self._worker_group.workers}
        pids = self._pcontext.pids().items()
        return {ranks[local]: pid for local, pid in pids if local in running and local in ranks}

    def _current(self) -> _Cycle:
        assert self._cycle is not None, "no cycle before the first rendezvous"
        return self._cycle

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Torch's, until a leader lives long enough to hand out the ranks; then this cycle begins."""
        while True:
            try:
                super()._rendezvous(worker_group)
                break
            except DistError:
                self._handler.board.ending()  # raises where not the leader but the store was lost
                log.warning("the leader was lost before it assigned ranks; joining again")
        assert self._handler.start is not None
        self._begin(self._handler.start, worker_group)

    def _begin(self, start: Start, group: WorkerGroup) -> None:
        # Torch derives TORCHELASTIC_RESTART_COUNT from this; it must be the same on every agent.
        self._remaining_restarts = group.spec.max_restarts - (start.cycle - start.first_cycle)
        group_rank = group.group_rank or 0
        directory = self._logs.prepare(start)
        signs = SignsOfLife(directory, [worker.global_rank for worker in group.workers])
        watch = None
        if self._hang_timeout is not None:
            watch = HangWatch(self._hang_timeout, self._handler.board, start, group_rank, signs)
        self._cycle = _Cycle(start, group_rank, directory, signs, watch)
        if self._cycle.is_leader:
            lead(self._log_dir)
            write_cycle_info(self._log_dir, start, running=True)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        ids: dict[int, Any] = super()._start_workers(worker_group)
        self._current().follower = self._logs.follow()
        return ids

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown(timeout=getattr(self, "_shutdown_timeout", _PATIENCE))

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = _PATIENCE
    ) -> None:
        if self._shutting_down and self._pcontext is not None:  # a second signal: no more patience
            kill_process_groups(self._pcontext)
        self._shutting_down = True
        super()._shutdown(death_sig, **({"timeout": timeout} if _TAKES_PATIENCE else {}))
        self._shutting_down = False
        self.kill_leftovers()
        self._show_the_rest()

    def _show_the_rest(self) -> None:
        if self._cycle is not None and self._cycle.follower is not None:
            self._cycle.follower.stop()
            self._cycle.follower = None

    def finish_telling(self) -> None:
        """A service that keeps the history of a job should hear of its last cycle too."""
        if self._telling is not None:
            self._telling.join(_LAST_WORDS)
            self._panel.finish_telling(_LAST_WORDS)

    def say_goodbye(self, why: signal.Signals) -> None:
        """Leave so that the others need not wait until this agent is missed."""
        if self._cycle is not None and not self._cycle.failure:
            node = self._cycle.start.nodes[self._cycle.group_rank]
            what = f"the agent on {node} was stopped by {why.name}"
            self._handler.board.announce_failure(self._cycle.start.cycle, what)
        self._handler.withdraw()

    def kill_leftovers(self) -> None:
        """Nothing that the ranks started stays. Once per cycle: later their process ids may be somebody else's."""
        if self._pcontext is not None and self._pcontext is not self._swept:
            kill_process_groups(self._pcontext)
            self._swept = self._pcontext
