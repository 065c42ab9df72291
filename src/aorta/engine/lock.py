"""One process a run directory: a lock that a dead process of this host cannot hold."""

import json
import os
import socket
from contextlib import suppress
from pathlib import Path

from aorta.core.errors import InfrastructureError, ResumeError


class RunLock:
    """Held from `take` to `release`. A stale lock of this host is taken over; one of another host is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> "RunLock":
        me = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
        for _ in range(3):
            try:
                handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                self._refuse_unless_stale()
                continue
            except OSError as wrong:
                raise InfrastructureError(
                    f"cannot lock the run directory: {wrong.strerror}", where=str(self.path)
                ) from None
            with os.fdopen(handle, "w") as file:
                json.dump(me, file)
            return self
        raise ResumeError("another process keeps taking this run directory", where=str(self.path))

    def release(self) -> None:
        with suppress(FileNotFoundError):
            self.path.unlink()

    def _refuse_unless_stale(self) -> None:
        try:
            owner = json.loads(self.path.read_text())
            host, pid, started = owner["host"], int(owner["pid"]), owner["started"]
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError):
            host, pid, started = socket.gethostname(), -1, None  # torn by a kill: nobody holds it
        if host != socket.gethostname():
            raise ResumeError(
                f"process {pid} on host {host} holds this run; if it is gone, remove the file",
                where=str(self.path),
            )
        if started is not None and _started(pid) == started:
            raise ResumeError(
                f"process {pid} is running this already; wait for it, or stop it first",
                where=str(self.path),
            )
        # Renaming first: of two processes that both see a stale lock, only one gets to remove it.
        aside = self.path.with_name(f"{self.path.name}.stale.{os.getpid()}")
        with suppress(FileNotFoundError):
            self.path.rename(aside)
            aside.unlink()


def _started(pid: int) -> str | None:
    """When a process began, in clock ticks since boot: a pid alone may have been given to another."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return stat.rpartition(b")")[2].split()[19].decode()
