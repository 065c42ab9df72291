"""Evidence beside the logs: recorded exits, error files, and Flight Recorder dumps.

Others may be able to write dumps: the unpickler builds plain values and refuses everything else.
"""

import ast
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aorta.attribution.documents import Evidence, LogSource, RankEnd
from aorta.attribution.logs import ReadableLog, rank_in_name
from aorta.core.documents import StrictModel, validated
from aorta.core.errors import SpecError, UsageError

_LOG_NAMES = (".out", ".err", ".log", ".txt", ".gz")
_MOST_ERROR_FILE = 1 << 20


def readable_sources(evidence: Evidence) -> list[ReadableLog]:
    """The logs of the ranks; kernel logs are read beside them but tell nothing about progress."""
    links = evidence.follow_links
    files = [_of_file(log, links) for log in evidence.logs]
    tails = [ReadableLog(t.name, t.rank, t.node, text=t.text.encode()) for t in evidence.tails]
    reports = (_error_report(failure, links) for failure in evidence.failures)
    return [*files, *tails, *(report for report in reports if report is not None)]


def kernel_sources(evidence: Evidence) -> list[ReadableLog]:
    links = evidence.follow_links
    return [_of_file(replace(log, rank=None), links) for log in evidence.kernel_logs]


def _of_file(log: LogSource, follow_links: bool) -> ReadableLog:
    return ReadableLog(str(log.path), log.rank, log.node, log.path, follow_links=follow_links)


