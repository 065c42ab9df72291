"""Failures in the shapes of the field: excerpts that imitate what public bug reports and manuals
show, each with its truth.

Facts, not texts: every entry says what kind of source it imitates; none is copied. Truth is written
before any rule sees a set. All were looked at once and then learned from; for `last` no row was
written but one, yet rows that made it worse were narrowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aorta.attribution import Evidence, LogTail, RankEnd

STOP, RESTART, UNKNOWN = "STOP", "RESTART", "UNKNOWN"


@dataclass(frozen=True)
class Excerpt:
    """One failed job as somebody would report it, and what a perfect reader would say about it."""

    name: str
    imitates: str
    failure_class: str
    decision: str
    log: str = ""
    ranks: Mapping[int, str] = field(default_factory=dict)
    root_ranks: tuple[int, ...] = ()
    ends: tuple[RankEnd, ...] = ()
    kernel: str = ""

    @property
    def user_error(self) -> bool:
        """Whether whoever wrote the program or its configuration can mend it, and a restart
        cannot.
        """
        scheduler = {"time_limit", "cancelled"}
        return self.decision == STOP and self.failure_class not in scheduler

    def evidence(self) -> Evidence:
        tails = [LogTail(text, rank, name=f"rank_{rank}.log") for rank, text in self.ranks.items()]
        if self.log:
            tails.append(LogTail(self.log, name="job.log"))
        if self.kernel:
            tails.append(LogTail(self.kernel, name="kernel.log"))
        return Evidence(tails=tuple(tails), failures=self.ends)


def traceback(exception: str, *frames: str) -> str:
    """A traceback through frames given as `file:function:source line`."""
    rows = ["Traceback (most recent call last):"]
    for frame in frames:
        file, function, source = frame.split(":", 2)
        rows += [f'  File "{file}", line 42, in {function}', f"    {source}"]
    return "\n".join([*rows, exception]) + "\n"


def steps(first: int, last: int, form: str = "step {n} | loss {loss:.4f} | lr 1.0e-04") -> str:
    return "".join(form.format(n=n, loss=3.0 / (1 + n % 97)) + "\n" for n in range(first, last + 1))
