"""What one agent knows about the cycle it is in. The agent acts; this remembers, and knows when it
is time to look.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aorta.launch.cycle_dir import CycleDir, is_there, tail_of
from aorta.launch.hang import HangWatch, SignsOfLife
from aorta.launch.records import CycleEvidence, CycleStart, WorkerEnd

_LEADER_LOOKS = 1.0  # seconds between two looks at who is there, by the leader and its deputy
_MOST_TAILS = 8
_DEPUTY = 1  # the group rank that looks as often as the leader


@dataclass
class AgentCycle:
    start: CycleStart
    group_rank: int
    directory: CycleDir
    signs: SignsOfLife
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
    lost: tuple[str, ...] = ()  # nodes that this agent missed
    is_recorded: bool = False  # its end stands in cycle_info.json
    looked: bool = False  # just now, after the other nodes
    next_look: float = 0.0
    next_question: float = 0.0

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

    def is_time_to_ask(self, keep_alive: float) -> bool:
        """Whether to ask the store if this cycle is over: its own notice may have been lost."""
        if time.monotonic() < self.next_question:
            return False
        self.next_question = time.monotonic() + keep_alive
        return True

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
                ends.append(WorkerEnd.of(rank, status, known, stopped=stopped, time=moment))
        return ends

    def evidence_of(
        self,
        agent: str,
        ranks: Sequence[int],
        ends: Sequence[WorkerEnd],
        tails: Mapping[int, str],
    ) -> CycleEvidence:
        """What this agent can say about the cycle. Failed ranks come first in the logs: whoever
        reads little reads them.

        `tails` are of ranks whose files are not complete: what was heard counts, not what
        could be written.
        """
        failed = [end.rank for end in ends if end.failed]
        whole = [rank for rank in ranks if rank not in tails]
        in_order = [rank for rank in failed if rank in whole]
        in_order += [rank for rank in whole if rank not in failed]
        files = self.directory
        logs = [path for rank in in_order for path in (files.err(rank), files.out(rank))]
        return CycleEvidence(
            job_id=self.start.job_id,
            cycle_id=self.start.cycle_id,
            cycle=self.start.cycle,
            agent=agent,
            node=self.node,
            group_rank=self.group_rank,
            ranks=tuple(ranks),
            ends=tuple(ends),
            log_paths=tuple(str(path) for path in logs if is_there(path)),
            tails={
                rank: tails.get(rank) or tail_of(files, rank)
                for rank in [*failed[:_MOST_TAILS], *tails]
            },
            hung_rank=self.hung_rank,
            dumps=self.dumps,
            step=self.signs.step(),
            note=self.failure,
            lost=self.lost,
        )
