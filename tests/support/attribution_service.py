"""A real attribution service in a process of its own, for tests and benchmarks."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from aorta.attribution.client import token_for
from support import fork_server
from support.aorta_cli import environ
from support.waiting import patience


@dataclass
class Service:
    url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def token(self) -> str | None:
        """The token it made, where it did."""
        return token_for(self.url)

    def client(self, token: str | None = None) -> httpx.Client:
        """One with this token, or with that which the service made."""
        token = token or self.token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # no TLS here: the certificates of the machine, which `verify` reads, take 30 ms a client
        return httpx.Client(base_url=self.url, headers=headers, timeout=patience(), verify=False)

    def children(self) -> list[int]:
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True
        )
        return [int(child) for child in listed.stdout.split()]

    def workers(self) -> list[int]:
        """The server that every analysis is forked from."""
        return [child for child in self.children() if "forkserver" in _command_of(child)]

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(patience())


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it ended meanwhile
        return ""


@contextmanager
def running_service(
    root: Path, database: Path | str, *options: str, program: Path | None = None
) -> Iterator[Service]:
    """`aorta attrsvc`; or `program attrsvc`, a Python file that calls it in its own way."""
    words = ["attrsvc", "--port", "0", "--db", str(database), "--allowed-root", str(root), *options]
    how: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "env": environ()}
    if program is not None:
        how |= {"module": program.stem, "cwd": program.parent}
    process = fork_server.start(*words, **how)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "attribution service at" in line:
                yield Service(line.split()[-1], process)
                return
        raise AssertionError(f"the service ended with code {process.wait(patience())}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience())
        finally:  # or what it leaves is held against another test
            process.kill()
            process.stderr.close()
