"""What happens during a run, as journal entries and as typed events; every view listens to them."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.errors import Exit
from aorta.core.failure import Failure
from aorta.core.stats import counted
from aorta.core.trial import Outcome, Verdict

_MOST_KINDS = 5  # of other failures that a summary names


@dataclass(frozen=True)
class TrialRecord:
    """A finished trial, with what it was asked for and what became of it."""

    seq: int
    point: Point
    index: int  # the how-manieth trial of this point
    outcome: Outcome
    why: str
    failure: Failure | None
    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration: float
    started_at: float
    elapsed: float  # seconds of searching up to this line, over every resume
    host: str
    image_digest: str | None
    path: str  # the trial's directory, relative to the run directory
    value: float | None = None  # what was measured, where a number decides
    harmless: tuple[str, ...] = ()  # templates of lines that are no failure's words
    kept: Mapping[str, str] = field(default_factory=dict)  # what the verb wrote down of it
    saved: float = 0.0  # seconds of its duration that a warm start saved; 0: it started cold


@dataclass(frozen=True)
class Opened:
    """From here on the point is being judged."""

    point: Point


@dataclass(frozen=True)
class Decided:
    """The judge was sure, and the search was told."""

    point: Point
    verdict: Verdict


@dataclass(frozen=True)
class Dropped:
    """The search no longer wanted the point. Its evidence counts if it is opened again."""

    point: Point


Entry = Opened | TrialRecord | Decided | Dropped


def failed_differently(records: Sequence[TrialRecord]) -> list[str]:
    """How many trials failed with another failure, and what those said; nothing if none."""
    return different_failures(
        Counter(r.failure.text for r in records if r.outcome is Outcome.OTHER and r.failure)
    )


def different_failures(messages: Counter[str]) -> list[str]:
    """The same in words, of messages that were counted."""
    if not messages:
        return []
    kinds = messages.most_common(_MOST_KINDS)
    return [f"{counted(messages.total(), 'trial')} failed differently:"] + [
        f"  {count} x {text[:200]}" for text, count in kinds
    ]


def none_could_tell(records: Sequence[TrialRecord]) -> str:
    """That no trial could tell anything, and why; empty where one could, or ran out of time."""
    if not records or any(r.outcome is not Outcome.ERROR or r.timed_out for r in records):
        return ""
    return f"no trial could tell: {records[-1].why}"


class Reason(StrEnum):
    DONE = "done"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    INFRASTRUCTURE = "infrastructure"
    RUNNING = "running"  # it has not ended: what is written on the way


@dataclass(frozen=True)
class Ending:
    """Why the engine stopped, and what it spent."""

    reason: Reason
    detail: str = ""
    trials: int = 0
    resumed_trials: int = 0
    seconds: float = 0.0
    warm_trials: int = 0  # of those that count
    warm_dropped: str = ""  # why warm starts were given up

    def warm_to_json(self) -> dict[str, object]:
        """For every verb's result: how many trials started warm, and why no further one did."""
        return {"trials": self.warm_trials, "dropped": self.warm_dropped or None}

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

    def command_to_go_on(self, verb: str, run_dir: Path) -> str | None:
        """None where it is done."""
        return None if self.reason is Reason.DONE else self._command(verb, run_dir)

    def how_to_go_on(self, verb: str, run_dir: Path | None) -> str | None:
        """Why it ended, and how to go on, where a run is left; None where it is done."""
        if self.reason is Reason.DONE:
            return None
        why = self.detail or self.reason.value
        return why if run_dir is None else f"{why}; go on with: {self._command(verb, run_dir)}"

    @staticmethod
    def _command(verb: str, run_dir: Path) -> str:
        return shlex.join(["aorta", *verb.split(), "--resume", str(run_dir)])

    @property
    def exit_code(self) -> Exit:
        return {
            Reason.DONE: Exit.OK,
            Reason.BUDGET: Exit.BUDGET,
            Reason.INTERRUPTED: Exit.INTERRUPTED,
            Reason.TERMINATED: Exit.TERMINATED,
            Reason.INFRASTRUCTURE: Exit.INFRASTRUCTURE,
            Reason.RUNNING: Exit.TERMINATED,
        }[self.reason]


@dataclass(frozen=True)
class RunStarted:
    run_dir: Path


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
class PointDecided:
    point: Point
    verdict: Verdict
    best: Point | None
    left: int | None = None  # about so many points are still to be judged; None: it is not known


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class RunEnded:
    ending: Ending


Event = RunStarted | TrialStarted | TrialEnded | TrialCancelled | PointDecided | Note | RunEnded
Listener = Callable[[Event], None]
