"""Workers that start again without importing again: forks of a process that has imported their
libraries meanwhile.

The first worker of this agent is watched while it imports. Once it imports no more, a warm host
(`executors.hook`) is started beside the workers; those of a later cycle are forked from it, in
sessions of their own and children of this agent as ever. Whatever speaks against it, and every
first cycle, starts as torch would start it. Nothing here waits.
"""

import logging
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from aorta.executors.warm import PythonCommand, python_command
from aorta.executors.warm_hosts import (
    MOST_UNFIT,
    ask_for_fork,
    has_room_for_host,
    hear,
    hooked,
    read_rows,
    tell,
    worth_seconds,
)

log = logging.getLogger(__name__)

PID = "{pid}"  # in a variable: `exec_worker` puts its own number there
HOOK = Path(__file__).parent / "hook"
_SETTLED = 5.0  # seconds without a further import, before the program is taken to have begun
_EARLY = 60.0  # a warm cycle that fails within this time is followed by cold ones
_ANSWER_SECONDS = 20.0  # for the rest of an answer that has begun to arrive
_OURS = (
    "AORTA_JOB_ID",
    "AORTA_CYCLE",
    "AORTA_CYCLE_ID",
    "AORTA_HEARTBEAT_FILE",
    "AORTA_STACKS_FILE",
    "AORTA_FLIGHT_RECORDER_FILE",
)
_OF_THE_HOOK = {"AORTA_STACKS_FILE", "AORTA_FLIGHT_RECORDER_FILE", "PYTHONPATH"}
# What torch tells each rank of each cycle. Its binaries hold some of these names, and read them
# when ranks meet, not when they are loaded; a Python module that asks for one while it is imported
# keeps its program cold.
_OF_TORCH = (
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_ERROR_FILE",
)


