"""One process a run directory: a lock that a dead process of this host cannot hold."""

import os
from contextlib import suppress
from pathlib import Path

from aorta.core.errors import InfrastructureError, ResumeError
from aorta.runtimes.owner import Owner


class RunLock:
    """Held from `take` to `release`. The lock of a process that is certainly gone is taken over."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> "RunLock":
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
                file.write(Owner.of_this_process().label)
            return self
        raise ResumeError("another process keeps taking this run directory", where=str(self.path))

    def release(self) -> None:
        with suppress(FileNotFoundError):
            self.path.unlink()

    def _refuse_unless_stale(self) -> None:
        try:
            owner = Owner.from_label(self.path.read_text())
        except FileNotFoundError:
            return
        if owner is not None and not owner.is_gone():
            raise ResumeError(
                f"process {owner.pid} on {owner.host} is running this already; "
                "wait for it or stop it first, and if it is surely gone, remove this file",
                where=str(self.path),
            )
        # Renaming first: of two processes that both see a stale lock, only one gets to remove it.
        aside = self.path.with_name(f"{self.path.name}.stale.{os.getpid()}")
        with suppress(FileNotFoundError):
            self.path.rename(aside)
            aside.unlink()
