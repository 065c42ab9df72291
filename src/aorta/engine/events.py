"""What happens during a run, as a stream of typed events. Every view of a run is a listener of this stream."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.errors import Exit
from aorta.core.trial import Verdict
from aorta.engine.journal import TrialRecord


class Reason(StrEnum):
    DONE = "done"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class Ending:
    """Why the engine stopped, and what it spent."""

    reason: Reason
    detail: str = ""
    trials: int = 0
    resumed_trials: int = 0
    seconds: float = 0.0
    warm_trials: int = 0  # of those that count
    warm_dropped: str = ""  # why what warm trials said does not count

    def warm_to_json(self) -> dict[str, object]:
        """For every verb's result: how many trials started warm, and why those of before do not count, if so."""
        return {"trials": self.warm_trials, "dropped": self.warm_dropped or None}

    @property
    def warm_words(self) -> list[str]:
        """The same for people; nothing where every trial started cold as a matter of course."""
        if self.warm_dropped:
            return [f"warm trials were not believed, and none counts: {self.warm_dropped}"]
        noun = "trial" if self.warm_trials == 1 else "trials"
        kept = f"{self.warm_trials} {noun} started warm, without their imports (--cold: none does)"
        return [kept] if self.warm_trials else []

    def followed_by(self, later: "Ending") -> "Ending":
        """One run's ending from its two parts: how the later one ended, and what both spent."""
        return replace(
            later,
            trials=self.trials + later.trials,
            seconds=self.seconds + later.seconds,
            resumed_trials=self.resumed_trials + later.resumed_trials,
            warm_trials=self.warm_trials + later.warm_trials,
            warm_dropped=self.warm_dropped or later.warm_dropped,
        )

    @property
    def exit_code(self) -> Exit:
        return {
            Reason.DONE: Exit.OK,
            Reason.BUDGET: Exit.BUDGET,
            Reason.INTERRUPTED: Exit.INTERRUPTED,
            Reason.TERMINATED: Exit.TERMINATED,
            Reason.INFRASTRUCTURE: Exit.INFRASTRUCTURE,
        }[self.reason]


@dataclass(frozen=True)
class RunStarted:
    run_dir: Path


@dataclass(frozen=True)
class PointOpened:
    point: Point


@dataclass(frozen=True)
class TrialStarted:
    point: Point
    index: int


@dataclass(frozen=True)
class TrialEnded:
    record: TrialRecord
    replayed: bool


@dataclass(frozen=True)
class TrialCancelled:
    point: Point
    index: int


@dataclass(frozen=True)
class PointSettled:
    point: Point
    verdict: Verdict
    best: Point | None


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class RunEnded:
    ending: Ending


Event = (
    RunStarted
    | PointOpened
    | TrialStarted
    | TrialEnded
    | TrialCancelled
    | PointSettled
    | Note
    | RunEnded
)
Listener = Callable[[Event], None]
