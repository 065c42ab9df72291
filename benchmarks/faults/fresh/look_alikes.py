"""Failures that look like a user's mistake, or like the end of a job, and are not: stopping for one
of them would be wrong.
"""

import asyncio
import importlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job, fault

log = logging.getLogger("trainer")


@fault(BEFORE_STEPS, "import_one_rank")
def _import_one_rank(job: Job) -> None:
    """A package on a network share that one rank does not see at this moment."""
    if job.rank != 1:
        (job.scratch / "fused_ops.py").write_text("gelu = abs\n")
        sys.path.insert(0, str(job.scratch))
    importlib.import_module("fused_ops")


@fault(BEFORE_GROUP, "import_stale_handle", rank=2)
def _import_stale_handle(job: Job) -> None:
    module = job.scratch / "tokenizer_stale.py"
    module.write_text("vocabulary = {}\n")
    sys.path.insert(0, str(job.scratch))
    importlib.import_module(module.stem)


@fault(AT_STEP, "checkpoint_race")
def _checkpoint_race(job: Job) -> None:
    path = job.scratch / f"global_step{job.step}.pt"
    if job.rank == 0:
        time.sleep(2)
        torch.save(job.model.state_dict(), path)
    else:
        job.model.load_state_dict(torch.load(path))


@fault(AT_STEP, "checkpoint_half_written")
def _checkpoint_half_written(job: Job) -> None:
    path = job.scratch / "latest.pt"
    if job.rank == 0:
        torch.save({"w": torch.zeros(4000)}, job.scratch / "whole.pt")
        path.write_bytes((job.scratch / "whole.pt").read_bytes()[:4000])
        time.sleep(4)
        path.write_bytes((job.scratch / "whole.pt").read_bytes())
    else:
        time.sleep(1)
        torch.load(path)


@fault(AT_STEP, "rename_race")
def _rename_race(job: Job) -> None:
    """Every rank writes the same temporary file and moves it into place; the last one finds it
    gone.
    """
    temporary = job.scratch / "latest.txt.tmp"
    temporary.write_text(str(job.step))
    time.sleep(1 + job.rank)
    os.replace(temporary, job.scratch / "latest.txt")  # noqa: PTH105  # the common way to write it


@fault(BEFORE_STEPS, "download_refused")
def _download_refused(_job: Job) -> None:
    for attempt in range(3):
        try:
            urllib.request.urlopen("http://127.0.0.1:9/datasets/c4/part-00000", timeout=3)
        except OSError as wrong:
            log.warning("attempt %d failed: %s", attempt, wrong)
            last = wrong
    raise RuntimeError("could not download c4/part-00000 after 3 attempts") from last


@fault(BEFORE_STEPS, "cache_half_written", rank=1)
def _cache_half_written(job: Job) -> None:
    cache = job.scratch / "cache" / "index-train.json"
    cache.parent.mkdir(exist_ok=True)
    cache.write_text(json.dumps({"shards": list(range(500))})[:700])
    json.loads(cache.read_text())


@fault(AT_STEP, "ecc_wrapped", rank=1)
def _ecc_wrapped(_job: Job) -> None:
    """The message is the one CUDA documents; no device here can be made to show it."""
    try:
        _forward(
            "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be "
            "asynchronously reported at some "
            "other API call, so the stacktrace below might be incorrect.\nCompile with "
            "`TORCH_USE_CUDA_DSA` to enable device-side assertions."
        )
    except RuntimeError as wrong:
        raise ValueError("invalid configuration? the forward pass of block 3 failed") from wrong


def _forward(message: str) -> None:
    raise RuntimeError(message)


