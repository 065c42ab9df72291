"""Workers far from home, started here by hand: who is let in, who is believed, and what a broken line means."""

import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aorta.core.errors import InfrastructureError
from aorta.core.trial import Resources, TrialSpec
from aorta.executors.channel import NoChannelError, dial
from aorta.executors.cluster import ClusterExecutor
from aorta.executors.scheduler import Batch, fitting, worker_argv
from aorta.executors.slurm_commands import JobState, allocated_cpus, allocated_gpus
from aorta.executors.worker import CHANNEL_VARIABLE, TICKET_VARIABLE
from support.executor_contract import Bench, ExecutorContract, pid_in
from support.processes import wait_until_gone
from support.waiting import patience


@dataclass
class ByHand:
    """The smallest scheduler there is: workers as processes of this machine, at once."""

    ships: bool = False
    channel: int | None = None
    refuses: str = ""
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
            self.started[batch.ticket(index)] = subprocess.Popen(
                worker_argv(), env={**os.environ, **variables, **ticket}, stdin=subprocess.DEVNULL
            )

    def srun(self, trial: TrialSpec) -> None:
        return None

    def withdraw(self, tickets: Collection[str]) -> None:
        for ticket in tickets:
            self.started[ticket].terminate()

    def look(self, tickets: Collection[str], doubtful: Collection[str]) -> Mapping[str, str]:
        over = (ticket for ticket in tickets if self.started[ticket].poll() is not None)
        return {ticket: f"it ended with {self.started[ticket].returncode}" for ticket in over}

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
    bench.start("bash", "-c", f"echo $$ > {tmp_path}/pid; sleep 2; echo done")
    pid_in(tmp_path / "pid")
    address, _ = invitation(scheduler)
    for first_words in (b"GET / HTTP/1.0\r\n\r\n", b'{"ticket": "1.0"}\n', os.urandom(100_000)):
        with socket.create_connection(address, timeout=30) as line:
            greeting = line.recv(4096)
            line.sendall(first_words)
            heard = _until_closed(line)
        assert b"nonce" in greeting
        assert heard == b""
    assert bench.end().stdout.path.read_text() == "done\n"


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
    monkeypatch.setattr("aorta.executors.channel._ANSWER_SECONDS", 2.0)
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
    bench.start("bash", "-c", f"echo $$ >> {tmp_path}/pid; sleep 1")
    pid_in(tmp_path / "pid")
    address, secret = invitation(scheduler)
    with dial([address], "1.0", secret, {"host": "h", "node": "h"}) as second:
        assert second.recv(4096) == b""
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
