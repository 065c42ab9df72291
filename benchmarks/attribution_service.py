"""The attribution service under load: 10,000 reports of 100 cycles over 64 connections, beside a running analysis."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from benchmarks.faults.corpus import CORPUS

REPORTS = 10_000
CYCLES = 100
CONNECTIONS = 64
BESIDE = 300_000_000  # bytes of log that one analysis reads meanwhile
TARGET_MS = 50


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="aorta-bench-") as scratch:
        log = Path(scratch) / "large.log"
        log.write_bytes(
            b"INFO all is well in this line of the log, nothing to see\n" * (BESIDE // 57)
        )
        with service(Path(scratch)) as url:
            asyncio.run(load(url, log))


async def load(url: str, log: Path) -> None:
    host, port = url.removeprefix("http://").split(":")
    first = await Connection.open(host, int(port))
    await first.send("POST", "/v1/cycles", body("large", "large:0", "agent", [str(log)]))
    numbers = iter(range(REPORTS))
    agents = [await Connection.open(host, int(port)) for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    taken = await asyncio.gather(*(report_all(agent, numbers) for agent in agents))
    elapsed = time.perf_counter() - began
    decided = [await is_decided(first, cycle) for cycle in range(CYCLES)]
    times = sorted(moment for own in taken for moment in own)
    print(f"\nservice: {REPORTS} reports of {CYCLES} cycles over {CONNECTIONS} connections")
    print(f"  {REPORTS / elapsed:.0f} reports a second, {REPORTS - len(times)} lost")
    median, late = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(f"  one report: median {1000 * median:.1f} ms, p99 {1000 * late:.1f} ms")
    print(f"  decided {sum(decided)} of {CYCLES}; target: none lost, p99 under {TARGET_MS} ms")


@dataclass
class Connection:
    """One kept-alive connection, as plain as can be: the client must not be what is measured."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, host: str, port: int) -> "Connection":
        return cls(*await asyncio.open_connection(host, port))

    async def send(self, method: str, path: str, content: object = None) -> tuple[int, Any]:
        data = b"" if content is None else json.dumps(content).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.split(b"content-length:")[1].split(b"\r\n")[0])
        return int(answer.split()[1]), json.loads(await self.reader.readexactly(length))


async def report_all(agent: Connection, numbers: Iterator[int]) -> list[float]:
    """Report whatever is next, until nothing is left; the time of each report that was taken."""
    times = []
    for number in numbers:
        job = f"job-{number % CYCLES}"
        report = body(job, f"{job}:0", f"agent-{number}", [str(CORPUS / "sigkill")])
        began = time.perf_counter()
        status, _ = await agent.send("POST", "/v1/cycles", report)
        if status == HTTPStatus.ACCEPTED:
            times.append(time.perf_counter() - began)
    return times


async def is_decided(connection: Connection, cycle: int) -> bool:
    where = f"/v1/cycles/job-{cycle}/job-{cycle}:0/decision?wait=60"
    _, answer = await connection.send("GET", where)
    return bool(answer["status"] == "decided")


def body(job: str, cycle: str, agent_name: str, paths: list[str]) -> dict[str, object]:
    return {"job_id": job, "cycle_id": cycle, "agent": agent_name, "log_paths": paths}


@contextmanager
def service(scratch: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "aorta", "attrsvc", "--port", "0", "--rate-limit", "0"]
    command += ["--db", str(scratch / "state.sqlite")]
    command += ["--allowed-root", str(scratch), "--allowed-root", str(CORPUS)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(60)
        process.stderr.close()


if __name__ == "__main__":
    main()