def failures_with_times(evidence: Evidence) -> tuple[RankEnd, ...]:
    """Failures with the moment their error file tells, where the launcher did not know it."""
    return tuple(
        end if end.time is not None else replace(end, time=_error_time(end, evidence.follow_links))
        for end in evidence.failures
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
    return failures_of(data.get("ranks") if isinstance(data, dict) else data, str(path))


class _Failures(StrictModel):
    failures: list[RankEnd]


def failures_of(rows: object, where: str = "failures") -> tuple[RankEnd, ...]:
    return tuple(validated(_Failures, {"failures": rows}, file=where).failures)


def _logs_in(directory: Path) -> list[Path]:
    files = sorted(path for path in directory.iterdir() if path.is_file())
    ranked = [path for path in files if rank_in_name(path) is not None]
    chosen = ranked or [path for path in files if path.suffix in _LOG_NAMES]
    if not chosen:
        raise UsageError(
            f"there are no logs in {directory}; expected rank_<r>.out and .err, or *.log"
        )
    return [path for path in chosen if path.suffix in _LOG_NAMES and path.name != "kernel.log"]


def _error_report(failure: RankEnd, follow_links: bool) -> ReadableLog | None:
    """The traceback torch's `record` decorator saved: there even where stderr was lost."""
    trace = _error_info(failure, follow_links).get("py_callstack")
    if not isinstance(trace, str):
        return None
    text = trace.encode(errors="replace")
    return ReadableLog(failure.error_file or "", failure.rank, failure.node, text=text)


def _error_time(failure: RankEnd, follow_links: bool) -> float | None:
    try:
        return float(_error_info(failure, follow_links)["timestamp"])
    except (KeyError, TypeError, ValueError):
        return None


def _error_info(failure: RankEnd, follow_links: bool) -> dict[str, Any]:
    """`message.extraInfo` of the error file; empty where there is none, or something else."""
    path = failure.error_file
    if path is None:
        return {}
    try:
        with ReadableLog(path, path=Path(path), follow_links=follow_links).opened() as file:
            found = json.loads(file.read(_MOST_ERROR_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    for key in ("message", "extraInfo"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|bin))?$")
_LARGEST_DUMP = 512 << 20
_BEGUN = ("started", "completed")


@dataclass(frozen=True)
class Stragglers:
    """The ranks that one collective waited for; empty where the dumps blame nobody."""

    ranks: tuple[int, ...] = ()
    operation: str = ""
    group: str = ""
    sequence: int | None = None
    mismatch: bool = False  # they came, but with another operation or other sizes

    @property
    def words(self) -> str:
        did = "called something else at" if self.mismatch else "did not arrive at"
        ranks = ", ".join(str(rank) for rank in self.ranks)
        return f"rank {ranks} {did} {self.operation} number {self.sequence} of group {self.group}"


@dataclass(frozen=True)
class _Call:
    """The last collective that a rank entered in a group."""

    sequence: int
    operation: str
    sizes: str
    state: str
    created: int


@dataclass(frozen=True)
class Dump:
    """What one rank recorded, by group."""

    rank: int
    last: Mapping[str, _Call]
    members: Mapping[str, tuple[int, ...]]  # where the dump tells


def find_dumps(directory: Path) -> tuple[Path, ...]:
    if not directory.is_dir():
        raise UsageError(
            f"there is no directory {directory}; expected one of flight recorder dumps"
        )
    return tuple(
        path for path in sorted(directory.iterdir()) if path.is_file() and _RANK.search(path.name)
    )


def read_dumps(paths: Iterable[Path]) -> tuple[Dump, ...]:
    """The dumps that can be read; JSON wins over a pickle of the same rank."""
    dumps = map(_read, sorted(paths, key=lambda path: path.suffix == ".json"))
    return tuple({dump.rank: dump for dump in dumps if dump is not None}.values())


def stragglers(dumps: Sequence[Dump]) -> Stragglers:
    """Whom the earliest unfinished collective of all groups was waiting for."""
    groups = sorted({group for dump in dumps for group in dump.last})
    found = [blamed for group in groups if (blamed := _stragglers_of(group, dumps)) is not None]
    return min(found, key=lambda pair: pair[0])[1] if found else Stragglers()


def _stragglers_of(group: str, dumps: Sequence[Dump]) -> tuple[int, Stragglers] | None:
    came = {dump.rank: dump.last[group] for dump in dumps if group in dump.last}
    members = {rank for dump in dumps for rank in dump.members.get(group, ())} or set(came)
    furthest = max(came.values(), key=lambda entry: entry.sequence)
    behind = {r for r in members if r not in came or came[r].sequence < furthest.sequence}
    at_it = {rank: entry for rank, entry in came.items() if rank not in behind}
    # The minority that called another operation, or the same one with other sizes.
    called = {rank: (call.operation, call.sizes) for rank, call in at_it.items()}
    usual = Counter(called.values()).most_common(1)[0][0]
    others = set() if behind else {rank for rank, what in called.items() if what != usual}
    mismatch = bool(others)
    behind = behind or others
    if not behind:
        begun = {rank for rank, entry in at_it.items() if entry.state in _BEGUN}
        behind = set(at_it) - begun if begun else set()
    if not behind or len(behind) == len(members):
        return None
    created = min(entry.created for entry in at_it.values())
    return created, Stragglers(
        tuple(sorted(behind)), furthest.operation, group, furthest.sequence, mismatch
    )


class _PlainValues(pickle.Unpickler):
    """Numbers, strings, lists, tuples and dicts; the type tags of torch's pickler are dropped."""

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if module == "torch.jit._pickle" and name in {"restore_type_tag", "build_intlist"}:
            return lambda value, *_tags: value
        raise pickle.UnpicklingError(f"a flight recorder dump does not hold {module}.{name}")


def _read(path: Path) -> Dump | None:
    rank = _RANK.search(path.name)
    try:
        if rank is None or path.stat().st_size > _LARGEST_DUMP:
            return None
        with path.open("rb") as file:
            is_json = file.read(1) in b"{["
            file.seek(0)
            data: Any = json.load(file) if is_json else _PlainValues(file).load()
        return _dump(int(data.get("rank") or rank[1]), data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError, IndexError,
            RecursionError, MemoryError, OverflowError, pickle.UnpicklingError):  # fmt: skip
        return None  # every way in which bytes written by a dying process can be wrong


def _dump(rank: int, data: Mapping[str, Any]) -> Dump:
    groups = data["pg_config"] if isinstance(data.get("pg_config"), Mapping) else {}
    members = {
        str(group.get("name", key)): _ranks(group.get("ranks")) for key, group in groups.items()
    }
    last: dict[str, _Call] = {}
    for entry in data.get("entries") or ():
        if not entry.get("is_p2p"):
            group = str((entry.get("process_group") or (entry.get("pg_id", ""),))[0])
            call = _Call(
                sequence=int(entry["collective_seq_id"]),
                operation=str(entry.get("profiling_name", "")).split(":")[-1],
                sizes=str(entry.get("input_sizes", "")),
                state=str(entry.get("state", "")),
                created=int(entry.get("time_created_ns", 0)),
            )
            last[group] = max(last.get(group, call), call, key=lambda each: each.sequence)
    return Dump(rank, last, {group: ranks for group, ranks in members.items() if ranks})


def _ranks(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        value = ast.literal_eval(value) if value.strip() else ()
    return tuple(int(rank) for rank in value) if isinstance(value, (list, tuple)) else ()
