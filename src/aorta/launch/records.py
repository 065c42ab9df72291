"""What is known of a cycle: records that agents exchange, and files in the log directory. No torch.

Files are named by global rank, so that agents of one job may share one directory. The leader goes
on counting behind the cycles of a run that is over.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from aorta.attribution import Action, cycles_in
from aorta.core.errors import AortaError
from aorta.engine.atomic import write_whole
from aorta.engine.rundir import RunDir, write_atomically
from aorta.runtimes.owner import Owner
from aorta.version import __version__

__all__ = ["Action"]

log = logging.getLogger(__name__)

T = TypeVar("T")

HANG = "hang"  # how a note about a hang begins
_LONGEST_REASON = 500
_complaints: set[str] = set()


@dataclass(frozen=True)
class Node:
    """One agent, as the others know it."""

    id: str  # of this agent alone
    address: str
    pid: int
    rank: int | None = None  # where the user numbered the nodes
    workers: int = 1
    role: str = ""  # of its workers

    def order(self) -> tuple[int, str, int, str]:
        """Ranks follow this."""
        return self.rank or 0, self.address, self.pid, self.id


@dataclass(frozen=True)
class CycleStart:
    """The outcome of a round that starts workers. `job_id` names this submission alone."""

    job_id: str
    cycle: int
    nodes: tuple[str, ...]  # by group rank
    restarts: int = 0  # cycles that failed and were restarted
    max_restarts: int = 0
    first_cycle: int = 0  # not 0 where the log directory already holds cycles of an earlier run
    best_step: int | None = None
    idle_cycles: int = 0  # cycles in a row that made no progress
    started: float = 0.0  # seconds since the epoch
    history: tuple[Mapping[str, Any], ...] = ()  # what the failed cycles before were found to be
    master: tuple[str, int] = ("", 0)  # where the workers meet
    folder: str = ""  # in the log directory, where another job writes into that

    @property
    def cycle_id(self) -> str:
        return f"{self.job_id}:{self.cycle}"

    @property
    def restarts_left(self) -> int:
        return self.max_restarts - self.restarts


@dataclass(frozen=True)
class JobEnding:
    """The outcome that ends the job: nobody starts workers again."""

    exit_code: int
    reason: str


@dataclass(frozen=True)
class WorkerEnd:
    """How one rank ended; `stopped_by_agent`: because another rank had failed."""

    rank: int
    exit_code: int | None = None
    signal: int | None = None
    error_file: str | None = None
    stopped_by_agent: bool = False
    time: float | None = None  # seconds since the epoch, when its agent noticed

    @property
    def failed(self) -> bool:
        return self.exit_code != 0 and not self.stopped_by_agent

    def document(self, node: str) -> dict[str, Any]:
        """As attribution, the service and cycle_info.json spell it."""
        return {"node": node, **asdict(self)}

    @property
    def words(self) -> str:
        how = f"signal {self.signal}" if self.signal is not None else f"exit {self.exit_code}"
        return f"rank {self.rank}: {how}"


@dataclass(frozen=True)
class CycleEvidence:
    """What one agent knows about a cycle that is over."""

    agent: str  # unique in the job
    node: str
    group_rank: int
    ranks: tuple[int, ...] = ()
    ends: tuple[WorkerEnd, ...] = ()
    log_paths: tuple[str, ...] = ()
    # Rank -> last output, for other machines.
    tails: Mapping[int, str] = field(default_factory=dict)
    hung_rank: int | None = None  # the one whose heartbeat stopped
    dumps: tuple[str, ...] = ()  # stacks and Flight Recorder files, after a hang
    step: int | None = None  # the last step of a heartbeat
    note: str = ""  # what the agent itself saw: a hang, a lost node

    @property
    def hung(self) -> bool:
        return self.note.startswith(HANG)

    @property
    def ended(self) -> float | None:
        """When the last of its ranks was seen to end, in seconds since the epoch."""
        return max((end.time for end in self.ends if end.time is not None), default=None)

    @property
    def failures(self) -> tuple[WorkerEnd, ...]:
        return tuple(end for end in self.ends if end.failed)

    def failure_documents(self) -> list[dict[str, Any]]:
        """Ranks that failed, and those stopped because of them; in a hang, who hung."""
        if self.hung:
            here = [rank for rank in self.ranks if rank in self._blamed]
            return [{"rank": rank, "node": self.node, "hung": True} for rank in here]
        return [end.document(self.node) for end in self.ends if end.failed or end.stopped_by_agent]

    def end_documents(self) -> list[dict[str, Any]]:
        """How each of its ranks ended; who hung was killed for it, and says so."""
        blamed = self._blamed if self.hung else frozenset()
        return [
            {**end.document(self.node), **({"hung": True} if end.rank in blamed else {})}
            for end in self.ends
        ]

    @property
    def _blamed(self) -> frozenset[int]:
        return frozenset(self.ranks if self.hung_rank is None else (self.hung_rank,))


@dataclass(frozen=True)
class FailedCycle:
    """One failed cycle with its evidence: an agent's own, or, for the leader, everybody's."""

    start: CycleStart
    evidence: Sequence[CycleEvidence]
    lost: tuple[str, ...] = field(default=(), compare=False)  # nodes that did not come back

    @property
    def ended(self) -> float | None:
        """When the last of its ranks was seen to end, in seconds since the epoch."""
        return max((piece.ended for piece in self.evidence if piece.ended), default=None)


@dataclass(frozen=True)
class SourceVerdict:
    """One source's answer, or that of all. `decision`, `finding`: attribution's documents."""

    action: Action
    reason: str
    source: str = ""
    decision: Mapping[str, Any] = field(default_factory=dict)
    finding: Mapping[str, Any] | None = None

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any], source: str) -> Self:
        """From the JSON of a service, ours or the peer's. An action that is none is UNKNOWN."""
        decision = answer.get("decision") or answer.get("recommendation")
        if not isinstance(decision, Mapping):
            raise SourceError("the answer holds no decision")
        said, finding = str(decision.get("action", "")), answer.get("finding")
        return cls(
            action=Action(said) if said in {*Action} else Action.UNKNOWN,
            reason=str(decision.get("reason", ""))[:_LONGEST_REASON],
            source=source,
            decision=dict(decision),
            finding=dict(finding) if isinstance(finding, Mapping) else None,
        )

    def blaming(self, lost: Sequence[str]) -> Self:
        """The same where nodes were lost: they are the root, unless a rank is."""
        root = (self.finding or {}).get("root") or {}
        if not lost or self.finding is None or root.get("rank") is not None:
            return self
        reason = f"{', '.join(lost)} was lost: {self.reason}"
        node = lost[0] if len(lost) == 1 else None
        finding = {**self.finding, "root": {**root, "node": node}}
        return replace(self, reason=reason, finding=finding)

    @property
    def last_step(self) -> int | None:
        step = (self.finding or {}).get("last_step")
        return step if isinstance(step, int) and not isinstance(step, bool) else None


