"""The leader's decision by the store alone: attribution, then progress limit, then restart budget.

All sources are queried at once, within a bounded time. `any`: one STOP is a STOP. `all`: STOP needs
every source that has an opinion. One that is unreachable, late, answers nonsense or says UNKNOWN
has none; no opinion at all restarts.
"""

import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from aorta.attribution import Evidence, JobProgress, LogSource, LogTail, RankEnd, attribute
from aorta.attribution.client import JsonClient, token_for
from aorta.attribution.documents import REMEMBERED, finding_document, past_cycle
from aorta.attribution.evidence import find_logs, read_dumps, stragglers
from aorta.core.errors import Exit
from aorta.launch.config import Aggregation, FaultTolerance
from aorta.launch.http_source import HttpSource
from aorta.launch.records import (
    Action,
    CycleEvidence,
    CycleStart,
    DecisionSource,
    FailedCycle,
    JobEnding,
    LogDir,
    Ruling,
    SourceError,
    SourceVerdict,
    is_there,
    write_cycle_info,
)
from aorta.launch.store import JobStore

log = logging.getLogger(__name__)

_REMEMBERED = 50  # failed cycles
_TOKEN = "AORTA_ATTRSVC_TOKEN"  # noqa: S105 - the name of a variable, not a secret
LateStop = Callable[[SourceVerdict], None]
_NO_ANSWER = SourceVerdict(Action.UNKNOWN, "no source answered in time", source="default")


class AttributionSources:
    def __init__(self, sources: Sequence[DecisionSource], aggregation: Aggregation) -> None:
        self._sources = tuple(sources)
        self._aggregation = aggregation
        self._triggers: list[threading.Thread] = []

    def trigger(self, known: Callable[[], FailedCycle]) -> None:
        """Tell every source what this agent knows, without waiting for any."""
        sends = (partial(_send, source, known) for source in self._sources)
        self._triggers = [threading.Thread(target=send, daemon=True) for send in sends]
        for thread in self._triggers:
            thread.start()

    def finish_triggers(self, timeout: float) -> None:
        """Before a process leaves: let reports that are under way arrive, but not for long."""
        deadline = time.monotonic() + timeout
        for thread in self._triggers:
            thread.join(max(0.0, deadline - time.monotonic()))

    def read(
        self, failed: FailedCycle, timeout: float, late_stop: LateStop | None = None
    ) -> SourceVerdict:
        """The verdict, at the latest after `timeout` seconds; a later STOP goes to `late_stop`."""
        deadline = time.monotonic() + timeout
        arriving: _Answers = queue.SimpleQueue()
        for source in self._sources:
            name = f"query-{source.name}"
            threading.Thread(None, _query, name, (source, failed, arriving), daemon=True).start()
        answers: list[SourceVerdict] = []
        missing = len(self._sources)
        decisive = Action.STOP if self._aggregation == "any" else Action.RESTART
        while missing and not any(answer.action is decisive for answer in answers):
            try:
                answer = arriving.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            missing -= 1
            answers += [answer] if answer is not None else []
        decided = self._verdict(answers)
        if missing and decided.action is not Action.STOP and time.monotonic() >= deadline:
            rest = (arriving, missing, answers, late_stop or partial(_drop, failed))
            threading.Thread(target=self._hear_the_rest, args=rest, daemon=True).start()
        return decided

    def _hear_the_rest(
        self, arriving: "_Answers", missing: int, answers: list[SourceVerdict], late_stop: LateStop
    ) -> None:
        """Of sources that answer after the decision, a STOP that would have been the verdict."""
        late = (arriving.get() for _ in range(missing))
        for answer in (answer for answer in late if answer is not None):
            answers.append(answer)
            if answer.action is self._verdict(answers).action is Action.STOP:
                late_stop(answer)

    def _verdict(self, answers: Sequence[SourceVerdict]) -> SourceVerdict:
        stops, restarts, unsure = (
            [answer for answer in answers if answer.action is action]
            for action in (Action.STOP, Action.RESTART, Action.UNKNOWN)
        )
        if stops and (self._aggregation == "any" or not restarts):
            return stops[0]
        return next(iter([*restarts, *unsure]), _NO_ANSWER)


_Answers = queue.SimpleQueue[SourceVerdict | None]


def _query(source: DecisionSource, failed: FailedCycle, arriving: _Answers) -> None:
    verdict = None
    try:
        verdict = source.read(failed)
    except (SourceError, OSError) as wrong:
        log.warning("no answer from %s for cycle %s: %s", source.name, failed.start.cycle_id, wrong)
    finally:  # a source that breaks keeps nobody waiting
        arriving.put(verdict)


def _drop(failed: FailedCycle, late: SourceVerdict) -> None:
    what = "late STOP from %s for cycle %s is dropped (--ft-attribution-late-stop obeys it): %s"
    log.warning(what, late.source, failed.start.cycle_id, late.reason)


