"""A workload with a race that slowness hides, for tests of controls. What it sees of time is only whether it was stopped."""

import os
import signal
import time

from aorta.workloads.base import Workload, WorkloadResult

STEPS = 10


class Racy(Workload):
    """Fails unless SLOW makes its steps longer or something stops it now and then; STUBBORN=1 fails then too."""

    def setup(self) -> None:
        self.stops = 0
        signal.signal(signal.SIGCONT, lambda *_: self._count())

    def _count(self) -> None:
        self.stops += 1

    def run(self) -> WorkloadResult:
        deadline = (
            time.monotonic() + 1.5
        )  # many turns of what slows it down, which come late on a busy machine
        while time.monotonic() < deadline:
            time.sleep(0.005)
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
