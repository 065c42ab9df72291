"""The supervisor: a small process that holds one slot and runs its trials one after another.

It exists so that nothing outlives a trial: it adopts every orphan of the trial, ends the whole tree
when the trial is over, and does the same when the pipe to its owner closes, so even `kill -9` of
the owner leaves no process and no container behind. It knows orders and facts (JSON lines on a
socket) and nothing of oracles. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from aorta.executors import process_tree
from aorta.executors.evidence import (
    Arrivals,
    MetricFile,
    Mirror,
    SlowPatternError,
    WatchedStream,
    compiled,
    oom_kills,
)
from aorta.executors.framing import Frames, frame
from aorta.executors.warm_hosts import WarmHosts, hooked

TYPE_CHECKING = False  # as `typing` has it, which a supervisor need not load
if TYPE_CHECKING:
    from typing import Any

_CHUNK = 256 * 1024
_CLEANUP_SECONDS = 30
_F_SETPIPE_SZ = 1031
RESULT_FILE = "result.json"  # of a registered workload, in its trial's directory


class OwnerGoneError(Exception):
    """The socket closed: nobody waits for this trial any more."""


class Supervisor:
    def __init__(self, control: socket.socket) -> None:
        self.warm_hosts = WarmHosts(control)
        self.serves(control)
        self._wake, waker = os.pipe()
        for end in (self._wake, waker):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        process_tree.adopt_orphans()

    def serves(self, control: socket.socket) -> None:
        """From here on, whoever is at the other end of this."""
        self.control = self.warm_hosts.owner = control
        self._frames = Frames()

    def serve(self) -> None:
        """Run orders until the owner closes the socket."""
        try:
            with suppress(OwnerGoneError, ConnectionError):
                while True:
                    order = self._next_message()
                    report = SupervisedTrial(self, order).run()
                    self.control.sendall(frame(report))
        finally:
            self.warm_hosts.close()

    def _next_message(self) -> dict[str, Any]:
        while True:
            message = self.poll_message(None)
            if message is not None and message["op"] == "run":
                return message

    def poll_message(self, timeout: float | None) -> dict[str, Any] | None:
        """A whole message if one is there within `timeout`; raises OwnerGoneError at the end of the
        socket.
        """
        while (message := self._frames.next()) is None:
            if timeout is not None and not select.select([self.control], [], [], timeout)[0]:
                return None
            try:
                data = self.control.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                raise OwnerGoneError
            self._frames.feed(data)
        return message

    def owner_gone(self) -> bool:
        """Whether the owner has left, without taking a message from the socket."""
        if not select.select([self.control], [], [], 0)[0]:
            return False
        try:
            return not self.control.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True

    def drain_wakeups(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    @property
    def has_message(self) -> bool:
        """True if a message came together with an earlier one: the socket will not announce it
        again.
        """
        return self._frames.has_line

    @property
    def wake(self) -> int:
        return self._wake


class SupervisedTrial:
    """One order, from fork to the last process gone."""

    def __init__(
        self,
        supervisor: Supervisor,
        order: dict[str, Any],
        mirrors: Mapping[str, Mirror] | None = None,
    ) -> None:
        self.supervisor = supervisor
        self.order = order
        self.mirrors = mirrors or {}
        self.status: int | None = None
        self.facts: dict[str, Any] = {
            "trial_id": order["trial_id"],
            "exit_code": None,
            "signal": None,
            "timed_out": False,
            "hung": False,
            "cancelled": False,
            "lost": None,
        }
        self.streams: dict[int, WatchedStream] = {}
        self.arrivals = Arrivals()

    def run(self) -> dict[str, Any]:
        # Of an earlier attempt.
        (Path(self.order["trial_dir"]) / RESULT_FILE).unlink(missing_ok=True)
        places = self.order["metric"]
        metric = MetricFile(*(Path(place) for place in places)) if places else None
        oom_kills_before = oom_kills()
        self.began = time.monotonic()
        self.facts["started_at"] = time.time()
        try:
            pid = self._start()
        except OSError as wrong:
            self.facts["lost"] = f"could not start {self.order['argv'][0]!r}: {wrong.strerror}"
            return self._finish()
        try:
            self._attend(pid)
        except SlowPatternError as wrong:
            self.facts["lost"] = str(wrong)
        except OwnerGoneError:
            self._end_tree(grace=0)
            self._clean_up()
            raise
        self._end_tree(self.order["grace"])
        if metric is not None:
            self.facts["metric"] = metric.found()
        if self._was_killed():
            counted = oom_kills() > oom_kills_before
            self.facts["out_of_memory"] = counted or self._engine_says_out_of_memory()
        self._clean_up()
        return self._finish()

    def _was_killed(self) -> bool:
        """By SIGKILL, or says so as a shell and a container engine do."""
        if self.status is None:
            return False
        if os.WIFSIGNALED(self.status):
            return os.WTERMSIG(self.status) == signal.SIGKILL
        return os.WEXITSTATUS(self.status) == 128 + signal.SIGKILL

    def _engine_says_out_of_memory(self) -> bool:
        question = self.order["ran_out_of_memory"]
        if not question:
            return False
        import subprocess

        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                question,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_CLEANUP_SECONDS,
                check=False,
            )
            return done.stdout.strip() == b"true"
        return False

    def _start(self) -> int:
        directory = Path(self.order["trial_dir"])
        write_ends = []
        for name in ("stdout", "stderr"):
            read_end, write_end = os.pipe()
            write_ends.append(write_end)
            os.set_blocking(read_end, False)
            with suppress(OSError):  # a smaller pipe is only slower
                fcntl.fcntl(read_end, _F_SETPIPE_SZ, 1 << 20)
            patterns = compiled(self.order["patterns"], name)
            limit = self.order["max_log_bytes"]
            self.streams[read_end] = WatchedStream(
                name, directory / f"{name}.log", patterns, limit, self.mirrors.get(name)
            )
        try:
            return self._start_warm(*write_ends) or self._start_cold(*write_ends)
        finally:
            for write_end in write_ends:
                os.close(write_end)

    def _start_warm(self, stdout: int, stderr: int) -> int | None:
        """From a warm host, where the owner allows it and there can be one.

        Its clock stands where it would stand if it had done the imports itself, so that a time-out,
        a hang or a gate means the same for it as for a cold trial.
        """
        if not self.order.get("warm"):
            return None
        started = self.supervisor.warm_hosts.start(self.order, stdout, stderr)
        self.began = time.monotonic() - (started.spared if started else 0.0)
        self.facts["started_at"] = time.time()
        if started is None:
            return None
        self.facts["spared"] = started.spared
        return started.pid

    def _start_cold(self, stdout: int, stderr: int) -> int:
        env, file = self.order["env"], self.order.get("observe")
        if file:
            argv = self.order["argv"]
            watched = partial(_observed, env, file)
            return process_tree.start(argv, watched, self.order["cwd"], stdout, stderr)
        return process_tree.start(self.order["argv"], env, self.order["cwd"], stdout, stderr)

    def _attend(self, pid: int) -> None:
        """Until the command has ended, its answer is known, its time is up, or nobody wants it."""
        open_ends = set(self.streams)
        control = self.supervisor.control.fileno()
        while True:
            watched = [control, self.supervisor.wake, *open_ends]
            patience = 0.0 if self.supervisor.has_message else self._until_next_deadline()
            ready = select.select(watched, [], [], patience)[0]
            # What is found together came at one moment: nobody can tell any more which came first.
            at = self._now()
            for end in open_ends.intersection(ready):
                if not self._read(end, at):
                    open_ends.discard(end)
            if self._cancelled():
                self.facts["cancelled"] = True
                return
            answered = [stream.scan(self._now()) for stream in self.streams.values()]
            if any(answered):
                return
            self.supervisor.drain_wakeups()
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
            stream = self.streams[end]
            self.arrivals.note(at, stream.name, stream.seen)
            stream.feed(data, at)
        return bool(data)

    def _cancelled(self) -> bool:
        """Asked every time, not only when the socket is ready: a cancel may have come in one read
        with the order.
        """
        message = self.supervisor.poll_message(0)
        return message is not None and message["op"] == "cancel"

    def _deadlines(self) -> list[tuple[float, str]]:
        """(seconds after the start, the fact that is then true)."""
        found = []
        if self.order["timeout"] is not None:
            found.append((self.order["timeout"], "timed_out"))
        if self.order["longer_than"] is not None:
            found.append((self.order["longer_than"], "hung"))
        if self.order["silent_for"] is not None:
            last = max((s.last_at or 0.0 for s in self.streams.values()), default=0.0)
            found.append((last + self.order["silent_for"], "hung"))
        return found

    def _until_next_deadline(self) -> float | None:
        times = [at for at, _ in self._deadlines()]
        times += [at for s in self.streams.values() if (at := s.next_scan()) is not None]
        return max(0.0, min(times) - self._now()) if times else None

    def _out_of_time(self) -> bool:
        passed = [fact for at, fact in sorted(self._deadlines()) if at <= self._now()]
        if passed:
            self.facts[passed[0]] = True
        return bool(passed)

    def _end_tree(self, grace: float) -> None:
        """A status that we caused ourselves is no fact about the command, so it is not kept."""
        process_tree.end_all(grace, self.supervisor.owner_gone)
        self._drain()

    def _drain(self) -> None:
        """What the tree wrote before it ended; bounded, for a process that could not be killed
        writes on.
        """
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
            self.facts["lost"] = self.facts["lost"] or str(wrong)

    def _clean_up(self) -> None:
        for argv in self.order["cleanup"]:
            import subprocess  # 3 ms of a start, for trials in containers

            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=_CLEANUP_SECONDS,
                    check=False,
                )

    def _finish(self) -> dict[str, Any]:
        facts = self.facts
        facts["duration"] = self._now()
        if self.status is not None:
            if os.WIFSIGNALED(self.status):
                facts["signal"] = os.WTERMSIG(self.status)
            else:
                facts["exit_code"] = os.WEXITSTATUS(self.status)
        self.arrivals.write(Path(self.order["trial_dir"]) / "arrivals.tsv")
        matches = []
        for end, stream in self.streams.items():
            os.close(end)
            facts[stream.name] = stream.end()
            matches += [p.match for p in stream.patterns if p.match]
        facts["matches"] = sorted(matches, key=lambda match: match["at"])
        return facts

    def _now(self) -> float:
        return time.monotonic() - self.began


def _observed(env: Mapping[str, str], file: str) -> dict[str, str]:
    return hooked(env, f"observe:{os.getpid()}:{file}")


def main() -> None:
    """Entered by the local executor with the number of an inherited socket."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)  # the owner's word counts, or its end
    with socket.socket(fileno=int(sys.argv[1])) as control:
        # A trial that held it would keep us from seeing the owner's end.
        control.set_inheritable(False)
        Supervisor(control).serve()