def _send(source: DecisionSource, known: Callable[[], FailedCycle]) -> None:
    failed = known()
    try:
        source.trigger(failed)
    except (SourceError, OSError) as wrong:
        cycle = failed.start.cycle_id
        log.warning("%s could not be sent cycle %s, going on: %s", source.name, cycle, wrong)


@dataclass
class LeaderDecides:
    """The decider of every agent; only the leader's is ever used."""

    sources: AttributionSources
    settings: FaultTolerance
    job_id: str
    max_restarts: int
    log_dir: LogDir
    # The cycle that ended the job, and why, on the agent that decided.
    last: tuple[FailedCycle, Ruling] | None = None
    _late: tuple[FailedCycle, Ruling] | None = None  # a STOP that came after the decision

    def outcome(
        self, store: JobStore, round_number: int, nodes: tuple[str, ...], lost: tuple[str, ...]
    ) -> CycleStart | JobEnding:
        """Of a round of these nodes; `lost` are those of the cycle before that are gone."""
        previous = store.last_start(round_number)
        if previous is None:
            return self._first(store, nodes)
        coming = replace(previous, cycle=previous.cycle + 1, nodes=nodes, started=time.time())
        if store.failure_of(previous.cycle) is None:
            log.info("cycle %s is left because the nodes changed", previous.cycle_id)
            write_cycle_info(self.log_dir, previous, store.evidence(previous))
            return coming
        ending, so_far, finding = self._judge(store, previous, lost)
        if ending is not None:
            return ending
        store.forget_evidence(previous.cycle - 1)
        # What later cycles are compared with; no evidence lines, as every start carries it.
        remembered = [{key: finding.get(key) for key in REMEMBERED}] if finding else []
        return replace(
            coming,
            restarts=previous.restarts + 1,
            best_step=so_far.best_step,
            idle_cycles=so_far.idle,
            history=(*previous.history, *remembered)[-_REMEMBERED:],
            started=time.time(),
        )

    def final(
        self,
        store: JobStore,
        start: CycleStart,
        lost: tuple[str, ...],
        ending: JobEnding | None = None,
    ) -> JobEnding:
        ending, _, _ = self._judge(store, start, lost, ending)
        assert ending is not None, "a cycle without restarts left always ends the job"
        return ending

    def late_ending(self, start: CycleStart) -> JobEnding | None:
        """Of the running cycle, where a STOP came late for the one before it."""
        if self._late is None or self._late[0].start.cycle != start.cycle - 1:
            return None
        self.last = failed, ruling = self._late
        write_cycle_info(self.log_dir, failed.start, failed.evidence, ruling, lost=failed.lost)
        return ruling.ending

    def _first(self, store: JobStore, nodes: tuple[str, ...]) -> CycleStart:
        """Of this submission alone: a service must not mix up two of one name."""
        job_id = f"{self.job_id}-{store.mint(uuid.uuid4().hex[:8])}"
        folder, first = self.log_dir.begin(job_id)
        return CycleStart(
            job_id=job_id,
            folder=folder,
            cycle=first,
            nodes=nodes,
            max_restarts=self.max_restarts,
            first_cycle=first,
            started=time.time(),
        )

    def _judge(
        self,
        store: JobStore,
        start: CycleStart,
        lost: tuple[str, ...],
        known: JobEnding | None = None,
    ) -> tuple[JobEnding | None, JobProgress, Mapping[str, Any] | None]:
        """Whether the job ends with this cycle, how far it came, and what attribution found."""
        failed = FailedCycle(start, store.evidence(start), lost)
        began = time.monotonic()
        attribution = self.settings.attribution

        def stop_late(verdict: SourceVerdict) -> None:
            reason = self._stop_reason(start, verdict, JobProgress())
            ending = JobEnding(Exit.STOP, f"late: {reason}")
            elapsed_ms = round((time.monotonic() - began) * 1000)
            self._late = failed, Ruling(verdict.blaming(lost), elapsed_ms, ending=ending)

        late = stop_late if attribution.late_stop and not attribution.dry_run else None
        verdict = self.sources.read(failed, attribution.decision_timeout_seconds, late)
        verdict = verdict.blaming(lost)
        lived = (failed.ended or time.time()) - start.started
        so_far = progress(start, failed.evidence, verdict, lived)
        ending = known or self._ending(start, verdict, so_far, store.failure_of(start.cycle) or "")
        elapsed_ms = round((time.monotonic() - began) * 1000)
        ruling = Ruling(verdict, elapsed_ms, attribution.dry_run, ending)
        write_cycle_info(self.log_dir, start, failed.evidence, ruling, lost=lost)
        if ending is not None:
            self.last = failed, ruling
        else:
            how = f"{verdict.action.value} ({verdict.source}, {elapsed_ms} ms)"
            log.info("cycle %s: %s: %s", start.cycle_id, how, verdict.reason)
        return ending, so_far, verdict.finding

    def _ending(
        self, start: CycleStart, verdict: SourceVerdict, so_far: JobProgress, failure: str
    ) -> JobEnding | None:
        stops = self._stop_reason(start, verdict, so_far)
        if stops is not None and not self.settings.attribution.dry_run:
            return JobEnding(Exit.STOP, stops)
        if stops is not None:
            log.warning("dry run, the job is not stopped: %s", stops)
        if start.restarts_left <= 0:
            spent = f", {start.restarts} of {start.max_restarts} restarts used"
            reason = f"the job failed ({failure}){spent}: {verdict.reason}"
            return JobEnding(Exit.FAILED, reason)
        return None

    def _stop_reason(
        self, start: CycleStart, verdict: SourceVerdict, so_far: JobProgress
    ) -> str | None:
        """Why the job is stopped, and how to turn that off; None where it is not."""
        if verdict.action is Action.STOP:
            return (
                f"attribution decided STOP after cycle {start.cycle_id} "
                f"(--ft-attribution-dry-run restarts all the same): {verdict.reason}"
            )
        limit = self.settings.max_no_progress_cycles
        if not limit or so_far.idle < limit or start.restarts_left <= 0:
            return None
        at = "" if so_far.best_step is None else f"; the best step stays {so_far.best_step}"
        return (
            f"{so_far.idle} cycles in a row made no progress{at} "
            f"(limit: --ft-max-no-progress-cycles {limit}, 0 turns it off): {verdict.reason}"
        )


