"""Everything else once more: look-alikes, crashes, hangs and lost peers in words that no rule had
seen when this was written.
"""

import concurrent.futures
import ctypes
import faulthandler
import http.server
import os
import queue
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.faults.injected import AT_STEP, BEFORE_GROUP, BEFORE_STEPS, Job, fault


@fault(AT_STEP, "spawned_killed", rank=1)
def _spawned_killed(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "spawned_value_error", rank=1)
def _spawned_value_error(job: Job) -> None:
    raise ValueError(f"bucket {job.step}: 3 samples have no label")


def _count_words(path: str) -> int:
    return len(Path(path).read_text(encoding="utf-8").split())


@fault(BEFORE_STEPS, "pool_bad_text", rank=0)
def _pool_bad_text(job: Job) -> None:
    text = job.scratch / "part-3.txt"
    text.write_bytes(b"caf\xe9 au lait")
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        print(sum(pool.map(_count_words, [str(text)])))


@fault(AT_STEP, "shard_half_downloaded", rank=1)
def _shard_half_downloaded(_job: Job) -> None:
    raise ValueError("size mismatch for shard-0003.tar: expected 1048576 bytes, got 524288")


def _ragged(batch: list[tuple[torch.Tensor, ...]]) -> torch.Tensor:
    return torch.stack([row[0][: 8 - (int(row[0][0]) == 11)] for row in batch])


@fault(AT_STEP, "ragged_record", rank=1)
def _ragged_record(_job: Job) -> None:
    rows = TensorDataset(torch.arange(40.0).reshape(40, 1).repeat(1, 8))
    for _ in DataLoader(rows, batch_size=4, num_workers=1, collate_fn=_ragged):
        pass


@fault(AT_STEP, "ticket_ran_out", rank=2)
def _ticket_ran_out(job: Job) -> None:
    shard = job.scratch / "kerberos_00017.bin"
    shard.touch()
    shard.read_bytes()


class _Busy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(503)


@fault(BEFORE_STEPS, "hub_overloaded")
def _hub_overloaded(_job: Job) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/api/models/llama")


@fault(BEFORE_STEPS, "hub_without_name")
def _hub_without_name(_job: Job) -> None:
    socket.create_connection(("hub.invalid", 443), timeout=5)


@fault(AT_STEP, "index_locked", rank=1)
def _index_locked(job: Job) -> None:
    path = job.scratch / "index.db"
    first = sqlite3.connect(path)
    first.execute("create table samples (id)")
    first.execute("begin exclusive")
    sqlite3.connect(path, timeout=0.2).execute("insert into samples values (1)")


class TwoBranches(nn.Module):
    """Only one of its branches takes part in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.used(batch)
        return result


@fault(AT_STEP, "unused_parameters")
def _unused_parameters(job: Job) -> None:
    wrapped = DistributedDataParallel(TwoBranches())
    for _ in range(2):
        torch.autograd.backward(wrapped(torch.randn(2, 8)).sum())
    print(job.step)


@fault(BEFORE_STEPS, "terminated_politely")
def _leave_on_sigterm(_job: Job) -> None:
    def leave(number: int, _frame: object) -> None:
        print(f"received signal {number}, leaving", flush=True)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


@fault(AT_STEP, "terminated_politely")
def _terminated_politely(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)


@fault(AT_STEP, "own_watchdog", rank=1)
def _own_watchdog(_job: Job) -> None:
    faulthandler.dump_traceback_later(4, exit=True)
    threading.Event().wait()


@fault(AT_STEP, "prefetch_thread_died", rank=1)
def _prefetch_thread_died(job: Job) -> None:
    batches: queue.Queue[int] = queue.Queue()

    def prefetch() -> None:
        raise KeyError(f"shard_{job.step}")

    threading.Thread(target=prefetch).start()
    batches.get()


@fault(AT_STEP, "stopped_rank", rank=3)
def _stopped_rank(_job: Job) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@fault(AT_STEP, "training_diverged", rank=0)
def _training_diverged(_job: Job) -> None:
    raise ValueError("training diverged: loss=nan, grad_norm=inf")


@fault(AT_STEP, "native_bad_alloc", rank=0)
def _native_bad_alloc(job: Job) -> None:
    source = job.scratch / "kernel.cpp"
    source.write_text(
        '#include <new>\nextern "C" void run() noexcept { throw std::bad_alloc(); }\n'
    )
    library = job.scratch / "kernel.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    ctypes.CDLL(str(library)).run()


@fault(AT_STEP, "labels_out_of_range", rank=1)
def _labels_out_of_range(job: Job) -> None:
    raise ValueError(f"样本 {job.step} 的标签超出范围")


@fault(AT_STEP, "srun_labels", rank=1)
def _srun_labels(job: Job) -> None:
    state: dict[str, list[int]] = {"queue": []}
    print(state["queue"][job.step])


@fault(AT_STEP, "one_rank_returns", rank=0)
def _one_rank_returns(_job: Job) -> None:
    dist.destroy_process_group()
    os._exit(0)


@fault(AT_STEP, "evicted_module", rank=1)
def _evicted_module(job: Job) -> None:
    """A lazy import of what a clean-up job has just removed from the scratch file system."""
    sys.path.insert(0, str(job.scratch))
    __import__("custom_metrics")


@fault(BEFORE_GROUP, "address_already_taken")
def _address_already_taken(job: Job) -> None:
    """A metrics server of an earlier run still holds its port."""
    if job.rank == 0:
        keeper = socket.create_server(("127.0.0.1", 0))
        http.server.HTTPServer(("127.0.0.1", keeper.getsockname()[1]), _Busy)
