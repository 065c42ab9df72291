"""A service in a private directory that is gone when the test process is, however that ends."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

_GUARD = Path(__file__).with_name("guard.py")
_PATIENCE = 120.0


def private_directory(name: str) -> Path:
    """Short, because a socket's path may have 107 bytes at most."""
    return Path(tempfile.mkdtemp(prefix=f"aorta-{name}-"))


class Guarded:
    """What a guard keeps: a directory, perhaps a process, and what to do at the end."""

    def __init__(
        self,
        directory: Path,
        service: Sequence[str] = (),
        farewells: Sequence[Sequence[str]] = (),
    ) -> None:
        self.directory = directory
        plan = {"directory": str(directory), "service": service, "farewells": farewells}
        self._guard = subprocess.Popen(
            (sys.executable, str(_GUARD), json.dumps(plan)),
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not ready():
            if time.monotonic() > deadline:
                log = self.log[-2000:]
                self.stop()
                pytest.fail(f"{what} was not ready within {_PATIENCE:.0f} s; its log ends:\n{log}")
            time.sleep(0.05)

    @property
    def log(self) -> str:
        path = self.directory / "service.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """Let the guard end it, and wait until nothing is left. Safe to call twice."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
