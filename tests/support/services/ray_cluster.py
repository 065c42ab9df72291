"""A real Ray cluster on this machine: a head without CPUs, and nodes that can be added, hidden
from, and killed.
"""

import json
import os
import secrets
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.processes import processes_with
from support.services.guarded import Guarded, private_directory
from support.services.ports import free_ports

CPUS = 2
_RAY = (
    *(sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block"),
    "--include-log-monitor=false",  # nobody reads what workers print
)
_QUIET = (
    "env",
    "PYTHONUNBUFFERED=1",
    "RAY_USAGE_STATS_ENABLED=0",
    "RAY_prestart_worker_first_driver=0",
    # side by side it starts one more than there are tasks
    "RAY_worker_maximum_startup_concurrency=1",
)
_SOON = ("RAY_health_check_period_ms=1000", "RAY_health_check_failure_threshold=8")
_NODE_MARK = "AORTA_TEST_RAY_NODE"


@dataclass
class RayCluster:
    """`environ` holds the way to its token: whatever token the user has for other clusters is not
    asked for.
    """

    address: str
    environ: dict[str, str]
    head: Guarded
    nodes: list[Guarded] = field(default_factory=list)

    @property
    def directory(self) -> Path:
        return self.head.directory

    def with_nodes(self, count: int) -> "RayCluster":
        """With at least so many: each takes two seconds of CPU to start, so there are no more than
        a test needs.
        """
        while len(self.nodes) < count:
            self.add_node()
        return self

    def add_node(
        self, cpus: int = CPUS, hides: Path | None = None, resource: str | None = None
    ) -> Guarded:
        """With `hides`, a node on which that directory is empty, as it is on another machine; with
        `resource`, one that has one of that custom resource.
        """
        directory = private_directory("raynode")
        start = (*_RAY, f"--address={self.address}", f"--num-cpus={cpus}", "--num-gpus=0")
        custom = () if resource is None else (f"--resources={json.dumps({resource: 1})}",)
        marks = (*_assignments(self.environ), f"{_NODE_MARK}={directory}")
        command = (*_QUIET, *marks, *start, *custom)
        if hides is not None:
            hidden = f'mount -t tmpfs none "{hides}" && exec "$@"'
            command = ("unshare", "--mount", "sh", "-c", hidden, "hidden", *command)
        node = Guarded(directory, command)
        node.wait_until(lambda: "Ray runtime started" in node.log, "a node of ray")
        self.nodes.append(node)
        return node

    def kill_node(self, node: Guarded) -> None:
        """As if its power were cut."""
        for pid in processes_with(f"{_NODE_MARK}={node.directory}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.remove_node(node)

    def remove_node(self, node: Guarded) -> None:
        node.stop()
        self.nodes.remove(node)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self.head.stop()


def start_ray() -> RayCluster:
    directory = private_directory("ray")
    (port,) = free_ports(1)
    start = (
        *_RAY, "--head", f"--port={port}", "--num-cpus=0",
        "--num-gpus=0", "--include-dashboard=false", "--no-monitor", f"--temp-dir={directory}",
    )  # fmt: skip
    token = directory / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    environ = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    head = Guarded(directory, (*_QUIET, *_SOON, *_assignments(environ), *start))
    head.wait_until(lambda: "Ray runtime started" in head.log, "ray")
    return RayCluster(f"127.0.0.1:{port}", environ, head)


def _assignments(environ: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environ.items()]
