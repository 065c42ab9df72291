"""The attribution service under load: 10,000 reports of 100 cycles over 64 connections, beside a
running analysis.

Each connection reports as soon as its last report is answered. The client shares the machine with
the server, so it is cheap: requests are bytes before the clock starts, and of an answer it reads
the status and the length. What it took of the processor is printed beside what the server took.
"""

import asyncio
import gc
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.faults.corpus import CORPUS

REPORTS = 10_000
CYCLES = 100
CONNECTIONS = 64
# bytes of log, gzipped, that one analysis reads meanwhile: longer than the load lasts
BESIDE = 6_000_000_000
TARGET_MS = 50
_LINE = b"INFO all is well in this line of the log, nothing to see\n"
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as name:
        scratch = Path(name)
        beside = large_log(scratch / "large.log.gz")
        wires = {"POST /v1/cycles": own_wire(), "POST /logs": peer_wire(scratch)}
        print(f"service: {REPORTS} reports of {CYCLES} cycles over {CONNECTIONS} connections")
        print(f"  load average before: {os.getloadavg()[0]:.1f}")
        for wire, requests in wires.items():
            with service(scratch / f"{wire[6:].replace('/', '-')}.sqlite", scratch) as running:
                show(wire, measure(running, beside, requests))
        print(f"  target: none lost, p99 under {TARGET_MS} ms")


def large_log(path: Path) -> Path:
    member = gzip.compress(_LINE * (60_000_000 // len(_LINE)))
    with path.open("wb") as file:
        for _ in range(BESIDE // 60_000_000):
            file.write(member)
    return path


def own_wire() -> list[bytes]:
    """A hundred agents of each of a hundred cycles, every one with a report of its own."""
    names = [(f"job-{number % CYCLES}", f"agent-{number}") for number in range(REPORTS)]
    logs = [str(CORPUS / "sigkill")]
    return [post("/v1/cycles", report(job, agent, logs)) for job, agent in names]


def peer_wire(scratch: Path) -> list[bytes]:
    """On the peer's wire a cycle is its log: all its agents say the same."""
    logs = [scratch / f"job-{number}_cycle0.log" for number in range(CYCLES)]
    for log in logs:
        log.write_text("ModuleNotFoundError: No module named 'flash_attn'\n")
    told = [post("/logs", {"log_path": str(log), "analysis_intent": "terminal"}) for log in logs]
    return [told[number % CYCLES] for number in range(REPORTS)]


def report(job: str, agent: str, logs: list[str]) -> dict[str, object]:
    return {"job_id": job, "cycle_id": f"{job}:0", "agent": agent, "log_paths": logs}


def post(path: str, content: object) -> bytes:
    data = json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


@dataclass(frozen=True)
class Service:
    host: str
    port: int
    pid: int
    database: Path

    def ask(self, path: str, content: object = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        url = f"http://{self.host}:{self.port}{path}"
        asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=90) as answer:
            return json.load(answer)

    def processor_seconds(self) -> float:
        """Of the process that answers; its workers are not counted."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(frozen=True)
class Load:
    times: list[float]  # seconds of each report that was taken, the fastest first
    elapsed: float
    server: float  # seconds of processor time
    client: float
    decided: int
    beside: bool  # whether the large log was still being read when the last report was taken


def measure(running: Service, beside: Path, requests: list[bytes]) -> Load:
    running.ask("/v1/cycles", report("large", "agent", [str(beside)]))
    time.sleep(2)  # its analysis has begun
    gc.collect()
    gc.disable()  # a pause of the client would be told as the server's
    server, client, began = running.processor_seconds(), time.process_time(), time.perf_counter()
    times = uvloop.run(report_all(running, requests))
    elapsed, client = time.perf_counter() - began, time.process_time() - client
    server = running.processor_seconds() - server
    gc.enable()
    reading = running.ask("/v1/cycles/large/large:0/decision")["status"] == "pending"
    with sqlite3.connect(running.database) as database:
        query = "SELECT job_id, cycle_id FROM aorta_cycles WHERE job_id <> 'large'"
        cycles = database.execute(query).fetchall()
    database.close()
    answers = [running.ask(f"/v1/cycles/{job}/{cycle}/decision?wait=60") for job, cycle in cycles]
    decided = sum(answer["status"] == "decided" for answer in answers)
    return Load(sorted(times), elapsed, server, client, decided, reading)


async def report_all(running: Service, requests: list[bytes]) -> list[float]:
    loop = asyncio.get_running_loop()
    agents = []
    waiting = iter(requests)
    for _ in range(CONNECTIONS):
        transport, agent = await loop.create_connection(
            lambda: Agent(waiting, loop.create_future()), running.host, running.port
        )
        agent.send = transport.write
        agents.append(agent)
    for agent in agents:
        agent.report_next()
    await asyncio.gather(*(agent.finished for agent in agents))
    return [moment for agent in agents for moment in agent.times]


@dataclass
class Agent(asyncio.Protocol):
    """One kept-alive connection that reports whatever is next until nothing is left."""

    waiting: Iterator[bytes]
    finished: asyncio.Future[None]
    times: list[float] = field(default_factory=list)
    send: Callable[[bytes], None] = print
    _answer: bytes = b""
    _asked: float = 0.0

    def report_next(self) -> None:
        report = next(self.waiting, None)
        if report is None:
            self.finished.set_result(None)
            return
        self._answer = b""
        self._asked = time.perf_counter()
        self.send(report)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, content = self._answer.partition(b"\r\n\r\n")
        if not found or len(content) < int(head.lower().split(b"content-length: ")[1].split()[0]):
            return
        if head[9:12] in {b"200", b"202"}:
            self.times.append(time.perf_counter() - self._asked)
        self.report_next()

    def connection_lost(self, _wrong: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_result(None)


def show(wire: str, load: Load) -> None:
    median, late = (1000 * load.times[int(len(load.times) * share)] for share in (0.5, 0.99))
    each = 1e6 / REPORTS
    print(
        f"  {wire}: {REPORTS / load.elapsed:.0f} a second, {REPORTS - len(load.times)} lost,",
        end=" ",
    )
    print(f"{load.decided} of {CYCLES} decided")
    print(
        f"    one report: median {median:.1f} ms, p99 {late:.1f} ms, slowest "
        f"{1000 * load.times[-1]:.1f} ms"
    )
    print(
        f"    processor time of one: server {load.server * each:.0f} us, client "
        f"{load.client * each:.0f} us",
        end="",
    )
    print("" if load.beside else "; the analysis beside it ended early")


@contextmanager
def service(database: Path, scratch: Path) -> Iterator[Service]:
    command = [
        sys.executable,
        "-m",
        "aorta",
        "attrsvc",
        "--port",
        "0",
        "--rate-limit",
        "0",
        "--no-token",
    ]
    command += ["--db", str(database)]
    command += ["--allowed-root", str(scratch), "--allowed-root", str(CORPUS)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        ready = next(line for line in process.stderr if "attribution service at" in line)
        host, port = ready.split()[-1].removeprefix("http://").split(":")
        yield Service(host, int(port), process.pid, database)
    finally:
        process.terminate()
        process.wait(60)
        process.stderr.close()


if __name__ == "__main__":
    main()
