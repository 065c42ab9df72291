"""Flight Recorder dumps: which rank did not arrive at which collective.

Dumps come from machines that may be broken and directories that others may write to: pickles are
read by an unpickler that builds plain values and refuses everything else.
"""

import ast
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aorta.core.errors import UsageError

_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|bin))?$")
_LARGEST_DUMP = 512 << 20
_COMPLETED = "completed"
_BEGUN = ("started", _COMPLETED)


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
class _Entry:
    group: str
    sequence: int
    operation: str
    sizes: str
    state: str
    created: int


@dataclass(frozen=True)
class Dump:
    rank: int
    entries: tuple[_Entry, ...]
    members: Mapping[str, tuple[int, ...]]  # of each group, where the dump tells
    completed: Mapping[str, int]  # the last collective each group finished


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
    by_rank: dict[int, Dump] = {}
    for path in sorted(paths, key=lambda path: path.suffix == ".json"):
        dump = _read(path)
        if dump is not None:
            by_rank[dump.rank] = dump
    return tuple(by_rank.values())


def stragglers(dumps: Sequence[Dump]) -> Stragglers:
    """Whom the earliest unfinished collective of all groups was waiting for."""
    found: list[tuple[int, Stragglers]] = []
    for group in sorted({entry.group for dump in dumps for entry in dump.entries}):
        blamed = _stragglers_of(group, dumps)
        if blamed is not None:
            found.append(blamed)
    return min(found, key=lambda pair: pair[0])[1] if found else Stragglers()


def _stragglers_of(group: str, dumps: Sequence[Dump]) -> tuple[int, Stragglers] | None:
    last = {dump.rank: _last(dump, group) for dump in dumps}
    came = {rank: entry for rank, entry in last.items() if entry is not None}
    members = {rank for dump in dumps for rank in dump.members.get(group, ())} or set(came)
    furthest = max(came.values(), key=lambda entry: entry.sequence)
    if all(_finished(dump, group, furthest.sequence) for dump in dumps if dump.rank in members):
        return None
    behind = {r for r in members if r not in came or came[r].sequence < furthest.sequence}
    at_it = {rank: entry for rank, entry in came.items() if rank not in behind}
    mismatch = False
    if not behind:
        behind = _another_operation(at_it)
        mismatch = bool(behind)
    if not behind:
        begun = {rank for rank, entry in at_it.items() if entry.state in _BEGUN}
        behind = set(at_it) - begun if begun else set()
    if not behind or len(behind) == len(members):
        return None
    created = min(entry.created for entry in at_it.values())
    return created, Stragglers(
        tuple(sorted(behind)), furthest.operation, group, furthest.sequence, mismatch
    )


def _another_operation(entries: Mapping[int, _Entry]) -> set[int]:
    """The minority that called another operation, or the same one with other sizes."""
    calls = Counter((entry.operation, entry.sizes) for entry in entries.values())
    if len(calls) < 2:
        return set()
    usual = calls.most_common(1)[0][0]
    return {rank for rank, entry in entries.items() if (entry.operation, entry.sizes) != usual}


def _last(dump: Dump, group: str) -> _Entry | None:
    own = [entry for entry in dump.entries if entry.group == group]
    return max(own, key=lambda entry: entry.sequence, default=None)


def _finished(dump: Dump, group: str, sequence: int) -> bool:
    last = _last(dump, group)
    if last is None or last.sequence < sequence:
        return False
    return last.state == _COMPLETED or dump.completed.get(group, -1) >= sequence


class _PlainValues(pickle.Unpickler):
    """Numbers, strings, lists, tuples and dicts; the type tags of torch's pickler are dropped."""

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if module == "torch.jit._pickle" and name in {"restore_type_tag", "build_intlist"}:
            return _first_argument
        raise pickle.UnpicklingError(f"a flight recorder dump does not hold {module}.{name}")


def _first_argument(value: object, *_tags: object) -> object:
    return value


def _read(path: Path) -> Dump | None:
    rank = _RANK.search(path.name)
    try:
        if rank is None or path.stat().st_size > _LARGEST_DUMP:
            return None
        data = _load(path)
        return _dump(int(data.get("rank") or rank[1]), data) if isinstance(data, dict) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError, IndexError,
            RecursionError, MemoryError, OverflowError, pickle.UnpicklingError):  # fmt: skip
        return None  # every way in which bytes written by a dying process can be wrong


def _load(path: Path) -> Any:
    with path.open("rb") as file:
        is_json = file.read(1) in b"{["
        file.seek(0)
        return json.load(file) if is_json else _PlainValues(file).load()


def _dump(rank: int, data: Mapping[str, Any]) -> Dump:
    names = {
        str(key): str(value.get("name", key)) for key, value in _mapping(data, "pg_config").items()
    }
    members = {
        str(value.get("name", key)): _ranks(value.get("ranks"))
        for key, value in _mapping(data, "pg_config").items()
    }
    completed = {
        names.get(str(key), str(key)): int(value.get("last_completed_collective", -1))
        for key, value in _mapping(data, "pg_status").items()
    }
    entries = tuple(_entry(entry) for entry in data.get("entries") or () if not entry.get("is_p2p"))
    return Dump(rank, entries, {k: v for k, v in members.items() if v}, completed)


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[Any, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _entry(entry: Mapping[str, Any]) -> _Entry:
    group = entry.get("process_group") or (entry.get("pg_id", ""),)
    return _Entry(
        group=str(group[0]),
        sequence=int(entry["collective_seq_id"]),
        operation=str(entry.get("profiling_name", "")).split(":")[-1],
        sizes=str(entry.get("input_sizes", "")),
        state=str(entry.get("state", "")),
        created=int(entry.get("time_created_ns", 0)),
    )


def _ranks(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        value = ast.literal_eval(value) if value.strip() else ()
    return tuple(int(rank) for rank in value) if isinstance(value, (list, tuple)) else ()
