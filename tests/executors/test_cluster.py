"""Workers far from home, started here by hand: who is let in, who is believed, and what a broken
line means.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, TrialSpec
from aorta.executors.channel import NoChannelError, dial
from aorta.executors.cluster import ClusterExecutor
from aorta.executors.process_tree import own_program
from aorta.executors.scheduler import WORKER, Batch, Gone, fitting
from aorta.executors.slurm_commands import JobState, allocated_cpus, allocated_gpus
from aorta.executors.worker import CHANNEL_VARIABLE, TICKET_VARIABLE
from support.executor_contract import Bench, ExecutorContract, pid_in
from support.processes import wait_until_gone
from support.waiting import eventually, patience, wait_until


@dataclass
class ByHand:
    """The smallest scheduler there is: workers as processes of this machine, at once."""

    ships: bool = False
    news: int | None = None
    refuses: str = ""
    blind: bool = False  # its workers find none of the trial's directories where they should be
    out_of_memory: bool = False
    answer: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answer.set()

    variables: Mapping[str, str] = field(default_factory=dict)
    started: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    avoided: list[str] = field(default_factory=list)

    def slots(self) -> int:
        return 2

    def submit(self, batch: Batch, variables: Mapping[str, str]) -> None:
        if self.refuses:
            raise InfrastructureError(self.refuses)
        self.variables = variables
        for index in range(len(batch.trials)):
            ticket = {TICKET_VARIABLE: batch.ticket(index)}
            if self.blind:
                for marker in batch.trials[index].trial_dir.glob(".aorta-*"):
                    marker.unlink()
            self.started[batch.ticket(index)] = subprocess.Popen(
                own_program(WORKER),
                env={**os.environ, **variables, **ticket},
                stdin=subprocess.DEVNULL,
            )

    def srun(self, trial: TrialSpec) -> None:
        return None

    def withdraw(self, tickets: Collection[str]) -> None:
        for ticket in tickets:
            self.started[ticket].terminate()

    def look(self, tickets: Collection[str], doubtful: Collection[str]) -> Mapping[str, Gone]:
        if not self.answer.is_set():
            self.asked.set()
        self.answer.wait()
        over = (ticket for ticket in tickets if self.started[ticket].poll() is not None)
        return {ticket: self._gone(ticket) for ticket in over}

    def _gone(self, ticket: str) -> Gone:
        return Gone(f"it ended with {self.started[ticket].returncode}", self.out_of_memory)

    def avoid(self, node: str) -> None:
        self.avoided.append(node)

    def addresses(self) -> Sequence[str]:
        return ["127.0.0.1"]

    def ports(self) -> range:
        return range(0)

    def close(self) -> None:
        for worker in self.started.values():
            worker.terminate()
            worker.wait(patience())


@pytest.fixture
def scheduler() -> ByHand:
    return ByHand()


@pytest.fixture
def executor(scheduler: ByHand) -> Iterator[ClusterExecutor]:
    executor = ClusterExecutor(scheduler, grace=0.5)
    yield executor
    executor.close()


@pytest.fixture
def bench(executor: ClusterExecutor, tmp_path: Path) -> Bench:
    return Bench(executor, tmp_path)


class TestByHand(ExecutorContract):
    pass


def invitation(scheduler: ByHand) -> tuple[tuple[str, int], str]:
    content = json.loads(scheduler.variables[CHANNEL_VARIABLE])
    host, port = content["addresses"][0]
    return (host, port), content["secret"]


def test_a_stranger_gets_no_order_and_disturbs_nobody(
    bench: Bench, scheduler: ByHand, tmp_path: Path
) -> None:
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    bench.start("bash", "-c", f"echo $$ > {tmp_path}/pid; {waits}; echo done")
    pid_in(tmp_path / "pid")
    address, _ = invitation(scheduler)
    for first_words in (
        b"GET / HTTP/1.0\r\n\r\n",
        b'{"ticket": "1.0"}\n',
        b"[]\n",
        b"1\n",
        b"null\n",
        b'"text"\n',
        b"[" * 50_000 + b"\n",
        b'{"ticket": "1.0", "nonce": "0", "proof": "\\u00fc"}\n',
        '{"ticket": "1.0", "nonce": "0", "proof": "ü"}\n'.encode(),
        b'{"ticket": "1.0", "nonce": "0", "proof": "\\ud800"}\n',
        b'{"ticket": ["1.0"], "nonce": {}, "proof": 7}\n',
        b'{"ticket": "1.0", "nonce": "0", "proof": "0", "size": -1}\n',
        b'{"ticket": "1.0", "nonce": "0", "proof": "0", "size": 1e999}\n',
        b"\xff\xfe\n",
        os.urandom(100_000),
    ):
        with socket.create_connection(address, timeout=patience()) as line:
            greeting = line.recv(4096)
            line.sendall(first_words)
            heard = _until_closed(line)
        assert b"nonce" in greeting
        assert heard == b""
    (tmp_path / "go").touch()
    assert bench.end().stdout.path.read_text() == "done\n"


def test_a_worker_that_stops_reading_holds_up_nobody_and_close_is_bounded(
    bench: Bench, scheduler: ByHand, executor: ClusterExecutor, tmp_path: Path
) -> None:
    """It is stopped with a pack of 200 MiB on the way to it, which no socket takes at once."""
    (tmp_path / "cwd").mkdir()
    with (tmp_path / "cwd" / "large").open("wb") as large:
        large.truncate(200 << 20)
    scheduler.ships = True
    scheduler.blind = True
    bench.start("sleep", "300", cwd=tmp_path / "cwd")
    stuck = _first_worker_with_a_pack(scheduler)
    os.kill(stuck.pid, signal.SIGSTOP)
    scheduler.blind = False
    assert bench.run("echo", "hello").exit_code == 0
    began = time.monotonic()
    executor.close()
    assert time.monotonic() - began < patience(0.5 + 20)  # its grace, and what is promised beyond
    os.kill(stuck.pid, signal.SIGCONT)
    wait_until_gone(stuck.pid)


def _first_worker_with_a_pack(scheduler: ByHand) -> "subprocess.Popen[bytes]":
    """The first worker, once it has begun to take in the directories that are sent to it."""

    def has_begun() -> bool:
        worker = scheduler.started.get("1.0")
        if worker is None:
            return False
        status = Path(f"/proc/{worker.pid}/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(resident.split()[1]) > 60 * 1024

    assert eventually(has_begun, every=0.005), "the worker took nothing in"
    return scheduler.started["1.0"]


def test_a_scheduler_that_takes_its_time_holds_up_neither_ends_nor_cancels_nor_close(
    bench: Bench, scheduler: ByHand, executor: ClusterExecutor, tmp_path: Path
) -> None:
    bench.start("bash", "-c", f"echo $$ > {tmp_path}/pid; sleep 300")
    bench.start("bash", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    pid_in(tmp_path / "pid")
    wait_until(lambda: len(scheduler.started) == 2, "two workers")
    scheduler.answer.clear()
    assert scheduler.asked.wait(patience())
    (tmp_path / "go").touch()
    assert bench.end().exit_code == 0
    executor.cancel("t1")
    assert bench.end().cancelled
    began = time.monotonic()
    executor.close()
    assert time.monotonic() - began < patience(0.5 + 20)
    scheduler.answer.set()


def test_a_job_that_went_over_its_memory_is_the_program_s_end(
    bench: Bench, scheduler: ByHand, tmp_path: Path
) -> None:
    bench.start("bash", "-c", f"echo $$ > {tmp_path}/pid; sleep 300")
    pid_in(tmp_path / "pid")
    scheduler.out_of_memory = True
    scheduler.started["1.0"].kill()
    end = bench.end()
    assert (end.signal, end.out_of_memory, end.lost) == (signal.SIGKILL, True, None)
    assert scheduler.avoided == []


def test_a_trial_that_dies_of_the_signal_that_also_reaches_its_worker_is_no_evidence(
    bench: Bench, scheduler: ByHand, tmp_path: Path
) -> None:
    """As a scheduler ends a job: every process of it gets the signal, the trial's own first."""
    bench.start("bash", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 300")
    os.kill(pid_in(tmp_path / "pid"), signal.SIGTERM)
    scheduler.started["1.0"].terminate()
    assert bench.end().lost


def test_a_trial_that_is_killed_alone_is_its_own_end(bench: Bench, tmp_path: Path) -> None:
    end = bench.shell("kill -KILL $$")
    assert (end.signal, end.lost) == (signal.SIGKILL, None)


def _until_closed(line: socket.socket) -> bytes:
    heard = b""
    try:
        while data := line.recv(4096):
            heard += data
    except ConnectionResetError:
        pass
    return heard


def test_a_worker_takes_no_order_from_somebody_who_does_not_know_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aorta.executors.channel._DIAL_SECONDS", 1.0)
    monkeypatch.setattr("aorta.executors.channel.ANSWER_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        address = impostor.getsockname()[:2]
        pid = os.fork()
        if pid == 0:
            line, _ = impostor.accept()
            line.sendall(b'{"nonce": "00"}\n')
            line.recv(4096)
            line.sendall(b'{"proof": "00"}\n{"op": "run"}\n')
            os._exit(0)
        with pytest.raises(NoChannelError, match="could not reach the machine that started this"):
            dial([address], "1.0", secrets.token_hex(8), {})
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_ticket_is_good_for_one_worker(bench: Bench, scheduler: ByHand, tmp_path: Path) -> None:
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    bench.start("bash", "-c", f"echo $$ >> {tmp_path}/pid; {waits}")
    pid_in(tmp_path / "pid")
    address, secret = invitation(scheduler)
    with dial([address], "1.0", secret, {"host": "h", "node": "h"}) as second:
        assert second.recv(4096) == b""
    (tmp_path / "go").touch()
    assert bench.end().exit_code == 0


def test_a_worker_that_is_killed_loses_its_trial_and_its_node_is_remembered(
    bench: Bench, scheduler: ByHand, tmp_path: Path
) -> None:
    bench.start("bash", "-c", f"echo $$ > {tmp_path}/pid; sleep 300")
    running = pid_in(tmp_path / "pid")
    scheduler.started["1.0"].kill()
    end = bench.end()
    assert (end.lost or "").startswith("it ended with -9 (on ")
    assert scheduler.avoided == [end.host]
    wait_until_gone(running)


def test_a_worker_that_its_scheduler_ends_ends_its_whole_trial_first(
    bench: Bench, scheduler: ByHand, tmp_path: Path
) -> None:
    bench.start("bash", "-c", f"setsid sleep 300 & echo $! > {tmp_path}/pid; wait")
    runaway = pid_in(tmp_path / "pid")
    scheduler.started["1.0"].terminate()
    assert bench.end().lost
    wait_until_gone(runaway)


def test_a_scheduler_that_refuses_is_heard_where_the_trial_is_waited_for(
    bench: Bench, scheduler: ByHand
) -> None:
    scheduler.refuses = "no such partition"
    bench.start("true")
    with pytest.raises(InfrastructureError, match="no such partition"):
        bench.end()


def test_the_variables_of_the_line_do_not_reach_the_trial(bench: Bench) -> None:
    end = bench.shell("env")
    assert CHANNEL_VARIABLE not in end.stdout.path.read_text()
    assert TICKET_VARIABLE not in end.stdout.path.read_text()


@pytest.mark.parametrize(
    ("nodes", "wanted", "trials"),
    [
        ([(4, 0)] * 4, Resources(), 16),
        ([(4, 0), (2, 0)], Resources(cpus=3), 1),
        ([(4, 2), (4, 0)], Resources(gpus=1), 2),
        ([(4, 0)] * 4, Resources(nodes=2, tasks_per_node=4), 2),
        ([(4, 0)] * 3, Resources(nodes=2, tasks_per_node=4), 1),
        ([(8, 0), (1, 0)], Resources(nodes=2), 1),
        ([(4, 0)], Resources(nodes=2), 0),
    ],
)
def test_as_many_trials_as_find_different_nodes_fit(
    nodes: list[tuple[int, int]], wanted: Resources, trials: int
) -> None:
    assert fitting(nodes, wanted) == trials


def test_an_allocation_is_read_as_slurm_writes_it() -> None:
    assert allocated_cpus({"SLURM_JOB_CPUS_PER_NODE": "4(x2),8"}) == [4, 4, 8]
    assert allocated_gpus({"SLURM_GPUS_ON_NODE": "2"}) == 2
    assert allocated_gpus({"SLURM_GPUS_PER_NODE": "a100:4"}) == 4
    assert allocated_gpus({}) == 0


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING", "SUSPENDED", ""])
def test_a_job_that_may_still_report_is_not_given_up(state: str) -> None:
    assert JobState(state).why_over is None


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "PREEMPTED", "TIMEOUT", "CANCELLED by 1000", "CANCELLED+"]
)
def test_a_job_that_is_over_says_why(state: str) -> None:
    assert JobState(state).why_over
