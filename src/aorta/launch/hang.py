"""Hangs: noticing that nothing moves any more, and collecting what every rank is doing before it is
killed.

Signs of life are output and heartbeats. Without heartbeats only a job that is silent everywhere
hangs: ranks that never print are normal. A rank that beats is judged by its heartbeat alone.
"""

import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aorta.launch.cycle_dir import CycleDir, is_there
from aorta.launch.output import CycleLogs
from aorta.launch.records import HANG, CycleStart
from aorta.launch.store import JobStore

STACKS_SIGNAL, DUMP_SIGNAL = signal.SIGRTMAX - 3, signal.SIGRTMAX - 4  # the hook listens on them
COLLECT_WITHIN = 5.0  # seconds
_QUIET_FILE = 0.2  # a stack file that has not grown for so long is complete


class SignsOfLife:
    """When the ranks of this agent were last seen to do something. No file system is asked: output
    comes through pipes, and heartbeats are written into memory of this process.
    """

    def __init__(self, logs: CycleLogs, ranks: Iterable[int]) -> None:
        self._logs = logs
        self._seen: dict[int, int] = {}
        self._last_sign = time.monotonic()
        self._last_beat: dict[int, float] = {}
        self._ranks = tuple(ranks)

    def look(self, running: Iterable[int]) -> None:
        """Notice what has changed. Ranks that have ended need not beat any more."""
        alive = set(running)
        now = time.monotonic()
        for rank in self._ranks:
            beaten = self._logs.last_beat(rank)
            if beaten and beaten != self._seen.get(rank):
                self._last_beat[rank] = self._last_sign = now
            self._seen[rank] = beaten
            if rank not in alive:
                self._last_beat.pop(rank, None)
        self._last_sign = max(self._last_sign, self._logs.last_output())

    def silence(self) -> float:
        return time.monotonic() - self._last_sign

    def missed_beat(self) -> tuple[int, float] | None:
        """The rank whose heartbeat is oldest, and its age."""
        if not self._last_beat:
            return None
        rank = min(self._last_beat, key=lambda each: self._last_beat[each])
        return rank, time.monotonic() - self._last_beat[rank]

    def step(self) -> int | None:
        """The furthest step any heartbeat of this cycle told."""
        told = [self._logs.reported_step(rank) for rank in self._ranks]
        return max((step for step in told if step is not None), default=None)


@dataclass(frozen=True)
class Hang:
    words: str
    rank: int | None = None  # the one that is known to hang


class HangWatch:
    """Says when the job hangs: silence everywhere, or one missed heartbeat."""

    def __init__(
        self, limit: float, store: JobStore, start: CycleStart, group_rank: int, signs: SignsOfLife
    ) -> None:
        self._limit = limit
        self._store = store
        self._start = start
        self._group_rank = group_rank
        self._signs = signs
        self._told = 0.0
        self._next_look = time.monotonic()

    def found(self, running: Iterable[int]) -> Hang | None:
        if time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + min(1.0, self._limit / 10)
        self._signs.look(running)
        missed = self._signs.missed_beat()
        if missed is not None:
            rank, age = missed
            words = f"{HANG}: rank {rank} gave no heartbeat for {age:.0f} s"
            return Hang(words, rank) if age >= self._limit else None
        silence = self._signs.silence()
        self._tell(silence)
        if self._group_rank == 0 and silence >= self._limit and self._others_are_silent():
            return Hang(f"{HANG}: no output and no progress for {silence:.0f} s")
        return None

    def _tell(self, silence: float) -> None:
        """Keep the leader informed, but only of what could matter."""
        said = silence if silence >= self._limit / 2 else 0.0
        if self._group_rank != 0 and (said or self._told):
            self._store.report_quiet(self._start.cycle, self._group_rank, said)
            self._told = said

    def _others_are_silent(self) -> bool:
        others = range(1, len(self._start.nodes))
        return all(
            self._store.quiet(self._start.cycle, group) >= self._limit * 0.8 for group in others
        )


def collect_dumps(directory: CycleDir, pids: Mapping[int, int]) -> tuple[str, ...]:
    """Ask every live rank for its stacks and its Flight Recorder, and wait a little for both. The
    files of those that could write them; a full disk costs files and no more.
    """
    hooked = {rank: pid for rank, pid in pids.items() if is_there(directory.stacks(rank))}
    with suppress(OSError):
        directory.flight_recorder(0).parent.mkdir(exist_ok=True)
    for pid in hooked.values():
        for number in (DUMP_SIGNAL, STACKS_SIGNAL):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    deadline = time.monotonic() + COLLECT_WITHIN
    while time.monotonic() < deadline:
        time.sleep(_QUIET_FILE)
        if all(
            _is_complete(directory.stacks(rank)) and is_there(directory.flight_recorder(rank))
            for rank in hooked
        ):
            break
    files = [(directory.stacks(rank), directory.flight_recorder(rank)) for rank in hooked]
    return tuple(str(file) for pair in files for file in pair if _size(file) > 0)


def _is_complete(stacks: Path) -> bool:
    try:
        status = stacks.stat()
    except OSError:
        return False
    return status.st_size > 0 and time.time() - status.st_mtime >= _QUIET_FILE / 2


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
