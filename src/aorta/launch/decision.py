"""The leader's decision: what attribution says, then the progress limit, then the restart budget.

Everything it needs is in the store, so any leader comes to the same answer. A wrong STOP is worse
than a wrong RESTART: no opinion restarts.
"""

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aorta.attribution import JobProgress
from aorta.attribution.documents import REMEMBERED
from aorta.core.errors import Exit
from aorta.launch.config import FaultTolerance
from aorta.launch.cycle_dir import LogDir, Ruling, next_cycle, write_cycle_info
from aorta.launch.records import (
    Action,
    CycleEvidence,
    CycleStart,
    FailedCycle,
    JobEnding,
    SourceVerdict,
)
from aorta.launch.sources.panel import Panel
from aorta.launch.store import JobStore

log = logging.getLogger(__name__)

_REMEMBERED = 50  # failed cycles


@dataclass(frozen=True)
class LastWords:
    """What the deciding agent knows about the end of the job; the case is made of it."""

    ending: JobEnding
    failed: FailedCycle
    ruling: Ruling


@dataclass(frozen=True)
class _Judged:
    ending: JobEnding | None
    standing: JobProgress
    verdict: SourceVerdict

    @property
    def memory(self) -> tuple[Mapping[str, Any], ...]:
        """What later cycles are compared with: no evidence lines, for it travels with every
        start.
        """
        finding = self.verdict.finding
        if finding is None:
            return ()
        return ({key: finding.get(key) for key in REMEMBERED},)


class LeaderDecides:
    """The decider of every agent; only the leader's is ever asked."""

    def __init__(
        self,
        panel: Panel,
        settings: FaultTolerance,
        job_id: str,
        max_restarts: int,
        log_dir: LogDir,
    ) -> None:
        self._panel = panel
        self._settings = settings
        self._job_id = job_id
        self._max_restarts = max_restarts
        self._log_dir = log_dir
        self.last_words: LastWords | None = None

    def outcome(
        self, store: JobStore, round_number: int, nodes: tuple[str, ...]
    ) -> CycleStart | JobEnding:
        previous = store.last_start(round_number)
        if previous is None:
            return self._first(store, nodes)
        coming = replace(
            previous,
            cycle=previous.cycle + 1,
            nodes=nodes,
            started=time.time(),
        )
        if store.failure_of(previous.cycle) is None:
            log.info("cycle %s is left because the nodes changed", previous.cycle_id)
            write_cycle_info(self._log_dir.path, previous, store.evidence(previous))
            return coming
        judged = self._judge(store, previous)
        if judged.ending is not None:
            return judged.ending
        store.forget_evidence(previous.cycle - 1)
        return replace(
            coming,
            restarts=previous.restarts + 1,
            best_step=judged.standing.best_step,
            idle_cycles=judged.standing.idle,
            history=(*previous.history, *judged.memory)[-_REMEMBERED:],
            started=time.time(),
        )

    def final(self, store: JobStore, start: CycleStart) -> JobEnding:
        judged = self._judge(store, start)
        assert judged.ending is not None, "a cycle without restarts left always ends the job"
        return judged.ending

    def _first(self, store: JobStore, nodes: tuple[str, ...]) -> CycleStart:
        """Of this submission alone: a service that heard of another one by the same name must not
        mix them up.
        """
        job_id = f"{self._job_id}-{store.mint(uuid.uuid4().hex[:8])}"
        self._log_dir.claim(job_id)
        first = next_cycle(self._log_dir.path)
        return CycleStart(
            job_id=job_id,
            cycle=first,
            nodes=nodes,
            max_restarts=self._max_restarts,
            first_cycle=first,
            started=time.time(),
        )

    def _judge(self, store: JobStore, start: CycleStart) -> "_Judged":
        """Whether the job ends with this failed cycle, and what the next one must know."""
        failed = FailedCycle(start, store.evidence(start))
        began = time.monotonic()
        attribution = self._settings.attribution
        verdict = self._panel.read(failed, attribution.decision_timeout_seconds)
        elapsed_ms = round((time.monotonic() - began) * 1000)
        lived = (failed.ended or time.time()) - start.started
        standing = progress(start, failed.evidence, verdict, lived)
        ending = self._ending(start, verdict, standing, store.failure_of(start.cycle) or "")
        ruling = Ruling(verdict, elapsed_ms, attribution.dry_run, ending)
        write_cycle_info(self._log_dir.path, start, failed.evidence, ruling)
        if ending is not None:
            self.last_words = LastWords(ending, failed, ruling)
        else:
            log.info("cycle %s: %s", start.cycle_id, ruling.words)
        return _Judged(ending, standing, verdict)

    def _ending(
        self, start: CycleStart, verdict: SourceVerdict, standing: JobProgress, failure: str
    ) -> JobEnding | None:
        if verdict.action is Action.STOP:
            reason = f"attribution decided STOP after cycle {start.cycle_id}: {verdict.reason}"
            if not self._settings.attribution.dry_run:
                return JobEnding(Exit.STOP, reason, start.cycle_id)
            log.warning("dry run, the job goes on: %s", reason)
        limit = self._settings.max_no_progress_cycles
        if limit and standing.idle >= limit and start.restarts_left > 0:
            best = standing.best_step
            at = "" if best is None else f"; the best step stays {best}"
            reason = f"{standing.idle} cycles in a row made no progress{at}: {verdict.reason}"
            return JobEnding(Exit.STOP, reason, start.cycle_id)
        if start.restarts_left <= 0:
            spent = f", {start.restarts} of {start.max_restarts} restarts used"
            reason = f"the job failed ({failure}){spent}: {verdict.reason}"
            return JobEnding(Exit.FAILED, reason, start.cycle_id)
        return None


def progress(
    start: CycleStart, evidence: Sequence[CycleEvidence], verdict: SourceVerdict, lived: float
) -> JobProgress:
    """Where the job stands after a failed cycle, with what a launcher knows besides its logs:
    heartbeats, and for how long it lived.
    """
    told = [piece.step for piece in evidence if piece.step is not None]
    steps = [*told, *([verdict.last_step] if verdict.last_step is not None else [])]
    before = JobProgress(start.best_step, start.idle_cycles)
    return before.after(max(steps, default=None), (verdict.finding or {}).get("class"), lived)
