"""The supervisor: a small process that holds one slot and runs its trials one after another.

It adopts every orphan of a trial and ends the whole tree with the trial, or when its owner is gone:
even `kill -9` of the owner leaves no process and no container. Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta.executors import process_tree
from aorta.executors.evidence import (
    CompiledPattern,
    MetricFile,
    SlowPatternError,
    WatchedStream,
    json_object,
    oom_kills,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_CHUNK = 256 * 1024
_CLEANUP_SECONDS = 30
_F_SETPIPE_SZ = 1031
RESULT_FILE = "result.json"  # of a registered workload, in its trial's directory


class OwnerGoneError(Exception):
    """Nobody waits for this trial any more."""


class TrialOwner:
    """At the other end of a socket of this machine: a JSON object a line, both ways."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self.descriptor = control.fileno()  # becomes readable when there is something to hear

    def send(self, content: Mapping[str, Any]) -> None:
        self._control.sendall(json.dumps(content).encode("ascii") + b"\n")

    def requests(self) -> Iterator[dict[str, Any]]:
        """One trial after another, until the other end is closed."""
        received = b""
        with suppress(ConnectionError):
            while data := self._control.recv(1 << 20, socket.MSG_PEEK):
                # Not beyond the line: what follows it may be the cancel of this trial.
                length = data.find(b"\n") + 1
                received += self._control.recv(length or len(data))
                if length:
                    request, received = json.loads(received), b""
                    if request["op"] == "run":  # a cancel came too late
                        yield request

    def cancels(self) -> bool:
        """Whether the trial is not wanted any more: while one runs, nothing else is said. Raises
        OwnerGoneError if nobody is there."""
        if self.is_gone():
            raise OwnerGoneError
        with suppress(BlockingIOError):
            return bool(self._control.recv(4096, socket.MSG_DONTWAIT))
        return False

    def is_gone(self) -> bool:
        if not select.select([self._control], [], [], 0)[0]:
            return False
        try:
            return not self._control.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True


def wakeups() -> int:
    """A descriptor that becomes readable when a child ends, whoever started it: orphans of trials
    are this process's children from here on."""
    wake, waker = os.pipe()
    for end in (wake, waker):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    process_tree.adopt_orphans()
    return wake


