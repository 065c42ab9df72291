"""What is left of the worker processes of one agent, below torch's contexts: their descendants, and
their error files.
"""

import json
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from aorta.executors.process_tree import adopt_orphans, descendants
from aorta.runtimes.owner import started

# Seconds for killed processes to be gone; what hangs in the kernel longer is left to it.
_ENOUGH = 5.0


class WorkerFamilies:
    """Everything that ranks started ends with them, in whatever session it is.

    The agent adopts orphans, so that what a rank put into a session of its own stays below the
    agent when the rank is dead. It is known by its environment, or because it was seen below a rank
    while that lived.
    """

    def __init__(self) -> None:
        adopt_orphans()
        self._seen: set[tuple[int, str]] = set()  # a number may be used again

    def remember(self, ranks: Iterable[int]) -> None:
        """Look who belongs to these ranks, before they are stopped."""
        found = (child for rank in ranks for child in descendants(rank))
        self._seen |= {(pid, started(pid)) for pid in found}

    def kill(self, ranks: Iterable[int], job_id: str) -> None:
        """Kill the ranks' process groups and their descendants. The ranks have exited."""
        ended = set(ranks)
        mark = f"AORTA_JOB_ID={job_id}".encode()
        for pid in ended:
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(os.getpid()) != pid:
                    os.killpg(pid, signal.SIGKILL)
        deadline = time.monotonic() + _ENOUGH
        while (left := self._left(mark) - ended) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
            for pid in left:  # orphans are this process's to reap
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        self._seen.clear()

    def _left(self, mark: bytes) -> set[int]:
        here = descendants(os.getpid())
        return {pid for pid in here if (pid, started(pid)) in self._seen or _is_marked(pid, mark)}


def _is_marked(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def set_aside_if_broken(error_file: Path) -> None:
    """Torch reads a rank's error file and falls over anything that is not its JSON."""
    try:
        message = json.loads(error_file.read_text())["message"]
        broken = not (isinstance(message, str) or "extraInfo" in message)
    except OSError:
        return
    except (ValueError, KeyError, TypeError):
        broken = True
    if broken:
        with suppress(OSError):
            error_file.replace(error_file.with_suffix(".broken"))
