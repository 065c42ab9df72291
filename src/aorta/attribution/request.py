"""The public API for one cycle on disk: everything that may be asked, and the one function
that answers it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from aorta.attribution import attribute as attributed
from aorta.attribution.documents import (
    Attribution,
    Evidence,
    LogSource,
    PastCycle,
    finding_document,
    past_cycle,
)
from aorta.attribution.evidence import find_dumps, find_logs, read_failures
from aorta.attribution.policy import DEFAULT_NO_PROGRESS_LIMIT
from aorta.core.errors import UsageError


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


def attribute(request: AttributeRequest) -> Attribution:
    """What killed this cycle, and should it restart?"""
    evidence = collect(request)
    return attributed(evidence, no_progress_limit=request.max_no_progress_cycles)


CYCLE_INFO = "cycle_info.json"
_CYCLE = re.compile(r"cycle_(\d+)$")


def collect(request: AttributeRequest) -> Evidence:
    """Everything about one cycle. A cycle directory brings its own failures and dumps along; of a
    log directory of `aorta launch` its last cycle is read, and those before are its history.
    """
    last = [last_cycle(path) for path in request.logs]
    named = list(zip(request.logs, last, strict=True))
    history = request.history or next((path for path, cycle in named if cycle), None)
    logs = [cycle or path for path, cycle in named]
    cycle = next((path for path in logs if (path / CYCLE_INFO).is_file()), None)
    failures = request.failures or (cycle / CYCLE_INFO if cycle is not None else None)
    ended = read_failures(failures) if failures else ()
    nodes = {failure.rank: failure.node for failure in ended}
    sources = tuple(_placed(source, nodes) for source in find_logs(logs))
    earlier = _earlier_cycles(history, logs) if history else []
    return Evidence(
        logs=sources,
        failures=ended,
        kernel_logs=tuple(LogSource(path) for path in request.kernel_log),
        flight_recorder=find_dumps(request.flight_recorder) if request.flight_recorder else (),
        history=tuple(cycle for cycle in map(_read_cycle, earlier) if cycle is not None),
        lived_sec=lifetime(_json(cycle / CYCLE_INFO) or {}) if cycle is not None else None,
    )


def last_cycle(path: Path) -> Path | None:
    """The last cycle in a log directory of `aorta launch`; None where it is none."""
    cycles = _cycles_in(path) if path.is_dir() and not (path / CYCLE_INFO).is_file() else []
    return cycles[-1][1] if cycles else None


def _cycles_in(directory: Path) -> list[tuple[int, Path]]:
    """By number."""
    return sorted(
        (int(found[1]), path)
        for path in directory.iterdir()
        if path.is_dir() and (found := _CYCLE.search(path.name))
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
    cycles = _cycles_in(directory)
    own = {place for log in logs for place in (log.resolve(), *log.resolve().parents)}
    limit = min((number for number, path in cycles if path.resolve() in own), default=None)
    return [path for number, path in cycles if limit is None or number < limit]


def _read_cycle(path: Path) -> PastCycle | None:
    info = _json(path / CYCLE_INFO)
    saved = info.get("finding") if info else None
    if info and isinstance(saved, dict):
        return past_cycle({"lived_sec": lifetime(info), **_known(saved)}, path.name)
    try:
        finding = attributed(collect(AttributeRequest(logs=(path,)))).finding
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


def _placed(source: LogSource, nodes: dict[int, str | None]) -> LogSource:
    return replace(source, node=nodes.get(source.rank)) if source.rank in nodes else source
