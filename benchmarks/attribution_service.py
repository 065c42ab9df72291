"""The attribution service under load: 10,000 reports of 100 cycles over 64 connections, beside a running analysis."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

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
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
        await client.post("/v1/cycles", json=body("large", "large:0", "agent", [str(log)]))
        numbers = iter(range(REPORTS))
        began = time.perf_counter()
        taken = await asyncio.gather(*(agent(client, numbers) for _ in range(CONNECTIONS)))
        elapsed = time.perf_counter() - began
        decided = await asyncio.gather(*(decision(client, cycle) for cycle in range(CYCLES)))
        metrics = (await client.get("/metrics")).text
    times = sorted(moment for own in taken for moment in own)
    counted = next(line for line in metrics.splitlines() if line.startswith("aorta_triggers_total"))
    print(f"\nservice: {REPORTS} reports of {CYCLES} cycles over {CONNECTIONS} connections")
    print(
        f"  {REPORTS / elapsed:.0f} reports a second; lost {REPORTS - len(times)}; counted {counted.split()[1]}"
    )
    print(
        f"  one report: median {1000 * times[len(times) // 2]:.1f} ms, p99 {1000 * times[int(len(times) * 0.99)]:.1f} ms"
    )
    print(f"  decided {sum(decided)} of {CYCLES}; target: none lost, p99 under {TARGET_MS} ms")


async def agent(client: httpx.AsyncClient, numbers: Iterator[int]) -> list[float]:
    """One connection that reports whatever is next; the time of each report that was taken."""
    times = []
    for number in numbers:
        cycle = number % CYCLES
        report = body(
            f"job-{cycle}", f"job-{cycle}:0", f"agent-{number}", [str(CORPUS / "sigkill")]
        )
        began = time.perf_counter()
        answer = await client.post("/v1/cycles", json=report)
        if answer.status_code == httpx.codes.ACCEPTED:
            times.append(time.perf_counter() - began)
    return times


async def decision(client: httpx.AsyncClient, cycle: int) -> bool:
    where = f"/v1/cycles/job-{cycle}/job-{cycle}:0/decision"
    answer = (await client.get(where, params={"wait": 60})).json()
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
