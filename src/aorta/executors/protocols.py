"""What an executor is to whoever uses it."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from aorta.core.trial import TrialEnd, TrialSpec


class Executor(Protocol):
    @property
    def slots(self) -> int:
        """How many trials may run at this moment; may change while a cluster grows or shrinks."""

    def start(self, trial: TrialSpec) -> None:
        """Begin a trial without waiting for it. A trial that cannot start ends at once as `lost`;
        what no trial could start on, such as a missing container engine, is an
        InfrastructureError."""

    def wait(self, timeout: float | None = None) -> Sequence[TrialEnd]:
        """Block until at least one trial ended, or the time is up (then nothing). Each end comes
        once.
        """

    def cancel(self, trial_id: str) -> None:
        """Stop a trial and everything it started; its end comes through `wait` as cancelled."""

    def close(self) -> None:
        """Cancel what runs, leave no process, container, job or file handle behind. Safe to call
        twice.
        """


@runtime_checkable
class WarmExecutor(Protocol):
    """An executor that can start trials warm."""

    def keeps_warm(self, trial: TrialSpec) -> bool:
        """Whether a trial like this one would be worth starting warm; False as long as nobody saw
        what it imports.
        """
