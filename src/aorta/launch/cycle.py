"""What one agent knows about the cycle it is in, and the hangs of its ranks: noticing that nothing
moves any more, and collecting what every rank is doing before it is killed.

Signs of life are output and heartbeats. Without heartbeats only a job that is silent everywhere
hangs: ranks that never print are normal. A rank that beats is judged by its heartbeat alone.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aorta.launch.cycle_dir import CycleDir, is_there
from aorta.launch.output import CycleLogs
from aorta.launch.records import HANG, CycleEvidence, CycleStart, WorkerEnd
from aorta.launch.store import JobStore

STACKS_SIGNAL, DUMP_SIGNAL = signal.SIGRTMAX - 3, signal.SIGRTMAX - 4  # the hook listens on them
COLLECT_WITHIN = 20.0  # seconds; ranks that can answer do so within one
_QUIET_FILE = 0.2  # a stack file that has not grown for so long is complete
_LEADER_LOOKS = 1.0  # seconds between two looks at who is there, by the leader and its deputy
_MOST_TAILS = 8
_DEPUTY = 1  # the group rank that looks as often as the leader


@dataclass
class HangWatch:
    """Says when the job hangs: silence everywhere, or one missed heartbeat. No file system is
    asked: output comes through pipes, and heartbeats are written into memory of this process.
    """

    limit: float
    store: JobStore
    start: CycleStart
    group_rank: int
    logs: CycleLogs
    _last_sign: float = field(default_factory=time.monotonic)
    _seen: dict[int, int] = field(default_factory=dict)  # rank -> its last heartbeat
    _last_beat: dict[int, float] = field(default_factory=dict)  # rank -> when that was seen
    _reported: float = 0.0
    _next_look: float = 0.0

    def found(self, running: Collection[int]) -> tuple[str, int | None] | None:
        """What hangs, in words, and the rank that is known to; None while these ranks do not."""
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + min(1.0, self.limit / 10)
        self._look(running, now)
        if self._last_beat:
            rank = min(self._last_beat, key=lambda each: self._last_beat[each])
            age = now - self._last_beat[rank]
            words = f"{HANG}: rank {rank} gave no heartbeat for {age:.0f} s"
            return (words, rank) if age >= self.limit else None
        silence = now - self._last_sign
        if self.group_rank != 0:
            self._report(silence)
        elif silence >= self.limit and self._others_are_silent():
            return f"{HANG}: no output and no progress for {silence:.0f} s", None
        return None

    def _look(self, running: Collection[int], now: float) -> None:
        """Notice what has changed. Ranks that have ended need not beat any more."""
        for rank, beaten in self.logs.beats().items():
            if beaten and beaten != self._seen.get(rank):
                self._last_beat[rank] = self._last_sign = now
            self._seen[rank] = beaten
            if rank not in running:
                self._last_beat.pop(rank, None)
        self._last_sign = max(self._last_sign, self.logs.pump.last_output)

    def _report(self, silence: float) -> None:
        """Keep the leader informed, but only of what could matter."""
        said = silence if silence >= self.limit / 2 else 0.0
        if said or self._reported:
            self.store.report_quiet(self.start.cycle, self.group_rank, said)
            self._reported = said

    def _others_are_silent(self) -> bool:
        others = range(1, len(self.start.nodes))
        return all(
            self.store.quiet(self.start.cycle, group) >= self.limit * 0.8 for group in others
        )


@dataclass
class AgentCycle:
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

    @property
    def looks_after_all(self) -> bool:
        """Only the leader and its deputy look who is there: a thousand would busy the store."""
        return self.group_rank <= _DEPUTY

    def is_time_to_look(self, keep_alive: float) -> bool:
        self.looked = time.monotonic() >= self.next_look
        if self.looked:
            pause = min(_LEADER_LOOKS, keep_alive) if self.looks_after_all else keep_alive
            self.next_look = time.monotonic() + pause
        return self.looked

    def ends(self, codes: Mapping[int, int | None]) -> list[WorkerEnd]:
        """How ranks exited, by return code; those failing after a known failure were stopped."""
        ends = []
        for rank, status in codes.items():
            if status is not None:
                error_file = self.directory.error_file(rank)
                known = str(error_file) if is_there(error_file) else None
                stopped = bool(self.failure) and status != 0 and rank not in self.died_first
                moment = self.ended_at.setdefault(rank, time.time())
                if stopped:  # how long it took to end says nothing of how far it came by itself
                    moment = min(moment, self.failed_at)
                code, number = (None, -status) if status < 0 else (status, None)
                ends.append(WorkerEnd(rank, code, number, known, stopped, moment))
        return ends

    def evidence_of(self, ranks: Sequence[int], ends: Sequence[WorkerEnd]) -> CycleEvidence:
        """What this agent can say about the cycle. Failed ranks come first in the logs: whoever
        reads little reads them. Of ranks whose files are not complete what was heard counts, not
        what could be written.
        """
        failed = [end.rank for end in ends if end.failed]
        incomplete = self.logs.pump.incomplete
        in_order = [rank for rank in dict.fromkeys((*failed, *ranks)) if rank not in incomplete]
        files = self.directory
        logs = [path for rank in in_order for path in (files.err(rank), files.out(rank))]
        return CycleEvidence(
            job_id=self.start.job_id,
            cycle_id=self.start.cycle_id,
            cycle=self.start.cycle,
            agent=f"{self.node}:{os.getpid()}",
            node=self.node,
            group_rank=self.group_rank,
            ranks=tuple(ranks),
            ends=tuple(ends),
            log_paths=tuple(str(path) for path in logs if is_there(path)),
            tails={
                rank: self.logs.pump.tail_of(rank) for rank in (*failed[:_MOST_TAILS], *incomplete)
            },
            hung_rank=self.hung_rank,
            dumps=self.dumps,
            step=self.logs.furthest_step(),
            note=self.failure,
        )


def collect_dumps(directory: CycleDir, pids: Mapping[int, int]) -> tuple[str, ...]:
    """Ask every live rank for its stacks and its Flight Recorder, and wait a little for both. The
    files of those that could write them; a full disk costs files and no more.
    """
    hooked = {rank: pid for rank, pid in pids.items() if is_there(directory.stacks(rank))}
    with suppress(OSError):
        directory.flight_recorder(0).parent.mkdir(exist_ok=True)
    for pid in hooked.values():
        for number in (DUMP_SIGNAL, STACKS_SIGNAL):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    deadline = time.monotonic() + COLLECT_WITHIN
    while time.monotonic() < deadline:
        time.sleep(_QUIET_FILE)
        if all(
            _is_complete(directory.stacks(rank)) and is_there(directory.flight_recorder(rank))
            for rank in hooked
        ):
            break
    files = [(directory.stacks(rank), directory.flight_recorder(rank)) for rank in hooked]
    return tuple(str(file) for pair in files for file in pair if _is_filled(file))


def _is_complete(stacks: Path) -> bool:
    with suppress(OSError):
        quiet = time.time() - stacks.stat().st_mtime
        return _is_filled(stacks) and quiet >= _QUIET_FILE / 2
    return False


def _is_filled(file: Path) -> bool:
    with suppress(OSError):
        return file.stat().st_size > 0
    return False
