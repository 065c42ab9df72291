"""What workers write: through pipes into `rank_<r>.{out,err}`, and to the console as torchrun does.

A full disk costs log lines and never the job; the last words are kept in memory for attribution.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import BinaryIO, TextIO

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, Std
from torch.distributed.elastic.multiprocessing.api import to_map

from aorta.launch.records import CycleDir, CycleStart, LogDir, complain_once

HOOK = Path(__file__).parent / "hook"
_CHUNK = 1 << 16
_TAIL = 16 << 10
_INTERVAL = 0.1
_LONGEST_NUMBER = 32


@dataclass(frozen=True)
class Shown:
    """`-r`, `-t`, `--local-ranks-filter`, `--log-line-prefix-template`, as torchrun has them."""

    redirects: str = "0"
    tee: str = "0"
    only: frozenset[int] = frozenset()
    prefix: str = "[${role_name}${local_rank}]:"

    def tee_of(self, local_rank: int, world: int) -> Std:
        """Streams that are shown line by line behind a prefix."""
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


@dataclass(eq=False)
class _Sink:
    """Where a stream is shown; once that fails it is left out."""

    screen: TextIO
    prefix: bytes | None = None  # of every line; None: the stream is passed on as it comes


@dataclass
class _Stream:
    """One stream of one rank: where it comes from and where it goes."""

    rank: int
    path: Path
    reads: int
    writes: int
    sinks: list[_Sink]
    file: BinaryIO | None = None
    tail: bytes = b""
    half_line: bytes = b""
    is_complete: bool = True  # False once something of it could not be written

    def pass_on(self, chunk: bytes) -> None:
        lines: list[bytes] = []
        if any(sink.prefix is not None for sink in self.sinks):
            *lines, self.half_line = (self.half_line + chunk).split(b"\n")
        for sink in tuple(self.sinks):
            content = chunk
            if sink.prefix is not None:
                content = b"".join(sink.prefix + line + b"\n" for line in lines)
            try:
                if content:
                    sink.screen.buffer.write(content)
                    sink.screen.flush()
            except (OSError, ValueError):  # nobody reads the console any more; the job goes on
                self.sinks.remove(sink)

    def close(self) -> None:
        if self.half_line:
            self.sinks = [sink for sink in self.sinks if sink.prefix is not None]
            self.pass_on(b"\n")
        if self.file is not None:
            self.file.close()
        os.close(self.reads)
        os.close(self.writes)


@dataclass
class OutputPump:
    """Carries what the ranks of one cycle write, until it is stopped, and then to the end."""

    streams: list[_Stream] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    last_output: float = 0.0  # when a rank last wrote something, on the monotonic clock

    def start(self) -> None:
        """Files first: also a rank that writes nothing has its logs."""
        for stream in self.streams:
            self._write(stream, b"")
        self._thread = threading.Thread(target=self._carry, name="aorta-output", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Carry what is left and end. The pipes must have no more writers that matter."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def tail_of(self, rank: int) -> str:
        """The end of what a rank wrote, output before errors."""
        tails = (stream.tail for stream in self.streams if stream.rank == rank)
        return "".join(text.decode("utf-8", "replace") for text in tails)

    @property
    def incomplete(self) -> frozenset[int]:
        """Ranks whose files do not hold all that they wrote last."""
        return frozenset(stream.rank for stream in self.streams if not stream.is_complete)

    def _carry(self) -> None:
        by_pipe = {stream.reads: stream for stream in self.streams}
        poll = select.poll()
        for pipe in by_pipe:
            poll.register(pipe, select.POLLIN)
        while not self._stopping.is_set():
            for pipe, _ in poll.poll(_INTERVAL * 1000):
                self._pass_on(by_pipe[pipe])
        for stream in self.streams:
            while self._pass_on(stream):
                pass
            stream.close()

    def _pass_on(self, stream: _Stream) -> bool:
        try:
            chunk = os.read(stream.reads, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            return False
        self.last_output = time.monotonic()
        stream.tail = (stream.tail + chunk)[-_TAIL:]
        self._write(stream, chunk)
        stream.pass_on(chunk)
        return True

    def _write(self, stream: _Stream, chunk: bytes) -> None:
        try:
            if stream.file is None:
                # Of an earlier job nothing may stand before it: attribution reads it all.
                stream.file = stream.path.open("wb", buffering=0)
            written = stream.file.write(chunk)
            stream.is_complete = stream.is_complete and written == len(chunk)
        except OSError as full:
            stream.is_complete = False
            complain_once(str(stream.path), full)


@dataclass(eq=False)
class CycleLogs(LogsSpecs):
    """Tells torch where the workers of the coming cycle write."""

    log_dir: LogDir
    shown: Shown
    watch_hangs: bool = False
    pump: OutputPump = field(default_factory=OutputPump)  # of the cycle that runs
    _start: CycleStart | None = None
    # Rank -> a file in memory that it writes its step into, and when that was made.
    _beats: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(str(self.log_dir.path))

    @property
    def root_log_dir(self) -> str:
        return str(self.log_dir.path)

    def prepare(self, start: CycleStart) -> CycleDir:
        """Say which cycle the next workers belong to."""
        self._start = start
        self.pump = OutputPump()
        for file, _ in self._beats.values():
            os.close(file)
        self._beats.clear()
        return self.log_dir.prepare(start)

    def beats(self) -> dict[int, int]:
        """Rank -> what changes whenever it beats; 0 before it does."""
        changed = {
            rank: (os.fstat(file).st_mtime_ns, at) for rank, (file, at) in self._beats.items()
        }
        return {rank: now if now != made else 0 for rank, (now, made) in changed.items()}

    def furthest_step(self) -> int | None:
        """The largest number in a heartbeat of this cycle."""
        steps = []
        for file, _ in list(self._beats.values()):
            with suppress(OSError, ValueError):  # the cycle may just have been left
                steps.append(int(os.pread(file, _LONGEST_NUMBER, 0)))
        return max(steps, default=None)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        assert self._start is not None
        directory = CycleDir(self.log_dir.path, self._start.cycle)
        pump = OutputPump()
        destination = LogsDest()
        for local_rank, env in envs.items():
            rank = int(env["RANK"])
            self._tell_worker(env, self._start, directory, rank)
            for stream, paths, file in (
                (Std.OUT, destination.stdouts, directory.file(rank, "out")),
                (Std.ERR, destination.stderrs, directory.file(rank, "err")),
            ):
                sinks = self._sinks(stream, local_rank, env, len(envs))
                piped = _Stream(rank, file, *_pipe(), sinks)
                pump.streams.append(piped)
                paths[local_rank] = f"/proc/{os.getpid()}/fd/{piped.writes}"
            destination.error_files[local_rank] = str(directory.file(rank, "error.json"))
        pump.start()
        self.pump = pump
        return destination

    def _sinks(
        self, stream: Std, local_rank: int, env: Mapping[str, str], world: int
    ) -> list[_Sink]:
        """Where a stream is shown."""
        names = {"role_name": env["ROLE_NAME"], "rank": env["RANK"], "local_rank": str(local_rank)}
        prefix = Template(self.shown.prefix).safe_substitute(names).encode()
        screen = sys.stdout if stream is Std.OUT else sys.stderr
        plain = stream in self.shown.plain_of(local_rank, world)
        teed = stream in self.shown.tee_of(local_rank, world)
        return [_Sink(screen)] * plain + [_Sink(screen, prefix)] * teed

    def _tell_worker(
        self, env: dict[str, str], start: CycleStart, directory: CycleDir, rank: int
    ) -> None:
        with suppress(OSError):
            directory.file(rank, "error.json").unlink(missing_ok=True)
        env["TORCHELASTIC_ERROR_FILE"] = str(directory.file(rank, "error.json"))
        env["AORTA_JOB_ID"] = start.job_id
        env["AORTA_CYCLE"] = str(start.cycle)
        env["AORTA_CYCLE_ID"] = start.cycle_id
        beats = os.memfd_create(f"aorta-heartbeat-{rank}")
        self._beats[rank] = (beats, os.fstat(beats).st_mtime_ns)
        env["AORTA_HEARTBEAT_FILE"] = f"/proc/{os.getpid()}/fd/{beats}"
        if self.watch_hangs:
            env["AORTA_STACKS_FILE"] = str(directory.file(rank, "stacks"))
            env["AORTA_FLIGHT_RECORDER_FILE"] = str(directory.flight_recorder(rank))
            # Our `sitecustomize` first; it hands over to the user's own.
            before = os.environ.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join([str(HOOK), *([before] if before else [])])


def _pipe() -> tuple[int, int]:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    return reads, writes
