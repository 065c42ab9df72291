"""What many agents cost one store: requests at rest, and from a failure to a decision that
everybody knows.

The agents are real but for their workers: each is a `DecidingAgent` with the real decider and its
own connections to one store on this machine. Each has a process of its own, up to 16 for each core;
beyond that agents share one. Joining a round is told apart from what is decided and read.

    AORTA_SCALE_AGENTS=16,64,256 AORTA_SCALE_PROCESSES=256 TORCH_CPP_LOG_LEVEL=ERROR python -m
    benchmarks launch_scale

No name server is asked: torch's store looks up the name of everybody who connects, and answers
nobody meanwhile.
"""

import logging
import multiprocessing
import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.rendezvous import RendezvousParameters

from aorta.launch.agent import DecidingAgent
from aorta.launch.config import FaultTolerance
from aorta.launch.decision import AttributionSources, LeaderDecides
from aorta.launch.output import CycleLogs, Shown
from aorta.launch.records import Action, CycleStart, JobEnding, LogDir, SourceVerdict
from aorta.launch.rendezvous import DecidingRendezvous
from aorta.launch.store import JobStore, KeyWatch, Meeting, StoreCalls, connect

SIZES = tuple(int(size) for size in os.environ.get("AORTA_SCALE_AGENTS", "16,64,256").split(","))
PROCESSES = int(os.environ.get("AORTA_SCALE_PROCESSES", 16 * (os.cpu_count() or 1)))
AT_REST = 10.0  # seconds that are counted
TICK = 0.5  # seconds between two looks of an agent at its workers
PATIENCE = float(os.environ.get("AORTA_SCALE_PATIENCE", "240"))  # seconds for each meeting
FAILURES = 2  # the second one is measured: what the first one left is then cleaned up as well
_MEASURED = FAILURES - 1  # the cycle that fails
_FORK = multiprocessing.get_context("fork")
_COUNTING = threading.Lock()


class Seen:
    """What happened to each agent, in memory that all processes share. Moments are of the one
    monotonic clock.
    """

    def __init__(self, agents: int) -> None:
        def column() -> Any:
            return _FORK.RawArray("d", agents)

        self.ours = column()  # requests
        self.began = [column() for _ in range(FAILURES + 1)]  # each cycle
        self.noticed, self.joined, self.known = column(), column(), column()
        self.failed, self.settled, self.leads = column(), column(), column()
        self.leader_asked = column()
        self.failing = [_FORK.Event() for _ in range(FAILURES)]
        self.ending = _FORK.Event()


class _Silent:
    name = "silent"

    def trigger(self, *_: object) -> None:
        """Nobody is asked."""

    def read(self, *_: object) -> SourceVerdict | None:
        return SourceVerdict(Action.RESTART, "benchmark")


