"""The sources of verdicts: services over HTTP, and attribution in this process.

The latter runs on the leader, over what all agents left in the store. The agent that leads when a
cycle fails begins as soon as all have reported, beside the rendezvous; if another one leads the
next round, it begins when it is asked.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.attribution import Evidence, LogSource, LogTail, attribute
from aorta.attribution.client import JsonClient, token_for
from aorta.attribution.documents import decision_document, finding_document, past_cycle
from aorta.attribution.evidence import failures_of, find_logs, read_dumps, stragglers
from aorta.launch.config import FaultTolerance
from aorta.launch.cycle_dir import is_there
from aorta.launch.http_source import HttpSource
from aorta.launch.records import (
    Action,
    CycleEvidence,
    DecisionSource,
    Everybody,
    FailedCycle,
    SourceVerdict,
)

_TOKEN = "AORTA_ATTRSVC_TOKEN"  # noqa: S105 - the name of a variable, not a secret
_LOOK = 0.05  # seconds between two looks whether all agents have told
_WAIT_FOR_ALL = 60.0


def build_sources(settings: FaultTolerance) -> list[DecisionSource]:
    """From the settings to the one list of sources. No other place knows which kinds there are.

    The token is taken out of this process's environment, which every worker inherits.
    """
    wanted = settings.attribution
    token = os.environ.pop(_TOKEN, None)
    timeout = wanted.timeout_seconds
    sources: list[DecisionSource] = []
    if wanted.attrsvc_url is not None:
        client = JsonClient(wanted.attrsvc_url, token, find_token=token_for)
        sources.append(HttpSource(client, "attrsvc", timeout))
    if wanted.enable_mcp:  # what `aorta mcp` would answer, by the same function
        sources.append(LocalSource("mcp", analyse))
    sources += [HttpSource(JsonClient(url), "http", timeout) for url in wanted.http_urls]
    sources = sources or [LocalSource("in-process", analyse)]
    if any(isinstance(source, LocalSource) for source in sources):
        threading.Thread(target=warm_up, daemon=True).start()
    return sources


def warm_up() -> None:
    """Compile the patterns while the workers start, so that the first verdict is fast."""
    attribute(Evidence(tails=(LogTail("warm-up"),)))


@dataclass
class LocalSource:
    name: str
    analyse: Callable[[FailedCycle], SourceVerdict]
    _known: tuple[FailedCycle, SourceVerdict] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked_about: str = ""

    def trigger(self, failed: FailedCycle, everybody: Everybody | None) -> None:
        """Analyse as soon as all agents have reported, unless the leader asks before that."""
        if everybody is None:
            return
        deadline = time.monotonic() + _WAIT_FOR_ALL
        while time.monotonic() < deadline and self._asked_about != failed.start.cycle_id:
            reported = everybody(failed.start)
            if reported is not None:
                self._run_once(reported)
                return
            time.sleep(_LOOK)

    def read(self, failed: FailedCycle) -> SourceVerdict | None:
        self._asked_about = failed.start.cycle_id
        return self._run_once(failed)

    def _run_once(self, failed: FailedCycle) -> SourceVerdict:
        """One analysis of the same evidence: who asks second waits for the first one's."""
        with self._lock:
            if self._known is None or self._known[0] != failed:
                self._known = failed, replace(self.analyse(failed), source=self.name)
            return self._known[1]


def analyse(failed: FailedCycle) -> SourceVerdict:
    """The no-progress limit is the launcher's: it knows heartbeats and lifetimes too."""
    found = attribute(everything_known(failed), no_progress_limit=0)
    return SourceVerdict(
        action=Action(found.decision.action.value),
        reason=found.decision.reason,
        decision=decision_document(found.decision),
        finding=finding_document(found.finding),
    )


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
        history=tuple(known for known in map(past_cycle, failed.start.history) if known),
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
    here = {path.stem for path in map(Path, piece.log_paths) if is_there(path)}
    return [
        LogTail(text, rank, piece.node, f"rank_{rank} on {piece.node}")
        for rank, text in sorted(piece.tails.items())
        if f"rank_{rank}" not in here
    ]


def _earlier_logs(piece: CycleEvidence, failed: FailedCycle) -> list[LogSource]:
    """What this agent's ranks wrote in the cycle before, if it was this submission's."""
    before = failed.start.cycle - 1
    if before < failed.start.first_cycle:
        return []
    now = [Path(path) for path in piece.log_paths]
    paths = {path.parent.with_name(f"cycle_{before}") / path.name for path in now}
    return list(find_logs(sorted(path for path in paths if is_there(path))))
