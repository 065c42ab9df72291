"""The way from evidence to attribution, as a list of steps."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from aorta.attribution.classify import Said, named
from aorta.attribution.documents import finding_document, past_cycle
from aorta.attribution.events import Event, Reading, Registry, built_in, with_user_file
from aorta.attribution.events.scanning import read_ends, read_whole
from aorta.attribution.evidence import (
    earlier_sources,
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
from aorta.attribution.logs.fields import in_one_calendar
from aorta.attribution.nouns import Attribution, Evidence, Finding, LogSource, PastCycle
from aorta.attribution.policy import DEFAULT_NO_PROGRESS_LIMIT, decide, is_same_failure
from aorta.attribution.progress import progress_of, world_size
from aorta.attribution.timeline import Facts, last_words, without_noise
from aorta.attribution.timeline.finding import conclude, said
from aorta.core.errors import UsageError

# confidence at which the ends of long logs need not be followed by all that stands before them
TOLD_ENOUGH = 0.6


def attribute(
    evidence: Evidence,
    *,
    registry: Registry | None = None,
    no_progress_limit: int = DEFAULT_NO_PROGRESS_LIMIT,
) -> Attribution:
    """What killed this cycle, and whether to restart. Never raises for what a log may hold."""
    started = time.perf_counter()
    finding = replace(
        _find(evidence, registry or built_in()),
        heartbeat_step=evidence.heartbeat_step,
        lived_sec=evidence.lived_sec,
    )
    # A failure that came back keeps the name of the first time, whatever words vary in it.
    known = next((past for past in evidence.history if is_same_failure(past, finding)), None)
    if known is not None:
        finding = replace(finding, fingerprint=known.fingerprint)
    decision = decide(finding, evidence.history, no_progress_limit=no_progress_limit)
    return Attribution(finding, decision, round((time.perf_counter() - started) * 1000, 1))


def _find(evidence: Evidence, registry: Registry) -> Finding:
    """From the ends of the logs if they tell enough, else from all of them."""
    logs = readable_sources(evidence)
    everything = [*logs, *kernel_sources(evidence)]
    reading = read_ends(everything, registry)
    facts = _facts(evidence, logs, reading)
    finding = conclude(_without_noise(facts, evidence, registry))
    if reading.complete or finding.confidence >= TOLD_ENOUGH:
        return finding
    whole = _facts(evidence, logs, read_whole(everything, registry))
    return conclude(_without_noise(whole, evidence, registry))


def what_was_said(evidence: Evidence) -> Said:
    """What the cause of a failure says, as the word model reads it."""
    logs, registry = readable_sources(evidence), built_in()
    reading = read_whole([*logs, *kernel_sources(evidence)], registry)
    return said(_without_noise(_facts(evidence, logs, reading), evidence, registry))


def _without_noise(facts: Facts, evidence: Evidence, registry: Registry) -> Facts:
    """The facts without what the job also wrote while it was healthy."""
    earlier = read_ends(earlier_sources(evidence), registry).events
    events = without_noise(facts.reading.events, facts.failures, earlier)
    return replace(facts, reading=replace(facts.reading, events=events))


def _facts(evidence: Evidence, logs: list[ReadableLog], reading: Reading) -> Facts:
    failures = failures_with_times(evidence)
    began = [log.began for log in logs if log.began is not None]
    written = (event.time for event in reading.events if event.time is not None)
    placed = in_one_calendar([*began, *written])
    events = named(_placed(event, placed) for event in reading.events)
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
        last_words=last_words(logs, events),
        logs=tuple(logs),
        world=world_size(logs),
        began=min((placed[moment] for moment in began), default=None),
    )


def _placed(event: Event, placed: Mapping[float, float]) -> Event:
    return event if event.time is None else replace(event, time=placed[event.time])


@dataclass(frozen=True, kw_only=True)
class AttributeRequest:
    """The logs of one cycle, and what else is known of it."""

    logs: tuple[Path, ...]  # files, directories of rank_<r>.out/.err, or cycle directories
    failures: Path | None = None  # JSON: [{"rank", "exit_code", "signal"}], or a cycle_info.json
    history: Path | None = None  # a directory of the job's earlier cycle_<n> directories
    kernel_log: tuple[Path, ...] = ()
    flight_recorder: Path | None = None  # a directory of dumps
    patterns: Path | None = None  # the user's own, read before the built-in ones
    max_no_progress_cycles: int = DEFAULT_NO_PROGRESS_LIMIT


def attribute_files(request: AttributeRequest) -> Attribution:
    """What killed this cycle, and should it restart?"""
    evidence = collect(
        request.logs, request.failures, request.history, request.kernel_log, request.flight_recorder
    )
    registry = with_user_file(request.patterns) if request.patterns else built_in()
    return attribute(evidence, registry=registry, no_progress_limit=request.max_no_progress_cycles)


CYCLE_INFO = "cycle_info.json"
_CYCLE = re.compile(r"cycle_(\d+)$")


def collect(
    logs: Sequence[Path],
    failures: Path | None = None,
    history: Path | None = None,
    kernel_logs: Sequence[Path] = (),
    flight_recorder: Path | None = None,
) -> Evidence:
    """Everything about one cycle. A cycle directory brings its own failures and dumps along."""
    cycle = next((path for path in logs if (path / CYCLE_INFO).is_file()), None)
    if failures is None and cycle is not None:
        failures = cycle / CYCLE_INFO
    ended = read_failures(failures) if failures else ()
    nodes = {failure.rank: failure.node for failure in ended}
    sources = tuple(_on_node(source, nodes) for source in find_logs(logs))
    earlier = _earlier_cycles(history, logs) if history else []
    return Evidence(
        logs=sources,
        failures=ended,
        kernel_logs=tuple(LogSource(path) for path in kernel_logs),
        flight_recorder=find_dumps(flight_recorder) if flight_recorder else (),
        history=tuple(cycle for cycle in map(_read_cycle, earlier) if cycle is not None),
        earlier_logs=_logs_of(earlier[-1]) if earlier else (),
        lived_sec=lifetime(_json(cycle / CYCLE_INFO) or {}) if cycle is not None else None,
    )


def lifetime(info: Mapping[str, Any]) -> float | None:
    """The seconds that a cycle_info.json says its cycle lived; None where it does not say."""
    try:
        began, ended = (datetime.fromisoformat(info[key]) for key in ("started", "ended"))
        return max(0.0, (ended - began).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None


def _earlier_cycles(directory: Path, logs: Sequence[Path]) -> list[Path]:
    """The cycles under `directory` before the one of these logs, oldest first."""
    cycles = sorted(
        (int(found[1]), path)
        for path in directory.iterdir()
        if path.is_dir() and (found := _CYCLE.search(path.name))
    )
    own = {place for log in logs for place in (log.resolve(), *log.resolve().parents)}
    limit = min((number for number, path in cycles if path.resolve() in own), default=None)
    return [path for number, path in cycles if limit is None or number < limit]


def _logs_of(cycle: Path) -> tuple[LogSource, ...]:
    try:
        return find_logs([cycle])
    except UsageError:
        return ()


def _read_cycle(path: Path) -> PastCycle | None:
    info = _json(path / CYCLE_INFO)
    saved = info.get("finding") if info else None
    if info and isinstance(saved, dict):
        return past_cycle({"lived_sec": lifetime(info), **_known(saved)}, path.name)
    try:
        finding = attribute(collect([path])).finding
    except UsageError:
        return None  # nothing in it can be read: it cannot count for or against anything
    return past_cycle(finding_document(finding), path.name)


def _known(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not None}


def _json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _on_node(source: LogSource, nodes: dict[int, str | None]) -> LogSource:
    return replace(source, node=nodes.get(source.rank)) if source.rank in nodes else source
