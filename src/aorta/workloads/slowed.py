"""Runs a command at a fraction of its speed and changes nothing else: `python slowed.py FACTOR
COMMAND...`.

The command's processes, those in sessions of their own too, are stopped and continued in short
turns, so that everything they do takes FACTOR times as long. A failure that goes away under this
goes away because of time. Standard library only: it also runs inside containers.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

TURN_SECONDS = 0.02
LOOK_SECONDS = 0.5  # between two looks for processes that came since
CANNOT_EXECUTE = 127


def main(arguments: list[str]) -> int:
    factor, command = float(arguments[0]), arguments[1:]
    try:
        child = subprocess.Popen(command, start_new_session=True)
    except OSError as wrong:
        print(f"{command[0]}: {wrong.strerror}", file=sys.stderr)
        return CANNOT_EXECUTE

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for group in _groups_below(child.pid):
            _signal_group(group, number)
            _signal_group(group, signal.SIGCONT)  # a stopped process ends only once it goes on

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    _slow_down(child, factor)
    return _leave_like(child.returncode)


def _slow_down(child: "subprocess.Popen[bytes]", factor: float) -> None:
    pause = TURN_SECONDS * (factor - 1)
    groups, looked = {child.pid}, time.monotonic()
    while not _ended_within(child, TURN_SECONDS):
        if time.monotonic() - looked > LOOK_SECONDS:
            groups, looked = _groups_below(child.pid), time.monotonic()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for group in groups:
                _signal_group(group, number)
            if number == signal.SIGSTOP:
                time.sleep(pause)


def _groups_below(first: int) -> set[int]:
    """The process groups of the command and of everything it started: launchers give their workers
    sessions of their own.
    """
    parents: dict[int, list[tuple[int, int]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = stat.read_bytes().rpartition(b")")[2].split()
            process, parent, group = int(stat.parent.name), int(fields[1]), int(fields[2])
            parents.setdefault(parent, []).append((process, group))
    groups, waiting = {first}, [first]
    while waiting:
        for process, group in parents.get(waiting.pop(), ()):
            groups.add(group)
            waiting.append(process)
    return groups


def _ended_within(child: "subprocess.Popen[bytes]", seconds: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    return child.returncode is not None


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _leave_like(status: int) -> int:
    """With the command's own exit status, or by the same signal."""
    if status >= 0:
        return status
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
