"""How a trial ends, and what a set of trials says.

`reproduced` is evidence for; `clean` and `other` are evidence against; `error` is never evidence either way.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    REPRODUCED = "reproduced"  # the oracle fired
    CLEAN = "clean"  # it ran, and did not fail
    OTHER = "other"  # it failed, but not with this failure
    ERROR = "error"  # could not tell


@dataclass(frozen=True)
class Tally:
    """Counts of outcomes; only `evidence` counts for or against."""

    reproduced: int = 0
    clean: int = 0
    other: int = 0
    error: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Tally":
        tally = cls()
        for outcome in outcomes:
            tally += outcome
        return tally

    @property
    def against(self) -> int:
        return self.clean + self.other

    @property
    def evidence(self) -> int:
        return self.reproduced + self.against

    @property
    def trials(self) -> int:
        return self.evidence + self.error

    def __add__(self, more: "Outcome | Tally") -> "Tally":
        if isinstance(more, Outcome):
            more = Tally(**{more.value: 1})
        return Tally(
            self.reproduced + more.reproduced,
            self.clean + more.clean,
            self.other + more.other,
            self.error + more.error,
        )


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one point. `reproduces` is None when it could not be told."""

    reproduces: bool | None
    tally: Tally = Tally()
    why: str = ""
    seconds: float | None = None  # the median duration of its trials, where known