@dataclass(frozen=True)
class Ruling:
    """The verdict on a failed cycle, how long it took, and whether it ends the job."""

    verdict: SourceVerdict
    elapsed_ms: int
    dry_run: bool = False
    ending: JobEnding | None = None

    @property
    def document(self) -> dict[str, Any]:
        return {
            **self.verdict.decision,
            "action": self.verdict.action.value,
            "reason": self.verdict.reason,
            "dry_run": self.dry_run,
        }


@dataclass(frozen=True)
class CaseRequest:
    """What the process that writes the case reads, as plain values."""

    log_dir: Path
    failed: FailedCycle
    ruling: Ruling  # which ended the job
    command: tuple[str, ...]  # the user's own, as torchrun would run it
    ranks_per_node: int
    devices: int | None  # of this machine; None where it has no GPU
    hang_timeout: float | None
    opened: tuple[str, ...]  # files of the working directory that the job opened


class SourceError(Exception):
    """A source could not be reached or made no sense. It abstains; the job goes on."""


class DecisionSource(Protocol):
    """Whom the launcher asks. Both methods may block: they are called in threads of their own."""

    @property
    def name(self) -> str: ...

    def trigger(self, failed: FailedCycle) -> None:
        """Tell it what this agent knows, once a cycle."""

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        """Its verdict, or None for no opinion; late answers are only logged."""


def encode(record: Node | CycleStart | JobEnding | CycleEvidence) -> str:
    """As one line of JSON, also of names that are no UTF-8."""
    return json.dumps(asdict(record), separators=(",", ":"))


def decode(kind: type[T], text: bytes | str) -> T:
    """The record of that kind that `encode` wrote."""
    content = json.loads(text)
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in content.items()}
    if kind is CycleEvidence:
        fields["ends"] = tuple(WorkerEnd(**end) for end in content["ends"])
        fields["tails"] = {int(rank): tail for rank, tail in content["tails"].items()}
    return kind(**fields)


# -- the log directory


def complain_once(what: str, error: OSError | AortaError) -> None:
    """A log or record that cannot be kept ends no job; one line for one kind of trouble."""
    why = (error.strerror if isinstance(error, OSError) else str(error)) or str(error)
    kind = str(error.errno) if isinstance(error, OSError) else why.split(":")[0]
    if kind not in _complaints:
        _complaints.add(kind)
        log.warning("%s could not be written or read: %s; the job goes on", what, why)


