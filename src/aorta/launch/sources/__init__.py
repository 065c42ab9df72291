"""Whom the launcher asks: one small contract, four kinds of source behind it.

`trigger` tells a source about a failed cycle as soon as an agent knows of it, and whatever can
begin begins there; `read` asks for the verdict. Both may block: the launcher calls them from
threads of their own and keeps the time.
"""

from collections.abc import Callable
from typing import Protocol

from aorta.launch.records import CycleStart, FailedCycle, SourceVerdict

Everybody = Callable[[CycleStart], FailedCycle | None]
"""What all agents know about a cycle; None until all have told."""


class SourceError(Exception):
    """A source could not be reached or made no sense. It abstains; the job goes on."""


class DecisionSource(Protocol):
    @property
    def name(self) -> str:
        """What cycle_info.json and the log call it."""

    def trigger(self, failed: FailedCycle, everybody: Everybody | None) -> None:
        """Tell it what this agent knows, once a cycle; `everybody` on the leader alone."""

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        """Its verdict, or None for no opinion. An answer that comes after the leader's wait is only
        logged, so a source may go on waiting up to its own time limit."""
