"""Attribution: evidence -> finding -> decision. What killed this cycle, and should it restart?

`attribute(evidence)` is the whole of it. Evidence (`collect` finds it on disk): logs, exits, kernel
messages, flight recorder dumps, earlier cycles. A finding: what failed, who began it, how sure that
is. A decision: RESTART, STOP or UNKNOWN, and why.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from aorta.attribution.classify import named
from aorta.attribution.documents import (
    Action,
    Attribution,
    CycleState,
    Evidence,
    FailureClass,
    Finding,
    LogSource,
    LogTail,
    PastCycle,
    RankEnd,
    finding_document,
    past_cycle,
)
from aorta.attribution.events import Event
from aorta.attribution.events.reading import read
from aorta.attribution.evidence import (
    failures_with_times,
    find_dumps,
    find_logs,
    kernel_sources,
    read_dumps,
    read_failures,
    readable_sources,
    stragglers,
)
from aorta.attribution.logs import ReadableLog
from aorta.attribution.logs.prefixes import in_one_calendar
from aorta.attribution.policy import DEFAULT_NO_PROGRESS_LIMIT, decide, is_same_failure
from aorta.attribution.progress import JobProgress, progress_of, world_size
from aorta.attribution.timeline import Facts, is_quiet
from aorta.attribution.timeline.finding import conclude
from aorta.core.errors import UsageError
from aorta.executors.evidence import json_object

__all__ = [
    "Action",
    "AttributeRequest",
    "Attribution",
    "CycleState",
    "Evidence",
    "FailureClass",
    "Finding",
    "JobProgress",
    "LogSource",
    "LogTail",
    "PastCycle",
    "RankEnd",
    "attribute",
    "attribute_request",
]

# confidence at which the ends of long logs need not be followed by all that stands before them
SURE_ENOUGH = 0.6


def attribute(
    evidence: Evidence, *, no_progress_limit: int = DEFAULT_NO_PROGRESS_LIMIT
) -> Attribution:
    """What killed this cycle, and whether to restart. Never raises for what a log may hold."""
    started = time.perf_counter()
    finding = replace(
        _find(evidence), heartbeat_step=evidence.heartbeat_step, lived_sec=evidence.lived_sec
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
    events, is_all = read(everything, ends_only=True)
    finding = conclude(facts_of(evidence, logs, events))
    if is_all or finding.confidence >= SURE_ENOUGH:
        return finding
    return conclude(facts_of(evidence, logs, read(everything)[0]))


def facts_of(evidence: Evidence, logs: list[ReadableLog], shown: Sequence[Event]) -> Facts:
    failures = failures_with_times(evidence)
    began = [log.began for log in logs if log.began is not None]
    written = [event.time for event in shown if event.time is not None]
    placed = in_one_calendar([*began, *written])
    events = named(
        event if event.time is None else replace(event, time=placed[event.time])
        for event in shown
        if not is_quiet(event)
    )
    ranks = {log.rank for log in logs if log.rank is not None}
    heard = {log.rank for log in logs if log.rank is not None and log.size}
    heard |= {event.rank for event in shown if event.rank is not None}
    nodes = {log.rank: log.node for log in logs if log.rank is not None and log.node}
    nodes |= {failure.rank: failure.node for failure in failures if failure.node}
    return Facts(
        events=events,
        failures=failures,
        progress=progress_of(logs),
        stragglers=stragglers(read_dumps(evidence.flight_recorder)),
        ranks=tuple(sorted({failure.rank for failure in failures} | ranks | heard)),
        heard=None if any(log.rank is None for log in logs) else frozenset(heard),
        nodes=nodes,
        empty=frozenset(ranks - heard),
        logs=tuple(logs),
        world=world_size(logs),
        began=min((placed[moment] for moment in began), default=None),
    )


# ---- one cycle on disk


@dataclass(frozen=True, kw_only=True)
class AttributeRequest:
    """The logs of one cycle, and what else is known of it."""

    # Files, directories of rank_<r>.out/.err, cycle directories, or log directories of `launch`.
    logs: tuple[Path, ...]
    failures: Path | None = None  # JSON: [{"rank", "exit_code", "signal"}], or a cycle_info.json
    history: Path | None = None  # a directory of the job's earlier cycle_<n> directories
    kernel_log: tuple[Path, ...] = ()
    flight_recorder: Path | None = None  # a directory of dumps
    max_no_progress_cycles: int = DEFAULT_NO_PROGRESS_LIMIT


def attribute_request(request: AttributeRequest) -> Attribution:
    """What killed this cycle, and should it restart?"""
    return attribute(collect(request), no_progress_limit=request.max_no_progress_cycles)


CYCLE_INFO = "cycle_info.json"
_CYCLE = re.compile(r"cycle_(\d+)")


def collect(request: AttributeRequest) -> Evidence:
    """One cycle, with the failures and dumps in its directory; of a log directory of
    `aorta launch` the last, with those before as history.
    """
    last = [last_cycle(path) for path in request.logs]
    directories = (path for path, cycle in zip(request.logs, last, strict=True) if cycle)
    history = request.history or next(directories, None)
    logs = [cycle or path for path, cycle in zip(request.logs, last, strict=True)]
    cycle = next((path for path in logs if (path / CYCLE_INFO).is_file()), None)
    failures = request.failures or (cycle / CYCLE_INFO if cycle is not None else None)
    ended = read_failures(failures) if failures else ()
    nodes: dict[int | None, str | None] = {failure.rank: failure.node for failure in ended}
    earlier = _earlier_cycles(history, logs) if history else []
    return Evidence(
        logs=tuple(replace(log, node=nodes.get(log.rank, log.node)) for log in find_logs(logs)),
        failures=ended,
        kernel_logs=tuple(LogSource(path) for path in request.kernel_log),
        flight_recorder=find_dumps(request.flight_recorder) if request.flight_recorder else (),
        history=tuple(known for known in map(_past_cycle, earlier) if known is not None),
        lived_sec=lifetime(json_object(cycle / CYCLE_INFO) or {}) if cycle is not None else None,
    )


def last_cycle(path: Path) -> Path | None:
    """The last cycle in a log directory of `aorta launch`; None where it is none."""
    cycles = cycles_in(path) if path.is_dir() and not (path / CYCLE_INFO).is_file() else []
    return cycles[-1][1] if cycles else None


def cycles_in(directory: Path) -> list[tuple[int, Path]]:
    """The directories `cycle_<n>` in a log directory, by number."""
    found = ((_CYCLE.fullmatch(path.name), path) for path in directory.iterdir() if path.is_dir())
    return sorted((int(number[1]), path) for number, path in found if number)


def lifetime(info: Mapping[str, Any]) -> float | None:
    """The seconds that a cycle_info.json says its cycle lived; None where it does not say."""
    try:
        began, ended = (datetime.fromisoformat(info[key]) for key in ("started", "ended"))
        return max(0.0, (ended - began).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None


def _earlier_cycles(directory: Path, logs: Sequence[Path]) -> list[Path]:
    """The cycles under `directory` before the one of these logs, oldest first."""
    cycles = cycles_in(directory)
    own = {place for log in logs for place in (log.resolve(), *log.resolve().parents)}
    limit = min((number for number, path in cycles if path.resolve() in own), default=None)
    return [path for number, path in cycles if limit is None or number < limit]


def _past_cycle(path: Path) -> PastCycle | None:
    """As it was recorded; else as its logs tell."""
    info = json_object(path / CYCLE_INFO) or {}
    saved = info.get("finding")
    if isinstance(saved, dict):
        known = {key: value for key, value in saved.items() if value is not None}
        return past_cycle({"lived_sec": lifetime(info), **known}, path.name)
    try:
        finding = attribute(collect(AttributeRequest(logs=(path,)))).finding
    except UsageError:
        return None  # nothing in it can be read: it cannot count for or against anything
    return past_cycle(finding_document(finding), path.name)
