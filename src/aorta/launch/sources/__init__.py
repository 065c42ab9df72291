"""Whom the launcher asks: one small contract, four kinds of source behind it.

`trigger` tells a source about a failed cycle as soon as an agent knows of it; `read` asks for its verdict. Both may
block: the panel calls them from threads of their own and keeps the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aorta.launch.records import Evidence, Start, Verdict


class SourceError(Exception):
    """A source could not be reached or made no sense. It abstains; the job goes on."""


@dataclass(frozen=True)
class FailedCycle:
    """One failed cycle: to an agent that triggers, with its own evidence; to the leader, with everybody's."""

    start: Start
    evidence: Sequence[Evidence]


class DecisionSource(Protocol):
    @property
    def name(self) -> str:
        """What cycle_info.json and the log call it."""

    def trigger(self, failed: FailedCycle) -> None:
        """Tell it what this agent knows. Called once per cycle on every agent."""

    def read(self, failed: FailedCycle, decide_within: float) -> Verdict | None:
        """Its verdict, or None for no opinion. The leader waits `decide_within` seconds; an answer after that is
        only logged, so a source may go on waiting up to its own time limit."""