def progress(
    start: CycleStart, evidence: Sequence[CycleEvidence], verdict: SourceVerdict, lived: float
) -> JobProgress:
    """Where the job stands after a failed cycle, by logs, heartbeats and its lifetime."""
    steps = [step for step in (verdict.last_step, *(p.step for p in evidence)) if step is not None]
    before = JobProgress(start.best_step, start.idle_cycles)
    return before.after(max(steps, default=None), (verdict.finding or {}).get("class"), lived)


# -- the sources


def build_sources(settings: FaultTolerance) -> list[DecisionSource]:
    """Every source of the settings. The token leaves the environment that workers inherit."""
    wanted = settings.attribution
    token = os.environ.pop(_TOKEN, None)
    timeout = wanted.timeout_seconds
    sources: list[DecisionSource] = []
    if wanted.attrsvc_url is not None:
        client = JsonClient(wanted.attrsvc_url, token, find_token=token_for)
        sources.append(HttpSource(client, "attrsvc", timeout))
    if wanted.enable_mcp:  # what `aorta mcp` would answer, by the same function
        sources.append(LocalSource("mcp"))
    sources += [HttpSource(JsonClient(url), "http", timeout) for url in wanted.http_urls]
    sources = sources or [LocalSource("in-process")]
    if any(isinstance(source, LocalSource) for source in sources):
        threading.Thread(target=warm_up, daemon=True).start()
    return sources


def warm_up() -> None:
    """Compile the patterns while the workers start, so that the first verdict is fast."""
    attribute(Evidence(tails=(LogTail("warm-up"),)))


@dataclass(frozen=True)
class LocalSource:
    """Attribution in this process, on the leader, over what all agents left in the store."""

    name: str

    def trigger(self, failed: FailedCycle) -> None:
        """The leader has everybody's evidence when it asks."""

    def read(self, failed: FailedCycle) -> SourceVerdict:
        """The no-progress limit is the launcher's: it knows heartbeats and lifetimes too."""
        found = attribute(everything_known(failed), no_progress_limit=0)
        return SourceVerdict(
            action=Action(found.decision.action.value),
            reason=found.decision.reason,
            source=self.name,
            decision=asdict(found.decision),
            finding=finding_document(found.finding),
        )


def everything_known(failed: FailedCycle) -> Evidence:
    paths = [Path(dump) for piece in failed.evidence for dump in piece.dumps]
    dumps = tuple(path for path in paths if path.suffix == ".json" and is_there(path))
    hung = _hung_ranks(failed.evidence, dumps)
    steps = [piece.step for piece in failed.evidence if piece.step is not None]
    # As a service would read them; of a hang, the ranks that it is put down to.
    ends = [
        RankEnd(**document, agent=piece.agent)
        for piece in failed.evidence
        for document in piece.failure_documents()
    ]
    return Evidence(
        logs=tuple(log for piece in failed.evidence for log in _logs(piece)),
        tails=tuple(tail for piece in failed.evidence for tail in _tails(piece)),
        failures=tuple(end for end in ends if not end.hung or end.rank in hung),
        flight_recorder=dumps,
        history=tuple(known for known in map(past_cycle, failed.start.history) if known),
        heartbeat_step=max(steps, default=None),
        lived_sec=None if failed.ended is None else failed.ended - failed.start.started,
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
