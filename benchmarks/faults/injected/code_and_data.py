"""Exceptions of the program and of its data, plain and in the forms real logs have them."""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.faults.injected import AT_STEP, Job, fault


@fault(AT_STEP, "nan_check", rank=1)
def _nan_check(job: Job) -> None:
    loss = torch.tensor(float("nan"))
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is nan at step {job.step}, skipping is off")


@fault(AT_STEP, "nan_anomaly", rank=0)
def _nan_anomaly(_job: Job) -> None:
    with torch.autograd.set_detect_anomaly(True):
        weight = torch.zeros(3, requires_grad=True)
        torch.autograd.backward((weight / weight).sum().sqrt())


@fault(AT_STEP, "assertion", rank=1)
def _assertion(job: Job) -> None:
    tokens = torch.arange(5)
    assert tokens.max() < 3, f"token {int(tokens.max())} outside the vocabulary at step {job.step}"


@fault(AT_STEP, "assertion_rich", rank=0)
def _assertion_rich(job: Job) -> None:
    from rich.console import Console
    from rich.traceback import install

    install(console=Console(stderr=True, force_terminal=True, width=120))
    assert job.step > 100, "gradient bucket was not ready"


@fault(AT_STEP, "value_error", rank=1)
def _value_error(job: Job) -> None:
    raise ValueError(f"bucket {job.step} has no gradients")


@fault(AT_STEP, "key_error", rank=0)
def _key_error(_job: Job) -> None:
    print({"input_ids": 1}["attention_mask"])


@fault(AT_STEP, "index_error_progress_bar", rank=1)
def _index_error_progress_bar(job: Job) -> None:
    for done in range(50):
        print(f"\rpacking: {done * 2:3d}%|{'#' * (done // 5):<10}| {done}/50", end="", flush=True)
        time.sleep(0.01)
    print([1, 2, 3][job.step])


@fault(AT_STEP, "recursion", rank=0)
def _recursion(job: Job) -> None:
    _recursion(job)


@fault(AT_STEP, "unpicklable")
def _unpicklable(_job: Job) -> None:
    data = Numbers(transform=lambda value: value)
    next(iter(DataLoader(data, num_workers=1, multiprocessing_context="spawn")))


@fault(AT_STEP, "loader_exception", rank=1)
def _loader_exception(_job: Job) -> None:
    next(iter(DataLoader(Numbers(transform=_refuse), num_workers=1)))


@fault(AT_STEP, "loader_killed", rank=0)
def _loader_killed(_job: Job) -> None:
    next(iter(DataLoader(Numbers(transform=_die), num_workers=1)))


@fault(AT_STEP, "bad_encoding", rank=1)
def _bad_encoding(job: Job) -> None:
    path = job.scratch / "corpus.txt"
    path.write_bytes(b"caf\xe9 au lait")
    path.read_text(encoding="utf-8")


@fault(AT_STEP, "bad_json_record", rank=0)
def _bad_json_record(_job: Job) -> None:
    json.loads('{"text": "half a rec')


@fault(AT_STEP, "harmless_errors_then_kill", rank=1)
def _harmless_errors_then_kill(job: Job) -> None:
    log = logging.getLogger("storage")
    for attempt in range(3):
        try:
            _upload()
        except ConnectionResetError:
            log.exception("upload failed, error ignored, attempt %d of 3", attempt)
    for step in range(job.step, job.step + 5):
        print(f"step {step} loss 0.5 error_rate 0.0 failed_samples 0 nan_count 0", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@fault(AT_STEP, "long_line_then_value_error", rank=0)
def _long_line_then_value_error(_job: Job) -> None:
    print("batch ids " + ",".join(str(number) for number in range(12_000)), flush=True)
    raise ValueError("sequence longer than the position table")


@fault(AT_STEP, "thread_error_then_type_error", rank=1)
def _thread_error_then_type_error(job: Job) -> None:
    worker = threading.Thread(target=lambda: 1 / 0, name="metrics-uploader")
    worker.start()
    worker.join()
    for step in range(job.step, job.step + 5):
        print(f"step {step} loss 0.5", flush=True)
    print(len(job.step))  # type: ignore[arg-type]  # the mistake is the point


def _upload() -> None:
    raise ConnectionResetError(104, "Connection reset by peer")


class Numbers(Dataset[int]):
    def __init__(self, transform: Callable[[int], int]) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return self.transform(index)


def _refuse(value: int) -> int:
    raise ValueError(f"record {value} of shard train-00003 has a negative length")


def _die(_value: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0