class _Agent(DecidingAgent):
    """Without workers: they are well until one is told to fail."""

    def __init__(
        self, number: int, seen: Seen, parameters: RendezvousParameters, logs: Path
    ) -> None:
        meeting = Meeting.of(parameters, role="scale")
        store, workers = connect(meeting)
        sources = AttributionSources([_Silent()], "any")
        settings = FaultTolerance(max_no_progress_cycles=0)
        decider = LeaderDecides(sources, settings, "scale", FAILURES + 1, LogDir(logs))
        rendezvous = DecidingRendezvous(meeting, store, workers, decider, 10.0)
        spec = WorkerSpec("scale", 1, rendezvous, entrypoint="true", monitor_interval=TICK)
        super().__init__(spec, CycleLogs(LogDir(logs), Shown()), rendezvous, sources, None)
        self._number = number
        self._seen = seen
        store.calls.tally = (seen.ours, number)  # type: ignore[attr-defined]
        store._watch.tally = (seen.ours, number)  # type: ignore[attr-defined]  # noqa: SLF001
        self._note_decision(store)

    def _note_decision(self, store: JobStore) -> None:
        """When this agent had joined the measured round, and when it knew what came of it."""
        seen, number = self._seen, self._number
        expect, outcome, last, settle = (
            store.expect_outcome,
            store.outcome,
            store.last_start,
            store.decide_round,
        )

        def expect_outcome(round_number: int, timeout: float) -> bool:
            if self._is_measured() and not seen.joined[number]:
                seen.joined[number] = time.monotonic()
            return expect(round_number, timeout)

        def read_outcome(round_number: int) -> CycleStart | JobEnding | None:
            found = outcome(round_number)
            if self._is_measured() and seen.joined[number] and not seen.known[number]:
                seen.known[number] = time.monotonic()
            return found

        def last_start(before_round: int) -> CycleStart | None:
            if self._is_measured():
                seen.leads[number] = time.monotonic()
                seen.leader_asked[number] = -seen.ours[number]
            return last(before_round)

        def decide_outcome(
            round_number: int, decided: CycleStart | JobEnding
        ) -> CycleStart | JobEnding:
            stands = settle(round_number, decided)
            if self._is_measured():
                seen.settled[number] = time.monotonic()
                seen.leader_asked[number] += seen.ours[number]
            return stands

        replaced: Any = store
        replaced.expect_outcome, replaced.outcome = expect_outcome, read_outcome
        replaced.last_start, replaced.decide_round = last_start, decide_outcome

    def _is_measured(self) -> bool:
        return self._cycle is not None and self._cycle.start.cycle == _MEASURED

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        super()._rendezvous(worker_group)
        self._seen.began[self._current().start.cycle][self._number] = time.monotonic()

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        return {}

    def _stop_workers(self, *_: object, **__: object) -> None:
        if self._is_measured() and not self._seen.noticed[self._number]:
            self._seen.noticed[self._number] = time.monotonic()

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._seen.ending.is_set():
            raise SystemExit
        cycle = self._current().start.cycle
        fails = cycle < FAILURES and self._seen.failing[cycle].is_set()
        if fails and self._current().group_rank == 1:
            if self._is_measured():
                self._seen.failed[self._number] = time.monotonic()
            self._note_failure("rank 1: exit 3")
            return RunResult(WorkerState.FAILED)
        return RunResult(WorkerState.HEALTHY)


@dataclass(frozen=True)
class Figures:
    agents: int
    met: float
    at_rest: float  # requests a second per agent
    notice: float  # from the failure to the last agent that heard of it
    rendezvous: float  # from there to the leader of the complete round
    decision: float  # what the leader needs to settle it
    leader_asked: int  # requests for that
    reading: float  # the longest that an agent that has joined waits for what is settled
    asked: float  # our requests of one agent, from failure to running again

    @property
    def our_share(self) -> float:
        return self.decision + self.reading


def measure(agents: int) -> Figures:
    seen = Seen(agents)
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        processes = _start(agents, seen, Path(folder))
        try:
            _wait(lambda: all(seen.began[0]), f"{agents} agents to meet")
            met = max(seen.began[0]) - began
            at_rest = _at_rest(agents, seen)
            for cycle in range(FAILURES):
                before = sum(seen.ours)
                seen.failing[cycle].set()
                _wait(
                    lambda cycle=cycle: all(seen.began[cycle + 1]),  # type: ignore[misc]
                    f"{agents} agents to meet again",
                )
                asked = (sum(seen.ours) - before) / agents
        finally:
            seen.ending.set()
            for process in processes:
                process.join(2 * TICK)
                process.kill()
    failed, leads, settled = max(seen.failed), max(seen.leads), max(seen.settled)
    waited = [
        known - max(joined, settled)
        for known, joined in zip(seen.known, seen.joined, strict=True)
        if known
    ]
    noticed = max(seen.noticed) - failed
    return Figures(
        agents,
        met,
        at_rest,
        noticed,
        leads - failed - noticed,
        settled - leads,
        int(max(seen.leader_asked)),
        max(waited),
        asked,
    )


