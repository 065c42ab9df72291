"""The warm hosts of one supervisor: started when a trial may use one, asked for a trial at a time,
ended with it.

A host is a child of the supervisor that is not part of any trial. Whatever goes wrong with one, the
answer is a cold start. Standard library only.
"""

from __future__ import annotations

import marshal
import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from aorta.executors import process_tree

TYPE_CHECKING = False  # as `typing` has it, which a supervisor need not load
if TYPE_CHECKING:
    from typing import Any

HOOK = str(Path(__file__).parent / "hook")
VARIABLE = "AORTA_WARM"
ORIGINAL_PATH = "AORTA_WARM_PYTHONPATH"
OWN_VARIABLES = ("AORTA_TRIAL_DIR", "AORTA_METRIC_FILE", "AORTA_STEP_TIMES")
_FEW = 4
_MOST_HOSTS = 3
_MOST_MEMORY = 0.25  # of the machine, for all hosts of this supervisor
# Of the machine: with less available no further host is started, in whatever slot.
_LEAST_FREE = 0.1
MOST_UNFIT = 8  # modules left out one by one before the whole command is given up
_LEAST_PATIENCE = 60.0
_ANSWER_SECONDS = 20.0  # for a fork


def worth_seconds(trial_seconds: float) -> float:
    """Imports that take less are left to each trial: less than 0.3 s, or less than a twentieth of
    it.
    """
    return max(0.3, 0.05 * trial_seconds)


class WarmStart:
    """A process of a trial that came from a host, and the seconds of imports that it was spared."""

    def __init__(self, pid: int, spared: float) -> None:
        self.pid = pid
        self.spared = spared


class _Host:
    def __init__(
        self, pid: int, line: socket.socket, command: tuple[str, ...], ends: tuple[int, int]
    ) -> None:
        self.pid = pid
        self.line = line
        self.command = command  # what all its trials have in common
        self.ends = ends  # of its stdout and stderr
        self.spared = 0.0
        self.used_at = time.monotonic()
        self.trials = 0

    def close(self) -> None:
        self.line.close()
        for end in self.ends:
            with suppress(OSError):
                os.close(end)
        process_tree.end_spared(self.pid)


class _UnwantedError(Exception):
    """The owner has something to say, or is gone: nobody waits for imports any more."""


class WarmHosts:
    def __init__(self, owner: socket.socket, most_memory: float | None = None) -> None:
        self.owner = owner
        self.most_memory = (
            _MOST_MEMORY * _memory_of_machine() if most_memory is None else most_memory
        )
        self.hosts: list[_Host] = []
        self.given_up: dict[tuple[str, ...], str] = {}  # command: why
        self._excluded: dict[tuple[str, ...], list[str]] = {}
        self._deaths: dict[tuple[str, ...], int] = {}

    def start(self, order: Mapping[str, Any], stdout: int, stderr: int) -> WarmStart | None:
        """The trial of this order from a host; None if it must start cold."""
        warm = order["warm"]
        command = (order["cwd"], *warm["command"])
        message = {
            "env": warm["env"],
            "cwd": order["cwd"],
            "arguments": warm["arguments"],
            "front": warm["front"],
        }
        for host in sorted(self.hosts, key=lambda one: -one.used_at):
            if host.command != command:
                continue
            if warm["of_few"] and host.trials >= _FEW:
                self._end(host)
            else:
                started = self._ask(host, message, (stdout, stderr))
                if started is not None:
                    return started
        if command in self.given_up:
            return None
        fresh = self._open(command, order)
        if fresh is None:
            return None
        started = self._ask(fresh, message, (stdout, stderr))
        if started is None:  # one that was made for this very trial: the next would refuse as well
            self.given_up[command] = "its warm host refused the trial it was made for"
        return started

    def close(self) -> None:
        while self.hosts:
            self._end(self.hosts[-1])

    def _end(self, host: _Host) -> None:
        self.hosts.remove(host)
        host.close()

    def _ask(
        self, host: _Host, message: Mapping[str, Any], streams: tuple[int, int]
    ) -> WarmStart | None:
        try:
            answer = ask_for_fork(host.line, message, streams)
        except (OSError, EOFError, ValueError):
            self._died(host)
            return None
        if "pid" not in answer:
            if answer.get("stale"):
                self._end(host)
            return None
        host.used_at = time.monotonic()
        host.trials += 1
        return WarmStart(answer["pid"], host.spared)

    def _died(self, host: _Host) -> None:
        """Once may be an accident; a host that dies again is not started a third time."""
        self._end(host)
        self._deaths[host.command] = self._deaths.get(host.command, 0) + 1
        if self._deaths[host.command] > 1:
            self.given_up[host.command] = "its warm host died"

    def _open(self, command: tuple[str, ...], order: Mapping[str, Any]) -> _Host | None:
        """A host with everything imported that can be; the modules that cannot be are found on the
        way.
        """
        excluded = self._excluded.setdefault(command, [])
        self._make_room()
        if not has_room_for_host():
            return None
        while len(excluded) <= MOST_UNFIT:
            host = self._started(command, order)
            if host is None:
                self.given_up[command] = "its warm host did not start"
                return None
            try:
                warm = order["warm"]
                about = {
                    "candidates": [row for row in read_rows(Path(warm["candidates"])) if row[0]],
                    "env": warm["env"],
                    "arguments": warm["arguments"],
                    "excluded": excluded,
                    "own": list(OWN_VARIABLES),
                }
                tell(host.line, about)
                patience = max(_LEAST_PATIENCE, 10 * warm["seconds"])
                answer = hear(host.line, patience, self.owner)
            except _UnwantedError:
                host.close()
                return None
            except (OSError, EOFError, ValueError):
                self.hosts.append(host)
                self._died(host)
                return None
            if "ready" in answer and answer["seconds"] >= worth_seconds(warm["seconds"]):
                host.spared = answer["seconds"]
                self.hosts.append(host)
                self._make_room(host)
                if _memory_of(host.pid) <= self.most_memory:
                    return host
                self._end(host)
                self.given_up[command] = "its imports take too much memory"
                return None
            host.close()
            if "ready" in answer or not answer["unfit"]:
                self.given_up[command] = answer.get("why", "its imports take no time")
                return None
            excluded.append(answer["unfit"])
        self.given_up[command] = "too many of its modules cannot be imported ahead"
        return None

    def _started(self, command: tuple[str, ...], order: Mapping[str, Any]) -> _Host | None:
        ours, theirs = socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        out, err = (write for _, write in pipes)
        try:
            pid = process_tree.start(
                order["argv"],
                lambda: hooked(order["env"], f"host:{os.getpid()}:{theirs.fileno()}"),
                order["cwd"],
                out,
                err,
                keep=theirs.fileno(),
            )
        except OSError:
            ours.close()
            for read, _ in pipes:
                os.close(read)
            return None
        finally:
            theirs.close()
            os.close(out)
            os.close(err)
        process_tree.spare(pid)
        return _Host(pid, ours, command, (pipes[0][0], pipes[1][0]))

    def _make_room(self, fresh: _Host | None = None) -> None:
        """For one that is about to be started, or that has just imported everything. The least used
        goes first.
        """
        most = _MOST_HOSTS if fresh else _MOST_HOSTS - 1
        while others := [host for host in self.hosts if host is not fresh]:
            held = sum(_memory_of(host.pid) for host in self.hosts)
            if len(self.hosts) <= most and held <= self.most_memory:
                return
            self._end(min(others, key=lambda one: one.used_at))


