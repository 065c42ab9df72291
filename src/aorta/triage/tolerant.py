"""An executor for a matrix: one environment that cannot be had is that cell's misfortune, not the end of the run."""

import time
from collections.abc import Sequence

from aorta.core.errors import InfrastructureError
from aorta.core.trial import StreamEnd, TrialEnd, TrialSpec
from aorta.executors import Executor


class TolerantExecutor:
    """Implements `Executor`. A trial whose container or engine is missing ends at once as lost, with the reason."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._not_started: list[TrialEnd] = []

    @property
    def slots(self) -> int:
        return self._executor.slots

    def start(self, trial: TrialSpec) -> None:
        try:
            self._executor.start(trial)
        except InfrastructureError as wrong:
            nothing = StreamEnd(trial.trial_dir / "none")
            end = TrialEnd(trial.id, nothing, nothing, lost=str(wrong), started_at=time.time())
            self._not_started.append(end)

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        if self._not_started:
            ended, self._not_started = self._not_started, []
            return ended
        return self._executor.wait(timeout)

    def cancel(self, trial_id: str) -> None:
        self._executor.cancel(trial_id)

    def close(self) -> None:
        self._executor.close()
