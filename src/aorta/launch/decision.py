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
from aorta.launch.sources.aggregate import AttributionSources
from aorta.launch.store import JobStore

log = logging.getLogger(__name__)

_REMEMBERED = 50  # failed cycles


@dataclass(frozen=True)
class FinalDecision:
    """What the deciding agent knows about the end of the job; the case is made of it."""

    ending: JobEnding
    failed: FailedCycle
    ruling: Ruling


@dataclass(frozen=True)
class _Judged:
    ending: JobEnding | None
    so_far: JobProgress
    verdict: SourceVerdict

    @property
    def memory(self) -> tuple[Mapping[str, Any], ...]:
        """What later cycles are compared with; no evidence lines, as every start carries it."""
        finding = self.verdict.finding
        if finding is None:
            return ()
        return ({key: finding.get(key) for key in REMEMBERED},)


class LeaderDecides:
    """The decider of every agent; only the leader's is ever asked."""

    def __init__(
        self,
        sources: AttributionSources,
        settings: FaultTolerance,
        job_id: str,
        max_restarts: int,
        log_dir: LogDir,
    ) -> None:
        self._sources = sources
        self._settings = settings
        self._job_id = job_id
        self._max_restarts = max_restarts
        self._log_dir = log_dir
        self.final_decision: FinalDecision | None = None
        self._late: FinalDecision | None = None  # a STOP that came after the next cycle began

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
            best_step=judged.so_far.best_step,
            idle_cycles=judged.so_far.idle,
            history=(*previous.history, *judged.memory)[-_REMEMBERED:],
            started=time.time(),
        )

    def final(
        self, store: JobStore, start: CycleStart, ending: JobEnding | None = None
    ) -> JobEnding:
        judged = self._judge(store, start, ending)
        assert judged.ending is not None, "a cycle without restarts left always ends the job"
        return judged.ending

    def late_ending(self, start: CycleStart) -> JobEnding | None:
        late = self._late
        if late is None or late.failed.start.cycle != start.cycle - 1:
            return None
        self.final_decision = late
        write_cycle_info(self._log_dir.path, late.failed.start, late.failed.evidence, late.ruling)
        return late.ending

    def _first(self, store: JobStore, nodes: tuple[str, ...]) -> CycleStart:
        """Of this submission alone: a service must not mix up two of one name."""
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

    def _judge(
        self, store: JobStore, start: CycleStart, known: JobEnding | None = None
    ) -> "_Judged":
        """Whether the job ends with this cycle (or with a `known` ending), and what is next."""
        failed = FailedCycle(start, store.evidence(start))
        began = time.monotonic()
        attribution = self._settings.attribution

        def elapsed_ms() -> int:
            return round((time.monotonic() - began) * 1000)

        def stop_late(verdict: SourceVerdict) -> None:
            ending = JobEnding(Exit.STOP, f"late: {_stopped(start, verdict)}", start.cycle_id)
            self._late = FinalDecision(ending, failed, Ruling(verdict, elapsed_ms(), ending=ending))

        obeys = attribution.late_stop and not attribution.dry_run
        verdict = self._sources.read(
            failed, attribution.decision_timeout_seconds, stop_late if obeys else None
        )
        lived = (failed.ended or time.time()) - start.started
        so_far = progress(start, failed.evidence, verdict, lived)
        ending = known or self._ending(start, verdict, so_far, store.failure_of(start.cycle) or "")
        ruling = Ruling(verdict, elapsed_ms(), attribution.dry_run, ending)
        write_cycle_info(self._log_dir.path, start, failed.evidence, ruling)
        if ending is not None:
            self.final_decision = FinalDecision(ending, failed, ruling)
        else:
            log.info("cycle %s: %s", start.cycle_id, ruling.words)
        return _Judged(ending, so_far, verdict)

    def _ending(
        self, start: CycleStart, verdict: SourceVerdict, so_far: JobProgress, failure: str
    ) -> JobEnding | None:
        stops = self._stop_reason(start, verdict, so_far)
        if stops is not None and not self._settings.attribution.dry_run:
            return JobEnding(Exit.STOP, stops, start.cycle_id)
        if stops is not None:
            log.warning("dry run, the job is not stopped: %s", stops)
        if start.restarts_left <= 0:
            spent = f", {start.restarts} of {start.max_restarts} restarts used"
            reason = f"the job failed ({failure}){spent}: {verdict.reason}"
            return JobEnding(Exit.FAILED, reason, start.cycle_id)
        return None

    def _stop_reason(
        self, start: CycleStart, verdict: SourceVerdict, so_far: JobProgress
    ) -> str | None:
        """Why the job is stopped, and how to turn that off; None where it is not."""
        if verdict.action is Action.STOP:
            return _stopped(start, verdict)
        limit = self._settings.max_no_progress_cycles
        if not limit or so_far.idle < limit or start.restarts_left <= 0:
            return None
        at = "" if so_far.best_step is None else f"; the best step stays {so_far.best_step}"
        return (
            f"{so_far.idle} cycles in a row made no progress{at} "
            f"(limit: --ft-max-no-progress-cycles {limit}, 0 turns it off): {verdict.reason}"
        )


def _stopped(start: CycleStart, verdict: SourceVerdict) -> str:
    return (
        f"attribution decided STOP after cycle {start.cycle_id} "
        f"(--ft-attribution-dry-run restarts all the same): {verdict.reason}"
    )


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
