"""Flight Recorder dumps: real ones from gloo, forged ones from elsewhere."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aorta.attribution import Evidence, LogTail, attribute
from aorta.attribution.evidence import find_dumps, read_dumps, stragglers
from support.waiting import patience

RANKS = """
import os, sys, time, torch, torch.distributed as dist
from datetime import timedelta
store, out = sys.argv[1:]
other = os.fork()  # one import for both
rank = 0 if other else 1
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=60))
for _ in range(3 if rank == 0 else 2):
    dist.all_reduce(torch.ones(4), async_op=True)
time.sleep(1)
from torch._C import _distributed_c10d as c10d
open(f"{out}/json/dump_{rank}.json", "wb").write(c10d._dump_fr_trace_json(includeCollectives=True, onlyActive=False))
open(f"{out}/pickle/dump_{rank}", "wb").write(c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False))
os._exit(os.waitpid(other, 0)[1] if other else 0)
"""


def test_the_rank_that_did_not_arrive_is_named_from_real_dumps_in_either_form(
    tmp_path: Path,
) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    folders = [tmp_path / "json", tmp_path / "pickle"]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, str(script), str(tmp_path / "store"), str(tmp_path)]
    subprocess.run(command, check=True, timeout=patience())
    for dumps in map(find_dumps, folders):
        assert len(dumps) == 2
        blamed = stragglers(read_dumps(dumps))
        assert blamed.ranks == (1,)
        assert blamed.operation in {"all_reduce", "allreduce"}
        found = attribute(Evidence(flight_recorder=dumps)).finding
        assert (found.failure_class, found.root.rank) == ("collective_timeout", 1)


def entry(sequence: int, state: str, **more: Any) -> dict[str, Any]:
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": sequence,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "state": state,
        "time_created_ns": sequence,
        **more,
    }


def dumps_of(directory: Path, *ranks: list[dict[str, Any]], world: int = 0) -> tuple[Path, ...]:
    config = {"0": {"name": "0", "ranks": str(list(range(world)))}} if world else {}
    for rank, entries in enumerate(ranks):
        document = {"version": "2.10", "pg_config": config, "entries": entries}
        (directory / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document))
    return find_dumps(directory)


def test_a_rank_whose_kernel_has_not_started_is_behind_those_whose_has(tmp_path: Path) -> None:
    paths = dumps_of(
        tmp_path, [entry(5, "started")], [entry(5, "scheduled")], [entry(5, "started")]
    )
    assert stragglers(read_dumps(paths)).ranks == (1,)


def test_a_rank_that_called_something_else_is_told_apart(tmp_path: Path) -> None:
    other = entry(5, "started", profiling_name="nccl:broadcast")
    paths = dumps_of(tmp_path, [entry(5, "started")], [entry(5, "started")], [other])
    blamed = stragglers(read_dumps(paths))
    assert (blamed.ranks, blamed.mismatch) == ((2,), True)


def test_a_member_without_a_dump_is_missing(tmp_path: Path) -> None:
    paths = dumps_of(tmp_path, [entry(5, "started")], [entry(5, "started")], world=3)
    assert stragglers(read_dumps(paths)).ranks == (2,)


def test_nobody_is_blamed_when_everything_is_done(tmp_path: Path) -> None:
    paths = dumps_of(tmp_path, [entry(5, "completed")], [entry(5, "completed")])
    assert stragglers(read_dumps(paths)).ranks == ()


def test_dumps_outweigh_the_guess_from_who_is_silent(tmp_path: Path) -> None:
    paths = dumps_of(
        tmp_path, [entry(6, "started")], [entry(5, "completed")], [entry(6, "started")]
    )
    text = (
        "Traceback (most recent call last):\nRuntimeError: Timed out waiting 8000ms for recv "
        "operation to complete\n"
    )
    tails = (LogTail(text, 0), LogTail("", 1), LogTail("", 2))
    assert attribute(Evidence(tails=tails, flight_recorder=paths)).finding.suspect_ranks == (1,)


class _Payload:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {Path.cwd() / 'owned'}",)


def test_a_forged_dump_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    forged = tmp_path / "dump_0"
    forged.write_bytes(pickle.dumps({"entries": [_Payload()]}))
    assert read_dumps([forged]) == ()
    assert not (tmp_path / "owned").exists()


def test_json_and_pickle_of_one_rank_count_once(tmp_path: Path) -> None:
    dumps_of(tmp_path, [entry(5, "started")])
    document = {"entries": [entry(9, "started")]}
    (tmp_path / "nccl_trace_rank_0.json").write_text(json.dumps(document))
    (dump,) = read_dumps(find_dumps(tmp_path))
    assert {call.sequence for call in dump.last.values()} == {9}
