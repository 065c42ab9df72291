"""Real agents for the launch tests: started as users start them, watched from outside, never left
behind.
"""

import json
import math
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from support import fork_server
from support.services.ports import free_ports
from support.waiting import patience

SOURCE = Path(__file__).parents[2] / "src"


def environment(**more: str) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "TORCH", "AORTA_"))}
    return {**clean, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **more}


def script(folder: Path, body: str, name: str = "job.py") -> Path:
    """A training script. It sees its rank as `rank` and how often the job restarted as
    `attempt`.
    """
    head = """
        import os, sys, time
        rank = int(os.environ["RANK"])
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    """
    path = folder / name
    path.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    return path


RESTARTS_AND_WAITS = """
    while attempt and not os.path.exists("go"):
        time.sleep(0.05)
    sys.exit(0 if attempt else 3)
"""
"""A job that fails once, and then stays until it is told to go."""


@dataclass
class Ended:
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Agent:
    """One `aorta launch` in a session of its own; or `program launch`, a module beside the
    script.
    """

    def __init__(self, arguments: list[str], cwd: Path, program: str = "aorta", **env: str) -> None:
        self._out = (cwd / f"agent_{id(self)}.out").open("w+")
        self._err = (cwd / f"agent_{id(self)}.err").open("w+")
        self.process = fork_server.start(
            *("launch", *arguments),
            cwd=cwd,
            module=program,
            env=environment(**env),
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> Ended:
        code = self.process.wait(patience())
        return Ended(code, self._read(self._out), self._read(self._err))

    def out(self) -> str:
        return self._read(self._out)

    def err(self) -> str:
        return self._read(self._err)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self._out.close()
        self._err.close()

    @staticmethod
    def _read(stream: Any) -> str:
        return Path(stream.name).read_text(errors="replace")


class Site:
    """A place to run agents in; everything started here is gone afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        (self.port,) = free_ports(1)
        self.source = SOURCE
        self._agents: list[Agent] = []

    def start(
        self, *arguments: str, program: str = "aorta", log_dir: str = "logs", **env: str
    ) -> Agent:
        where = ["--log-dir", str(self.folder / log_dir)] if log_dir else []
        agent = Agent([*where, *arguments], self.folder, program, **env)
        self._agents.append(agent)
        return agent

    def run(
        self, *arguments: str, program: str = "aorta", log_dir: str = "logs", **env: str
    ) -> Ended:
        return self.start(*arguments, program=program, log_dir=log_dir, **env).wait()

    def start_node(
        self, node: int, *arguments: str, nodes: str = "2", conf: str = "", **env: str
    ) -> Agent:
        """One of several agents of one job on this machine; node 0 hosts the store."""
        host = "true" if node == 0 else "false"
        # On a busy machine the second comes late to the first rendezvous, and beats late; it is
        # taken in all the same.
        late = math.ceil(patience(3))
        settings = f"is_host={host},keep_alive_interval=1,keep_alive_max_attempt={late}"
        settings += f",last_call_timeout={late}" + (f",{conf}" if conf else "")
        return self.start(
            *("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-id", "job7"),
            *("--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-conf", settings),
            *("--local-addr", "127.0.0.1"),
            *arguments,
            **env,
        )

    def run_nodes(self, count: int, *arguments: str, **how: str) -> list[Ended]:
        agents = [
            self.start_node(n, *arguments, nodes=how.get("nodes", str(count))) for n in range(count)
        ]
        return [agent.wait() for agent in agents]

    def cycle(self, number: int) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(
            (self.logs / f"cycle_{number}" / "cycle_info.json").read_text()
        )
        return content

    def cycles(self) -> list[str]:
        return sorted(path.name for path in self.logs.glob("cycle_*"))

    def close(self) -> None:
        for agent in self._agents:
            agent.close()


def answer(action: str, reason: str = "because", **finding: object) -> dict[str, Any]:
    decision = {"action": action, "reason": reason, "rule": "test", "advice": []}
    return {"status": "decided", "decision": decision, "finding": finding or None}


@dataclass
class Oracle:
    """An attribution service that answers as the test says, after `delay` seconds, and counts what
    it is asked.
    """

    reply: Callable[[str], object]
    delay: float = 0.0
    triggers: list[dict[str, Any]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    url: str = ""

    def heard(self, cycle_id: str) -> int:
        return sum(trigger["cycle_id"] == cycle_id for trigger in self.triggers)


@contextmanager
def serving(oracle: Oracle) -> Iterator[Oracle]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            oracle.triggers.append(body)
            self._send(202, {"accepted": True})

        def do_GET(self) -> None:
            cycle_id = unquote(urlsplit(self.path).path.split("/")[4])
            oracle.reads.append(cycle_id)
            time.sleep(oracle.delay)
            self._send(200, oracle.reply(cycle_id))

        def _send(self, code: int, content: object) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                return  # the launcher waits no longer

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    oracle.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield oracle
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