def _at_rest(agents: int, seen: Seen) -> float:
    time.sleep(1.0)
    before = sum(seen.ours)
    time.sleep(AT_REST)
    assert not any(seen.began[1]), "agents lost each other at rest: this machine is too busy"
    return float((sum(seen.ours) - before) / (AT_REST * agents))


def _start(agents: int, seen: Seen, logs: Path) -> list[Any]:
    """The agents in turn over the processes; the first process hosts the store."""
    port = _free_port()
    count = min(PROCESSES, agents)
    processes = [
        _FORK.Process(
            target=_run_agents, args=(range(first, agents, count), agents, port, seen, logs)
        )
        for first in range(count)
    ]
    for process in processes:
        process.start()
    return processes


def _run_agents(numbers: range, agents: int, port: int, seen: Seen, logs: Path) -> None:
    _count_requests()
    threads = []
    for number in numbers:
        parameters = RendezvousParameters(
            "c10d",
            f"127.0.0.1:{port}",
            "scale",
            agents,
            agents,
            "127.0.0.1",
            is_host=str(number == 0).lower(),
            join_timeout="1200",
            keep_alive_interval="5",
            keep_alive_max_attempt="60",  # one interpreter beats for many of them
        )
        agent = _Agent(number, seen, parameters, logs)
        # `run` would want the main thread
        threads.append(threading.Thread(target=agent._go_through_cycles, daemon=True))  # noqa: SLF001
        threads[-1].start()
    seen.ending.wait()
    os._exit(0)


def _count_requests() -> None:
    make, wait = StoreCalls.make, KeyWatch._wait_in_store  # noqa: SLF001

    def count(asked: Any) -> None:
        column, number = getattr(asked, "tally", (None, 0))
        if column is not None:
            with _COUNTING:
                column[number] += 1

    def counted(self: StoreCalls, call: Callable[[], Any]) -> Any:
        count(self)
        return make(self, call)

    def waited(self: KeyWatch, key: str, answer: Any) -> None:
        count(self)
        wait(self, key, answer)

    StoreCalls.make = counted  # type: ignore[method-assign]
    KeyWatch._wait_in_store = waited  # type: ignore[method-assign]  # noqa: SLF001


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}"
        time.sleep(0.02)


def main() -> None:
    logging.disable(logging.WARNING)
    os.environ["RES_OPTIONS"] = "attempts:0"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # four connections an agent
    print(f"agents on one store, without workers, in up to {PROCESSES} processes; seconds")
    print(
        f"{'':>7}{'':>7}{'at rest, per agent':>22}{'after a failure':>18}{'':>12}"
        f"{'the leader':>20}{'the others':>22}\n"
        f"{'agents':>7}{'met':>7}{'req/s':>22}{'all notice':>18}{'rendezvous':>12}"
        f"{'decides':>11}{'requests':>9}{'read it':>11}{'requests':>11}"
    )
    rows = []
    for agents in SIZES:
        row = measure(agents)
        rows.append(row)
        print(
            f"{row.agents:>7}{row.met:>7.1f}{row.at_rest:>22.2f}"
            f"{row.notice:>18.2f}{row.rendezvous:>12.2f}{row.decision:>11.3f}{row.leader_asked:>9}"
            f"{row.reading:>11.3f}{row.asked:>11.1f}",
            flush=True,
        )
    for earlier, later in pairwise(rows):
        print(
            f"from {earlier.agents} to {later.agents} agents: rendezvous x "
            f"{later.rendezvous / earlier.rendezvous:.1f}, decided and read x "
            f"{later.our_share / earlier.our_share:.1f}, "
            f"leader's requests x {later.leader_asked / earlier.leader_asked:.1f}"
        )
    print(
        "targets: under 2 requests/s per agent at rest; our part grows no faster than the logarithm"
    )


if __name__ == "__main__":
    main()
