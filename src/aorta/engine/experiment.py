"""What a verb gives the engine: how a point becomes a trial."""

from pathlib import Path
from typing import Protocol

from aorta.core.oracle import Deciding
from aorta.core.point import Point
from aorta.core.trial import TrialSpec


class Experiment(Protocol):
    @property
    def oracle(self) -> Deciding:
        """What counts as the failure."""

    def trial(self, point: Point, index: int, trial_dir: Path) -> TrialSpec:
        """The trial number `index` of `point`. Files it needs are written into `trial_dir`, which is its own."""
