"""The source that needs no service: attribution in this process.

It runs on the leader, over what all agents left in the store. The agent that leads when a cycle
fails begins as soon as all have told, beside the rendezvous; if another one leads the next round,
it begins when it is asked.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.attribution import (
    Attribution,
    Evidence,
    LogSource,
    LogTail,
    PastCycle,
    attribute,
)
from aorta.attribution.documents import decision_document, finding_document, past_cycle
from aorta.attribution.evidence import failures_of, find_logs, read_dumps, stragglers
from aorta.launch.cycle_dir import is_there
from aorta.launch.records import (
    Action,
    CycleEvidence,
    Everybody,
    FailedCycle,
    SourceVerdict,
)

_LOOK = 0.05  # seconds between two looks whether all agents have told
_WAIT_FOR_ALL = 60.0


@dataclass
class LocalSource:
    name: str
    analyse: Callable[[FailedCycle], SourceVerdict]
    _begun: tuple[FailedCycle, Future[SourceVerdict]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked_about: str = ""

    def trigger(self, failed: FailedCycle, everybody: Everybody | None) -> None:
        """Analyse as soon as all agents have told, unless the leader asks before that."""
        if everybody is None:
            return
        deadline = time.monotonic() + _WAIT_FOR_ALL
        while time.monotonic() < deadline and self._asked_about != failed.start.cycle_id:
            told = everybody(failed.start)
            if told is not None:
                self._run_once(told)
                return
            time.sleep(_LOOK)

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        self._asked_about = failed.start.cycle_id
        return self._run_once(failed)

    def _run_once(self, failed: FailedCycle) -> SourceVerdict:
        """One analysis of the same evidence, whoever asks first; the others wait for it."""
        with self._lock:
            mine = self._begun is None or self._begun[0] != failed
            if self._begun is None or mine:  # nobody asks about earlier cycles again
                self._begun = (failed, Future())
            _, future = self._begun
        if mine:
            try:
                future.set_result(replace(self.analyse(failed), source=self.name))
            except BaseException as wrong:
                future.set_exception(wrong)
                raise
        return future.result()


def analyse(failed: FailedCycle) -> SourceVerdict:
    """The no-progress limit is the launcher's: it knows heartbeats and lifetimes too."""
    return _of_attribution(attribute(everything_known(failed), no_progress_limit=0))


def warm_up() -> None:
    """Compile the patterns while the workers start, so that the first verdict is fast."""
    attribute(Evidence(tails=(LogTail("warm-up"),)))


def everything_known(failed: FailedCycle) -> Evidence:
    paths = [Path(dump) for piece in failed.evidence for dump in piece.dumps]
    dumps = tuple(path for path in paths if path.suffix == ".json" and is_there(path))
    hung = _hung_ranks(failed.evidence, dumps)
    steps = [piece.step for piece in failed.evidence if piece.step is not None]
    return Evidence(
        logs=tuple(log for piece in failed.evidence for log in _logs(piece)),
        tails=tuple(tail for piece in failed.evidence for tail in _tails(piece)),
        failures=failures_of(
            [
                {**row, "agent": piece.agent}
                for piece in failed.evidence
                for row in piece.failure_rows(hung)
            ]
        ),
        flight_recorder=dumps,
        history=tuple(_history(failed)),
        heartbeat_step=max(steps, default=None),
        lived_sec=None if failed.ended is None else failed.ended - failed.start.started,
        earlier_logs=tuple(
            log for piece in failed.evidence for log in _earlier_logs(piece, failed)
        ),
    )


def _hung_ranks(evidence: Sequence[CycleEvidence], dumps: Sequence[Path]) -> frozenset[int]:
    """Whom a hang is put down to: a stopped heartbeat, a missing rank, else everybody."""
    if not any(piece.hung for piece in evidence):
        return frozenset()
    named = {piece.hung_rank for piece in evidence if piece.hung_rank is not None}
    everybody = {rank for piece in evidence for rank in piece.ranks}
    return frozenset(named or set(stragglers(read_dumps(dumps)).ranks) or everybody)


def _logs(piece: CycleEvidence) -> list[LogSource]:
    paths = [Path(path) for path in (*piece.log_paths, *piece.dumps)]
    here = [path for path in paths if path.suffix != ".json" and is_there(path)]
    return [replace(log, node=piece.node) for log in find_logs(here)]


def _tails(piece: CycleEvidence) -> list[LogTail]:
    """What was sent along counts only where the log itself is on another machine."""
    away = {rank for rank in piece.tails if not _is_here(piece, rank)}
    return [
        LogTail(piece.tails[rank], rank, piece.node, f"rank_{rank} on {piece.node}")
        for rank in sorted(away)
    ]


def _earlier_logs(piece: CycleEvidence, failed: FailedCycle) -> list[LogSource]:
    """What this agent's ranks wrote in the cycle before, if it was this submission's."""
    before = failed.start.cycle - 1
    if before < failed.start.first_cycle:
        return []
    now = [Path(path) for path in piece.log_paths]
    paths = {path.parent.with_name(f"cycle_{before}") / path.name for path in now}
    return list(find_logs(sorted(path for path in paths if is_there(path))))


def _is_here(piece: CycleEvidence, rank: int) -> bool:
    names = {f"rank_{rank}.out", f"rank_{rank}.err"}
    return any(Path(path).name in names and is_there(Path(path)) for path in piece.log_paths)


def _history(failed: FailedCycle) -> Iterator[PastCycle]:
    for document in failed.start.history:
        cycle = past_cycle(document)
        if cycle is not None:
            yield cycle


def _of_attribution(attribution: Attribution) -> SourceVerdict:
    return SourceVerdict(
        action=Action(attribution.decision.action.value),
        reason=attribution.decision.reason,
        decision=decision_document(attribution.decision),
        finding=finding_document(attribution.finding),
    )
