"""The faults, by sort. Each module registers its own; the job calls the one it was told to have."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn


@dataclass
class Job:
    rank: int
    scratch: Path
    model: nn.Linear
    step: int = 0


Fault = Callable[[Job], None]
BEFORE_GROUP: dict[str, Fault] = {}  # before the ranks have met
BEFORE_STEPS: dict[str, Fault] = {}
AT_STEP: dict[str, Fault] = {}


def fault(
    table: dict[str, Fault], name: str, *, rank: int | None = None
) -> Callable[[Fault], Fault]:
    """Register a fault; with `rank`, only that rank breaks on its own account."""

    def register(function: Fault) -> Fault:
        def on_its_rank(job: Job) -> None:
            if rank is None or job.rank == rank:
                function(job)

        table[name] = on_its_rank
        return function

    return register