@fault(AT_STEP, "disk_full_healed")
def _disk_full_healed(job: Job) -> None:
    """Rank 0 makes room and goes on; what ends the job has nothing to do with it."""
    small = job.scratch / "small"
    if job.rank == 0:
        (small / "old.pt").write_bytes(b"0" * 900_000)
        try:
            (small / "new.pt").write_bytes(b"0" * 900_000)
        except OSError:
            log.exception("could not save, removing the oldest checkpoint")
            (small / "old.pt").unlink()
            (small / "new.pt").write_bytes(b"0" * 900_000)
    for step in range(job.step, job.step + 8):
        dist.all_reduce(torch.zeros(8))
        _report(step)
    if job.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def _report(step: int) -> None:
    row = {"loss": 0.3, "grad_norm": 0.7, "learning_rate": 5e-05, "epoch": step / 10}
    print(row, flush=True)


def _go_on_alone(job: Job) -> None:
    """Some steps between a failure that was survived and the one that was not."""
    for step in range(job.step, job.step + 8):
        _report(step)


@fault(AT_STEP, "helper_usage_then_kill", rank=1)
def _helper_usage_then_kill(job: Job) -> None:
    """A monitoring helper is called with an old flag; nobody minds."""
    helper = job.scratch / "monitor.py"
    helper.write_text(
        "import argparse\nparser = "
        "argparse.ArgumentParser()\nparser.add_argument('--interval')\nparser.parse_args()\n"
    )
    subprocess.run([sys.executable, helper, "--fast"], check=False)
    _go_on_alone(job)
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "helper_usage_then_error", rank=0)
def _helper_usage_then_error(job: Job) -> None:
    helper = job.scratch / "plot.py"
    helper.write_text("import matplotlib_of_tomorrow\n")
    subprocess.run([sys.executable, helper], check=False)
    weights = dict.fromkeys(("web", "code"), 1.0)
    print(weights[random.Random(4).choice(["books", "news"])])


@fault(AT_STEP, "sandboxed_programs", rank=1)
def _sandboxed_programs(job: Job) -> None:
    """A reward function runs what the model wrote; most of it does not even parse."""
    for source in (
        "def f(:\n  pass",
        "import numpy_of_tomorrow",
        "print(open('/tmp/none/x').read())",
    ):
        try:
            exec(compile(source, "<candidate>", "exec"), {})
        except (SyntaxError, ImportError, OSError):
            traceback.print_exc()
    _go_on_alone(job)
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "last_attempt_echoed", rank=0)
def _last_attempt_echoed(_job: Job) -> None:
    raise ValueError("sampler returned 0 indices for bucket 3")


@fault(BEFORE_GROUP, "last_attempt_echoed")
def _echo(job: Job) -> None:
    """A wrapper shows the end of the log of the attempt before."""
    if job.rank == 0:
        print("=== tail of slurm-41712.out ===")
        print(
            "slurmstepd: error: *** JOB 41712 ON node-7 CANCELLED AT 2026-11-14T23:59:59 DUE TO "
            "TIME LIMIT ***"
        )
        print("=== resuming from step 0 ===", flush=True)


@fault(AT_STEP, "note_of_a_full_disk", rank=1)
def _note_of_a_full_disk(job: Job) -> None:
    wrong = ValueError(f"bucket {job.step} holds sequences of 3 different tokenizers")
    wrong.add_note("hint: seen before when the cache was cut short by 'No space left on device'")
    wrong.add_note("hint: or by PermissionError: [Errno 13] on /data")
    raise wrong


@fault(AT_STEP, "tasks_refused", rank=0)
def _tasks_refused(_job: Job) -> None:
    async def fetch(port: int) -> None:
        await asyncio.open_connection("127.0.0.1", port)

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for port in (9, 19):
                group.create_task(fetch(port))

    asyncio.run(all_of_them())


@fault(AT_STEP, "retries_then_value_error", rank=1)
def _retries_then_value_error(job: Job) -> None:
    for _ in range(4):
        try:
            Path("/mnt/lake/part-7.parquet").read_bytes()
        except OSError:
            traceback.print_exc()
            print("falling back to the local copy", flush=True)
    _go_on_alone(job)
    raise ValueError("can only convert an array of size 1 to a Python scalar")


@fault(AT_STEP, "stale_shard", rank=1)
def _stale_shard(job: Job) -> None:
    shard = job.scratch / "shard_stale_0007.bin"
    shard.touch()
    shard.read_bytes()
