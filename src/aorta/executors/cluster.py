"""Trials on other machines, whatever scheduler places them there.

The executor itself only hands trials over and takes their ends: the lines to the trials' supervisors are held by a thread of
their own, so that a trial goes on while nobody waits for it.
"""

import queue
import time
from dataclasses import replace

from aorta.core.trial import Resources, TrialEnd, TrialSpec
from aorta.executors.messages import GRACE_SECONDS, MAX_LOG_BYTES
from aorta.executors.scheduler import Scheduler
from aorta.executors.switchboard import Limits, Switchboard


class ClusterExecutor:
    def __init__(
        self,
        scheduler: Scheduler,
        *,
        jobs: int | None = None,
        resources: Resources | None = None,
        grace: float = GRACE_SECONDS,
        max_log_bytes: int = MAX_LOG_BYTES,
    ) -> None:
        self._jobs = jobs
        self._resources = resources or Resources()
        self._running: set[str] = set()
        self._switchboard = Switchboard(scheduler, Limits(grace, max_log_bytes))
        self._switchboard.start()

    @property
    def slots(self) -> int:
        """What fits on the cluster now, and no more than was asked for."""
        fits = self._switchboard.slots
        return fits if self._jobs is None else min(fits, self._jobs)

    def start(self, trial: TrialSpec) -> None:
        """A trial that does not say what it needs gets what the user asked for."""
        resources = self._resources if trial.resources == Resources() else trial.resources
        trial = replace(
            trial,
            resources=resources,
            trial_dir=trial.trial_dir.absolute(),
            cwd=trial.cwd.absolute(),
        )
        trial.trial_dir.mkdir(parents=True, exist_ok=True)
        self._running.add(trial.id)
        self._switchboard.start_trial(trial)

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        ended: list[TrialEnd] = []
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                found = self._switchboard.ends.get(timeout=0 if ended else left)
            except queue.Empty:
                break
            if isinstance(found, BaseException):
                self._running.clear()  # nobody is left to end them
                raise found
            self._running.discard(found.trial_id)
            ended.append(found)
        return ended

    def cancel(self, trial_id: str) -> None:
        self._switchboard.cancel_trial(trial_id)

    def close(self) -> None:
        self._switchboard.finish()
        self._running.clear()
