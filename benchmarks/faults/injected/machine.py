"""Disk, memory and signals."""

import ctypes
import faulthandler
import json
import os
import resource
import signal
import time

import torch

from benchmarks.faults.injected import AT_STEP, Job, fault


@fault(AT_STEP, "disk_full_checkpoint", rank=0)
def _disk_full_checkpoint(job: Job) -> None:
    torch.save({"weight": torch.zeros(2_000_000)}, job.scratch / "small" / "step_6.pt")


@fault(AT_STEP, "disk_full_write", rank=1)
def _disk_full_write(job: Job) -> None:
    with (job.scratch / "small" / "metrics.jsonl").open("w") as metrics:
        for number in range(400_000):
            metrics.write(json.dumps({"step": number}) + "\n")


@fault(AT_STEP, "host_oom_killed", rank=1)
def _host_oom_killed(_job: Job) -> None:
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)) * 16)


@fault(AT_STEP, "host_oom_allocation", rank=1)
def _host_oom_allocation(_job: Job) -> None:
    torch.zeros(1 << 45)


@fault(AT_STEP, "host_oom_python", rank=0)
def _host_oom_python(_job: Job) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    print(len(bytearray(16 << 30)))


@fault(AT_STEP, "too_many_files", rank=1)
def _too_many_files(_job: Job) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print(len([os.dup(0) for _ in range(100)]))


@fault(AT_STEP, "sigkill", rank=1)
def _sigkill(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "sigterm", rank=0)
def _sigterm(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@fault(AT_STEP, "sigint_everywhere")
def _sigint_everywhere(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


@fault(AT_STEP, "segfault", rank=1)
def _segfault(_job: Job) -> None:
    faulthandler.enable()
    ctypes.string_at(8)


@fault(AT_STEP, "segfault_silent", rank=0)
def _segfault_silent(_job: Job) -> None:
    ctypes.string_at(8)


@fault(AT_STEP, "bus_error", rank=1)
def _bus_error(job: Job) -> None:
    import mmap

    path = job.scratch / "shard.bin"
    path.write_bytes(b"x" * 8192)
    with path.open("r+b") as file:
        view = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        print(view[5000])


@fault(AT_STEP, "abort", rank=1)
def _abort(_job: Job) -> None:
    faulthandler.enable()
    os.abort()


@fault(AT_STEP, "heap_corruption", rank=0)
def _heap_corruption(_job: Job) -> None:
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(4000)
    libc.free(block + 16)


@fault(AT_STEP, "quiet_exit", rank=1)
def _quiet_exit(_job: Job) -> None:
    os._exit(7)
