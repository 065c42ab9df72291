"""What a verb asks the engine, and what it gets back: plain data and one protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aorta.core.axis import Point
from aorta.core.oracle import Deciding
from aorta.core.signature import Signature
from aorta.core.trial import TrialEnd, TrialSpec
from aorta.engine.events import Ending, TrialRecord
from aorta.engine.judge import Judges
from aorta.engine.warmth import WarmRules
from aorta.search import Search

Keep = Callable[[TrialRecord, TrialEnd], Mapping[str, str] | None]
"""Writes what a verb wants of a trial; called before the journal, so what the journal counts is always there.

What it returns is written into the record of the trial, and comes back with it in a resumed run.
"""

Learn = Callable[[TrialRecord], None]
"""Told every trial that is used, in order and before the next one starts; in a resumed run those of the journal too."""


class Experiment(Protocol):
    """How a point becomes a trial."""

    @property
    def oracle(self) -> Deciding:
        """What counts as the failure."""

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        """The trial number `index` of `point`. Files it needs are written into `trial_dir`, which is its own."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend. A point is given up once its errors outnumber its evidence by more than `retries`."""

    max_trials: int | None = None
    max_seconds: float | None = None
    retries: int = 2


@dataclass(frozen=True)
class Question:
    """What is asked: the search, how its points are judged and tried, and what makes it the same question."""

    search: Search
    judges: Judges
    experiment: Experiment
    fingerprint: Mapping[str, object]
    budget: Budget = field(default_factory=Budget)
    guard_signature: bool = True
    expected: Signature | None = None  # of a failure that is known already
    # The first failure of such a point is the failure looked for.
    shows_it: Callable[[Point], bool] = lambda _point: True
    keep: Keep | None = None
    learn: Learn | None = None
    name: str = "main"  # a run that asks several questions gives each a name
    warm: WarmRules | None = None  # None: every trial starts cold
    # The same search and judges as new, for when what they were told must be forgotten.
    restart: Callable[[], tuple[Search, Judges]] | None = None
    private_trials: bool = (
        False  # trial directories lie in the private state: nothing of them ships
    )


@dataclass(frozen=True)
class Answer:
    """How the run ended, and every trial that counts, in order: those that came from the journal first."""

    ending: Ending
    records: Sequence[TrialRecord]
    expected: Signature | None
    search: Search  # as it stands: another than the question's where it began again
