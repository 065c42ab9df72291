"""The deciding rendezvous: agents meet on a store of their own, and the first of them decides.

The agent that sees that enough have joined a round closes it by writing its members, once. Rank 0
is the leader and writes the outcome, which everybody else reads. If it dies before, the others join
the next round, whose leader finds the same facts. An outcome that ends the job raises
`JobEndedError` on every agent alike. Torch's own c10d and static handlers are not used.
"""

import logging
import os
import threading
import time
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from torch.distributed.elastic.rendezvous import (
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from aorta.core.errors import Exit, InfrastructureError
from aorta.launch.decision import LeaderDecides
from aorta.launch.records import CycleStart, JobEnding, Node
from aorta.launch.store import JobStore, Meeting, StoreLostError, WorkerStore

log = logging.getLogger(__name__)

_LEADER_GRACE = 5.0  # beyond the decision timeout, before followers give a leader up
_EVIDENCE_WITHIN = 3.0  # of the other agents, after the last cycle; within that grace
_FIRST_LOOK, _LONGEST_LOOK = 0.5, 5.0  # at who is there, while the leader decides
_CLOSER_LOOKS, _OTHERS_LOOK = 0.1, 1.0  # seconds between two looks at who has joined
_LOOKS_PER_SECOND = 160.0  # by all who wait to join
_LINGER = 5.0  # at most; usually every agent has read the ending within milliseconds
_LOOK_AFTER = 1.0  # seconds between two looks of the leader at who is there


class JobEndedError(RendezvousGracefulExitError):
    """The one way out: the store says that the job has ended."""

    def __init__(self, ending: JobEnding) -> None:
        super().__init__(ending.reason)
        self.ending = ending


@dataclass
class _Round:
    """What one agent has seen of the round it waits for."""

    number: int
    before: tuple[Node, ...]  # members of the round before
    open_since: float | None = None  # since the round before is over
    enough_since: float | None = None
    said: bool = False


class DecidingRendezvous(RendezvousHandler):
    def __init__(
        self,
        meeting: Meeting,
        job_store: JobStore,
        worker_store: WorkerStore,
        decider: LeaderDecides,
        decision_timeout: float,
    ) -> None:
        self.job_store = job_store
        self.start: CycleStart | None = None
        self._meeting = meeting
        self.decider = decider
        self._decision_timeout = decision_timeout
        identity = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.node = Node(
            identity, meeting.address, os.getpid(), meeting.rank, meeting.workers, meeting.role
        )
        self._beats = Heartbeats(job_store, self.node, meeting.keep_alive, meeting.most_missed)
        self._round = -1
        self.members: tuple[Node, ...] = ()  # of the round, by rank
        self._lost: tuple[str, ...] = ()  # of the round before
        self._worker_store = worker_store

    # -- what torch asks

    def get_backend(self) -> str:
        return "static" if self._meeting.rank is not None else "c10d"

    @property
    def use_agent_store(self) -> bool:
        """Workers meet at a store that the leading agent hosts, a new one for every cycle."""
        return True

    def get_run_id(self) -> str:
        return self._meeting.run_id

    def is_closed(self) -> bool:
        return self.job_store.ending() is not None

    def set_closed(self) -> None:
        """A job ends by its ending in the store, and by nothing else."""

    def shutdown(self) -> bool:
        return True

    def num_nodes_waiting(self) -> int:
        if len(self.members) >= self._meeting.most:
            return 0
        joined = self.job_store.joined(self._round + 1)
        return len(joined) - len(self._beats.silent(joined))

    def next_rendezvous(self) -> RendezvousInfo:
        if self._round < 0:
            self._beats.begin()
        while True:
            self._join()
            rank = self.members.index(self.node)
            outcome = self._lead() if rank == 0 else self._follow()
            if isinstance(outcome, JobEnding):
                raise JobEndedError(outcome)
            if outcome is not None:
                self.start = outcome
                store, place = self.job_store.torch_store, RendezvousStoreInfo(*outcome.master)
                return RendezvousInfo(store, rank, len(self.members), place)
            log.warning("the leader of the round was lost before it decided; joining again")

    # -- what the agent asks

    def end_after(self, start: CycleStart, *, is_leader: bool) -> JobEnding:
        """The ending of a job whose last cycle failed: no further round is joined."""
        if is_leader:
            deadline = time.monotonic() + _EVIDENCE_WITHIN
            while not (lost := self._beats.silent(self.members)):
                if self.job_store.has_all_evidence(start) or time.monotonic() >= deadline:
                    break
                time.sleep(_CLOSER_LOOKS)
            return self.end(self.decider.final(self.job_store, start, self._lost_of(lost)))
        self.job_store.expect_ending(self._decision_timeout + _LEADER_GRACE)
        ending = self.job_store.ending()
        if ending is not None:
            return ending
        failure = self.job_store.failure_of(start.cycle) or "a rank failed"
        reason = f"the job failed ({failure}); its leader is gone"
        return self.end(JobEnding(Exit.FAILED, reason))

    def end(self, ending: JobEnding) -> JobEnding:
        """End the job for everybody, also for those who wait to join; returns what stands."""
        stands = self.job_store.end(ending)
        self.job_store.close_round(self._next_round(), ())
        return stands

    @property
    def seconds_between_looks(self) -> float:
        """At who is there: the leader looks after all, the others after the leader alone."""
        keep_alive = self._meeting.keep_alive
        return min(_LOOK_AFTER, keep_alive) if self.members[0] == self.node else keep_alive

    def lost_nodes(self) -> tuple[str, ...]:
        """Addresses of nodes of the running cycle that are silent, as far as this agent looks."""
        watched = self.members if self.members[0] == self.node else self.members[:1]
        return tuple(node.address for node in self._beats.silent(watched))

    def withdraw(self) -> None:
        """Leave, so that the others need not wait until this agent is missed."""
        self._beats.leave()

    def linger(self) -> None:
        """Stay until every agent has read how the job ended: this one may host the store."""
        deadline = time.monotonic() + _LINGER
        while time.monotonic() < deadline and self.job_store.left() < len(self.members):
            time.sleep(0.05)

    # -- joining

    def _join(self) -> None:
        """Become a member of the next round that takes this node."""
        number = self._next_round()
        while True:
            waiting = self.job_store.join(number, self.node)
            is_known = number == self._round + 1
            before = self.members if is_known else self.job_store.members(number - 1) or ()
            looks_now = waiting == 1 or waiting >= self._meeting.most
            members = self._wait_for_members(_Round(number, before), looks_now=looks_now)
            if self.node in members:
                self._round, self.members = number, members
                self._lost = self._lost_of([node for node in before if node not in members])
                return
            ending = self.job_store.ending()
            if ending is not None:
                late = replace(ending, reason=f"the job has already ended: {ending.reason}")
                raise JobEndedError(ending if self.start else late)
            number += 1

    def _wait_for_members(self, coming: _Round, *, looks_now: bool) -> tuple[Node, ...]:
        """The members of a closed round. Who came first, or makes it full, looks often."""
        seldom = min(max(self._meeting.most / _LOOKS_PER_SECOND, _OTHERS_LOOK), _LONGEST_LOOK)
        pause = 0.0 if looks_now else seldom
        while not self.job_store.expect_members(coming.number, pause):
            stands = self.job_store.members(coming.number)
            if stands is not None or self.job_store.ending() is not None:
                return stands or ()
            joined = self.job_store.joined(coming.number)
            silent = self._beats.silent(list(dict.fromkeys([*joined, *coming.before])))
            here = [node for node in joined if node not in silent]
            chosen = self._chosen(coming, here, silent)
            if chosen:
                return self.job_store.close_round(coming.number, chosen)
            closes = here[0] == self.node and coming.open_since is not None
            pause = _CLOSER_LOOKS if closes else seldom
        return self.job_store.members(coming.number) or ()

    def _chosen(
        self, coming: _Round, here: Sequence[Node], silent: frozenset[Node]
    ) -> tuple[Node, ...]:
        """The members by rank, if the round can be closed now by this agent."""
        now = time.monotonic()
        absent = [node for node in coming.before if node not in here and node not in silent]
        if absent and not any(node in coming.before for node in here):
            coming.open_since = coming.enough_since = None
            return ()  # a cycle runs: who waits here is seen by its leader
        coming.open_since = coming.open_since or now
        if absent and now - coming.open_since <= self._meeting.join_timeout:
            return ()  # they stop their workers
        meeting = self._meeting
        if len(here) < meeting.least:
            coming.enough_since = None
            self._check_patience(coming, here, silent, now - coming.open_since)
            return ()
        coming.enough_since = coming.enough_since or now
        is_last_call_over = now - coming.enough_since >= meeting.last_call
        if len(here) < meeting.most and not (is_last_call_over and here[0] == self.node):
            return ()
        members = sorted(here, key=lambda node: node not in coming.before)[: meeting.most]
        return tuple(sorted(members, key=Node.order))

    def _check_patience(
        self, coming: _Round, here: Sequence[Node], silent: frozenset[Node], waited: float
    ) -> None:
        meeting = self._meeting
        is_over = waited > meeting.join_timeout  # who has not come by then is lost to this job
        missing = (node for node in coming.before if node in silent or is_over)
        gone = self._lost_of([node for node in missing if node not in here])
        lost = ", ".join(gone)
        if coming.before and not coming.said and waited > _OTHERS_LOOK:
            coming.said = True
            words = "%d of %d nodes are here%s; waiting up to %g s for more"
            why = f" ({lost} was lost)" if lost else ""
            log.warning(words, len(here), meeting.least, why, meeting.join_timeout)
        if not is_over:
            return
        short = f"fewer than {meeting.least} nodes met within the join timeout "
        short += f"({meeting.join_timeout:g} s)"
        if self.start is None:
            self.withdraw()
            raise InfrastructureError(f"{short}; start more agents, or lower --nnodes")
        reason = f"{short} after cycle {self.start.cycle_id} failed"
        reason += f": {lost} was lost and no other node took its place" if lost else ""
        ending = JobEnding(Exit.INFRASTRUCTURE, reason)
        raise JobEndedError(self.end(self.decider.final(self.job_store, self.start, gone, ending)))

    def _lost_of(self, absent: Collection[Node]) -> tuple[str, ...]:
        """Addresses of these, without agents that said why they leave."""
        beats = self.job_store.beats([node.id for node in absent]) if absent else []
        lost = (node.address for node, beat in zip(absent, beats, strict=True) if beat)
        return tuple(sorted(set(lost)))

    def _next_round(self) -> int:
        return max(self._round, self.job_store.newest_round()) + 1

    # -- deciding

    def _lead(self) -> CycleStart | JobEnding:
        addresses = tuple(node.address for node in self.members)
        ending = self.job_store.ending()
        decided = ending or self.decider.outcome(self.job_store, self._round, addresses, self._lost)
        if isinstance(decided, JobEnding):
            return self.job_store.decide_round(self._round, self.end(decided))
        start = replace(decided, master=self._worker_store.renew())
        return self.job_store.decide_round(self._round, start)

    def _follow(self) -> CycleStart | JobEnding | None:
        deadline = time.monotonic() + self._decision_timeout + _LEADER_GRACE
        pause = _FIRST_LOOK
        while not self.job_store.expect_outcome(self._round, pause):
            if time.monotonic() >= deadline or self._beats.silent(self.members[:1]):
                break
            pause = min(pause * 2, _LONGEST_LOOK)
        return self.job_store.outcome(self._round)


@dataclass
class Heartbeats:
    """This agent's own, and what was seen of the others'."""

    store: JobStore
    node: Node
    interval: float  # seconds between two beats
    most_missed: int  # beats of a node that may fail to come
    # Node -> its last beat, and the seconds for which that has not changed.
    _heard: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    _last_look: float = 0.0
    _stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """The first beat is in the store when this returns."""
        self.store.beat(self.node.id, "0")
        threading.Thread(target=self._beat, name="aorta-beat", daemon=True).start()

    def _beat(self) -> None:
        count = 0
        while not self._stopped.wait(self.interval):
            count += 1
            with suppress(StoreLostError):  # who needs the store finds out
                if not self._stopped.is_set():
                    self.store.beat(self.node.id, str(count))

    def leave(self) -> None:
        """Nobody needs to wait until this agent is missed."""
        self._stopped.set()
        self.store.beat(self.node.id, "")

    def silent(self, nodes: Sequence[Node]) -> frozenset[Node]:
        """Nodes that left or missed too many beats. A frozen probe counts two intervals at most."""
        if not nodes:
            return frozenset()
        now = time.monotonic()
        passed = min(now - self._last_look, 2 * self.interval) if self._last_look else 0.0
        self._last_look = now
        beats = self.store.beats([node.id for node in nodes])
        heard = zip(nodes, beats, strict=True)
        return frozenset(node for node, beat in heard if self._missed(node, beat, passed))

    def _missed(self, node: Node, beat: bytes, passed: float) -> bool:
        before, silent_for = self._heard.get(node.id, (b"", 0.0))
        silent_for = silent_for + passed if beat == before else 0.0
        self._heard[node.id] = (beat, silent_for)
        is_other = node.id != self.node.id
        return is_other and (not beat or silent_for >= self.interval * self.most_missed)