class SupervisedTrial:
    """One request, from fork to the last process gone."""

    def __init__(self, wake: int, request: dict[str, Any], owner: TrialOwner) -> None:
        self.wake = wake
        self.request = request
        self.owner = owner
        self.status: int | None = None
        self.response: dict[str, Any] = {}
        self.streams: dict[int, WatchedStream] = {}

    def run(self) -> dict[str, Any]:
        """To the last of its processes. OwnerGoneError if its owner left meanwhile."""
        result = Path(self.request["trial_dir"]) / RESULT_FILE
        result.unlink(missing_ok=True)  # of an earlier attempt
        places = self.request["metric"]
        metric = MetricFile(*(Path(place) for place in places)) if places else None
        oom_kills_before = oom_kills()
        self.began = time.monotonic()
        self.response["started_at"] = time.time()
        try:
            pid = self._start()
        except OSError as wrong:
            self.response["lost"] = f"could not start {self.request['argv'][0]!r}: {wrong.strerror}"
            return self._finish()
        try:
            self._attend(pid)
        except SlowPatternError as wrong:
            self.response["lost"] = str(wrong)
        except OwnerGoneError:
            self._end_tree(grace=0)
            clean_up(self.request["cleanup"])
            raise
        self._end_tree(self.request["grace"])
        self.response["result"] = json_object(result)
        if metric is not None and (number := metric.found()):
            self.response["result"] = {**(self.response["result"] or {}), **number}
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        # By SIGKILL, or it says so as a shell and a container engine do.
        if code in {-signal.SIGKILL, 128 + signal.SIGKILL}:
            counted = oom_kills() > oom_kills_before
            question = self.request["ran_out_of_memory"]
            engine_says = bool(question) and output_of(question) == b"true"
            self.response["out_of_memory"] = counted or engine_says
        clean_up(self.request["cleanup"])
        return self._finish()

    def _start(self) -> int:
        directory = Path(self.request["trial_dir"])
        write_ends = []
        for name in ("stdout", "stderr"):
            read_end, write_end = os.pipe()
            write_ends.append(write_end)
            os.set_blocking(read_end, False)
            with suppress(OSError):  # a smaller pipe is only slower
                fcntl.fcntl(read_end, _F_SETPIPE_SZ, 1 << 20)
            wanted = [p for p in self.request["patterns"] if p["stream"] in {name, "both"}]
            patterns = [CompiledPattern(pattern) for pattern in wanted]
            limit = self.request["max_log_bytes"]
            self.streams[read_end] = WatchedStream(name, directory / f"{name}.log", patterns, limit)
        try:
            return self._start_warm(*write_ends) or process_tree.start(
                self.request["argv"], self.request["env"], self.request["cwd"], *write_ends
            )
        finally:
            for write_end in write_ends:
                os.close(write_end)

    def _start_warm(self, stdout: int, stderr: int) -> int | None:
        """Its clock stands where it would if it had done the imports itself: a time-out or a hang
        means the same as for a cold trial."""
        if "warm" not in self.request:
            return None
        from aorta.executors.warm import fork

        pid, saved = fork(self.request, (stdout, stderr))
        self.began = time.monotonic() - saved
        self.response |= {"started_at": time.time(), "saved": saved}
        return pid

    def _attend(self, pid: int) -> None:
        """Until the command has ended, its answer is known, its time is up, or nobody wants it."""
        open_ends = set(self.streams)
        while True:
            if self.owner.cancels():
                self.response["cancelled"] = True
                return
            watched = [self.owner.descriptor, self.wake, *open_ends]
            ready = select.select(watched, [], [], self._until_next_deadline())[0]
            # What is found together came at one moment: nobody can tell any more which came first.
            at = self._now()
            for end in open_ends.intersection(ready):
                if not self._read(end, at):
                    open_ends.discard(end)
            answered = [stream.scan(self._now()) for stream in self.streams.values()]
            if any(answered):
                return
            with suppress(BlockingIOError):
                os.read(self.wake, 4096)
            self.status = process_tree.reap().get(pid, self.status)
            if self.status is not None:
                return
            if self._out_of_time():
                return

    def _read(self, end: int, at: float) -> bool:
        try:
            data = os.read(end, _CHUNK)
        except BlockingIOError:
            return True
        if data:
            self.streams[end].feed(data, at)
        return bool(data)

    def _deadlines(self) -> list[tuple[float, str]]:
        """(seconds after the start, the fact that is then true)."""
        found = []
        if self.request["timeout"] is not None:
            found.append((self.request["timeout"], "timed_out"))
        if self.request["longer_than"] is not None:
            found.append((self.request["longer_than"], "hung"))
        if self.request["silent_for"] is not None:
            last = max((s.last_at or 0.0 for s in self.streams.values()), default=0.0)
            found.append((last + self.request["silent_for"], "hung"))
        return found

    def _until_next_deadline(self) -> float | None:
        times = [at for at, _ in self._deadlines()]
        times += [at for s in self.streams.values() if (at := s.next_scan()) is not None]
        return max(0.0, min(times) - self._now()) if times else None

    def _out_of_time(self) -> bool:
        passed = [fact for at, fact in sorted(self._deadlines()) if at <= self._now()]
        if passed:
            self.response[passed[0]] = True
        return bool(passed)

    def _end_tree(self, grace: float) -> None:
        """A status that we caused ourselves is no fact about the command, so it is not kept. What
        the tree wrote before it ended is read; bounded: an unkillable process writes on.
        """
        process_tree.end_all(grace, self.owner.is_gone)
        at = self._now()
        until = at + 1.0
        for end, stream in self.streams.items():
            with suppress(BlockingIOError):
                while self._now() < until and (data := os.read(end, _CHUNK)):
                    stream.feed(data, at)
                    self._scan_finally(stream, final=False)
            self._scan_finally(stream, final=True)

    def _scan_finally(self, stream: WatchedStream, *, final: bool) -> None:
        try:
            stream.scan(self._now(), final=final)
        except SlowPatternError as wrong:
            self.response.setdefault("lost", str(wrong))

    def _finish(self) -> dict[str, Any]:
        response = self.response
        response["duration"] = self._now()
        if self.status is not None:
            code = os.waitstatus_to_exitcode(self.status)
            response["exit_code" if code >= 0 else "signal"] = abs(code)
        matches = []
        for end, stream in self.streams.items():
            os.close(end)
            response[stream.name] = stream.end()
            matches += [p.match for p in stream.patterns if p.match]
        response["matches"] = sorted(matches, key=lambda match: match["at"])
        return response

    def _now(self) -> float:
        return time.monotonic() - self.began


def output_of(argv: Sequence[str]) -> bytes:
    """What a container engine prints; nothing if it cannot be asked."""
    import subprocess  # 3 ms of a start, for trials in containers

    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CLEANUP_SECONDS,
            check=False,
        )
        return done.stdout.strip()
    return b""


def clean_up(commands: Iterable[Sequence[str]]) -> None:
    """What a launch wants run after its trial, however that ended."""
    for argv in commands:
        output_of(argv)


def main() -> None:
    """Entered by the local executor with the number of an inherited socket."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # the owner's word counts, or its end
    with socket.socket(fileno=int(sys.argv[1])) as control:
        # A trial that held it would keep us from seeing the owner's end.
        control.set_inheritable(False)
        owner, wake = TrialOwner(control), wakeups()
        with suppress(OwnerGoneError, ConnectionError):
            for request in owner.requests():
                owner.send(SupervisedTrial(wake, request, owner).run())
