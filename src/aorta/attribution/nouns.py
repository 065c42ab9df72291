"""What goes in (evidence) and what comes out (finding, decision). Frozen data; no module here reads
anything.
"""

from dataclasses import dataclass, field
from pathlib import Path

from aorta.attribution.rank_end import RankEnd
from aorta.attribution.taxonomy import Action, FailureClass
from aorta.core.failure import Failure


@dataclass(frozen=True)
class LogSource:
    """One log file; `rank` is None where the lines of several ranks are mixed in it."""

    path: Path
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True)
class LogTail:
    """The end of a log that was sent instead of a path."""

    text: str
    rank: int | None = None
    node: str | None = None
    name: str = "tail"


@dataclass(frozen=True)
class PastCycle:
    """What an earlier cycle of the same job came to."""

    fingerprint: str
    failure_class: FailureClass
    last_step: int | None = None
    name: str = ""
    heartbeat_step: int | None = None
    lived_sec: float | None = None
    failure: Failure | None = None  # None: an older version recorded the fingerprint alone


@dataclass(frozen=True)
class Evidence:
    """Everything known about one failed cycle of a job. `history` is oldest first."""

    logs: tuple[LogSource, ...] = ()
    tails: tuple[LogTail, ...] = ()
    failures: tuple[RankEnd, ...] = ()
    kernel_logs: tuple[LogSource, ...] = ()
    flight_recorder: tuple[Path, ...] = ()  # dump files, one a rank
    history: tuple[PastCycle, ...] = ()
    earlier_logs: tuple[LogSource, ...] = ()  # of the cycle before: what it outlived is noise
    heartbeat_step: int | None = None  # the furthest step a heartbeat reported
    lived_sec: float | None = None  # from the start of its workers to their end
    follow_links: bool = True  # False: others named the paths, and a link among them is not opened


@dataclass(frozen=True)
class Root:
    rank: int | None = None
    node: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class EvidenceLine:
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Cascade:
    """Ranks whose failure only follows from the root's."""

    failure_class: FailureClass
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Advice:
    kind: str
    text: str


@dataclass(frozen=True)
class Finding:
    failure_class: FailureClass
    confidence: float
    root: Root
    suspect_ranks: tuple[int, ...]
    fingerprint: str
    summary: str
    first_step: int | None = None
    last_step: int | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    cascade: tuple[Cascade, ...] = ()
    advice: tuple[Advice, ...] = ()
    one_node_of: int | None = None  # of how many nodes only one shows this failure
    some_ranks_of: int | None = None  # of how many ranks only some show this failure
    before_first_step: bool = False  # seen to be so; silence about steps says nothing
    made_steps: bool = False  # whether steps were seen, counted or not
    heartbeat_step: int | None = None  # as the launcher reported it, if it did
    lived_sec: float | None = None
    failure: Failure | None = None  # what failed, as `same_failure` compares it
    basis: str = ""  # what the confidence rests on: a rule file, and how sure its pattern is


@dataclass(frozen=True)
class Decision:
    action: Action
    reason: str
    rule: str
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True)
class Attribution:
    finding: Finding
    decision: Decision
    elapsed_ms: float = field(default=0.0, compare=False)
