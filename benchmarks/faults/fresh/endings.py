"""How jobs end that are neither the user's mistake nor look like one: crashes, memory, hangs, lost
peers, silence.
"""

import ctypes
import faulthandler
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist
from rich.traceback import install
from torch.utils.data import DataLoader, Dataset

from benchmarks.faults.injected import AT_STEP, BEFORE_STEPS, Job, fault

log = logging.getLogger("trainer")


class Samples(Dataset[torch.Tensor]):
    """Records that are read by worker processes; `how` says what reading one does."""

    row = "row 9: 0.3;0.4"

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.how == "large":
            return torch.zeros(4_000_000)
        if self.how == "greedy":
            kept = [bytearray(os.urandom(1 << 20)) * 16 for _ in range(200)]
            return torch.tensor(len(kept))
        if self.how == "crash" and index == 5:
            ctypes.string_at(0)
        if self.how == "malformed" and index == 9:
            return torch.tensor(float(self.row.split(":")[1]))
        return torch.zeros(8)


def _read_all(how: str) -> None:
    for _ in DataLoader(Samples(how), batch_size=2, num_workers=2):
        pass


@fault(AT_STEP, "nan_guard", rank=1)
def _nan_guard(job: Job) -> None:
    loss = torch.log(torch.tensor(-1.0)).item()
    log.error("Loss is %s at iteration %d, stopping training", loss, job.step)
    sys.exit(1)


@fault(AT_STEP, "overflow_then_segfault", rank=0)
def _overflow_then_segfault(_job: Job) -> None:
    for scale in (65536.0, 32768.0, 16384.0):
        print(f"Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {scale}")
    sys.stdout.flush()
    ctypes.string_at(0)


@fault(AT_STEP, "loader_segfault", rank=1)
def _loader_segfault(_job: Job) -> None:
    _read_all("crash")


@fault(AT_STEP, "loader_malformed_row", rank=0)
def _loader_malformed_row(_job: Job) -> None:
    _read_all("malformed")


@fault(AT_STEP, "loader_shared_memory", rank=0)
def _loader_shared_memory(_job: Job) -> None:
    _read_all("large")


@fault(AT_STEP, "loader_oom_killed", rank=1)
def _loader_oom_killed(_job: Job) -> None:
    _read_all("greedy")


@fault(AT_STEP, "realloc_of_nothing", rank=1)
def _realloc_of_nothing(_job: Job) -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.realloc(libc.malloc(64) + 8, 64)


@fault(AT_STEP, "memory_in_cleanup", rank=1)
def _memory_in_cleanup(_job: Job) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    writer = None
    try:
        print(torch.zeros(1 << 32))
    finally:
        writer.close()  # type: ignore[attr-defined]  # the mistake in the clean-up is the point


@fault(AT_STEP, "lock_never_given", rank=1)
def _lock_never_given(_job: Job) -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@fault(BEFORE_STEPS, "lock_never_given")
def _dump_on_request(_job: Job) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)


@fault(AT_STEP, "third_rank_slow", rank=2)
def _third_rank_slow(_job: Job) -> None:
    time.sleep(40)


@fault(AT_STEP, "different_collectives")
def _different_collectives(job: Job) -> None:
    if job.rank == 0:
        dist.all_gather([torch.zeros(4), torch.zeros(4)], torch.zeros(4))
    else:
        dist.recv(torch.zeros(4), src=0)


@fault(AT_STEP, "fewer_batches", rank=1)
def _fewer_batches(_job: Job) -> None:
    print("training finished", flush=True)
    dist.destroy_process_group()
    sys.exit(0)


@fault(AT_STEP, "exit_without_a_word", rank=1)
def _exit_without_a_word(_job: Job) -> None:
    os._exit(7)


@fault(AT_STEP, "summary_only", rank=1)
def _summary_only(job: Job) -> None:
    raise RuntimeError(f"bucket {job.step} was reduced twice")


@fault(AT_STEP, "rich_key_error", rank=1)
def _rich_key_error(_job: Job) -> None:
    install(width=90, show_locals=True)
    batch = {"input_ids": torch.zeros(2), "labels": torch.zeros(2)}
    print(batch["attention_mask"])


@fault(AT_STEP, "unprefixed_value_error", rank=1)
def _unprefixed_value_error(_job: Job) -> None:
    raise ValueError("too many values to unpack (expected 2)")


@fault(AT_STEP, "interrupted_launcher")
def _interrupted_launcher(_job: Job) -> None:
    time.sleep(60)


@fault(AT_STEP, "warnings_then_assertion", rank=1)
def _warnings_then_assertion(_job: Job) -> None:
    for number in range(200):
        warnings.warn(f"error: retrying failed read {number} (fatal=False)", stacklevel=1)
    assert 1 + 1 == 3, "sequence parallel group out of step"


@fault(AT_STEP, "preempted_by_scheduler")
def _preempted_by_scheduler(_job: Job) -> None:
    """What Slurm writes is taken from its documentation; the signal it sends is real."""
    print("slurmstepd: error: *** STEP 8.0 ON node-3 CANCELLED AT 2026-11-15T05:35:21 DUE TO "
          "PREEMPTION ***", file=sys.stderr, flush=True)  # fmt: skip
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)


@fault(AT_STEP, "time_is_up")
def _time_is_up(_job: Job) -> None:
    print(
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", file=sys.stderr
    )
    print("slurmstepd: error: *** STEP 9.0 ON node-3 CANCELLED AT 2026-11-15T05:35:21 DUE TO TIME "
          "LIMIT ***", file=sys.stderr, flush=True)  # fmt: skip
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