def read_rows(file: Path) -> list[list[str]]:
    """What the hook saw of a program's imports: name, file and variables, or seconds where there is
    no name.
    """
    try:
        lines = os.fsdecode(file.read_bytes()).splitlines()
    except OSError:
        return []
    return [row for line in lines if len(row := line.split("\t")) == 3]


def hooked(env: Mapping[str, str], word: str) -> dict[str, str]:
    """The variables with which a Python finds the hook, and the hook its task."""
    before = env.get("PYTHONPATH")
    original = {} if before is None else {ORIGINAL_PATH: f"={before}"}
    path = HOOK if not before else f"{HOOK}{os.pathsep}{before}"
    return {**env, **original, "PYTHONPATH": path, VARIABLE: word}


def tell(line: socket.socket, content: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    data = marshal.dumps(dict(content), 2)
    data = len(data).to_bytes(4, "big") + data
    sent = socket.send_fds(line, [data], descriptors) if descriptors else line.send(data)
    line.sendall(data[sent:])


def ask_for_fork(
    line: socket.socket, message: Mapping[str, Any], streams: Sequence[int]
) -> dict[str, Any]:
    """A program of the host's, with these descriptors; the answer holds its `pid`, or why not."""
    tell(line, message, streams)
    return hear(line, _ANSWER_SECONDS)


def hear(line: socket.socket, seconds: float, owner: socket.socket | None = None) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        watched = [line] if owner is None else [line, owner]
        ready = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))[0]
        if line not in ready:
            raise _UnwantedError if ready else EOFError
        more = line.recv(1 << 16)
        if not more:
            raise EOFError
        data += more
    content = marshal.loads(bytes(data[4:]))  # noqa: S302 - from a process of ours
    if not isinstance(content, dict):
        raise ValueError(f"a host said {content!r}")  # noqa: TRY004 - about what was said
    return content


def has_room_for_host() -> bool:
    """Whether the machine has memory to spare for one more process that holds imports."""
    return _memory_available() >= _LEAST_FREE * _memory_of_machine()


def _memory_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _memory_available() -> int:
    """What could be used now without swapping; everything where the kernel does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return _memory_of_machine()


def _memory_of(pid: int) -> int:
    """What it holds for itself: libraries that others have mapped too are not its own."""
    with suppress(OSError, ValueError):
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
        return os.sysconf("SC_PAGE_SIZE") * (int(resident) - int(shared))
    return 0
