"""A service in a private directory that is gone when the test process is, however that ends."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.processes import is_running
from support.services import health
from support.waiting import eventually, patience

_GUARD = Path(__file__).with_name("guard.py")
_LONGEST_TEMPORARY = 40


def private_directory(name: str) -> Path:
    """Short, because a socket's path may have 107 bytes at most."""
    usual = tempfile.gettempdir()
    place = usual if len(usual) < _LONGEST_TEMPORARY else "/tmp"
    return Path(tempfile.mkdtemp(prefix=f"aorta-{name}-", dir=place))


class Guarded:
    """What a guard keeps: a directory, perhaps a process, and what to do at the end."""

    def __init__(
        self,
        directory: Path,
        service: Sequence[str] = (),
        farewells: Sequence[Sequence[str]] = (),
    ) -> None:
        self.directory = directory
        self.what = Path(service[0]).name if service else directory.name
        self._ready: Callable[[], object] = lambda: True
        plan = {"directory": str(directory), "service": service, "farewells": farewells}
        self._guard = subprocess.Popen(
            (sys.executable, str(_GUARD), json.dumps(plan)),
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        if service:
            health.watch(self)

    def wait_until(self, ready: Callable[[], object], what: str) -> None:
        """From now on the service counts as whole when this holds."""
        self.what, self._ready = what, ready
        if not eventually(lambda: ready() or self.has_ended()) or self.has_ended():
            log = self.log[-2000:]
            self.stop()
            pytest.fail(f"{what} was not ready in {patience():.0f} s; its log ends:\n{log}")

    def has_ended(self) -> bool:
        """The process that the guard started is there no more, though nobody asked it to end."""
        try:
            told = (self.directory / "service.pid").read_text()
        except OSError:
            return False  # it is only being started
        return bool(told) and not is_running(int(told))

    def start_again(self) -> None:
        """Where it was, with what it had written there."""
        assert self._guard.stdin is not None
        (self.directory / "service.pid").unlink()
        (self.directory / "service.log").replace(self.directory / "service.log.before")
        self._guard.stdin.write("again\n")
        self._guard.stdin.flush()
        self.wait_until(self._ready, self.what)

    @property
    def log(self) -> str:
        path = self.directory / "service.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        """Let the guard end it, and wait until nothing is left. Safe to call twice."""
        health.forget(self)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
