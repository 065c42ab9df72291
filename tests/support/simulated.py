"""An executor without processes, for questions about the engine alone: who is asked, when, how
often.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from aorta.core.axis import Point
from aorta.core.oracle import ExitCodeOracle, Oracle
from aorta.core.trial import StreamEnd, TrialEnd, TrialSpec

Answer = Callable[[TrialSpec], int]


LOST = -1
"""In the place of an exit code: the trial tells nothing."""


@dataclass
class SimulatedExecutor:
    """Trials end in a seeded random order with the exit code that `answer` gives; `LOST` for one
    whose node is gone.
    """

    answer: Answer
    slots: int = 1
    seed: int = 0
    die_after: int | None = None  # raise KeyboardInterrupt instead of the next end
    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    closed: int = 0
    _running: dict[str, TrialSpec] = field(default_factory=dict)
    _ended: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def start(self, trial: TrialSpec) -> None:
        assert len(self._running) < self.slots, "more trials than slots"
        assert trial.id not in self._running
        self.started.append(trial.id)
        self._running[trial.id] = trial

    def wait(self, timeout: float | None = None) -> list[TrialEnd]:
        if not self._running:
            return []
        if self.die_after is not None and self._ended >= self.die_after:
            self.die_after = None  # a second one would end us at once
            raise KeyboardInterrupt
        self._ended += 1
        trial = self._running.pop(self._random.choice(sorted(self._running)))
        if trial.id in self.cancelled:
            return [end_of(trial, 0, cancelled=True)]
        return [end_of(trial, self.answer(trial))]

    def cancel(self, trial_id: str) -> None:
        self.cancelled.append(trial_id)

    def close(self) -> None:
        self.closed += 1


def end_of(trial: TrialSpec, code: int, *, cancelled: bool = False) -> TrialEnd:
    nothing = StreamEnd(trial.trial_dir / "none")
    return TrialEnd(
        trial.id,
        nothing,
        nothing,
        exit_code=None if code == LOST else code,
        lost="its node is gone" if code == LOST else None,
        cancelled=cancelled,
        started_at=1.0,
        duration=1.0,
    )


@dataclass(frozen=True)
class ValueExperiment:
    """The trial of a point carries the point's values as its argv, so that an answer can look at
    them.
    """

    oracle: Oracle = field(default_factory=ExitCodeOracle)

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        argv = tuple(f"{name}={value}" for name, value in point.values)
        return TrialSpec(argv=(*argv, str(index)), trial_dir=trial_dir, cwd=trial_dir)
