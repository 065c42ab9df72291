"""Trials on other machines, whatever scheduler places them there: an executor whose trials live on
a coordinator's thread.
"""

import queue
import time
from dataclasses import replace

from aorta.core.trial import Resources, TrialEnd, TrialSpec
from aorta.executors.coordinator import Coordinator
from aorta.executors.messages import GRACE_SECONDS
from aorta.executors.scheduler import Scheduler
from aorta.executors.warm import WarmStarts


class ClusterExecutor:
    """Hands trials over to the coordinator's thread, and takes their ends."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        jobs: int | None = None,
        resources: Resources | None = None,
        grace: float = GRACE_SECONDS,
        warm: bool = False,
    ) -> None:
        """`warm`: the scheduler's workers outlive a trial, and may keep what its program
        imports.
        """
        self._jobs = jobs
        self._resources = resources or Resources()
        self._running: set[str] = set()
        self._warm = WarmStarts() if warm else None
        self._coordinator = Coordinator(scheduler, grace, self._warm)
        self._coordinator.start()

    @property
    def slots(self) -> int:
        """What fits on the cluster now, and no more than was asked for."""
        fits = self._coordinator.slots
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
        self._coordinator.start_trial(trial)

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        ended: list[TrialEnd] = []
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                found = self._coordinator.ends.get(timeout=0 if ended else left)
            except queue.Empty:
                break
            if isinstance(found, BaseException):
                self._running.clear()  # nobody is left to end them
                raise found
            self._running.discard(found.trial_id)
            ended.append(found)
        return ended

    def keeps_warm(self, trial: TrialSpec) -> bool:
        return self._warm is not None and self._warm.keeps(trial)

    def cancel(self, trial_id: str) -> None:
        self._coordinator.cancel_trial(trial_id)

    def close(self) -> None:
        """Returns within the grace and 20 s, whatever workers and scheduler do."""
        self._coordinator.finish()
        self._running.clear()
        if self._warm is not None:
            self._warm.close()
