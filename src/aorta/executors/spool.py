"""Trials between their owner and its workers, as files of one directory that all of them see.

    requests/POOL/NUMBER    a trial that waits; a worker takes it by renaming it to
    claims/NUMBER.WORKER    a trial that this worker has
    cancels/NUMBER          nobody wants it any more
    results/NUMBER          how it ended
    beats/WHO.COUNT         a higher count as long as WHO lives: a worker, or `owner`
    left/WORKER             this worker takes no trial any more

Made for NFS, whose clients remember what they saw: a name is never used twice, a file appears whole
by a rename and is never written again, and nobody asks for a name that may not be there yet.
Directories are listed instead, after a change of our own, which makes a client ask the server
anew. Numbers, pools and workers are words without a dot. Standard library only.
"""

import json
import os
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

BEAT_EVERY = 5.0
SILENT = 90.0  # seconds without a beat after which somebody is taken for dead
OWNER = "owner"
_FOLDERS = ("requests", "claims", "cancels", "results", "beats", "left", "drafts")


class Spool:
    def __init__(self, path: Path, who: str) -> None:
        self.path = path
        self.who = who
        self._names = (f"{who}-{number}" for number in count())
        self._beats = 0
        self._beat_at = 0.0
        self._seen: dict[str, tuple[int, float]] = {}

    def create(self) -> None:
        """For its owner alone: requests hold the variables of trials."""
        self.path.mkdir(mode=0o700)
        for folder in _FOLDERS:
            (self.path / folder).mkdir()

    # -- files -------------------------------------------------------------------------------------

    def put(self, folder: str, name: str, content: Any = None) -> None:
        """A file that is there whole or not at all."""
        draft = self.path / "drafts" / next(self._names)
        with draft.open("x", encoding="ascii") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path / folder / name)

    def names(self, folder: str) -> list[str]:
        """What is there now. FileNotFoundError once the owner has closed."""
        place = self.path / folder
        looking = place / f".{next(self._names)}"
        looking.touch()
        looking.unlink()
        names = os.listdir(place)  # noqa: PTH208
        return sorted(name for name in names if not name.startswith("."))

    def take(self, folder: str, name: str) -> Any:
        """What stands in it; the file is gone afterwards."""
        path = self.path / folder / name
        content = json.loads(path.read_bytes())
        path.unlink(missing_ok=True)
        return content

    # -- the owner ---------------------------------------------------------------------------------

    def request(self, pool: str, number: str, content: Any) -> None:
        with suppress(FileExistsError):
            (self.path / "requests" / pool).mkdir()
        self.put(f"requests/{pool}", number, content)

    def withdraw(self, pool: str, number: str) -> bool:
        """Whether it was still waiting, and is now gone; otherwise a worker has it."""
        try:
            (self.path / "requests" / pool / number).unlink()
        except FileNotFoundError:
            return False
        return True

    def claims(self) -> dict[str, str]:
        """Which worker has which trial."""
        pairs = (name.partition(".") for name in self.names("claims"))
        return {number: worker for number, _, worker in pairs}

    # -- a worker ----------------------------------------------------------------------------------

    def claim(self, pool: str) -> tuple[str, Any] | None:
        """The oldest trial that waits, and its number; None if none does."""
        for number in sorted(self.names(f"requests/{pool}"), key=int):
            place = self.path / "claims" / f"{number}.{self.who}"
            try:
                (self.path / "requests" / pool / number).rename(place)
            except FileNotFoundError:
                # Another was faster; or it was us, and NFS lost the answer to our first attempt.
                if place.name not in self.names("claims"):
                    continue
            return number, json.loads(place.read_bytes())
        return None

    def report(self, number: str, content: Any) -> None:
        self.put("results", number, content)
        (self.path / "claims" / f"{number}.{self.who}").unlink(missing_ok=True)

    # -- who lives ---------------------------------------------------------------------------------

    def beat(self) -> None:
        """Say so, if it is time."""
        if time.monotonic() - self._beat_at < BEAT_EVERY:
            return
        self._beat_at = time.monotonic()
        (self.path / "beats" / f"{self.who}.{self._beats + 1}").touch()
        (self.path / "beats" / f"{self.who}.{self._beats}").unlink(missing_ok=True)
        self._beats += 1

    def silence(self) -> dict[str, float]:
        """For everybody who ever gave a sign of life, for how many seconds none was seen."""
        now = time.monotonic()
        for name in self.names("beats"):
            who, _, number = name.rpartition(".")
            if int(number) > self._seen.get(who, (0, now))[0]:
                self._seen[who] = int(number), now
        return {who: now - at for who, (_, at) in self._seen.items()}
