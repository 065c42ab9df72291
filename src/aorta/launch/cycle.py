"""What one agent knows about the cycle it is in. The agent acts; this remembers, and knows when it
is time to look.
"""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from aorta.launch.cycle_dir import CycleDir
from aorta.launch.hang import HangWatch, SignsOfLife
from aorta.launch.output import OutputPump
from aorta.launch.records import CycleEvidence, CycleStart, WorkerEnd

_LOST_FOR = 2.0  # a node between two rounds is away for a moment; a lost one stays away
_LEADER_LOOKS = 1.0  # seconds between two looks at who is there, by the leader and its deputy
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
    pump: OutputPump | None = None
    is_recorded: bool = False  # its end stands in cycle_info.json
    lost_since: float | None = None
    next_look: float = 0.0
    next_question: float = 0.0

    @property
    def is_leader(self) -> bool:
        return self.group_rank == 0

    @property
    def node(self) -> str:
        return self.start.nodes[self.group_rank]

    def misses_a_node(self, lost: int) -> bool:
        """Whether nodes have been away for so long that they will not come back by themselves."""
        if not lost:
            self.lost_since = None
            return False
        self.lost_since = self.lost_since or time.monotonic()
        return time.monotonic() - self.lost_since >= _LOST_FOR

    def is_time_to_look(self, keep_alive: float) -> bool:
        """Who leads and its deputy look often who is there; a thousand nodes that do so would busy
        the store.
        """
        if time.monotonic() < self.next_look:
            return False
        pause = min(_LEADER_LOOKS, keep_alive) if self.group_rank <= _DEPUTY else keep_alive
        if self.lost_since is not None:
            pause = min(pause, _LOST_FOR / 2)
        self.next_look = time.monotonic() + pause
        return True

    def is_time_to_ask(self, keep_alive: float) -> bool:
        """Whether the store is asked if this cycle is over; it tells by itself, but its word may
        have been lost.
        """
        if time.monotonic() < self.next_question:
            return False
        self.next_question = time.monotonic() + keep_alive
        return True

    def ends(self, codes: Mapping[int, int | None]) -> list[WorkerEnd]:
        """How ranks have ended, of their return codes; those that failed after a failure was known
        were stopped.
        """
        ends = []
        for rank, status in codes.items():
            if status is not None:
                error_file = self.directory.error_file(rank)
                known = str(error_file) if error_file.exists() else None
                stopped = bool(self.failure) and status != 0 and rank not in self.died_first
                moment = self.ended_at.setdefault(rank, time.time())
                if stopped:  # how long it took to end says nothing of how far it came by itself
                    moment = min(moment, self.failed_at)
                ends.append(WorkerEnd.of(rank, status, known, stopped=stopped, time=moment))
        return ends