@contextmanager
def never_fatal(what: Path) -> Iterator[None]:
    """What cannot be written is said once, and the job goes on."""
    try:
        yield
    except (OSError, AortaError) as full:
        complain_once(str(what), full)


def is_there(path: Path) -> bool:
    """Whether a file exists; one on a file system that does not answer well does not."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises what this one does not


class CycleDir:
    """The files of one cycle."""

    def __init__(self, log_dir: Path, cycle: int) -> None:
        self.path = log_dir / f"cycle_{cycle}"

    def file(self, rank: int, kind: str) -> Path:
        """Of a rank: `out`, `err`, `error.json` (torch's own) or `stacks`."""
        return self.path / f"rank_{rank}.{kind}"

    def flight_recorder(self, rank: int) -> Path:
        """In a directory of their own: what reads dumps takes every file in it."""
        return self.path / "flight_recorder" / f"rank_{rank}.json"

    @property
    def info(self) -> Path:
        return self.path / "cycle_info.json"


class LogDir:
    """Where one submission writes: the given directory, or a folder of its own in it."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.path = base
        self._lock = RunDir(base).lock
        self._signature = ""  # of this process, once it has led

    def begin(self, job_id: str) -> tuple[str, int]:
        """The folder of a job that begins ("" unless another writes here), and its first cycle."""
        folder, first = "", 0
        with suppress(OSError):
            owner = Owner.from_label(self._lock.read_text())
            if owner is not None and not owner.is_gone():
                folder = job_id
                log.info(
                    "another job writes to %s; this one takes the folder %s", self._base, folder
                )
        with suppress(OSError):
            first = max((n + 1 for n, _ in cycles_in(self._base / folder)), default=0)
        return folder, first

    def cycle(self, start: CycleStart) -> "CycleDir":
        return CycleDir(self._base / start.folder, start.cycle)

    def prepare(self, start: CycleStart) -> "CycleDir":
        """The directory of the coming cycle, with `current` pointing at it; on every agent."""
        self.path = self._base / start.folder
        directory = self.cycle(start)
        with never_fatal(directory.path):
            directory.path.mkdir(parents=True, exist_ok=True)
            link = self.path / f".current.{os.getpid()}"
            link.unlink(missing_ok=True)
            link.symlink_to(directory.path.name)
            link.replace(self.path / "current")  # in one step: other agents do the same
        return directory

    def lead(self) -> None:
        """This process leads the coming cycle; readers of the directory see whether it lives."""
        run, self._signature = RunDir(self.path), Owner.of_this_process().label
        self._lock = run.lock
        with never_fatal(run.private):
            run.describe(verb="launch", state="")
            write_atomically(run.lock, self._signature)

    def sign_off(self) -> None:
        """If this process led last: nobody leads any more."""
        with never_fatal(self._lock), suppress(FileNotFoundError):  # it never led
            if self._lock.read_text() == self._signature:
                self._lock.unlink()


def write_cycle_info(
    log_dir: LogDir,
    start: CycleStart,
    evidence: Sequence[CycleEvidence] = (),
    ruling: Ruling | None = None,
    *,
    ending: JobEnding | None = None,
    lost: Sequence[str] = (),
    running: bool = False,
) -> None:
    """The whole file anew. It is never half there: readers see the old one or the new one."""
    ended = ending or (ruling.ending if ruling else None)
    content = {
        "schema": "aorta.cycle/1",
        "aorta_version": __version__,
        "job_id": start.job_id,
        "cycle_id": start.cycle_id,
        "cycle": start.cycle,
        "started": _moment(start.started),
        "ended": None if running else _moment(datetime.now(UTC).timestamp()),
        "nodes": list(start.nodes),
        "ranks": [row for piece in evidence for row in piece.end_documents()],
        "restarts": start.restarts,
        "max_restarts": start.max_restarts,
        "decision": ruling.document if ruling else None,
        "decided_by": ruling.verdict.source if ruling else None,
        "decided_in_ms": ruling.elapsed_ms if ruling else None,
        "finding": ruling.verdict.finding if ruling else None,
        "ending": asdict(ended) if ended is not None else None,
        "notes": [piece.note for piece in evidence if piece.note],
        "lost_nodes": list(lost),
    }
    directory = log_dir.cycle(start)
    with never_fatal(directory.info):
        directory.path.mkdir(parents=True, exist_ok=True)
        write_whole(directory.info, json.dumps(content, indent=2) + "\n")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
