"""Ray: each trial is a task, on an existing cluster or on one that Ray starts here and ends with
us.

A trial inherits the environment of Ray's worker, its GPUs among it. A worker that sees the trial's
directory and the working directory at their paths runs there; one that does not gets copies, and
the logs and results come back while and after it runs. Which of the two it is, each worker finds
out by looking.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aorta.core.errors import InfrastructureError, UsageError
from aorta.core.trial import Resources, TrialSpec
from aorta.executors.framing import Frames, frame
from aorta.executors.scheduler import Batch, Gone, fitting
from aorta.executors.worker import NODE_VARIABLE, PARENT_VARIABLE, TICKET_VARIABLE

_DRIVER = Path(__file__).with_name("ray_driver.py")
_READY_SECONDS = 120.0
_FAREWELL_SECONDS = 7.0
# On a cluster that Ray starts for us: without this it starts a process for each core before there
# is a trial.
_OF_ITS_OWN = {"RAY_prestart_worker_first_driver": "0"}
_WITHOUT_REPORTS = {"RAY_USAGE_STATS_ENABLED": "0"}  # nothing leaves the machine


class RayTasks:
    ships = True

    def __init__(self, address: str | None, resources: Resources) -> None:
        _check(resources)
        self._resources = resources
        self._where = address or os.environ.get("RAY_ADDRESS") or "a cluster of its own"
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the driver lives
        self._nodes: dict[str, tuple[int, int]] = {}
        self._avoided: list[str] = []
        self._over: dict[str, str] = {}
        self._frames = Frames()
        self._home = ""
        self._control, theirs = socket.socketpair()
        with theirs:
            self._driver = subprocess.Popen(
                # -P: beside the driver lies a ray.py that is not Ray
                [sys.executable, "-P", str(_DRIVER), str(theirs.fileno()), address or ""],
                pass_fds=[theirs.fileno()],
                env={**_OF_ITS_OWN, **os.environ, **_WITHOUT_REPORTS},
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                start_new_session=True,  # a Ctrl-C on the terminal is for us alone
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def news(self) -> int:
        return self._control.fileno()

    def slots(self) -> int:
        return max(1, fitting(self._places(), self._resources))

    def addresses(self) -> Sequence[str]:
        return [self._home, os.uname().nodename]

    def ports(self) -> range:
        return range(0)

    def srun(self, trial: TrialSpec) -> None:
        return None

    def submit(self, batch: Batch, variables: Mapping[str, str]) -> None:
        for index in range(len(batch.trials)):
            ticket = batch.ticket(index)
            self._command(
                op="submit",
                ticket=ticket,
                cpus=batch.resources.cpus,
                gpus=batch.resources.gpus,
                avoid=self._excluded(batch.resources),
                variables={**variables, TICKET_VARIABLE: ticket},
                names={"node": NODE_VARIABLE, "parent": PARENT_VARIABLE},
            )

    def withdraw(self, tickets: Collection[str]) -> None:
        self._command(op="cancel", tickets=list(tickets))

    def look(self, tickets: Collection[str], doubtful: Collection[str]) -> Mapping[str, Gone]:
        self._hear(0)
        self._over = {ticket: why for ticket, why in self._over.items() if ticket in tickets}
        return {ticket: Gone(why) for ticket, why in self._over.items()}

    def avoid(self, node: str) -> None:
        if node not in self._avoided:
            self._avoided.append(node)

    def close(self) -> None:
        """The driver cancels its tasks, and ends the cluster if it was its own, when the socket
        closes.
        """
        self._control.close()
        try:
            self._driver.wait(_FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        self._words.close()

    def _places(self) -> list[tuple[int, int]]:
        kept = [size for node, size in self._nodes.items() if node not in self._avoided]
        return kept if fitting(kept, self._resources) else list(self._nodes.values())

    def _excluded(self, resources: Resources) -> list[str]:
        """The nodes to stay away from, unless nothing would be left; Ray gives nothing to dead ones
        anyway.
        """
        alive = [node for node in self._avoided if node in self._nodes]
        kept = [size for node, size in self._nodes.items() if node not in alive]
        return alive if fitting(kept, resources) else []

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not (self._home and self._nodes):
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"Ray at {self._where} did not answer within {_READY_SECONDS:.0f} "
                    f"s{self._last_words()}"
                )
            self._hear(1.0)
        if not fitting(list(self._nodes.values()), self._resources):
            wanted = self._resources
            raise InfrastructureError(
                f"a trial asks for {wanted.cpus} CPUs and {wanted.gpus} GPUs, and no node of Ray "
                "at "
                f"{self._where} has them: ask for less, or add a node"
            )

    def _hear(self, seconds: float) -> None:
        self._control.settimeout(seconds)
        try:
            while data := self._control.recv(1 << 20):
                self._frames.feed(data)
                self._control.settimeout(0)
            raise InfrastructureError(f"Ray at {self._where} is gone{self._last_words()}")
        except (BlockingIOError, TimeoutError):
            pass
        finally:
            self._control.settimeout(None)
        for news in self._frames:
            self._learn(news)

    def _learn(self, news: Mapping[str, Any]) -> None:
        match news["op"]:
            case "ready":
                self._home = news["address"]
            case "nodes":
                self._nodes = {n["id"]: (n["cpus"], n["gpus"]) for n in news["nodes"]}
            case "over":
                self._over[news["ticket"]] = news["why"]

    def _command(self, **command: Any) -> None:
        try:
            self._control.sendall(frame(command))
        except OSError:
            raise InfrastructureError(f"Ray at {self._where} is gone{self._last_words()}") from None

    def _last_words(self) -> str:
        self._words.seek(0)
        lines = self._words.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1].strip()[:300]}" if lines else ""


def _check(resources: Resources) -> None:
    if find_spec("ray") is None:
        raise InfrastructureError(
            "ray is not installed here; install it with: pip install 'aorta-triage[ray]'"
        )
    if resources.tasks > 1:
        raise UsageError(
            "a task of Ray runs on one node; --nodes and --tasks-per-node are for --executor "
            "slurm: "
            "let the command start its own ranks, and give it their CPUs and GPUs"
        )