class ForkedWorker:
    """As much of a `Popen` as torch uses, of a child that somebody else forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody was faster: how it ended is not known any more
                self.returncode = 1
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(0.01)
        return code


@dataclass(eq=False)
class _Host:
    process: subprocess.Popen[bytes]
    line: socket.socket
    command: PythonCommand
    spared: float = 0.0
    is_ready: bool = False

    def close(self) -> None:
        self.line.close()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@dataclass
class WarmWorkers:
    """`before` is what stands before the user's command in every worker's: it ties a worker's life
    to the agent's.
    """

    before: tuple[str, ...]
    _watched: tuple[PythonCommand, int] | None = None  # what runs, and what it imports
    _rows: int = 0
    _quiet_since: float = 0.0
    _host: _Host | None = None
    _excluded: list[str] = field(default_factory=list)
    _given_up: str = ""
    _warm: int = 0  # workers of this cycle that started warm
    _began: float = 0.0

    @property
    def host(self) -> int | None:
        return self._host.process.pid if self._host is not None else None

    def begin(self) -> None:
        """A cycle's workers are about to be started."""
        early = self._warm and time.monotonic() - self._began < _EARLY
        if early:
            self._give_up("workers that started warm failed at once")
        self._warm, self._began = 0, time.monotonic()
        self._forget_watched()

    def begun(self, cycle_id: str) -> None:
        if self._warm and self._host is not None:
            log.info(
                "cycle %s: %d workers started warm, without %.1f s of imports (--cold: none does)",
                cycle_id,
                self._warm,
                self._host.spared,
            )

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        stdout: IO[Any] | None,
        stderr: IO[Any] | None,
    ) -> "ForkedWorker | subprocess.Popen[bytes]":
        """One worker, in a session of its own."""
        command = self._command(argv, env)
        if command is not None and stdout is not None and stderr is not None:
            pid = self._forked(command, (0, stdout.fileno(), stderr.fileno()))
            if pid is not None:
                self._warm += 1
                return ForkedWorker(pid)
            if self._watched is None and self._host is None:
                env = self._watch(command, env)
        return subprocess.Popen(argv, env=env, stdout=stdout, stderr=stderr, start_new_session=True)

    def look(self) -> None:
        """Now and then while the workers run: open the host once they have imported everything,
        step by step.
        """
        if self._host is None:
            self._open_when_quiet()
        elif not self._host.is_ready and select.select([self._host.line], [], [], 0)[0]:
            self._hear_of_imports(self._host)

    def close(self) -> None:
        self._forget_watched()
        if self._host is not None:
            self._host.close()
            self._host = None

    def _command(self, argv: Sequence[str], env: Mapping[str, str]) -> PythonCommand | None:
        if self._given_up or tuple(argv[: len(self.before)]) != self.before:
            return None
        return python_command(argv[len(self.before) :], env, Path.cwd())

    def _watch(self, command: PythonCommand, env: Mapping[str, str]) -> dict[str, str]:
        file = os.memfd_create("aorta-imports")
        self._watched, self._rows = (command, file), 0
        return hooked(env, f"observe:{PID}:/proc/{os.getpid()}/fd/{file}")

    def _forget_watched(self) -> None:
        if self._watched is not None:
            os.close(self._watched[1])
            self._watched = None

    def _open_when_quiet(self) -> None:
        if self._watched is None or self._given_up:
            return
        command, file = self._watched
        size = os.fstat(file).st_size
        if size != self._rows:
            self._rows, self._quiet_since = size, time.monotonic()
        elif size and time.monotonic() - self._quiet_since >= _SETTLED:
            rows = read_rows(Path(f"/proc/self/fd/{file}"))
            importing = max((float(row[2]) for row in rows if not row[0]), default=0.0)
            if importing < worth_seconds(0.0):
                self._give_up("its imports take no time")
            elif not has_room_for_host():
                self._give_up("the machine has no memory to spare")
            else:
                self._open(command, _without_the_hook(row for row in rows if row[0]))

    def _open(self, command: PythonCommand, rows: list[list[str]]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*self.before, *command.fixed, *command.arguments],
                env=hooked(command.variables, f"host:{PID}:{theirs.fileno()}"),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self._host = _Host(process, ours, command)
        about = {
            "candidates": rows,
            "env": dict(command.variables),
            "arguments": list(command.arguments),
            "excluded": self._excluded,
            "own": list(_OURS),
            "given": list(_OF_TORCH),
            "hooks": [str(HOOK)],
        }
        with suppress(OSError):  # it is heard that it ended
            tell(ours, about)

    def _hear_of_imports(self, host: _Host) -> None:
        try:
            answer = hear(host.line, _ANSWER_SECONDS)
        except (OSError, EOFError, ValueError):
            self._give_up("its warm host died")
            return
        if "ready" in answer and answer["seconds"] < worth_seconds(0.0):
            self._give_up("what can be imported ahead takes no time")
            return
        if "ready" in answer:
            host.is_ready, host.spared = True, answer["seconds"]
            log.info("%.1f s of imports are kept warm for a restart of these workers", host.spared)
            return
        host.close()
        self._host = None
        self._excluded.append(answer.get("unfit", ""))
        if not self._excluded[-1] or len(self._excluded) > MOST_UNFIT:
            self._give_up(answer.get("why", "its modules cannot be imported ahead"))

    def _forked(self, command: PythonCommand, streams: tuple[int, int, int]) -> int | None:
        host = self._host
        if host is None or not host.is_ready or command.fixed != host.command.fixed:
            return None
        message = {
            "env": dict(command.variables),
            "cwd": str(Path.cwd()),
            "arguments": list(command.arguments),
            "front": list(command.front),
        }
        try:
            answer = ask_for_fork(host.line, message, streams)
        except (OSError, EOFError, ValueError):
            self._give_up("its warm host died")
            return None
        if "pid" not in answer:
            self._give_up(answer.get("refused", "its warm host refused"))
            return None
        return int(answer["pid"])

    def _give_up(self, why: str) -> None:
        self.close()
        self._given_up = why
        log.info("workers are started cold from here on: %s", why)


def _without_the_hook(rows: Iterable[list[str]]) -> list[list[str]]:
    """The imports, without the variables that the hook for hangs takes away before the program
    begins.
    """
    return [
        [name, file, ",".join(sorted(set(changed.split(",")) - _OF_THE_HOOK - {""}))]
        for name, file, changed in rows
    ]
