"""Kinds that were written after the pattern registry: nobody tuned anything to them before the
first measurement.
"""

import asyncio
import ctypes
import logging
import os
import resource
import signal
import socket
import urllib.request

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job, fault
from benchmarks.faults.injected.code_and_data import Numbers


@fault(BEFORE_GROUP, "missing_library")
def _missing_library(_job: Job) -> None:
    ctypes.CDLL("libtransformer_engine.so")


@fault(BEFORE_GROUP, "wrong_backend")
def _wrong_backend(_job: Job) -> None:
    dist.init_process_group("gllo")


@fault(BEFORE_GROUP, "nccl_without_gpu")
def _nccl_without_gpu(_job: Job) -> None:
    dist.init_process_group("nccl")


@fault(BEFORE_STEPS, "logged_and_raised")
def _logged_and_raised(job: Job) -> None:
    try:
        (job.scratch / "merges.txt").read_text()
    except OSError:
        logging.getLogger("data").exception("ERROR while building the dataset")
        raise


@fault(BEFORE_STEPS, "forbidden_directory")
def _forbidden_directory(_job: Job) -> None:
    os.setuid(65534)
    os.makedirs("/usr/lib/experiments/run-7")  # noqa: PTH103  # the common way to write it


@fault(BEFORE_STEPS, "attribute_error")
def _attribute_error(job: Job) -> None:
    print(job.model.wieght)


@fault(AT_STEP, "disk_full_numpy", rank=0)
def _disk_full_numpy(job: Job) -> None:
    np.save(job.scratch / "small" / "activations.npy", np.zeros(1_000_000))


@fault(AT_STEP, "object_store_refused", rank=1)
def _object_store_refused(_job: Job) -> None:
    urllib.request.urlopen("http://127.0.0.1:9/shard-0001", timeout=5)


@fault(AT_STEP, "object_store_silent", rank=0)
def _object_store_silent(_job: Job) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urllib.request.urlopen(f"http://127.0.0.1:{silent.getsockname()[1]}/x", timeout=2)


@fault(AT_STEP, "loader_out_of_memory", rank=1)
def _loader_out_of_memory(_job: Job) -> None:
    next(iter(DataLoader(Numbers(transform=_allocate), num_workers=1)))


def _allocate(value: int) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    return len(bytearray(16 << 30)) + value


@fault(AT_STEP, "sigquit", rank=1)
def _sigquit(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGQUIT)


@fault(AT_STEP, "store_host_killed", rank=0)
def _store_host_killed(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "c_assertion", rank=1)
def _c_assertion(_job: Job) -> None:
    fail = getattr(ctypes.CDLL(None), "__assert_fail")  # a private name of libc
    fail(b"rank < world_size", b"ring.c", 211, b"ring_connect")


@fault(AT_STEP, "generated_code", rank=0)
def _generated_code(_job: Job) -> None:
    compile("[" * 400, "generated.py", "eval")


@fault(AT_STEP, "exception_group", rank=1)
def _exception_group(_job: Job) -> None:
    async def fetch(number: int) -> None:
        raise ValueError(f"shard {number} has no index")

    async def fetch_all() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fetch(1))
            group.create_task(fetch(2))

    asyncio.run(fetch_all())


@fault(AT_STEP, "nan_in_finally", rank=0)
def _nan_in_finally(_job: Job) -> None:
    state: dict[str, int] = {}
    try:
        raise FloatingPointError("gradient norm is inf in layer 3")
    finally:
        print(state["writer"])


@fault(AT_STEP, "index_in_embedding", rank=1)
def _index_in_embedding(_job: Job) -> None:
    torch.nn.Embedding(10, 4)(torch.tensor([11]))


@fault(AT_STEP, "skipped_barrier", rank=1)
def _skipped_barrier(_job: Job) -> None:
    dist.barrier()  # the other rank is in another collective


@fault(AT_STEP, "noise_then_assertion", rank=0)
def _noise_then_assertion(_job: Job) -> None:
    log = logging.getLogger("storage")
    for number in range(600):
        log.error("error: failed to prefetch chunk %d: timeout, will retry (not fatal)", number)
    assert torch.zeros(1).item() > 0, "no tokens left in the bucket"


@fault(AT_STEP, "optional_import_then_kill", rank=1)
def _optional_import_then_kill(_job: Job) -> None:
    try:
        __import__("apex_fused_kernels")
    except ImportError:
        logging.getLogger("model").warning("fused kernels are off", exc_info=True)
    os.kill(os.getpid(), signal.SIGKILL)
