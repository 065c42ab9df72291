"""A second set of kinds written after the patterns, to measure again once the first had been
learned from.
"""

import gzip
import os
import pickle
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job, fault


@fault(BEFORE_GROUP, "command_line_library")
def _command_line_library(_job: Job) -> None:
    import click

    @click.command()
    @click.option("--lr", type=float)
    def train(lr: float) -> None:
        print(lr)

    train.main(["--lrr", "0.1"])


@fault(BEFORE_GROUP, "relative_import")
def _relative_import(job: Job) -> None:
    script = job.scratch / f"entry_{job.rank}.py"
    script.write_text("from .model import Transformer\n")
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "__main__"})


@fault(BEFORE_STEPS, "misspelled_name")
def _misspelled_name(_job: Job) -> None:
    exec("print(learning_rte * 2)")


@fault(BEFORE_STEPS, "optimizer_state")
def _optimizer_state(job: Job) -> None:
    other = torch.optim.SGD(nn.Linear(8, 8, bias=False).parameters(), lr=0.1)
    torch.optim.SGD(job.model.parameters(), lr=0.1).load_state_dict(other.state_dict())


@fault(BEFORE_STEPS, "target_size")
def _target_size(job: Job) -> None:
    nn.functional.cross_entropy(job.model(torch.randn(4, 8)), torch.zeros(3, dtype=torch.long))


@fault(BEFORE_STEPS, "channels")
def _channels(_job: Job) -> None:
    nn.Conv2d(3, 8, 3)(torch.randn(1, 4, 8, 8))


@fault(BEFORE_STEPS, "directory_exists")
def _directory_exists(job: Job) -> None:
    (job.scratch / "run").mkdir()
    time.sleep(1)
    (job.scratch / "run").mkdir()


@fault(BEFORE_STEPS, "message_and_exit")
def _message_and_exit(_job: Job) -> None:
    sys.exit("the vocabulary must be divisible by 128")


@fault(BEFORE_STEPS, "group_twice")
def _group_twice(_job: Job) -> None:
    dist.init_process_group("gloo")


@fault(AT_STEP, "cached_dataset_truncated", rank=0)
def _cached_dataset_truncated(job: Job) -> None:
    cache = job.scratch / "index.pkl"
    cache.write_bytes(pickle.dumps(list(range(1000)))[:0])
    with cache.open("rb") as file:
        pickle.load(file)


@fault(AT_STEP, "shard_archive_truncated", rank=1)
def _shard_archive_truncated(job: Job) -> None:
    shard = job.scratch / "shard.npz"
    np.savez(shard, tokens=np.arange(4000))
    shard.write_bytes(shard.read_bytes()[:2000])
    np.load(shard)


@fault(AT_STEP, "shard_not_gzip", rank=0)
def _shard_not_gzip(job: Job) -> None:
    shard = job.scratch / "shard.jsonl.gz"
    shard.write_text('{"text": "plain"}\n')
    with gzip.open(shard) as file:
        file.read()


@fault(AT_STEP, "input_output_error", rank=1)
def _input_output_error(_job: Job) -> None:
    os.read(os.open("/proc/self/mem", os.O_RDONLY), 10)


@fault(AT_STEP, "file_name_too_long", rank=0)
def _file_name_too_long(job: Job) -> None:
    (job.scratch / ("step-" + "0" * 300)).write_text("x")


@fault(AT_STEP, "helper_command_fails", rank=1)
def _helper_command_fails(_job: Job) -> None:
    subprocess.run(["tar", "xf", "/srv/no-such-archive.tar"], check=True)


@fault(AT_STEP, "array_too_large", rank=0)
def _array_too_large(_job: Job) -> None:
    np.ones((1 << 22, 1 << 22))


@fault(AT_STEP, "sigalrm", rank=1)
def _sigalrm(_job: Job) -> None:
    signal.alarm(1)
    time.sleep(60)


@fault(AT_STEP, "monitored_barrier")
def _monitored_barrier(job: Job) -> None:
    if job.rank == 1:
        time.sleep(60)
    dist.monitored_barrier(timeout=timedelta(seconds=4))


@fault(AT_STEP, "key_that_nobody_sets")
def _key_that_nobody_sets(job: Job) -> None:
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001  # as training scripts do it
    store.wait([f"ready/{Path(job.scratch).name}"], timedelta(seconds=4))


@fault(AT_STEP, "wrong_type", rank=0)
def _wrong_type(job: Job) -> None:
    print(torch.zeros(3) + str(job.step))  # type: ignore[operator]  # the mistake is the point
