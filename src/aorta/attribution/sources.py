"""Everything in the evidence that can be read as a log, and the paths and dumps a user names, found and sorted."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aorta.attribution.nouns import Evidence, LogSource, RankFailure
from aorta.attribution.reading import Source, rank_in_name
from aorta.core.errors import SpecError, UsageError

_LOG_NAMES = (".out", ".err", ".log", ".txt", ".gz")
_MOST_ERROR_FILE = 1 << 20


def readable_sources(evidence: Evidence) -> list[Source]:
    """The logs of the ranks; kernel logs are read beside them but tell nothing about progress."""
    files = [Source(str(log.path), log.rank, log.node, log.path) for log in evidence.logs]
    tails = [
        Source(tail.name, tail.rank, tail.node, text=tail.text.encode()) for tail in evidence.tails
    ]
    reports = [source for failure in evidence.failures for source in _error_report(failure)]
    return [*files, *tails, *reports]


def kernel_sources(evidence: Evidence) -> list[Source]:
    return [Source(str(log.path), None, log.node, log.path) for log in evidence.kernel_logs]


def with_times(failures: Iterable[RankFailure]) -> tuple[RankFailure, ...]:
    """Failures with the moment their error file tells, where the launcher did not know it."""
    return tuple(
        failure if failure.time is not None else replace(failure, time=_reported_time(failure))
        for failure in failures
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


def read_failures(path: Path) -> tuple[RankFailure, ...]:
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


def failures_of(rows: Sequence[Any], where: str) -> tuple[RankFailure, ...]:
    return tuple(_failure(row, f"{where}: [{index}]") for index, row in enumerate(rows))


def _failure(row: Any, where: str) -> RankFailure:
    if not isinstance(row, dict) or type(row.get("rank")) is not int:
        raise SpecError('expected an object with an integer "rank"', where=where)
    for key in ("exit_code", "signal"):
        if row.get(key) is not None and type(row[key]) is not int:
            raise SpecError(f"{key!r} is {row[key]!r}; expected an integer or null", where=where)
    moment = row.get("time")
    error_file = row.get("error_file")
    return RankFailure(
        rank=row["rank"],
        exit_code=row.get("exit_code"),
        signal=row.get("signal"),
        error_file=Path(error_file) if isinstance(error_file, str) and error_file else None,
        time=float(moment) if isinstance(moment, (int, float)) else None,
        node=_text(row.get("node")),
        device=_text(row.get("device")),
        hung=row.get("hung") is True,
    )


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


def _error_report(failure: RankFailure) -> list[Source]:
    """The traceback torch's `record` decorator saved: there even where stderr was lost."""
    message = _error_message(failure)
    trace = (message.get("extraInfo") or {}).get("py_callstack") if message else None
    if not isinstance(trace, str):
        return []
    return [Source(str(failure.error_file), failure.rank, failure.node, text=trace.encode())]


def _reported_time(failure: RankFailure) -> float | None:
    message = _error_message(failure)
    told = (message.get("extraInfo") or {}).get("timestamp") if message else None
    try:
        return None if told is None else float(told)
    except (TypeError, ValueError):
        return None


def _error_message(failure: RankFailure) -> dict[str, Any] | None:
    if failure.error_file is None:
        return None
    try:
        with failure.error_file.open("rb") as file:
            data = json.loads(file.read(_MOST_ERROR_FILE))
    except (OSError, ValueError):
        return None
    message = data.get("message") if isinstance(data, dict) else None
    return message if isinstance(message, dict) else None
