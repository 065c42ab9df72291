"""Waiting for a condition: as long as it may take on this machine now, and not a moment longer than
it takes.

How long is said in seconds of an idle machine. They grow with the load: what was measured at the
start of the run, or what the machine's queue says at the moment, whichever is worse.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache

_IDLE_START = 0.05  # what an idle machine of the slow kind takes to start an empty interpreter
_PAUSE = 0.02
PATIENCE = 120.0


def slowness() -> float:
    """How many times longer than on an idle machine anything may take here."""
    queue = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(1.0, queue, _slowness_at_start())


@cache
def _slowness_at_start() -> float:
    began = time.perf_counter()
    for _ in range(3):
        subprocess.run((sys.executable, "-I", "-S", "-c", ""), check=True)
    return (time.perf_counter() - began) / 3 / _IDLE_START


def patience(seconds: float = PATIENCE) -> float:
    """A deadline for what takes well below these seconds on an idle machine."""
    return seconds * slowness()


def eventually(
    holds: Callable[[], object], seconds: float = PATIENCE, *, every: float = _PAUSE
) -> bool:
    """True as soon as it holds; False if it does not come to hold in a generous time."""
    deadline = time.monotonic() + patience(seconds)
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def wait_until(holds: Callable[[], object], what: str = "it", seconds: float = PATIENCE) -> None:
    assert eventually(holds, seconds), f"{what} did not happen in {patience(seconds):.0f} s"
