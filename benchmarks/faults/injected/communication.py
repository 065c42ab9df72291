"""Ranks that hang, leave, or never meet."""

import faulthandler
import os
import signal
import threading
import time

import torch
import torch.distributed as dist

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, Job, fault


@fault(AT_STEP, "hang_in_collective", rank=1)
def _hang_in_collective(_job: Job) -> None:
    time.sleep(120)


@fault(AT_STEP, "slow_rank", rank=0)
def _slow_rank(job: Job) -> None:
    for part in range(20):
        print(f"rank {job.rank}: shard {part} read in 4.1 s", flush=True)
        time.sleep(4)


@fault(AT_STEP, "deadlock")
def _deadlock(job: Job) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    lock = threading.Lock()
    lock.acquire()
    print(f"rank {job.rank}: waiting for the optimizer lock", flush=True)
    lock.acquire()


@fault(AT_STEP, "peer_leaves", rank=1)
def _peer_leaves(_job: Job) -> None:
    dist.destroy_process_group()
    os._exit(0)


@fault(AT_STEP, "collective_sizes")
def _collective_sizes(job: Job) -> None:
    dist.all_reduce(torch.zeros(1_000_000 if job.rank else 10))


@fault(BEFORE_GROUP, "late_peer", rank=1)
def _late_peer(_job: Job) -> None:
    time.sleep(120)


@fault(BEFORE_GROUP, "wrong_master_port", rank=1)
def _wrong_master_port(_job: Job) -> None:
    os.environ["MASTER_PORT"] = "1"


@fault(BEFORE_GROUP, "unknown_master", rank=1)
def _unknown_master(_job: Job) -> None:
    os.environ["MASTER_ADDR"] = "node-417.invalid"
