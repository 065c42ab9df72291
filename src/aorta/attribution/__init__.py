"""Attribution: evidence -> finding -> decision. What killed this cycle, and should it restart?

`attribute(evidence)` is the whole of it, a list of steps. Evidence is what a launcher or a person
has: logs, exits, kernel messages, flight recorder dumps, earlier cycles. A finding says what
failed, who began it and how sure that is. A decision says RESTART, STOP or UNKNOWN, and why. The
command, the service and the MCP server only carry these three around.
"""

import time
from collections.abc import Mapping
from dataclasses import replace

from aorta.attribution.classify import Said, named
from aorta.attribution.documents import (
    Action,
    Advice,
    Attribution,
    Cascade,
    CycleState,
    Decision,
    Evidence,
    EvidenceLine,
    FailureClass,
    Finding,
    LogSource,
    LogTail,
    PastCycle,
    RankEnd,
    Root,
)
from aorta.attribution.events import Event, Reading
from aorta.attribution.events.reading import read
from aorta.attribution.evidence import (
    failures_with_times,
    kernel_sources,
    read_dumps,
    readable_sources,
    stragglers,
)
from aorta.attribution.logs import ReadableLog
from aorta.attribution.logs.prefixes import in_one_calendar
from aorta.attribution.policy import DEFAULT_NO_PROGRESS_LIMIT, decide, is_same_failure
from aorta.attribution.progress import JobProgress, progress_of, world_size
from aorta.attribution.timeline import Facts, is_quiet
from aorta.attribution.timeline.finding import conclude, said

__all__ = [
    "Action",
    "Advice",
    "Attribution",
    "Cascade",
    "CycleState",
    "Decision",
    "Evidence",
    "EvidenceLine",
    "FailureClass",
    "Finding",
    "JobProgress",
    "LogSource",
    "LogTail",
    "PastCycle",
    "RankEnd",
    "Root",
    "attribute",
]

# confidence at which the ends of long logs need not be followed by all that stands before them
TOLD_ENOUGH = 0.6


def attribute(
    evidence: Evidence, *, no_progress_limit: int = DEFAULT_NO_PROGRESS_LIMIT
) -> Attribution:
    """What killed this cycle, and whether to restart. Never raises for what a log may hold."""
    started = time.perf_counter()
    finding = replace(
        _find(evidence),
        heartbeat_step=evidence.heartbeat_step,
        lived_sec=evidence.lived_sec,
    )
    # A failure that came back keeps the name of the first time, whatever words vary in it.
    known = next((past for past in evidence.history if is_same_failure(past, finding)), None)
    if known is not None:
        finding = replace(finding, fingerprint=known.fingerprint)
    decision = decide(finding, evidence.history, no_progress_limit=no_progress_limit)
    return Attribution(finding, decision, round((time.perf_counter() - started) * 1000, 1))


def _find(evidence: Evidence) -> Finding:
    """From the ends of the logs if they tell enough, else from all of them."""
    logs = readable_sources(evidence)
    everything = [*logs, *kernel_sources(evidence)]
    reading = read(everything, ends_only=True)
    finding = conclude(_facts(evidence, logs, reading))
    if reading.complete or finding.confidence >= TOLD_ENOUGH:
        return finding
    return conclude(_facts(evidence, logs, read(everything)))


def what_was_said(evidence: Evidence) -> Said:
    """What the cause of a failure says, as the word model reads it."""
    logs = readable_sources(evidence)
    reading = read([*logs, *kernel_sources(evidence)])
    return said(_facts(evidence, logs, reading))


def _facts(evidence: Evidence, logs: list[ReadableLog], reading: Reading) -> Facts:
    failures = failures_with_times(evidence)
    began = [log.began for log in logs if log.began is not None]
    written = (event.time for event in reading.events if event.time is not None)
    placed = in_one_calendar([*began, *written])
    events = named(_placed(event, placed) for event in reading.events if not is_quiet(event))
    ended = {failure.rank for failure in failures}
    heard = {log.rank for log in logs if log.rank is not None and log.size}
    heard |= {event.rank for event in reading.events if event.rank is not None}
    nodes = {log.rank: log.node for log in logs if log.rank is not None and log.node}
    nodes |= {failure.rank: failure.node for failure in failures if failure.node}
    return Facts(
        reading=replace(reading, events=events),
        failures=failures,
        progress=progress_of(logs),
        stragglers=stragglers(read_dumps(evidence.flight_recorder)),
        ranks=tuple(sorted(ended | {log.rank for log in logs if log.rank is not None} | heard)),
        heard=None if any(log.rank is None for log in logs) else frozenset(heard),
        nodes=nodes,
        empty=frozenset(log.rank for log in logs if log.rank is not None) - heard,
        logs=tuple(logs),
        world=world_size(logs),
        began=min((placed[moment] for moment in began), default=None),
    )


def _placed(event: Event, placed: Mapping[float, float]) -> Event:
    return event if event.time is None else replace(event, time=placed[event.time])
