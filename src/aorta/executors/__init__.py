"""Executors: where trials run.

An executor has a number of slots, starts a trial in a free one, says when trials end, and cancels
one on request. It reports facts (`TrialEnd`) and never decides what they mean. What opens one
closes it; whatever happens to it, no process outlives it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a supervisor, which loads this package too, needs none of it
    from aorta.core.trial import TrialEnd, TrialSpec


class Executor(Protocol):
    """One that starts trials warm has `warm = True` besides; False: it could, and is not to."""

    @property
    def slots(self) -> int:
        """How many trials may run at this moment; may change while a cluster grows or shrinks."""

    def start(self, trial: "TrialSpec") -> None:
        """Begin a trial without waiting for it. A trial that cannot start ends at once as `lost`;
        what no trial could start on, such as a missing container engine, is an
        InfrastructureError."""

    def wait(self, timeout: float | None = None) -> "Sequence[TrialEnd]":
        """Block until a trial ended, or the time is up (then nothing). Each end comes once."""

    def cancel(self, trial_id: str) -> None:
        """Stop a trial and everything it started; its end comes through `wait` as cancelled."""

    def close(self) -> None:
        """Cancel what runs; leave no process, container, job or handle. May be called twice."""
