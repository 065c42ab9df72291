"""The bad-shard example as a registered workload, with its axes declared in Python. The loader
itself is `load.py`.
"""

import time
import zlib
from typing import ClassVar

from aorta.workloads.bad_shard.load import SHARD_DIR, ShardSettings, epochs, read_shard
from aorta.workloads.base import Workload, WorkloadResult


def _checksum_is_wrong(result: WorkloadResult) -> bool:
    return any("CRC" in detail["hint"] for detail in result.failure_details)


class BadShard(Workload):
    """A data loader over shards, one damaged; counts shards that cannot be read."""

    axes = (
        {
            "name": "SHARD_DIR",
            "kind": "dir_subset",
            "initial": str(SHARD_DIR),
            "strategy": "dd-min",
        },
        {
            "name": "NUM_EPOCHS",
            "kind": "env",
            "type": "int",
            "initial": 1,
            "floor": 1,
            "strategy": "binary",
            "monotone": True,
        },
    )
    steps_axis = "NUM_EPOCHS"
    predicates: ClassVar = {"checksum_is_wrong": _checksum_is_wrong}

    def setup(self) -> None:
        settings = ShardSettings.from_env(self.variables())
        self.shards = [shard for epoch in epochs(settings) for shard in epoch]

    def run(self) -> WorkloadResult:
        began = time.perf_counter()
        times: list[float] = []
        failures = []
        for number, shard in enumerate(self.shards, start=1):
            start = time.perf_counter()
            try:
                read_shard(shard)
            except (OSError, EOFError, zlib.error) as wrong:
                hint = f"{shard.name}: {type(wrong).__name__}: {wrong}"
                failures.append({"hint": hint, "type": "data", "shard": shard.name, "read": number})
                print(hint, flush=True)
            times.append((time.perf_counter() - start) * 1000)
        return WorkloadResult(
            passed=not failures,
            failure_count=len(failures),
            first_failure_iteration=int(str(failures[0]["read"])) if failures else None,
            failure_details=failures,
            total_iterations=len(self.shards),
            step_times_ms=times,
            elapsed_sec=time.perf_counter() - began,
            main_work_started=True,
            executed_iterations=len(self.shards),
            configured_iterations=len(self.shards),
        )
