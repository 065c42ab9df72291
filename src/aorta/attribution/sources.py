"""Everything in the evidence that can be read as a log, and the paths and dumps a user names, found
and sorted.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.attribution.logs.reading import MOST_KEPT, ReadableLog, rank_in_name
from aorta.attribution.nouns import Evidence, LogSource
from aorta.attribution.rank_end import RankEnd, signal_number
from aorta.core.errors import SpecError, UsageError

_LOG_NAMES = (".out", ".err", ".log", ".txt", ".gz")
_MOST_ERROR_FILE = 1 << 20
# Bytes of packed logs that are held in memory: of all together, and of each at least.
_KEPT_OF_ALL, _LEAST_KEPT = 512 << 20, 1 << 20


def readable_sources(evidence: Evidence) -> list[ReadableLog]:
    """The logs of the ranks; kernel logs are read beside them but tell nothing about progress."""
    most = max(_LEAST_KEPT, min(MOST_KEPT, _KEPT_OF_ALL // max(1, len(evidence.logs))))
    files = [_of_file(log, evidence.follow_links, most) for log in evidence.logs]
    tails = [
        ReadableLog(tail.name, tail.rank, tail.node, text=tail.text.encode())
        for tail in evidence.tails
    ]
    reports = [
        source
        for failure in evidence.failures
        for source in _error_report(failure, evidence.follow_links)
    ]
    return [*files, *tails, *reports]


def kernel_sources(evidence: Evidence) -> list[ReadableLog]:
    return [
        _of_file(replace(log, rank=None), evidence.follow_links) for log in evidence.kernel_logs
    ]


def earlier_sources(evidence: Evidence) -> list[ReadableLog]:
    return [_of_file(log, evidence.follow_links) for log in evidence.earlier_logs]


def _of_file(log: LogSource, follow_links: bool, most: int = MOST_KEPT) -> ReadableLog:
    return ReadableLog(
        str(log.path), log.rank, log.node, log.path, follow_links=follow_links, most_kept=most
    )


def failures_with_times(evidence: Evidence) -> tuple[RankEnd, ...]:
    """Failures with the moment their error file tells, where the launcher did not know it."""
    return tuple(
        failure
        if failure.time is not None
        else replace(failure, time=_reported_time(failure, evidence.follow_links))
        for failure in evidence.failures
    )


def find_logs(paths: Sequence[Path]) -> tuple[LogSource, ...]:
    """Log files for what a user named: files as they are, directories by the logs in them."""
    found: dict[Path, LogSource] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no log at {path}; expected a file or a directory of logs")
        for file in _logs_in(path) if path.is_dir() else [path]:
            found.setdefault(file, LogSource(file, rank_in_name(file)))
    return tuple(found.values())


def read_failures(path: Path) -> tuple[RankEnd, ...]:
    """`[{"rank", "exit_code", "signal", ...}]`, or the `ranks` of a cycle_info.json."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise SpecError(f"is not readable JSON: {wrong}", where=str(path)) from None
    rows = data.get("ranks") if isinstance(data, dict) else data
    if not isinstance(rows, list):
        raise SpecError(
            "expected a list of {rank, exit_code, signal} or a cycle_info.json", where=str(path)
        )
    return failures_of(rows, str(path))


def failures_of(rows: Sequence[Any], where: str = "failures") -> tuple[RankEnd, ...]:
    return tuple(_failure(row, f"{where}: [{index}]") for index, row in enumerate(rows))


def _failure(row: Any, where: str) -> RankEnd:
    if not isinstance(row, dict) or type(row.get("rank")) is not int:
        raise SpecError('expected an object with an integer "rank"', where=where)
    code, told = row.get("exit_code"), row.get("signal")
    if code is not None and type(code) is not int:
        raise SpecError(f"'exit_code' is {code!r}; expected an integer or null", where=where)
    number = signal_number(told) if isinstance(told, (int, str)) and told is not True else None
    if told is not None and number is None:
        raise SpecError(
            f"'signal' is {told!r}; expected a number or a name such as SIGKILL, or null",
            where=where,
        )
    moment = row.get("time")
    error_file = row.get("error_file")
    return RankEnd(
        rank=row["rank"],
        exit_code=row.get("exit_code"),
        signal=number,
        error_file=Path(error_file) if isinstance(error_file, str) and error_file else None,
        time=float(moment) if isinstance(moment, (int, float)) else None,
        node=_text(row.get("node")),
        device=_text(row.get("device")),
        agent=_text(row.get("agent")),
        hung=row.get("hung") is True,
    ).stopped_by_agent(row.get("stopped_by_agent") is True)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _logs_in(directory: Path) -> list[Path]:
    files = sorted(path for path in directory.iterdir() if path.is_file())
    ranked = [path for path in files if rank_in_name(path) is not None]
    chosen = ranked or [path for path in files if path.suffix in _LOG_NAMES]
    if not chosen:
        raise UsageError(
            f"there are no logs in {directory}; expected rank_<r>.out and .err, or *.log"
        )
    return [path for path in chosen if path.suffix in _LOG_NAMES and path.name != "kernel.log"]


def _error_report(failure: RankEnd, follow_links: bool) -> list[ReadableLog]:
    """The traceback torch's `record` decorator saved: there even where stderr was lost."""
    trace = _error_info(failure, follow_links).get("py_callstack")
    if not isinstance(trace, str):
        return []
    return [
        ReadableLog(
            str(failure.error_file), failure.rank, failure.node, text=trace.encode(errors="replace")
        )
    ]


def _reported_time(failure: RankEnd, follow_links: bool) -> float | None:
    told = _error_info(failure, follow_links).get("timestamp")
    try:
        return None if told is None else float(told)
    except (TypeError, ValueError):
        return None


def _error_info(failure: RankEnd, follow_links: bool) -> dict[str, Any]:
    """`message.extraInfo` of the error file; empty where there is none, or something else."""
    path = failure.error_file
    if path is None:
        return {}
    try:
        with ReadableLog(str(path), path=path, follow_links=follow_links).opened() as file:
            found = json.loads(file.read(_MOST_ERROR_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    for key in ("message", "extraInfo"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
