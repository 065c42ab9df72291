"""What happens to a job of two agents when a part of it fails: real processes, a real network
between them.

Each agent has one worker. Keep-alive is 1 s x 3, the store is given up after 10 s of silence.
Printed is a table for docs/launch.md: what the agent that is left says, when it ends or goes on,
its exit code, and what is left of its processes.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PATIENCE = 120.0
_ATTEMPTS = 5  # until both agents meet in the first round
JOB = """
import os, sys, time
rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
cycle = int(os.environ["AORTA_CYCLE"])
with open(f"pid_{cycle}_{rank}_of_{world}", "w") as file:
    file.write(str(os.getpid()))
print("step", cycle, flush=True)
if world == "1":
    sys.exit(0)
if os.path.exists("fail_once") and cycle == 0:
    time.sleep(0.5)
    sys.exit(3)
time.sleep(600)
"""
_SAID = re.compile(r"^aorta(?: launch)?: (.*)$", re.MULTILINE)
_NOISE = re.compile(r"^(logs are in|the case is in|cycle \S+: RESTART|every rank succeeded)")


@dataclass
class Agents:
    """Two agents of one job in a folder of their own. The first one hosts the store."""

    folder: Path
    host: str = "127.0.0.1"
    spaces: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, node: int, port: int) -> "subprocess.Popen[bytes]":
        conf = f"is_host={str(node == 0).lower()},keep_alive_interval=1,keep_alive_max_attempt=3"
        conf += ",last_call_timeout=5,read_timeout=10"
        address = self.host if not self.spaces else f"10.99.0.{node + 1}"
        command = [
            *(sys.executable, "-m", "aorta", "launch", "--nnodes", "1:2", "--max-restarts", "3"),
            *("--rdzv-backend", "c10d", "--rdzv-id", "field", "--rdzv-conf", conf),
            *("--rdzv-endpoint", f"{self.host}:{port}", "--local-addr", address),
            *("--ft-attribution-dry-run", "--ft-max-no-progress-cycles", "0", *self.options),
            *("--log-dir", str(self.folder / f"logs_{node}"), str(self.folder / "job.py")),
        ]
        if self.spaces:
            command = ["ip", "netns", "exec", self.spaces[node], *command]
        env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        with (self.folder / f"err_{node}").open("w") as err:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=err,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def started(self, cycle: int, world: int = 2) -> bool:
        return len(list(self.folder.glob(f"pid_{cycle}_*_of_{world}"))) == world

    def pid(self, cycle: int, rank: int) -> int:
        return int((self.folder / f"pid_{cycle}_{rank}_of_2").read_text())

    def said(self, node: int) -> list[str]:
        lines = _SAID.findall((self.folder / f"err_{node}").read_text())
        return [line for line in lines if not _NOISE.match(line)]

    def left(self) -> int:
        pids = [int(path.read_text()) for path in self.folder.glob("pid_*") if path.read_text()]
        return sum(_lives(pid) for pid in pids)


@contextmanager
def agents(**how: object) -> Iterator[tuple[Agents, list["subprocess.Popen[bytes]"]]]:
    with tempfile.TemporaryDirectory() as folder:
        pair = Agents(Path(folder), **how)  # type: ignore[arg-type]
        (pair.folder / "job.py").write_text(JOB)
        port = _free_port()
        try:
            yield pair, [pair.start(node, port) for node in (1, 0)][::-1]
        finally:
            for process in pair.processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGCONT)
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Row:
    fault: str
    outcome: str
    code: int | None
    seconds: float
    said: str
    left: int

    def __str__(self) -> str:
        code = "-" if self.code is None else str(self.code)
        return (
            f"| {self.fault} | {self.outcome} | {self.seconds:.1f} s | {code} | {self.said} | "
            f"{self.left} |"
        )


def _observe(
    fault: str,
    cause: Callable[[Agents, list["subprocess.Popen[bytes]"]], int],
    *,
    word: str,
    **how: object,
) -> Row:
    """`cause` makes the fault and says which agent is watched until it ends."""
    for _ in range(_ATTEMPTS):
        with agents(**how) as (pair, both):
            _wait(lambda: pair.started(0) or any(each.poll() is not None for each in both))
            if pair.started(0):
                return _after(fault, cause, word, pair, both)
    raise AssertionError("on this machine one agent is done before the other has started")


def _after(
    fault: str,
    cause: Callable[[Agents, list["subprocess.Popen[bytes]"]], int],
    word: str,
    pair: Agents,
    both: list["subprocess.Popen[bytes]"],
) -> Row:
    node = cause(pair, both)
    began = time.monotonic()
    went_on = None
    while both[node].poll() is None and time.monotonic() - began < PATIENCE:
        if went_on is None and list(pair.folder.glob("pid_*_of_1")):
            went_on = time.monotonic() - began
        time.sleep(0.02)
    code = both[node].poll()
    alone = went_on is not None and code == 0  # otherwise it was the other one that went on
    seconds = went_on if alone and went_on is not None else time.monotonic() - began
    outcome = "goes on alone" if alone else "ends"
    said = next((line for line in pair.said(node) if word in line), "-")
    others = [each for each in both if each is not both[node]]
    for each in others:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGCONT)
        each.kill()
        each.wait()
    _wait(lambda: pair.left() == 0, 20.0)
    return Row(fault, outcome, code, seconds, said, pair.left())


def _kill_other(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    both[1].send_signal(signal.SIGKILL)
    return 0


def _kill_host(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    both[0].send_signal(signal.SIGKILL)
    return 1


def _freeze_other(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    both[1].send_signal(signal.SIGSTOP)
    return 0


def _freeze_host(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    both[0].send_signal(signal.SIGSTOP)
    return 1


def _freeze_host_then_term(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    both[0].send_signal(signal.SIGSTOP)
    time.sleep(2)
    both[1].send_signal(signal.SIGTERM)
    return 1


def _kill_leader_after_decision(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    """The leader is the agent with the smaller process id: the one that does not host the store."""
    (pair.folder / "fail_once").touch()
    for rank in (0, 1):
        with suppress(ProcessLookupError):
            os.kill(pair.pid(0, rank), signal.SIGKILL)
    _wait(lambda: any((pair.folder / f"logs_{node}" / "cycle_1").exists() for node in (0, 1)))
    both[1].send_signal(signal.SIGKILL)
    return 0


def _freeze_rank(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    os.kill(pair.pid(0, 1), signal.SIGSTOP)
    _wait(lambda: pair.started(1))
    for process in both:
        process.send_signal(signal.SIGTERM)
    return 0


def _cut_network(pair: Agents, both: list["subprocess.Popen[bytes]"]) -> int:
    _ip("netns", "exec", pair.spaces[0], "ip", "link", "set", "field0", "down")
    return 1


@contextmanager
def _network() -> Iterator[tuple[str, str]]:
    """Two network namespaces with one cable between them."""
    names = (f"aorta{os.getpid()}a", f"aorta{os.getpid()}b")
    for name in names:
        _ip("netns", "add", name)
        _ip("netns", "exec", name, "ip", "link", "set", "lo", "up")
    try:
        _ip(
            "link",
            "add",
            "field0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "field1",
            "netns",
            names[1],
        )
        for number, name in enumerate(names):
            _ip(
                "netns",
                "exec",
                name,
                "ip",
                "addr",
                "add",
                f"10.99.0.{number + 1}/24",
                "dev",
                f"field{number}",
            )
            _ip("netns", "exec", name, "ip", "link", "set", f"field{number}", "up")
        yield names
    finally:
        for name in names:
            _ip("netns", "del", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(holds: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def main() -> None:
    print("| fault | the agent that is left | after | exit code | it says | processes left |")
    print("|---|---|---|---|---|---|")
    rows: list[Callable[[], Row]] = [
        lambda: _observe("an agent is killed", _kill_other, word="lost"),
        lambda: _observe("the host of the store is killed", _kill_host, word="store"),
        lambda: _observe("an agent is frozen", _freeze_other, word="lost"),
        lambda: _observe("the host of the store is frozen", _freeze_host, word="not answered"),
        lambda: _observe(
            "the same, and SIGTERM for the other", _freeze_host_then_term, word="stopped by"
        ),
        lambda: _observe(
            "the leader is killed right after it decided", _kill_leader_after_decision, word="lost"
        ),
    ]
    for row in rows:
        print(row(), flush=True)
    with _network() as spaces:
        print(
            _observe(
                "the network between the agents is cut",
                _cut_network,
                word="not answered",
                host="10.99.0.1",
                spaces=spaces,
            ),
            flush=True,
        )
    hang = _observe(
        "a rank is frozen (--ft-hang-timeout 5); both restart, then SIGTERM",
        _freeze_rank,
        word="hang",
        options=("--ft-hang-timeout", "5"),
    )
    print(hang, flush=True)


if __name__ == "__main__":
    main()
