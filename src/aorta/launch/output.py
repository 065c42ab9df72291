"""Where the workers' output goes: always into files, and from there to the console as torchrun would show it.

Workers write straight into their files, so that no output is lost when a launcher dies. One thread per cycle follows
all files of this agent: it shows them on the console unchanged (what `-r` and `-t` ask for is respected) and writes the
merged log. It knows nothing of cycles or verdicts.
"""

import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.elastic.multiprocessing.api import to_map

log = logging.getLogger(__name__)

_INTERVAL = 0.1
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Shown:
    """`-r`, `-t` and `--local-ranks-filter`, as torchrun spells them."""

    redirects: str = "0"
    tee: str = "0"
    only: frozenset[int] = frozenset()

    def tee_of(self, local_rank: int, world: int) -> Std:
        """Streams that torch's own tailer shows with its prefix."""
        return self._streams(self.tee, local_rank, world) if self._wanted(local_rank) else Std.NONE

    def plain_of(self, local_rank: int, world: int) -> Std:
        """Streams that are shown as they are: neither redirected nor teed."""
        if not self._wanted(local_rank):
            return Std.NONE
        hidden = self._streams(self.redirects, local_rank, world)
        return Std.ALL & ~hidden & ~self._streams(self.tee, local_rank, world)

    def _wanted(self, local_rank: int) -> bool:
        return not self.only or local_rank in self.only

    def _streams(self, spelled: str, local_rank: int, world: int) -> Std:
        return to_map(Std.from_str(spelled), world)[local_rank]


@dataclass(frozen=True)
class Followed:
    """One file to follow. `show` is where its bytes appear unchanged; `prefix` marks its lines in the merged log."""

    path: Path
    show: BinaryIO | None
    prefix: bytes


class Follower:
    """Follows files until it is stopped, and then to their end."""

    def __init__(self, files: Sequence[Followed], merged: Path | None) -> None:
        self._files = [file for file in files if file.show is not None or merged is not None]
        self._merged = merged.open("ab") if merged is not None else None
        self._open: dict[Path, BinaryIO] = {}
        self._half_lines: dict[Path, bytes] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="aorta-follow", daemon=True)
        if self._files:
            self._thread.start()

    def stop(self) -> None:
        """Show what is left and end. The files must have no more writers that matter."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for stream in self._open.values():
            stream.close()
        self._open.clear()
        if self._merged is not None:
            self._merged.close()
            self._merged = None

    def _follow(self) -> None:
        while not self._stopping.wait(_INTERVAL):
            self._catch_up()
        self._catch_up()
        for file in self._files:
            self._merge(file, b"\n" if self._half_lines.get(file.path) else b"")

    def _catch_up(self) -> None:
        for file in self._files:
            stream = self._stream(file.path)
            while stream is not None and (chunk := stream.read(_CHUNK)):
                self._show(file, chunk)
                self._merge(file, chunk)

    def _stream(self, path: Path) -> BinaryIO | None:
        if path not in self._open:
            try:
                self._open[path] = path.open("rb", buffering=0)
            except FileNotFoundError:
                return None
        return self._open[path]

    def _show(self, file: Followed, chunk: bytes) -> None:
        if file.show is None:
            return
        try:
            file.show.write(chunk)
            file.show.flush()
        except (OSError, ValueError):  # nobody reads the console any more; the job goes on
            self._files = [
                Followed(other.path, None, other.prefix) if other.show is file.show else other
                for other in self._files
            ]

    def _merge(self, file: Followed, chunk: bytes) -> None:
        if self._merged is None or not chunk:
            return
        *lines, rest = (self._half_lines.get(file.path, b"") + chunk).split(b"\n")
        self._half_lines[file.path] = rest
        if lines:
            try:
                self._merged.write(b"".join(file.prefix + line + b"\n" for line in lines))
                self._merged.flush()
            except OSError as full:  # the ranks' own logs and the console go on
                log.warning("the merged log ends here: %s", full.strerror)
                self._merged = None


def console(stream: Std) -> BinaryIO:
    return sys.stdout.buffer if stream is Std.OUT else sys.stderr.buffer
