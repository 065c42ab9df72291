"""A workload with a race that slowness hides, for tests of controls. What it sees of time is only
whether it was stopped.
"""

import os
import signal
from pathlib import Path

from aorta.workloads import slowed
from aorta.workloads.base import Workload, WorkloadResult
from support.waiting import wait_until

STEPS = 10


class Racy(Workload):
    """Fails unless SLOW makes its steps longer or something stops it now and then; STUBBORN=1 fails
    then too.
    """

    def setup(self) -> None:
        self.stops = 0
        signal.signal(signal.SIGCONT, lambda *_: self._count())

    def _count(self) -> None:
        self.stops += 1

    def run(self) -> WorkloadResult:
        if _runs_below(Path(slowed.__file__).name):  # whose turns come late on a busy machine
            wait_until(lambda: self.stops > 0, "a turn of what slows it down")
        slow = "SLOW" in os.environ
        hidden = slow or (self.stops > 0 and "STUBBORN" not in os.environ)
        times = [1.5 if slow else 1.0] * STEPS
        if hidden:
            return WorkloadResult(passed=True, total_iterations=STEPS, step_times_ms=times)
        return WorkloadResult(
            passed=False,
            failure_count=1,
            failure_details=[{"hint": "lost the race"}],
            total_iterations=STEPS,
            step_times_ms=times,
        )


def _runs_below(script: str) -> bool:
    pid = os.getppid()
    while pid > 1:
        if any(Path(os.fsdecode(word)).name == script for word in _command_of(pid)):
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def _command_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
