"""Hangs: noticing that nothing moves any more, and collecting what ranks do before they are killed.

Without heartbeats only a job that is silent everywhere hangs: ranks that never print are normal. A
rank that beats is judged by its heartbeat alone.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aorta.launch.output import CycleLogs
from aorta.launch.records import HANG, CycleDir, CycleStart, is_there
from aorta.launch.store import JobStore

STACKS_SIGNAL, DUMP_SIGNAL = signal.SIGRTMAX - 3, signal.SIGRTMAX - 4  # the hook listens on them
COLLECT_WITHIN = 20.0  # seconds; ranks that can answer do so within one
_QUIET_FILE = 0.2  # seconds that a whole stack file has not grown


@dataclass
class HangWatch:
    """Says when the job hangs: silence everywhere, or one missed heartbeat. Asks no file system."""

    limit: float
    store: JobStore
    start: CycleStart
    group_rank: int
    logs: CycleLogs
    _last_sign: float = field(default_factory=time.monotonic)
    _seen: dict[int, int] = field(default_factory=dict)  # rank -> its last heartbeat
    _last_beat: dict[int, float] = field(default_factory=dict)  # rank -> when that was seen
    _reported: float = 0.0
    _next_look: float = 0.0

    def found(self, running: Collection[int]) -> tuple[str, int | None] | None:
        """What hangs, in words, and the rank that is known to; None while these ranks do not."""
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + min(1.0, self.limit / 10)
        self._look(running, now)
        if self._last_beat:
            rank = min(self._last_beat, key=lambda each: self._last_beat[each])
            age = now - self._last_beat[rank]
            words = f"{HANG}: rank {rank} gave no heartbeat for {age:.0f} s"
            return (words, rank) if age >= self.limit else None
        silence = now - self._last_sign
        if self.group_rank != 0:
            self._report(silence)
        elif silence >= self.limit and self._others_are_silent():
            return f"{HANG}: no output and no progress for {silence:.0f} s", None
        return None

    def _look(self, running: Collection[int], now: float) -> None:
        """Notice what has changed. Ranks that have ended need not beat any more."""
        for rank, beaten in self.logs.beats().items():
            if beaten and beaten != self._seen.get(rank):
                self._last_beat[rank] = self._last_sign = now
            self._seen[rank] = beaten
            if rank not in running:
                self._last_beat.pop(rank, None)
        self._last_sign = max(self._last_sign, self.logs.pump.last_output)

    def _report(self, silence: float) -> None:
        """Keep the leader informed, but only of what could matter."""
        said = silence if silence >= self.limit / 2 else 0.0
        if said or self._reported:
            self.store.report_quiet(self.start.cycle, self.group_rank, said)
            self._reported = said

    def _others_are_silent(self) -> bool:
        others = range(1, len(self.start.nodes))
        quiet = (self.store.quiet(self.start.cycle, group) for group in others)
        return all(seconds >= self.limit * 0.8 for seconds in quiet)


def collect_dumps(directory: CycleDir, pids: Mapping[int, int]) -> tuple[str, ...]:
    """Ask every live rank for stacks and Flight Recorder; returns the files that came."""
    hooked = {rank: pid for rank, pid in pids.items() if is_there(directory.file(rank, "stacks"))}
    with suppress(OSError):
        directory.flight_recorder(0).parent.mkdir(exist_ok=True)
    deadline = time.monotonic() + COLLECT_WITHIN
    # One after the other: reading the stack of a thread while it runs can end the process, and the
    # thread that dumps the Flight Recorder stands still until it is asked.
    stacks = {rank: directory.file(rank, "stacks") for rank in hooked}
    dumps = {rank: directory.flight_recorder(rank) for rank in hooked}
    _request(hooked, STACKS_SIGNAL, lambda rank: _is_complete(stacks[rank]), deadline)
    _request(hooked, DUMP_SIGNAL, lambda rank: is_there(dumps[rank]), deadline)
    files = [(stacks[rank], dumps[rank]) for rank in hooked]
    return tuple(str(file) for pair in files for file in pair if _is_filled(file))


def _request(
    pids: Mapping[int, int], number: int, answered: Callable[[int], bool], deadline: float
) -> None:
    """Send every rank the signal and wait until all that got it have answered."""
    waiting = set()
    for rank, pid in pids.items():
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            waiting.add(rank)
    while waiting and time.monotonic() < deadline:
        time.sleep(_QUIET_FILE)
        waiting = {rank for rank in waiting if not answered(rank)}


def _is_complete(stacks: Path) -> bool:
    """Whether the thread that stands is among them: on a busy machine a pause tells nothing."""
    with suppress(OSError):
        quiet = time.time() - stacks.stat().st_mtime
        written = stacks.read_bytes()
        is_whole = b"Current thread" in written and written.endswith(b"\n")
        return is_whole and quiet >= _QUIET_FILE / 2
    return False


def _is_filled(file: Path) -> bool:
    with suppress(OSError):
        return file.stat().st_size > 0
    return False
