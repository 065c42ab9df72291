"""What asking costs a recovery: `aorta launch` beside stock torchrun, over the time attribution
takes.

Two agents with one worker each on loopback. Rank 0 dies; measured are the moments of its death, of
both new workers' first line, and of the last agent's exit. Beside them the peer's launcher, where
`nvidia_resiliency_ext` is installed.
"""

import contextlib
import importlib.util
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LATENCIES = (0.0, 1.0, 2.0, 5.0)
REPEATS = 2
SOURCE = Path(__file__).parents[1] / "src"
BASE = [sys.executable, "-m", "aorta", "launch", "--ft-max-no-progress-cycles", "0"]
SOURCES = {
    "in process": (),
    "mcp, in process": ("--ft-attribution-enable-mcp",),
}
JOB = """
import os, sys, time
rank = os.environ["RANK"]
folder = os.environ["BENCH_FOLDER"]
died = os.path.join(folder, "died")
again = os.path.exists(died)
def mark(name):
    with open(os.path.join(folder, name), "w") as file:
        file.write(str(time.time()))
mark(f"started_{rank}_{int(again)}")
if again:
    sys.exit(0)
if rank == "0":
    time.sleep(1.5)
    mark("died")
    sys.exit(3)
time.sleep(600)
"""


@dataclass(frozen=True)
class Recovery:
    codes: tuple[int, ...]
    running_again: float | None  # seconds from the death to both new workers
    ended: float  # seconds from the death to the last agent's exit
    leader_waited: float | None  # seconds the leader waited for the verdict
    reads: int
    triggers: int


def main() -> None:
    print(f"recovery of 2 agents x 1 worker on loopback, median of {REPEATS}, seconds")
    print(f"{'':34}{'running again':>14}{'leader waits':>14}{'exit on STOP':>14}{'reads':>7}")
    stock = _row("torchrun", [_torchrun() for _ in range(REPEATS)])
    _peer()
    for latency in LATENCIES:
        restarts = [_aorta("RESTART", latency) for _ in range(REPEATS)]
        stops = [_aorta("STOP", latency) for _ in range(REPEATS)]
        again = _row(f"aorta launch, verdict after {latency:g} s", restarts, stops)
        if latency == 0.0 and stock is not None and again is not None:
            print(f"{'':4}over torchrun: {again - stock:+.2f}   (target: under +0.30)")
    print("by kind of source; what the leader waits for after the rendezvous:")
    for name, flags in SOURCES.items():
        _row(f"aorta launch, {name}", [_run([*BASE, *flags], logs=True) for _ in range(REPEATS)])
    with _attribution("RESTART", 0.0, speaks_peer=True) as (url, _):
        asked = [*BASE, "--ft-attribution-http-url", url]
        _row("aorta launch, http (peer's wire)", [_run(asked, logs=True) for _ in range(REPEATS)])
    print("targets: exit on STOP within 2 s of detection for a verdict at hand; 1 read a cycle")


def _row(name: str, restarts: Sequence[Recovery], stops: Sequence[Recovery] = ()) -> float | None:
    again = [run.running_again for run in restarts if run.running_again is not None]
    waited = [run.leader_waited for run in restarts if run.leader_waited is not None]
    stopped = [run.ended for run in stops if set(run.codes) == {93} and run.running_again is None]
    reads = {run.reads for run in (*restarts, *stops)}
    failed = len(restarts) - len(again)
    cells = [_median(again), _median(waited), _median(stopped)]
    count = "/".join(map(str, sorted(reads))) if stops else ""
    remark = f"   ({failed} of {len(restarts)} never ran again)" if failed else ""
    print(f"{name:34}" + "".join(f"{cell:>14}" for cell in cells) + f"{count:>7}{remark}")
    return statistics.median(again) if again else None


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else "-"


def _aorta(verdict: str, latency: float) -> Recovery:
    with _attribution(verdict, latency) as (url, counts):
        return _run([*BASE, "--ft-attrsvc-url", url], logs=True, counts=counts)


def _torchrun() -> Recovery:
    return _run([sys.executable, "-m", "torch.distributed.run"])


def _peer() -> None:
    if importlib.util.find_spec("nvidia_resiliency_ext") is None:
        print(f"{'nvidia_resiliency_ext':34}{'not installed':>14}")
        return
    launcher = [sys.executable, "-m", "nvidia_resiliency_ext.fault_tolerance.launcher"]
    launcher += ["--ignore-missing-fault-tol-cfg", "--term-timeout", "5"]
    _row("nvidia_resiliency_ext ft_launcher", [_run(launcher) for _ in range(REPEATS)])


def _run(
    launcher: list[str], *, logs: bool = False, counts: dict[str, int] | None = None
) -> Recovery:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "job.py").write_text(JOB)
        agents = [_agent(launcher, folder, node, port) for node, port in _nodes()]
        codes = tuple(_wait(agent) for agent in agents)
        ended = time.time()
        died = _moment(folder / "died")
        started = [_moment(folder / f"started_{rank}_1") for rank in (0, 1)]
        running = [moment - died for moment in started if moment is not None and died is not None]
        info = folder / "logs" / "cycle_0" / "cycle_info.json"
        waited = json.loads(info.read_text())["decided_in_ms"] / 1000 if logs else None
        seen = counts or {}
        return Recovery(
            codes,
            max(running) if len(running) == 2 else None,
            ended - (died or ended),
            waited,
            seen.get("reads", 0),
            seen.get("triggers", 0),
        )


def _nodes() -> list[tuple[int, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return [(0, port), (1, port)]


def _agent(launcher: list[str], folder: Path, node: int, port: int) -> "subprocess.Popen[bytes]":
    host = "true" if node == 0 else "false"
    command = [
        *launcher,
        *("--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3"),
        *("--monitor-interval", "0.1", "--rdzv-backend", "c10d", "--rdzv-id", "bench"),
        *("--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host={host}"),
        *("--local-addr", "127.0.0.1", "--log-dir", str(folder / "logs"), str(folder / "job.py")),
    ]
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "BENCH_FOLDER": str(folder), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )


def _wait(agent: "subprocess.Popen[bytes]") -> int:
    try:
        return agent.wait(90)
    except subprocess.TimeoutExpired:
        agent.terminate()
        return agent.wait()


def _moment(path: Path) -> float | None:
    return float(path.read_text()) if path.exists() else None


@contextlib.contextmanager
def _attribution(
    verdict: str, latency: float, *, speaks_peer: bool = False
) -> Iterator[tuple[str, dict[str, int]]]:
    """A service whose analysis takes `latency` seconds from the first trigger on."""
    counts = {"triggers": 0, "reads": 0}
    first_trigger: list[float] = []
    decision = {"action": verdict, "reason": "benchmark", "rule": "benchmark", "advice": []}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if speaks_peer and self.path != "/logs":
                self._send(404, {})
                return
            counts["triggers"] += 1
            first_trigger.append(time.monotonic())
            self._send(202, {})

        def do_GET(self) -> None:
            counts["reads"] += 1
            ready = (first_trigger or [time.monotonic()])[0] + latency
            time.sleep(max(0.0, ready - time.monotonic()))
            asked = "recommendation" if speaks_peer else "decision"
            self._send(200, {"status": "decided", asked: decision, "finding": None})

        def _send(self, code: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", counts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    main()
