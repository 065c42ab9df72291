"""What many agents cost one store: requests at rest, and the time from a failure to a decision that everybody knows.

The agents are real but for their workers: each is a `DecidingAgent` with its own connections to one store on this
machine, all in one process. So the figures hold the interpreter's own cost for all of them, which real agents share out.
"""

import logging
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
from aorta.launch.cycle_dir import LogDir
from aorta.launch.output import CycleLogs, Shown
from aorta.launch.records import Action, CycleStart, JobEnding, SourceVerdict
from aorta.launch.rendezvous import create_rendezvous
from aorta.launch.sources.panel import Panel
from aorta.launch.store import JobStore, StoreCalls

SIZES = (16, 64, 256)
AT_REST = 10.0  # seconds that are counted
TICK = 0.5  # seconds between two looks of an agent at its workers
PATIENCE = 1800.0


@dataclass
class Seen:
    """What happened to all agents, as they saw it."""

    calls: int = 0
    noticed: list[float] = field(default_factory=list)
    decided: float = 0.0  # when the leader had its verdict
    started: dict[int, list[float]] = field(default_factory=dict)  # cycle -> when each agent began
    failing: threading.Event = field(default_factory=threading.Event)
    ending: threading.Event = field(default_factory=threading.Event)


class _Decider:
    """Restarts once, then ends the job."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def outcome(
        self, store: JobStore, round_number: int, nodes: tuple[str, ...]
    ) -> CycleStart | JobEnding:
        previous = store.last_start(round_number)
        if previous is None:
            return CycleStart("scale", 0, nodes, max_restarts=3, started=time.time())
        heard = len(store.evidence(previous))
        assert heard == len(nodes), f"{heard} of {len(nodes)} agents told what they know"
        self._seen.decided = time.monotonic()
        return CycleStart("scale", previous.cycle + 1, nodes, max_restarts=3, started=time.time())

    def final(self, store: JobStore, start: CycleStart) -> JobEnding:
        raise AssertionError("no agent runs out of restarts here")


class _Silent:
    @property
    def name(self) -> str:
        return "silent"

    def trigger(self, *_: object) -> None:
        """Nobody is asked."""

    def read(self, *_: object) -> SourceVerdict | None:
        return SourceVerdict(Action.RESTART, "benchmark")


class _Agent(DecidingAgent):
    """Without workers: they are well until one is told to fail."""

    def __init__(
        self, number: int, seen: Seen, parameters: RendezvousParameters, logs: Path
    ) -> None:
        rendezvous, store = create_rendezvous(parameters)
        rendezvous.connect(store, _Decider(seen), 10.0, None)
        spec = WorkerSpec("scale", 1, rendezvous, entrypoint="true", monitor_interval=TICK)
        panel = Panel([_Silent()], "any")
        super().__init__(spec, CycleLogs(LogDir(logs), Shown()), rendezvous, panel, None)
        self._number = number
        self._seen = seen

    def _begin(self, start: CycleStart, group: WorkerGroup) -> None:
        super()._begin(start, group)
        self._seen.started.setdefault(start.cycle, []).append(time.monotonic())

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        return {}

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._seen.noticed.append(time.monotonic())

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._seen.ending.is_set():
            raise SystemExit
        first = self._current().start.cycle == 0
        if self._number == 1 and first and self._seen.failing.is_set():
            self._note_failure("rank 1: exit 3")
            return RunResult(WorkerState.FAILED)
        return RunResult(WorkerState.HEALTHY)


@dataclass(frozen=True)
class Figures:
    agents: int
    met: float
    at_rest: float  # requests a second per agent
    notice: float
    meet_again: float
    decision: float  # from the leader's verdict to the last agent that knows it


def measure(agents: int) -> Figures:
    seen = Seen()
    with TemporaryDirectory() as folder:
        threads, began = _start(agents, seen, Path(folder))
        _wait(lambda: len(seen.started.get(0, ())) == agents)
        met = max(seen.started[0]) - began
        time.sleep(1.0)
        before = seen.calls
        time.sleep(AT_REST)
        at_rest = (seen.calls - before) / AT_REST / agents
        assert 1 not in seen.started, (
            "agents lost each other at rest: this machine is too busy for so many in one process"
        )
        failed = time.monotonic()
        seen.failing.set()
        _wait(lambda: len(seen.started.get(1, ())) == agents)
        figures = Figures(
            agents,
            met,
            at_rest,
            sorted(seen.noticed)[agents - 1] - failed,
            seen.decided - failed,
            max(seen.started[1]) - seen.decided,
        )
        seen.ending.set()
        for thread in threads:
            thread.join(PATIENCE)
    return figures


def _start(agents: int, seen: Seen, logs: Path) -> tuple[list[threading.Thread], float]:
    lock = threading.Lock()
    make = StoreCalls.make

    def counted(self: StoreCalls, call: Callable[[], Any]) -> Any:
        with lock:
            seen.calls += 1
        return make(self, call)

    StoreCalls.make = counted  # type: ignore[method-assign]
    endpoint = f"127.0.0.1:{_free_port()}"
    threads = []
    began = time.monotonic()
    for number in range(agents):
        parameters = RendezvousParameters(
            "c10d",
            endpoint,
            "scale",
            agents,
            agents,
            "127.0.0.1",
            is_host=str(number == 0).lower(),
            join_timeout="600",
            keep_alive_interval="5",
            keep_alive_max_attempt="60",  # one interpreter beats for all of them
        )
        agent = _Agent(number, seen, parameters, logs)
        threads.append(threading.Thread(target=_go, args=(agent,), daemon=True))
        threads[-1].start()
    return threads, began


def _go(agent: _Agent) -> None:
    agent._go_through_cycles()  # noqa: SLF001 - `run` would want the main thread


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "the agents did not get there in time"
        time.sleep(0.01)


def main() -> None:
    logging.disable(logging.WARNING)
    sys.unraisablehook = lambda _: None  # torch's heartbeat timers, collected in their own threads
    print("agents on one store, without workers; seconds")
    print(
        f"{'agents':>7}{'first met':>11}{'requests/s per agent':>22}{'all notice':>12}"
        f"{'leader decides':>16}{'all know it':>13}"
    )
    rows = []
    for agents in SIZES:
        row = measure(agents)
        rows.append(row)
        print(
            f"{row.agents:>7}{row.met:>11.2f}{row.at_rest:>22.2f}{row.notice:>12.2f}"
            f"{row.meet_again:>16.2f}{row.decision:>13.2f}",
            flush=True,
        )
    growth = [later.decision / earlier.decision for earlier, later in pairwise(rows)]
    print(f"growth of the last column at four times the agents: {statistics.mean(growth):.1f}")
    print("targets: under 2 requests/s per agent at rest; a decision that grows with the logarithm")


if __name__ == "__main__":
    main()
